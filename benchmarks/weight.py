"""What Cleanroom weighs: its start, its memory, its installation, the first load of its page, and what keeps the page busy.

The server has a core to itself; the browser may use all of them, as on a person's own machine.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Browser

from benchmarks.browser_page import browser, chromium, load, long_tasks_ms, page_with_tabs, show_tabs
from benchmarks.installed import browser_packages, folder_bytes, package_bytes, python_packages
from benchmarks.processes import PROJECT, Running, cleanroom, relay, use_all_cores
from benchmarks.report import LeftOut, Report
from benchmarks.scripted_model import MODEL
from benchmarks.subjects import CleanroomChat, RelayChat, Subject
from benchmarks.watcher import Watcher
from tests.fake_ollama import DEMONSTRATION, ChatRequest, FakeModel, FakeOllamaThread, Script, many_tokens, reply

SLOWDOWN = 4.0
LOADS = ("first load", "second load")
# What the model is asked for in order to get a long text instead of a short one.
LONG = "Write at length"
TOKENS_PER_SECOND = 100
REPLY_TOKENS = 3
CHATS = 10


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured in a round.

    `slowdowns`: how many times slower than it is the page's processor is, the last one for its loads.
    `texts`: how often the text of some 40 tokens comes in each reply that is streamed.
    """

    rounds: int
    turns: int
    loads: tuple[str, ...]
    slowdowns: tuple[float, ...]
    streaming: int
    texts: int


def add_options(group: argparse._ArgumentGroup) -> None:
    """It has none of its own."""


def run(options: argparse.Namespace) -> Report:
    if chromium() is None:
        raise LeftOut("there is no Chromium")
    size = Size(1, 20, LOADS[:1], (1,), 2, 1) if options.smoke else Size(options.rounds, 1_000, LOADS, (1, SLOWDOWN), 10, 20)
    report = Report("weight", "Start and weight", [("Cleanroom", "bare relay"), ("Cleanroom, new database", "Cleanroom")])
    use_all_cores()
    compile_ours()
    measure_installation(report)
    for _ in range(size.rounds):
        with FakeOllamaThread([FakeModel(MODEL)], default=lambda request: answer(request, size.texts)) as model, TemporaryDirectory() as folder:
            measure_relay(report, model.url, size)
            measure_cleanroom(report, Path(folder), model.url, size)
    return report


def answer(request: ChatRequest, texts: int) -> Script:
    if request.messages[-1]["content"] == LONG:
        return reply(DEMONSTRATION * texts, pause_seconds=1 / TOKENS_PER_SECOND)
    return many_tokens(REPLY_TOKENS)


def compile_ours() -> None:
    """Make what a first start makes, and an image has: the bytecode. Some environments forbid it to those that run."""
    for folder in ("backend", "migrations"):
        compileall.compile_dir(PROJECT / folder, quiet=1)


def measure_installation(report: Report) -> None:
    python, modules = python_packages(PROJECT), browser_packages(PROJECT)
    packages, weights = package_bytes(python)
    ours = folder_bytes(*(PROJECT / name for name in ("backend", "frontend", "migrations")))
    sizes = {"Python packages": packages, "weights of the embedded model": weights, "browser modules": folder_bytes(*modules), "Cleanroom itself": ours}
    for part, size in sizes.items():
        report.add("size of an installation", "MiB", part, "Cleanroom", size / 2**20)
    for kind, count in {"from PyPI": len(python), "from npm": len(modules)}.items():
        report.add("installed packages", "packages", kind, "Cleanroom", count)


def measure_relay(report: Report, model_url: str, size: Size) -> None:
    with started(report, "bare relay", relay(model_url)) as server:
        asyncio.run(measure_memory(report, Subject.behind("bare relay", server, RelayChat.open), size.turns))


