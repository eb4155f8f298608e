"""The working state as text: one current copy, read from the database for the model before each request."""

from __future__ import annotations

from typing import Any

from backend.llm.core.registry import Registry, StateSection, ToolContext
from backend.llm.tokens import TokenCounter
from backend.store.connection import Connection

CURRENT_STATE = "current_state"

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": CURRENT_STATE,
        "description": "Read the current facts and the draft in hand from the database.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}

# What is left of a section that doesn't fit.
HEAD_CHARACTERS = 160


async def read(registry: Registry, tx: Connection, session_id: str, state: dict[str, Any] | None, now: str, limit_tokens: int, counter: TokenCounter) -> str:
    """Read the state at this moment: short lists first, the thing in hand last, within `limit_tokens`.

    `state` is the chat's row of `session_states`. With no family active: one line of counts, no texts.
    """
    active = state["active_tool"] if state else None
    contexts = {name: ToolContext(tx, session_id, now, held(state, name)) for name in registry.families}
    if active is None:
        counts = [await family.count(contexts[name]) for name, family in registry.families.items() if family.count]
        return f"In the database: {'; '.join(counts)}. Nothing is in hand."
    sections: list[StateSection] = []
    for name, family in registry.families.items():
        if family.sections:
            sections += await family.sections(contexts[name])
    return render(sorted(sections, key=lambda section: section.rank), limit_tokens, counter)


async def in_hand(registry: Registry, tx: Connection, session_id: str, state: dict[str, Any] | None, now: str) -> list[str]:
    """The subjects of what is in hand: of their cards, the newest shows what the working state shows."""
    family = registry.families.get(state["active_tool"]) if state else None
    if family is None or family.sections is None:
        return []
    sections = await family.sections(ToolContext(tx, session_id, now, held(state, family.name)))
    return [section.subject for section in sections if section.subject is not None]


def held(state: dict[str, Any] | None, family: str) -> dict[str, Any]:
    """What a family holds in hand: nothing unless it is the active one."""
    return dict(state["state"]) if state and state["active_tool"] == family else {}


def render(sections: list[StateSection], limit_tokens: int, counter: TokenCounter) -> str:
    """Join the sections; when they don't fit, the earliest ones shrink first: to a head, to a line, to nothing."""
    texts = [_whole(section) for section in sections]
    for shrink in (_headed, _named, _nothing):
        for index, section in enumerate(sections):
            if counter.text(_join(texts)) <= limit_tokens:
                return _join(texts)
            texts[index] = shrink(section)
    return _join(texts)


def _join(texts: list[str]) -> str:
    return "\n\n".join(text for text in texts if text) or "Nothing is in hand."


def _whole(section: StateSection) -> str:
    return f"{section.heading}:\n{section.text}"


def _nothing(_: StateSection) -> str:
    return ""


def _named(section: StateSection) -> str:
    return f"{section.heading} ({len(section.text)} characters; {section.reader} reads them)"


def _headed(section: StateSection) -> str:
    if len(section.text) <= HEAD_CHARACTERS:
        return _whole(section)
    head = section.text[:HEAD_CHARACTERS].rstrip()
    return f"{section.heading} (the first {len(head)} of {len(section.text)} characters; {section.reader} reads the rest):\n{head} …"
