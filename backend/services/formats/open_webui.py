"""Open WebUI's export: a tree of messages in each chat, times in seconds, reasoning inside the replies. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from backend.services.formats import values
from backend.services.formats.transcript import Prompt, Said, Transcript
from backend.services.formats.trees import branch, with_notes, with_one_reply

# What its page folds away within a reply: reasoning, and calls of tools and of the interpreter.
_FOLDED = re.compile(r'<details type="(reasoning|tool_calls|code_interpreter)"[^>]*>(.*?)</details>\s*', re.DOTALL)
_SUMMARY = re.compile(r"\s*<summary>.*?</summary>", re.DOTALL)


def is_one(value: dict[str, Any]) -> bool:
    """With the columns of its table around the chat, or without them, as older ones are."""
    chat = _chat(value)
    return isinstance(values.record(chat.get("history")).get("messages"), dict) or (chat is not value and isinstance(chat.get("messages"), list))


def decode(value: dict[str, Any], now: str) -> Transcript:
    chat = _chat(value)
    created_at = values.moment(value.get("created_at"), values.moment(chat.get("timestamp"), now, now), now)
    title = values.title(value.get("title")) or values.title(chat.get("title"))
    system = values.text(values.record(chat.get("params")).get("system")) or values.text(chat.get("system"))
    return Transcript(
        source=values.text(value.get("id")) or values.text(chat.get("id")),
        title=title,
        title_by="person" if title else "auto",
        created_at=created_at,
        updated_at=values.moment(value.get("updated_at"), created_at, now),
        messages=with_one_reply(_said(_messages(chat), created_at, now)),
        prompts=[Prompt(1, system, "applied", created_at)] if system.strip() else [],
        pinned=value.get("pinned") is True,
    )


def _chat(value: dict[str, Any]) -> dict[str, Any]:
    return values.record(value["chat"]) if isinstance(value.get("chat"), dict) else value


def _messages(chat: dict[str, Any]) -> list[dict[str, Any]]:
    history = values.record(chat.get("history"))
    tree = values.record(history.get("messages"))
    shown = history.get("currentId") or history.get("current_id")
    return branch(tree, shown, "parentId") if tree else [values.record(message) for message in values.items(chat.get("messages"))]


def _said(messages: list[dict[str, Any]], before: str, now: str) -> Iterator[Said]:
    for message in messages:
        role, content = message.get("role"), _text(message.get("content"))
        before = values.moment(message.get("timestamp"), before, now)
        if role == "user" and (asked := with_notes(content, _files(message))).strip():
            yield Said("user", asked, before)
        elif role == "assistant":
            reply, thinking = _unfold(content)
            if reply.strip():
                yield Said("assistant", reply, before, thinking=thinking or None, model=values.text(message.get("model")) or None)


def _text(content: Any) -> str:
    """A text, or the texts among parts of several kinds."""
    if isinstance(content, list):
        return "\n".join(part for part in (values.text(values.record(part).get("text")) for part in content) if part)
    return values.text(content)


def _files(message: dict[str, Any]) -> list[str]:
    found = [values.record(file) for file in values.items(message.get("files"))]
    return [values.title(file.get("name")) or "image" for file in found if file.get("name") or file.get("type") == "image"]


def _unfold(content: str) -> tuple[str, str]:
    """A reply's text, and the reasoning that stood in it."""
    thoughts = [_SUMMARY.sub("", body, count=1) for kind, body in _FOLDED.findall(content) if kind == "reasoning"]
    lines = [re.sub(r"^> ?", "", unescape(line)) for thought in thoughts for line in thought.strip().splitlines()]
    return _FOLDED.sub("", content), "\n".join(lines)
