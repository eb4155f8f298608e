"""What PostgreSQL and further replicas cost: a turn on each database, events through Redis, and turns a second with 1, 2 and 4 replicas.

All replicas share one core, so that their processor time can be compared; databases and whoever asks have the other.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import uvloop

from benchmarks.processes import Running, cleanroom, scripted_model, stay_on_driver_core
from benchmarks.report import Report
from benchmarks.scripted_model import ask
from benchmarks.subjects import CleanroomChat, report_delays
from benchmarks.watcher import Watcher
from tests.engines import Engine, Postgres, Valkey, postgres, valkey

RATE = 100
ALONE_ON_FILE, ALONE_ON_POSTGRES = "SQLite", "PostgreSQL"
TURN_TOKENS = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured in a round."""

    rounds: int
    turns: int
    seconds: float
    burst_tokens: int
    replicas: tuple[int, ...]
    chats: int


def add_options(group: argparse._ArgumentGroup) -> None:
    """It has none of its own."""


def run(options: argparse.Namespace) -> Report:
    size = Size(1, 3, 0.2, 300, (2,), 4) if options.smoke else Size(options.rounds, 100, 4, 20_000, (1, 2, 4), 24)
    report = Report("replicas", "Replicas", [(ALONE_ON_POSTGRES, ALONE_ON_FILE), ("at another replica", "at the owner")])
    stay_on_driver_core()
    with scripted_model() as model, postgres() as database, valkey() as redis:
        for _ in range(size.rounds):
            with TemporaryDirectory() as folder, cleanroom(Path(folder), model.url) as server:
                uvloop.run(measure_turns(report, ALONE_ON_FILE, [server], size, 1))
            with replicas(model.url, database, None, 1) as servers:
                uvloop.run(measure_turns(report, ALONE_ON_POSTGRES, servers, size, 1, database))
            with replicas(model.url, database, redis, 2) as servers:
                uvloop.run(measure_events(report, servers, size))
            for count in size.replicas:
                with replicas(model.url, database, redis, count) as servers:
                    uvloop.run(measure_turns(report, f"{count} with Valkey", servers, size, size.chats, database, redis))
    return report


@contextmanager
def replicas(model_url: str, database: Postgres, redis: Valkey | None, count: int) -> Iterator[list[Running]]:
    """So many replicas on a new database."""
    name = f"bench_{uuid.uuid4().hex}"
    asyncio.run(database.administer(f"CREATE DATABASE {name}"))
    variables = {"CLEANROOM_DATABASE_URL": database.url(name)} | ({"CLEANROOM_REDIS_URL": redis.url} if redis else {})
    with TemporaryDirectory() as folder, ExitStack() as stack:
        yield [stack.enter_context(cleanroom(Path(folder), model_url, **variables)) for _ in range(count)]


async def measure_turns(report: Report, subject: str, servers: list[Running], size: Size, chats: int, *engines: Engine) -> None:
    """Short turns in so many chats at once, each at its own replica: how many there are a second, and what one costs the replicas and each engine."""
    measured = {"replicas": [server.process.pid for server in servers]} | {type(engine).__name__: [engine.id] for engine in engines}
    case = "one chat" if chats == 1 else f"{chats} chats"
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(CleanroomChat.open(servers[number % len(servers)].url)) for number in range(chats)]
        await asyncio.gather(*(chat.ask(TURN_TOKENS, 0) for chat in opened))  # what is done once only is not measured
        before, started = {name: cpu_seconds(ids) for name, ids in measured.items()}, time.monotonic()
        await asyncio.gather(*(ask_often(chat, size.turns) for chat in opened))
        seconds, used = time.monotonic() - started, {name: cpu_seconds(ids) - before[name] for name, ids in measured.items()}
    turns = chats * size.turns
    report.add("turns a second", "turns/s", case, subject, turns / seconds)
    for name, value in used.items():
        report.add(f"processor time per turn, {name}", "ms", case, subject, value / turns * 1e3)


async def ask_often(chat: CleanroomChat, turns: int) -> None:
    for _ in range(turns):
        await chat.ask(TURN_TOKENS, 0)


def cpu_seconds(ids: list[int]) -> float:
    """What these processes and their children have used, those that ended meanwhile included."""
    parents = [psutil.Process(process_id) for process_id in ids]
    living = [process.cpu_times() for parent in parents for process in (parent, *parent.children(recursive=True))]
    ended = [parent.cpu_times() for parent in parents]
    return float(sum(times.user + times.system for times in living) + sum(times.children_user + times.children_system for times in ended))


async def measure_events(report: Report, servers: list[Running], size: Size) -> None:
    """One chat, watched at the replica that has it and at another one, at a pace and then without a pause."""
    count = int(RATE * size.seconds)
    async with Watcher.open(servers[0].url) as here, Watcher.open(servers[1].url) as there:
        chat_id = await here.new_chat()
        await there.command("chat.open", chat_id=chat_id)
        for rate, tokens in ((RATE, count), (0, size.burst_tokens)):
            asked_at = time.monotonic_ns()
            await here.command("message.send", chat_id=chat_id, client_id=uuid.uuid4().hex, text=ask(tokens, rate))
            for name, socket in (("at the owner", here), ("at another replica", there)):
                heard = await socket.hear(asked_at)
                if len(heard.came) != tokens:
                    raise ConnectionError("a watcher missed some of the reply")
                if rate:
                    report_delays(report, "one chat", name, [heard])
                else:
                    report.add("tokens without a pause", "tokens/s", "one chat", name, heard.tokens_per_second)
