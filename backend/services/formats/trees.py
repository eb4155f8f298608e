"""Conversations that are kept as a tree of tries: the branch that was shown last is what was said. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backend.services.formats import values
from backend.services.formats.transcript import Said


def branch(nodes: dict[str, Any], shown: Any, parent_key: str) -> list[dict[str, Any]]:
    """The nodes from the root to the one that is shown; where the file doesn't say which, to the last that nothing follows."""
    parents = {values.record(node).get(parent_key) for node in nodes.values() if isinstance(values.record(node).get(parent_key), str)}
    if not isinstance(shown, str) or shown not in nodes:
        shown = next((name for name in reversed(nodes) if name not in parents), None)
    path: list[dict[str, Any]] = []
    seen = set()
    while isinstance(shown, str) and shown in nodes and shown not in seen:
        seen.add(shown)
        path.append(values.record(nodes[shown]))
        shown = path[-1].get(parent_key)
    return path[::-1]


def with_one_reply(said: Iterable[Said]) -> list[Said]:
    """Messages in which a question has one reply: the pieces of a reply that tools were called between are joined."""
    joined: list[Said] = []
    for message in said:
        last = joined[-1] if joined else None
        if last is not None and last.role == message.role == "assistant":
            last.content = f"{last.content}\n\n{message.content}"
            last.thinking = "\n\n".join(thought for thought in (last.thinking, message.thinking) if thought) or None
            last.model = message.model or last.model
        else:
            joined.append(message)
    return joined


def with_notes(content: str, notes: list[str]) -> str:
    """A text with what stood beside it and can't be taken along, such as a picture."""
    return "\n".join(part for part in (content, *(f"[{note}]" for note in notes)) if part)
