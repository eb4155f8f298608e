"""Turns scored and summed up: what the report of the benchmark is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import fmean

from benchmarks.context.claims import claims_deed
from benchmarks.context.intervals import bootstrap, wilson
from benchmarks.context.play import Played
from benchmarks.context.scoring import Named, is_done, named, needless_calls
from benchmarks.context.script import Conversation
from benchmarks.report import Measure, Report

LANGUAGE_NAMES = {"en": "English", "ru": "Russian"}


@dataclass(frozen=True, slots=True)
class Score:
    """What a turn came to. None where its message asks for no deed, for no fact, or the server gave no figure.

    `is_claimed` is a claim of the deed that the database does not show; `is_unasked` a change that nobody asked for.
    """

    is_done: bool | None
    is_claimed: bool | None
    named: Named | None
    is_unasked: bool | None
    is_needless: bool
    is_failed: bool
    prompt_tokens: int | None
    reply_tokens: int | None
    first_token_ms: float | None


def score(played: Sequence[Played], reading: Collection[str]) -> list[Score]:
    """The scores of a conversation's turns; `reading` names the tools that change nothing."""
    needless = iter(needless_calls([one for turn in played for one in turn.calls], reading))
    return [_score(turn, any(list(islice(needless, len(turn.rounds))))) for turn in played]


def _score(played: Played, is_needless: bool) -> Score:
    deed, fact = played.turn.deed, played.turn.fact
    done = is_done(deed, played.after) if deed else None
    return Score(
        is_done=done,
        is_claimed=None if done is None else not done and claims_deed(played.reply),
        named=named(fact, played.reply) if fact else None,
        is_unasked=played.before != played.after if deed is None else None,
        is_needless=is_needless,
        is_failed=played.status != "complete",
        prompt_tokens=_sum(one.prompt_tokens for one in played.rounds),
        reply_tokens=_sum(one.reply_tokens for one in played.rounds),
        first_token_ms=played.rounds[0].first_token_ms if played.rounds else None,
    )


def _sum(counts: Iterator[int | None]) -> int | None:
    """None unless every request was counted: half a turn's tokens are no figure."""
    found = list(counts)
    return sum(count for count in found if count is not None) if found and None not in found else None


Read = Callable[[Score], float | None]


def _is_named(kind: Named, one: Score) -> float | None:
    return None if one.named is None else one.named == kind


# What each is a share of: turns that ask for a deed, that ask for an overwritten fact, that ask for no deed, all turns.
RATES: dict[str, Read] = {
    "claims of a deed not done": lambda one: one.is_claimed,
    "asked deeds done": lambda one: one.is_done,
    "wrong fact after an overwrite": partial(_is_named, "stale"),
    "right fact after an overwrite": partial(_is_named, "current"),
    "turns with a needless repeated call": lambda one: one.is_needless,
    "changes that nobody asked for": lambda one: one.is_unasked,
    "failed turns": lambda one: one.is_failed,
}
COSTS: dict[str, tuple[str, Read]] = {
    "prompt tokens per turn": ("tokens", lambda one: one.prompt_tokens),
    "reply tokens per turn": ("tokens", lambda one: one.reply_tokens),
    "time to first token": ("ms", lambda one: one.first_token_ms),
}


class Tally:
    """The scores of all arms, by conversation and turn."""

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        self._languages = {conversation.name: LANGUAGE_NAMES[conversation.language] for conversation in conversations}
        self._scores: dict[str, dict[tuple[str, int], list[Score]]] = defaultdict(lambda: defaultdict(list))

    def add(self, arm: str, conversation: str, scores: Sequence[Score]) -> None:
        """Add what one seed gave."""
        for number, one in enumerate(scores):
            self._scores[arm][conversation, number].append(one)

    def fill(self, report: Report, baseline: str) -> None:
        """Add rates and costs with their intervals, and each arm's differences and ratios to the baseline, paired by conversation."""
        for name, read in RATES.items():
            self._add_rate(report, name, read)
        for name, (unit, read) in COSTS.items():
            report.measures[name] = Measure(name, unit, summary=bootstrap)
            for arm in self._scores:
                for value in self._by_conversation(arm, read).values():
                    report.add(name, unit, "all", arm, value)
        difference, ratio = f"difference to {baseline}", f"ratio to {baseline}"
        report.measures[difference] = Measure(difference, "percentage points", summary=bootstrap)
        report.measures[ratio] = Measure(ratio, "times", summary=bootstrap)
        for arm in [arm for arm in self._scores if arm != baseline]:
            for name, read in RATES.items():
                for value, base in self._pairs(arm, baseline, read):
                    report.add(difference, "percentage points", name, arm, (value - base) * 100)
            for name, (_, read) in COSTS.items():
                for value, base in self._pairs(arm, baseline, read):
                    report.add(ratio, "times", name, arm, value / base)
        for empty in [name for name, measure in report.measures.items() if not measure.samples]:
            del report.measures[empty]

    def _add_rate(self, report: Report, name: str, read: Read) -> None:
        report.measures[name] = Measure(name, "%", summary=wilson)
        for arm, turns in self._scores.items():
            for (conversation, _), scores in turns.items():
                values = [value for one in scores if (value := read(one)) is not None]
                if values:
                    for case in ("all", self._languages[conversation]):
                        report.add(name, "%", case, arm, fmean(values))

    def _by_conversation(self, arm: str, read: Read) -> dict[str, float]:
        """The mean over a conversation's turns and seeds, where there is any value."""
        found: dict[str, list[float]] = defaultdict(list)
        for (conversation, _), scores in self._scores[arm].items():
            found[conversation] += [value for one in scores if (value := read(one)) is not None]
        return {conversation: fmean(values) for conversation, values in found.items() if values}

    def _pairs(self, arm: str, baseline: str, read: Read) -> list[tuple[float, float]]:
        values, bases = self._by_conversation(arm, read), self._by_conversation(baseline, read)
        return [(value, bases[conversation]) for conversation, value in values.items() if conversation in bases]
