"""What stands between a model's token and the page: the `ollama` client alone, a bare relay with it, Cleanroom, and its peers.

The model server and all the others are processes of their own. What stands between model and page has a core to itself,
which no two of them use at the same time. Peers are measured with `--with-peers` only.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import uvloop

from benchmarks.peers import PEER_NAMES, peers
from benchmarks.processes import cleanroom, relay, scripted_model, stay_on_driver_core
from benchmarks.report import Report
from benchmarks.subjects import Chat, CleanroomChat, Heard, OllamaChat, RelayChat, Subject, case_of, report_delays

RATE = 100
ASKED_AT_ONCE = 50
# What takes longer has hung: the slowest peer takes a third of these.
REPLY_SECONDS = 120
MEASUREMENT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured in a round."""

    rounds: int
    asks: int
    chats: tuple[int, ...]
    seconds: float
    burst_tokens: int
    started: int


Measurement = Callable[[Report, Subject, Size], Awaitable[None]]


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--with-peers", action="store_true", help=f"install {' and '.join(PEER_NAMES)} into .peers, and measure them too")


def run(options: argparse.Namespace) -> Report:
    size = Size(1, 3, (1, 5), 0.3, 500, 10) if options.smoke else Size(options.rounds, 20, (1, 10, 50), 4, 20_000, 150)
    pairs = [("Cleanroom", "bare relay"), ("bare relay", "ollama client"), ("Cleanroom", "ollama client")]
    report = Report("overhead", "Overhead of the hub", pairs + [(name, "Cleanroom") for name in PEER_NAMES])
    stay_on_driver_core()
    with subjects(with_peers=options.with_peers) as found:
        uvloop.run(measure(report, found, size))
    return report


@contextmanager
def subjects(*, with_peers: bool) -> Iterator[list[Subject]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        model = stack.enter_context(scripted_model())
        yield [
            Subject("ollama client", lambda: OllamaChat.open(model.url), psutil.Process()),
            Subject.behind("bare relay", stack.enter_context(relay(model.url)), RelayChat.open),
            Subject.behind("Cleanroom", stack.enter_context(cleanroom(folder, model.url)), CleanroomChat.open),
            *(stack.enter_context(peers(folder, model.url)) if with_peers else ()),
        ]


async def measure(report: Report, found: list[Subject], size: Size) -> None:
    """Measure in turn. A peer that can't be measured stays out from then on: what it gave before is paired round by round."""
    streams = [partial(measure_stream, chats=chats) for chats in size.chats]
    round_: list[Measurement] = [measure_first_token, *streams, measure_burst, measure_starts]
    for measurement in [warm_up, *round_ * size.rounds]:
        for subject in list(found):
            try:
                async with asyncio.timeout(MEASUREMENT_SECONDS):
                    await measurement(report, subject, size)
            except Exception as error:
                if subject.name not in PEER_NAMES:
                    raise
                print(f"{subject.name} is left out from here on: {error!r}", file=sys.stderr)
                found.remove(subject)


async def warm_up(_report: Report, subject: Subject, _size: Size) -> None:
    """What is done once only, such as looking at the models, is not measured."""
    async with subject.open() as chat:
        await whole_reply(chat, 3, 0)


async def measure_first_token(report: Report, subject: Subject, size: Size) -> None:
    async with subject.open() as chat:
        heard = [await whole_reply(chat, 2, RATE) for _ in range(size.asks)]
    report.add("time to first token", "ms", "1 chat", subject.name, median(reply.first_token_ms for reply in heard))


async def measure_stream(report: Report, subject: Subject, size: Size, *, chats: int) -> None:
    """Some chats that stream side by side at a common pace. Of those that fail only their number is reported."""
    count = int(RATE * size.seconds)
    async with opened(subject, chats) as found:
        before = subject.cpu_seconds()
        heard = await unless_failed(ask_later(chat, index / chats / RATE, count) for index, chat in enumerate(found))
        used = subject.cpu_seconds() - before
    case = case_of(chats, "chat")
    report_delays(report, case, subject.name, heard)
    report.add("processor time per token", "µs", case, subject.name, used / sum(len(reply.came) for reply in heard) * 1e6)
    report.add("failed chats", "chats", case, subject.name, chats - len(heard))


@asynccontextmanager
async def opened(subject: Subject, count: int) -> AsyncIterator[list[Chat]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(subject.open()) for _ in range(count)]


async def ask_later(chat: Chat, seconds: float, count: int) -> Heard:
    """Chats that begin in one instant would stay in step, which people's never do."""
    await asyncio.sleep(seconds)
    return await whole_reply(chat, count, RATE)


async def whole_reply(chat: Chat, count: int, rate: float) -> Heard:
    """Raises ConnectionError when some of it is missing, TimeoutError when it doesn't end."""
    async with asyncio.timeout(REPLY_SECONDS):
        heard = await chat.ask(count, rate)
    if len(heard.came) != count:
        raise ConnectionError(f"expected {count} tokens, got {len(heard.came)}")
    return heard


async def unless_failed(replies: Iterable[Coroutine[Any, Any, Heard]]) -> list[Heard]:
    """The replies that came whole, of some that are heard at the same time."""
    ended = await asyncio.gather(*replies, return_exceptions=True)
    return [end for end in ended if isinstance(end, Heard)]


async def measure_burst(report: Report, subject: Subject, size: Size) -> None:
    async with subject.open() as chat:
        heard = await whole_reply(chat, size.burst_tokens, 0)
    report.add("tokens without a pause", "tokens/s", "1 chat", subject.name, heard.tokens_per_second)


async def measure_starts(report: Report, subject: Subject, size: Size) -> None:
    """Chats that are opened and asked at the same moment, some at a time."""

    async def start() -> Heard:
        async with asyncio.timeout(REPLY_SECONDS), subject.open() as chat:
            return await whole_reply(chat, 20, RATE)

    at_once = min(ASKED_AT_ONCE, size.started)
    failed = 0
    for _ in range(size.started // at_once):
        failed += at_once - len(await unless_failed(start() for _ in range(at_once)))
    report.add("failed chats", "chats", f"{size.started}, {at_once} at a time", subject.name, failed)
