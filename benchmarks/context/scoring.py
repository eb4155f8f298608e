"""What a turn came to: judged by the database's rows, by values in the reply, and by calls that were made again.

Pure. Nothing is judged by a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from backend.llm.wire import ToolCall
from benchmarks.context.facts import Facts
from benchmarks.context.script import Deed, Fact

Named = Literal["current", "stale", "both", "neither"]


def is_done(deed: Deed, facts: Facts) -> bool:
    """Whether the database shows what was asked for."""
    found = any(_fits(row, deed) for row in facts[deed.table])
    return found != deed.gone


def _fits(row: Mapping[str, Any], deed: Deed) -> bool:
    text = " ".join(str(value) for value in row.values() if isinstance(value, str))
    return all(holds(text, word) for word in deed.holds) and all(row[name] == value for name, value in deed.where.items())


def holds(text: str, value: str) -> bool:
    """Whether the value stands in the text, not as a part of a longer word or number; case and kind of blanks don't matter."""
    plain, wanted = _plain(text), re.escape(_plain(value))
    return re.search(rf"(?<!\w)(?<!\d[.,:]){wanted}(?!\w)(?![.,:]\d)", plain) is not None


def named(fact: Fact, reply: str) -> Named:
    """Which values of the fact a reply names: a stale one without the current one is wrong, the current one alone right."""
    current = holds(reply, fact.current)
    stale = any(holds(reply, value) for value in fact.stale)
    if current:
        return "both" if stale else "current"
    return "stale" if stale else "neither"


def needless_calls(rounds: Sequence[tuple[Sequence[ToolCall], Facts, Facts]], reading: Iterable[str]) -> list[bool]:
    """For each round of a conversation whether it repeats a call, with the same arguments, while nothing has changed since.

    A round is its calls with the facts before and after; between two rounds the person may have changed some.
    `reading` names the tools that never change anything.
    """
    reading = frozenset(reading)
    version, known, made_at = 0, rounds[0][1] if rounds else {}, dict[str, int]()
    outcomes = []
    for calls, before, after in rounds:
        version += before != known
        known = after
        is_needless = False
        for call in calls:
            key = json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=False)
            is_needless |= made_at.get(key) == version
            version += before != after and call.name not in reading
            made_at[key] = version
        outcomes.append(is_needless)
    return outcomes


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("ё", "е").replace("\u2011", "-").split())
