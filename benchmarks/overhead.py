"""What stands between a model's token and the page: the `ollama` client alone, a bare relay with it, and Cleanroom.

The model server, the relay and Cleanroom's server are processes of their own; the last two have a core to themselves,
which they never use at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import psutil
import uvloop

from benchmarks.processes import SERVER_CORE, cleanroom, running, stay_on_driver_core
from benchmarks.report import Report
from benchmarks.subjects import Chat, CleanroomChat, Heard, OllamaChat, RelayChat

RATE = 100
ASKED_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Subject:
    """A way that is measured. `process` is the one between model and page: this one for a client that has none."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Chat]]
    process: psutil.Process

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured in a round."""

    rounds: int
    asks: int
    chats: tuple[int, ...]
    seconds: float
    burst_tokens: int
    started: int


def add_options(group: argparse._ArgumentGroup) -> None:
    """It has none of its own."""


def run(options: argparse.Namespace) -> Report:
    size = Size(1, 3, (1, 5), 0.3, 500, 10) if options.smoke else Size(options.rounds, 20, (1, 10, 50), 4, 20_000, 150)
    report = Report("overhead", "Overhead of the hub", [("Cleanroom", "bare relay"), ("bare relay", "ollama client"), ("Cleanroom", "ollama client")])
    stay_on_driver_core()
    with subjects() as found:
        uvloop.run(measure(report, found, size))
    return report


@contextmanager
def subjects() -> Iterator[list[Subject]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        model = stack.enter_context(running([sys.executable, "-m", "benchmarks.scripted_model"]))
        relay = stack.enter_context(running([sys.executable, "-m", "benchmarks.relay", model.url], core=SERVER_CORE))
        ours = stack.enter_context(cleanroom(folder, model.url))
        yield [
            Subject("ollama client", lambda: OllamaChat.open(model.url), psutil.Process()),
            Subject("bare relay", lambda: RelayChat.open(relay.url), psutil.Process(relay.process.pid)),
            Subject("Cleanroom", lambda: CleanroomChat.open(ours.url), psutil.Process(ours.process.pid)),
        ]


async def measure(report: Report, found: list[Subject], size: Size) -> None:
    for subject in found:  # what is done once only, such as looking at the models, is not measured
        async with subject.open() as chat:
            await chat.ask(3, 0)
    for _ in range(size.rounds):
        for subject in found:
            await measure_first_token(report, subject, size)
        for chats in size.chats:
            for subject in found:
                await measure_stream(report, subject, chats, size)
        for subject in found:
            await measure_burst(report, subject, size)
        for subject in found:
            await measure_starts(report, subject, size)


async def measure_first_token(report: Report, subject: Subject, size: Size) -> None:
    async with subject.open() as chat:
        heard = [await chat.ask(2, RATE) for _ in range(size.asks)]
    report.add("time to first token", "ms", "1 chat", subject.name, median(reply.first_token_ms for reply in heard))


async def measure_stream(report: Report, subject: Subject, chats: int, size: Size) -> None:
    """Some chats that stream side by side at a common pace."""
    count = int(RATE * size.seconds)
    async with opened(subject, chats) as found:
        before = subject.cpu_seconds()
        heard = await asyncio.gather(*(ask_later(chat, index / chats / RATE, count) for index, chat in enumerate(found)))
        used = subject.cpu_seconds() - before
    added = [delay for reply in heard for delay in reply.added_ms]
    case = f"{chats} chats" if chats > 1 else "1 chat"
    report.add("added delay per token, p50", "ms", case, subject.name, median(added))
    report.add("added delay per token, p99", "ms", case, subject.name, quantiles(added, n=100)[98])
    report.add("processor time per token", "µs", case, subject.name, used / (count * chats) * 1e6)


@asynccontextmanager
async def opened(subject: Subject, count: int) -> AsyncIterator[list[Chat]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(subject.open()) for _ in range(count)]


async def ask_later(chat: Chat, seconds: float, count: int) -> Heard:
    """Chats that begin in one instant would stay in step, which people's never do."""
    await asyncio.sleep(seconds)
    return await chat.ask(count, RATE)


async def measure_burst(report: Report, subject: Subject, size: Size) -> None:
    async with subject.open() as chat:
        heard = await chat.ask(size.burst_tokens, 0)
    report.add("tokens without a pause", "tokens/s", "1 chat", subject.name, heard.tokens_per_second)


async def measure_starts(report: Report, subject: Subject, size: Size) -> None:
    """Chats that are opened and asked at the same moment, some at a time."""

    async def start() -> None:
        async with subject.open() as chat:
            await chat.ask(20, RATE)

    at_once = min(ASKED_AT_ONCE, size.started)
    failed = 0
    for _ in range(size.started // at_once):
        ended = await asyncio.gather(*(start() for _ in range(at_once)), return_exceptions=True)
        failed += sum(isinstance(end, Exception) for end in ended)
    report.add("failed chats", "chats", f"{size.started}, {at_once} at a time", subject.name, failed)