def measure_cleanroom(report: Report, folder: Path, model_url: str, size: Size) -> None:
    """The first start makes the database, and loads for that what later ones never do."""
    with started(report, "Cleanroom, new database", cleanroom(folder, model_url)) as server:
        asyncio.run(measure_memory_at_rest(report, Subject.behind("Cleanroom, new database", server, CleanroomChat.open)))
    with started(report, "Cleanroom", cleanroom(folder, model_url)) as server:
        asyncio.run(measure_memory(report, Subject.behind("Cleanroom", server, CleanroomChat.open), size.turns))
        asyncio.run(measure_page(report, server.url, size))


@contextmanager
def started(report: Report, subject: str, starting: AbstractContextManager[Running]) -> Iterator[Running]:
    """Start a server and ask it for its page at once; the relay, which has none, answers that with 404."""
    began = time.perf_counter()
    with starting as server:
        ask_for_page(server.url)
        report.add("start to first answer", "s", "start", subject, time.perf_counter() - began)
        yield server


def ask_for_page(url: str) -> None:
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("GET", "/")
    connection.getresponse().read()
    connection.close()


async def measure_memory_at_rest(report: Report, subject: Subject) -> None:
    async with subject.open():
        pass  # a page has come and gone, and with it what is loaded for it
    report_memory(report, "at rest", subject)


async def measure_memory(report: Report, subject: Subject, turns: int) -> None:
    await measure_memory_at_rest(report, subject)
    async with AsyncExitStack() as stack:
        chats = [await stack.enter_async_context(subject.open()) for _ in range(CHATS)]
        for _ in range(turns // CHATS):
            for chat in chats:
                await chat.ask(REPLY_TOKENS, 0)
    report_memory(report, f"after {turns:,} turns", subject)


def report_memory(report: Report, case: str, subject: Subject) -> None:
    report.add("memory", "MiB", case, subject.name, subject.process.memory_info().rss / 2**20)


async def measure_page(report: Report, url: str, size: Size) -> None:
    async with browser() as opened:
        await measure_loads(report, opened, url, size.slowdowns[-1], size.loads)
        for slowdown in size.slowdowns:
            await measure_streams(report, opened, url, slowdown, size.streaming)


async def measure_loads(report: Report, opened: Browser, url: str, slowdown: float, cases: Sequence[str]) -> None:
    """A page of a new profile, with one chat open, loaded again and again."""
    async with CleanroomChat.open(url) as chat, page_with_tabs(opened, url, [chat.chat_id], slowdown) as page:
        for case in cases:
            loaded = await load(page, url)
            report.add("page: requests", "requests", case, "Cleanroom", loaded.requests)
            report.add("page: bytes on the wire", "KiB", case, "Cleanroom", loaded.bytes / 1024)
            report.add(f"page: time to interactive, processor {slowdown:g} times slower", "s", case, "Cleanroom", loaded.interactive_ms / 1000)


async def measure_streams(report: Report, opened: Browser, url: str, slowdown: float, streaming: int) -> None:
    """One page whose tabs all stream."""
    async with Watcher.open(url) as socket:
        chat_ids = [str((await socket.command("chat.create"))["chat"]["id"]) for _ in range(streaming)]
        async with page_with_tabs(opened, url, chat_ids, slowdown) as page:
            await show_tabs(page, url, streaming)
            for chat_id in chat_ids:
                await socket.command("chat.open", chat_id=chat_id)
                await socket.command("message.send", chat_id=chat_id, client_id=uuid.uuid4().hex, text=LONG)
            for _ in chat_ids:
                await socket.event("turn.finished")
            found = await long_tasks_ms(page)
    case = f"{streaming} chats stream" if slowdown == 1 else f"the same, processor {slowdown:g} times slower"
    report.add("long tasks", "tasks", case, "Cleanroom", len(found))
    report.add("longest of them", "ms", case, "Cleanroom", max(found, default=0))
    report.add("all of them together", "ms", case, "Cleanroom", sum(found))
