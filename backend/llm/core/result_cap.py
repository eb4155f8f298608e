"""The cap on what a tool's result takes of a model's window: a part, and how to read the rest. Pure."""

from __future__ import annotations

from backend.llm.tokens import TokenCounter

# A cut goes back to the end of a line, or of a word, when that loses less than this part of the text.
LOSS = 0.25


def capped(text: str, limit_tokens: int, counter: TokenCounter, *, model: str | None = None, tool: str = "", starts_at: int | None = None) -> str:
    """Cut `text` at about `limit_tokens`, with a line that says of how much and how to read on.

    `tool` names a tool that reads on by `offset` and `limit`; `starts_at` is the offset of the text's first
    character, None when the tool doesn't count in characters.
    """
    if counter.text(text, model) <= limit_tokens:
        return text
    kept = _end(text, _fitting(text, limit_tokens, counter, model))
    return f"{text[:kept]}\n[Cut: {len(text) - kept} of {len(text)} characters are left out. {_reading_on(tool, kept, starts_at)}]"


def _fitting(text: str, limit_tokens: int, counter: TokenCounter, model: str | None) -> int:
    """How many of the first characters fit."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.text(text[:middle], model) <= limit_tokens:
            low = middle
        else:
            high = middle - 1
    return low


def _end(text: str, most: int) -> int:
    for mark in "\n ":
        end = text.rfind(mark, int(most * (1 - LOSS)), most)
        if end >= 0:
            return end + 1
    return most


def _reading_on(tool: str, kept: int, starts_at: int | None) -> str:
    if not tool:
        return "The person sees the whole."
    if starts_at is None:
        return f"{tool} reads the rest, with offset and limit."
    return f"{tool} with offset {max(0, starts_at + kept)} reads on."
