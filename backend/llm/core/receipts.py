"""Receipts: what a turn's tool calls leave behind for the model, as call-and-result pairs.

A history that keeps "done" and drops the call teaches a model to claim deeds that it never did. The row's
`content` is a short JSON list made by the program; it never holds a body.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

# A turn's last calls are told one by one, the others counted.
CALLS_KEPT = 4
CALL_CHARACTERS = 200

# How the outcome of a call that failed begins.
FAILED = "failed: "


@dataclass(frozen=True, slots=True)
class Receipt:
    """One call: the tool, the arguments that identify the thing, and the outcome in a few words."""

    tool: str
    arguments: dict[str, Any]
    outcome: str

    @property
    def succeeded(self) -> bool:
        return not self.outcome.startswith(FAILED)

    def entry(self) -> dict[str, Any]:
        """The receipt as a JSON object of at most CALL_CHARACTERS: long texts in it are cut."""
        entry = {"tool": self.tool, "arguments": self.arguments, "outcome": self.outcome}
        excess = len(_dump(entry)) - CALL_CHARACTERS
        if excess <= 0:
            return entry
        arguments = {name: _cut(value, 60) for name, value in self.arguments.items()}
        entry = {"tool": self.tool, "arguments": arguments, "outcome": _cut(self.outcome, 60)}
        return entry if len(_dump(entry)) <= CALL_CHARACTERS else {**entry, "arguments": {}}


def encode(receipts: list[Receipt]) -> str:
    """The content of the turn's receipt row."""
    entries: list[dict[str, Any]] = [receipt.entry() for receipt in receipts[-CALLS_KEPT:]]
    if len(receipts) > CALLS_KEPT:
        entries.append({"more": len(receipts) - CALLS_KEPT})
    return _dump(entries)


def decode(content: str) -> list[Receipt]:
    """The receipts in a row's content; none when it isn't ours (an older program's)."""
    try:
        return [Receipt(entry["tool"], entry["arguments"], entry["outcome"]) for entry in json.loads(content) if "tool" in entry]
    except (ValueError, TypeError, KeyError):
        return []


def messages(content: str) -> list[dict[str, Any]]:
    """The row as a model is sent it: one assistant message with the calls, then each call's result."""
    return pair([(receipt.tool, receipt.arguments, receipt.outcome) for receipt in decode(content)])


def pair(calls: list[tuple[str, dict[str, Any], str]], text: str = "") -> list[dict[str, Any]]:
    """An assistant message that makes the calls, followed by one tool message for each result."""
    if not calls:
        return []
    tool_calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments, _ in calls]
    results = [{"role": "tool", "tool_name": name, "content": result} for name, _, result in calls]
    return [{"role": "assistant", "content": text, "tool_calls": tool_calls}, *results]


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cut(value: Any, characters: int) -> Any:
    """A text cut so that its JSON has at most `characters`: a control character is six of them."""
    if not isinstance(value, str) or len(_dump(value)) <= characters:
        return value
    kept = value[:characters]
    while len(_dump(kept + "…")) > characters:
        kept = kept[:-1]
    return kept + "…"
