"""A chat as Markdown to be read: what a person typed stands in fences as it was typed, replies are Markdown themselves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.llm.core import receipts
from backend.services.formats.transcript import Said, Transcript

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")


def encode(transcript: Transcript) -> str:
    facts = " · ".join(fact for fact in (_when(transcript.created_at), _escape(transcript.model or "")) if fact)
    parts = [f"# {_escape(transcript.title or 'Chat')}", facts, *(part for said in transcript.messages for part in _parts(said))]
    return "\n\n".join(parts) + "\n"


def _parts(said: Said) -> Iterator[str]:
    if said.role == "tool":
        yield from (f"> {_escape(receipt.tool)}: {_escape(receipt.outcome)}" for receipt in receipts.decode(said.content))
        return
    who = "You" if said.role == "user" else _escape(said.model or "Assistant")
    notes = [_when(said.created_at), *([said.status] if said.status != "complete" else []), *(["hidden from the model"] if said.hidden else [])]
    yield f"## {who}"
    yield f"*{' · '.join(notes)}*"
    if said.thinking:
        yield f"<details>\n<summary>Thinking</summary>\n\n{fenced(said.thinking, 'text')}\n\n</details>"
    yield fenced(said.content, "text") if said.role == "user" else _closed(said.content)


def fenced(text: str, language: str = "") -> str:
    """The text as it is, between fences that are longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _closed(text: str) -> str:
    """A reply whose last fence is closed, if it broke off in one: what follows would be code."""
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        marks, rest = found.groups()
        if not fence:
            fence = marks if marks[0] == "~" or "`" not in rest else ""
        elif marks[0] == fence[0] and len(marks) >= len(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _when(moment: str) -> str:
    """To the minute; an older program's rows may have no time."""
    return f"{moment[:10]} {moment[11:16]} UTC" if len(moment) >= 16 else moment


def _escape(text: str) -> str:
    """On one line, and no Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
