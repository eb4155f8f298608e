"""What opening, sending, searching and deleting take as the database grows from 100 messages to 1,000,000.

The databases are filled once, with chats of 100 messages. In each round a newly started server works in each of them,
and leaves it as large as it was: a chat that is deleted is imported again.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import accumulate, product
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from backend.store.migrate import migrate
from benchmarks.processes import cleanroom, scripted_model, stay_on_driver_core
from benchmarks.report import Report
from benchmarks.subjects import CleanroomChat

SIZES = (100, 10_000, 1_000_000)
SMOKE_SIZES = (100, 1_000)
REPEATS = 5
SMOKE_REPEATS = 2
REPLY_TOKENS = 3

CHAT_MESSAGES = 100
MESSAGE_WORDS = 12
# Messages are cut out of one text: drawing each word of a million of them would take longer than to store them.
TEXT_WORDS = 200_000
MOMENT = "2026-01-02T03:04:05.000000Z"

# Made-up words, English and Russian letters by turns, and how often each is used: as in a language, the nth an nth as often as the first.
_LATIN = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")
_CYRILLIC = ("ба", "де", "фи", "го", "ху", "ка", "ле", "ми", "но", "пу", "ра", "се", "ти", "во", "зу")
VOCABULARY = ["".join(syllables) for pair in zip(product(_LATIN, repeat=3), product(_CYRILLIC, repeat=3), strict=True) for syllables in pair]
CUMULATIVE_WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(VOCABULARY) + 1)))
COMMON_WORD = VOCABULARY[0]
RARE_WORD = "quasar"
RARE_MESSAGES = 10


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--most", type=int, default=SIZES[-1], metavar="MESSAGES", help="leave larger databases out (default: %(default)s)")


def run(options: argparse.Namespace) -> Report:
    rounds, repeats, sizes = (1, SMOKE_REPEATS, SMOKE_SIZES) if options.smoke else (options.rounds, REPEATS, SIZES)
    report = Report("growth", "Growth of the database")
    stay_on_driver_core()
    with TemporaryDirectory() as name, scripted_model() as model:
        folders = {size: Path(name) / str(size) for size in sizes if size <= options.most}
        for size, folder in folders.items():
            folder.mkdir()
            fill(folder / "cleanroom.db", size)
        for _ in range(rounds):
            for size, folder in folders.items():
                with cleanroom(folder, model.url) as server:
                    taken = asyncio.run(measure(server.url, repeats))
                for measured, samples in taken.items():
                    report.add(measured, "ms", size, "Cleanroom", median(samples))
    return report


def fill(path: Path, size: int) -> None:
    """Make a database of so many messages, with its index of words as a deletion leaves it."""
    migrate(path)
    with closing(sqlite3.connect(path)) as database, database:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "secure_delete = OFF", "cache_size = -200000"):
            database.execute(f"PRAGMA {pragma}")
        chats = ((_chat_id(number), f"Chat {number}", MOMENT, MOMENT) for number in range(size // CHAT_MESSAGES))
        database.executemany("INSERT INTO chats (id, title, created_at, updated_at) VALUES (?, ?, ?, ?)", chats)
        with _indexed_at_once(database):
            database.executemany("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES (?, ?, ?, ?)", _messages(size))


@contextmanager
def _indexed_at_once(database: sqlite3.Connection) -> Iterator[None]:
    """Index the messages that the block stores when it ends: the trigger's way, one by one, takes minutes for a million."""
    ((trigger,),) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'message_index_added'")
    database.execute("DROP TRIGGER message_index_added")
    yield
    database.execute("INSERT INTO message_index (rowid, content) SELECT id, content FROM chat_messages")
    database.execute("INSERT INTO message_index (message_index) VALUES ('optimize')")
    database.execute(trigger)


def _messages(size: int) -> Iterator[tuple[str, str, str, str]]:
    random = Random(size)
    text = random.choices(VOCABULARY, cum_weights=CUMULATIVE_WEIGHTS, k=TEXT_WORDS)
    for number in range(size):
        start = random.randrange(TEXT_WORDS - MESSAGE_WORDS)
        words = text[start : start + MESSAGE_WORDS]
        if number % (size // RARE_MESSAGES) == 0:
            words.append(RARE_WORD)
        yield _chat_id(number // CHAT_MESSAGES), "assistant" if number % 2 else "user", " ".join(words), MOMENT


def _chat_id(number: int) -> str:
    return f"chat-{number}"


async def measure(url: str, repeats: int) -> dict[str, list[float]]:
    """What each thing took, in milliseconds. The first time is left out: the server then reads and compiles what it needs."""
    taken: dict[str, list[float]] = defaultdict(list)
    async with CleanroomChat.open(url) as chat:
        empty_id, chat.chat_id = chat.chat_id, _chat_id(0)
        await chat.command("chat.delete", chat_id=empty_id)
        for _ in range(repeats + 1):
            await _use(chat, taken)
    return {measured: samples[1:] for measured, samples in taken.items()}


async def _use(chat: CleanroomChat, taken: dict[str, list[float]]) -> None:
    """Do everything once, in a chat that is as it was afterwards, but for its id."""
    exported = await chat.command("chat.export", chat_id=chat.chat_id, format="json")
    with timed(taken["open a chat"]):
        await chat.command("chat.open", chat_id=chat.chat_id)
    with timed(taken["send a message"]):
        await chat.ask(REPLY_TOKENS, 0)
    with timed(taken["search (rare word)"]):
        await chat.command("chat.search", query=RARE_WORD)
    with timed(taken["search (common word)"]):
        await chat.command("chat.search", query=COMMON_WORD)
    with timed(taken["delete a chat"]):
        await chat.command("chat.delete", chat_id=chat.chat_id)
    imported = await chat.command("chat.import", content=exported["content"])
    chat.chat_id = imported["chat"]["id"]


@contextmanager
def timed(samples: list[float]) -> Iterator[None]:
    """Add how long the block takes, in milliseconds."""
    began = time.perf_counter()
    yield
    samples.append((time.perf_counter() - began) * 1000)
