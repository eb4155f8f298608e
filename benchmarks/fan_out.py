"""What watchers cost: one chat on up to a hundred sockets, and a thousand sockets whose chat is quiet beside one that isn't.

The watchers, which only note when bytes come, share a core with the model server; the server has the other.
"""

from __future__ import annotations

import argparse
import resource
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from benchmarks.processes import Running, cleanroom, relay, scripted_model, stay_on_driver_core
from benchmarks.report import Report
from benchmarks.scripted_model import ask
from benchmarks.subjects import CleanroomChat, Heard, RelayChat, Subject, case_of, report_delays
from benchmarks.watcher import Watcher

RATE = 100
# Beside one descriptor a socket: databases, libraries and what else a process holds.
OTHER_FILES = 200


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured in a round."""

    rounds: int
    watchers: tuple[int, ...]
    seconds: float
    burst_tokens: int
    idle: int


def add_options(group: argparse._ArgumentGroup) -> None:
    """It has none of its own."""


def run(options: argparse.Namespace) -> Report:
    size = Size(1, (1, 10), 0.3, 500, 100) if options.smoke else Size(options.rounds, (1, 10, 100), 4, 20_000, 1_000)
    report = Report("fan_out", "Fan-out", [("beside idle sockets", "alone"), ("Cleanroom", "bare relay")])
    stay_on_driver_core()
    allow_files(size.idle + OTHER_FILES)
    with scripted_model() as model:
        for _ in range(size.rounds):
            with relay(model.url) as yardstick:
                uvloop.run(measure_relay_memory(report, yardstick, size))
            # A new server each time: memory that was used once stays with a process.
            with TemporaryDirectory() as folder, cleanroom(Path(folder), model.url) as server:
                uvloop.run(measure_server(report, server, size))
    return report


def allow_files(count: int) -> None:
    """Let this process, and those that it starts from now on, hold so many open files. Raises ValueError when the system forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


async def measure_relay_memory(report: Report, server: Running, size: Size) -> None:
    subject = Subject.behind("bare relay", server, RelayChat.open)
    async with subject.open() as chat:
        await chat.ask(3, 0)
    with_none = subject.process.memory_info().rss
    async with idle_sockets(server.url, size.idle):
        report_memory(report, subject, with_none, size.idle)


async def measure_server(report: Report, server: Running, size: Size) -> None:
    subject = Subject.behind("Cleanroom", server, CleanroomChat.open)
    async with subject.open() as chat:
        await chat.ask(3, 0)  # what is done once only is not measured
    await measure_idle(report, subject, server.url, size)
    for watchers in size.watchers:
        await measure_watchers(report, subject, server.url, watchers, size)


async def measure_idle(report: Report, subject: Subject, url: str, size: Size) -> None:
    """One chat streams, alone and beside sockets that all watch another chat."""
    count = int(RATE * size.seconds)
    case = f"{size.idle:,} idle sockets"
    async with CleanroomChat.open(url) as quiet, subject.open() as active:
        report_delays(report, case, "alone", [await active.ask(count, RATE)])
        with_none = subject.process.memory_info().rss
        async with idle_sockets(url, size.idle, quiet.chat_id):
            report_memory(report, subject, with_none, size.idle)
            report_delays(report, case, "beside idle sockets", [await active.ask(count, RATE)])


@asynccontextmanager
async def idle_sockets(url: str, count: int, chat_id: str | None = None) -> AsyncIterator[None]:
    """Sockets that came one after the other, each with the chat opened, if there is one."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            socket = await stack.enter_async_context(Watcher.open(url))
            if chat_id is not None:
                await socket.command("chat.open", chat_id=chat_id)
        yield


async def measure_watchers(report: Report, subject: Subject, url: str, watchers: int, size: Size) -> None:
    """One chat, asked by one of those who watch it: at a pace, then without a pause."""
    case = case_of(watchers, "watcher")
    count = int(RATE * size.seconds)
    async with watched_chat(url, watchers) as (chat_id, sockets):
        before = subject.cpu_seconds()
        heard = await ask_all(chat_id, sockets, count, RATE)
        used = (subject.cpu_seconds() - before) * 1e6
        burst = await ask_all(chat_id, sockets, size.burst_tokens, 0)
    report_delays(report, case, subject.name, heard)
    report.add("processor time per token", "µs", case, subject.name, used / count)
    report.add("processor time per token and watcher", "µs", case, subject.name, used / count / watchers)
    report.add("tokens without a pause, at the last watcher", "tokens/s", case, subject.name, min(reply.tokens_per_second for reply in burst))


@asynccontextmanager
async def watched_chat(url: str, watchers: int) -> AsyncIterator[tuple[str, list[Watcher]]]:
    """A new chat that so many sockets have open."""
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(Watcher.open(url)) for _ in range(watchers)]
        chat_id = await sockets[0].new_chat()
        for socket in sockets[1:]:
            await socket.command("chat.open", chat_id=chat_id)
        yield chat_id, sockets


async def ask_all(chat_id: str, sockets: list[Watcher], count: int, rate: float) -> list[Heard]:
    """Ask on the first socket and hear the reply on each. The others are read once the first has heard all."""
    asked_at = time.monotonic_ns()
    await sockets[0].command("message.send", chat_id=chat_id, client_id=uuid.uuid4().hex, text=ask(count, rate))
    heard = [await socket.hear(asked_at) for socket in sockets]
    if any(len(reply.came) != count for reply in heard):
        raise ConnectionError("a watcher missed some of the reply")
    return heard


def report_memory(report: Report, subject: Subject, before: int, sockets: int) -> None:
    used = subject.process.memory_info().rss - before
    report.add("memory per idle socket", "KiB", f"{sockets:,} idle sockets", subject.name, used / sockets / 1024)
