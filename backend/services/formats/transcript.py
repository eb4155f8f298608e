"""A conversation as all formats of files have it: what was said, by whom and when. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


class Unreadable(Exception):
    """A conversation can't be taken in; the text says why, for a person."""


@dataclass(slots=True)
class Reply:
    """A reply that is not the shown one. `receipts` is a receipt row's content: what it read."""

    content: str
    created_at: str
    status: str = "complete"
    thinking: str | None = None
    model: str | None = None
    metrics: dict[str, Any] | None = None
    receipts: str = "[]"


@dataclass(slots=True)
class Said:
    """A permanent message. `variants` are the other replies to the same question, and `variant` is this one's number among them."""

    role: str
    content: str
    created_at: str
    status: str = "complete"
    hidden: bool = False
    thinking: str | None = None
    model: str | None = None
    metrics: dict[str, Any] | None = None
    variant: int | None = None
    variants: list[Reply] = field(default_factory=list)


@dataclass(slots=True)
class Prompt:
    version: int
    content: str
    status: str
    created_at: str


@dataclass(slots=True)
class Transcript:
    """A chat. `source` names it among all that can be taken in, so that it is taken in once."""

    source: str
    title: str
    title_by: str
    created_at: str
    updated_at: str
    messages: list[Said]
    prompts: list[Prompt] = field(default_factory=list)
    pinned: bool = False
    model: str | None = None
    ttl_messages: int | None = None
    approval: str = "after"
    families_off: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)

    def texts(self) -> Iterator[str]:
        """Every text of any length in it."""
        yield from (prompt.content for prompt in self.prompts)
        for said in self.messages:
            yield from (said.content, said.thinking or "")
            for reply in said.variants:
                yield from (reply.content, reply.thinking or "")
