"""What the benchmark of the overhead does with those who fail: a peer costs its own figures, ours cost the run."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import psutil
import pytest

from benchmarks.overhead import Size, measure
from benchmarks.report import Report
from benchmarks.subjects import Heard, Subject

pytestmark = pytest.mark.anyio

SIZE = Size(rounds=2, asks=2, chats=(1, 2), seconds=0.05, burst_tokens=50, started=4)


@dataclass(frozen=True, slots=True)
class TimelyChat:
    """Hears everything at once, or fails: always, or at a burst."""

    fails: bool = False
    fails_at_burst: bool = False

    async def ask(self, count: int, rate: float) -> Heard:
        if self.fails or (self.fails_at_burst and not rate and count == SIZE.burst_tokens):
            raise ConnectionError("no")
        heard = Heard()
        heard.take("".join(f" {time.monotonic_ns()}" for _ in range(count)))
        return heard


def subject(name: str, chat: Callable[[int], TimelyChat]) -> Subject:
    """`chat` gives the first, second, … chat that is opened."""
    numbers = itertools.count(1)

    @asynccontextmanager
    async def open_chat() -> AsyncIterator[TimelyChat]:
        yield chat(next(numbers))

    return Subject(name, open_chat, psutil.Process())


async def measured(size: Size, *subjects: Subject) -> Report:
    report = Report("overhead", "Overhead")
    await measure(report, list(subjects), size)
    return report


async def test_a_peer_that_fails_is_left_out_and_the_others_are_measured_on(capsys: pytest.CaptureFixture[str]) -> None:
    peer = subject("Chainlit", lambda _: TimelyChat(fails_at_burst=True))
    report = await measured(SIZE, peer, subject("Cleanroom", lambda _: TimelyChat()))
    first_token = report.measures["time to first token"].samples["1 chat"]
    assert {name: len(samples) for name, samples in first_token.items()} == {"Chainlit": 1, "Cleanroom": 2}
    assert set(report.measures["tokens without a pause"].samples["1 chat"]) == {"Cleanroom"}
    assert "Chainlit is left out" in capsys.readouterr().err


async def test_a_failure_of_ours_ends_the_run() -> None:
    with pytest.raises(ConnectionError):
        await measured(SIZE, subject("Cleanroom", lambda _: TimelyChat(fails_at_burst=True)))


async def test_chats_that_fail_side_by_side_are_counted_and_the_rest_is_measured() -> None:
    # Before the two that stream together, the 4th and 5th, each of three measurements opens one; the burst follows, then the starts.
    report = await measured(replace(SIZE, rounds=1), subject("Cleanroom", lambda number: TimelyChat(fails=number in (5, 7, 8))))
    failed = report.measures["failed chats"].samples
    assert {case: samples["Cleanroom"] for case, samples in failed.items()} == {"1 chat": [0], "2 chats": [1], "4, 4 at a time": [2]}
    assert set(report.measures["added delay per token, p50"].samples) == {"1 chat", "2 chats"}


async def test_a_reply_with_a_token_too_few_has_failed() -> None:
    class Forgetful(TimelyChat):
        async def ask(self, count: int, rate: float) -> Heard:
            return await TimelyChat.ask(self, count - 1, rate)

    with pytest.raises(ConnectionError, match="expected 3 tokens, got 2"):
        await measured(SIZE, subject("Cleanroom", lambda _: Forgetful()))
