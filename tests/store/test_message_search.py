"""The index of messages: word forms, what is in it and what is not, and that deleted words leave every file."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from backend.store import chats, deleted_words
from backend.store import database as database_module
from backend.store.connection import Connection
from backend.store.database import Database
from backend.store.message_search import SNIPPET_CHARACTERS, Hit, search, snippet
from backend.store.migrate import migrate
from backend.store.stems import common_beginning, fold, forms_among, stem, words_of
from backend.store.units import Units
from tests.store.conftest import PROJECT, add_chat, add_message, files_with

pytestmark = pytest.mark.anyio


async def add_many(database: Units, *contents: str, chat: str = "c") -> list[int]:
    """Add messages, and a reply at the end: the newest question is no hit of its own."""

    async def add(tx: Connection) -> list[int]:
        ids = [await add_message(tx, content, chat) for content in contents]
        await tx.execute(f"INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('{chat}', 'assistant', 'ok', '')")
        return ids

    return await database.write(add)


async def terms(database: Database) -> list[str]:
    """The words of the index, those of deleted messages included while it keeps them."""
    return [row["term"] for row in await database.read(lambda tx: tx.fetch_all("SELECT term FROM message_terms"))]


async def find(database: Units, query: str, chat: str = "c", limit: int = 20) -> list[Hit]:
    return await database.read(lambda tx: search(tx, chat, query, limit))


async def found(database: Units, query: str) -> list[int]:
    return [hit.message_id for hit in await find(database, query)]


FORMS = [
    ("отчёт", "Отчеты за март готовы"), ("ОТЧЁТАМИ", "где наш отчёт?"), ("отчет", "ОТЧЁТ"), ("задача", "поставь пять задач"), ("задачи", "о задаче"),
    ("статья", "без статей"), ("договор", "по договорам"), ("красивый", "красивейшая"), ("платёж", "двух платежей"), ("ёлка", "под елкой"),
    ("report", "the reports are late"), ("reporting", "it was reported"), ("study", "many studies"), ("studies", "I study"), ("studying", "she studies"),
    ("happiness", "a happy end"), ("love", "loving it"), ("loving", "I love it"), ("sky", "blue skies"), ("invoices", "this Invoice"),
    ("run", "running late"), ("budget", "Budgets!"), ("v2", "since v2.1"), ("2026", "in 2026, maybe"), ("snake_case", "a case of it"), ("и", "и"),
]  # fmt: skip


async def test_words_are_found_in_their_forms(either: Units) -> None:
    for query, content in FORMS:
        [message] = await add_many(either, content)
        assert message in await found(either, query), (query, content)


@pytest.mark.parametrize(
    ("query", "content"), [("study", "a student"), ("sky", "skating"), ("стат", "статистика"), ("задача", "задаток"), ("cat", "category"), ("on", "one")]
)
async def test_other_words_that_begin_alike_are_not_found(either: Units, query: str, content: str) -> None:
    await add_many(either, content)
    assert await found(either, query) == []


async def test_more_and_rarer_words_are_better_and_then_the_newer(either: Units) -> None:
    ids = await add_many(either, "the budget of March", "the weather", "the end", "a budget", "budgets for holidays in the south", "the rest")
    assert (await found(either, "the budget for the holiday"))[0] == ids[4]
    assert await found(either, "weather") == [ids[1]]
    same = await add_many(either, "apples", "apples", "apples")
    assert await found(either, "apple") == same[::-1]
    assert [hit.message_id for hit in await find(either, "apple", limit=2)] == same[:0:-1]


async def test_only_this_chats_permanent_messages_are_found(either: Units) -> None:
    await either.write(lambda tx: add_chat(tx, "d"))
    await add_many(either, "needle elsewhere", chat="d")
    shown, hidden, draft, receipt, streaming = await add_many(either, *["needle"] * 5)
    for message, change in ((hidden, "hidden = 1"), (draft, "is_ephemeral = 1"), (receipt, "role = 'tool'"), (streaming, "status = 'streaming'")):
        await either.write(lambda tx, message=message, change=change: tx.execute(f"UPDATE chat_messages SET {change} WHERE id = {message}"))  # type: ignore[misc]
    assert await found(either, "needle") == [shown]
    await either.write(lambda tx: tx.execute("UPDATE chat_messages SET hidden = 0, is_ephemeral = 0, role = 'user', status = 'complete'"))
    assert await found(either, "needle") == [streaming, receipt, draft, hidden, shown]


async def test_the_question_that_is_being_answered_is_no_hit(either: Units) -> None:
    [earlier] = await add_many(either, "the needle is red")
    await either.write(lambda tx: add_message(tx, "where was the needle?"))
    await either.write(lambda tx: tx.execute("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('c', 'tool', '[]', '')"))
    assert await found(either, "needle") == [earlier]
    await add_many(either)
    assert len(await found(either, "needle")) == 2


async def test_the_index_follows_every_change(either: Units) -> None:
    [message] = await add_many(either, "first words")
    await either.write(lambda tx: tx.execute(f"UPDATE chat_messages SET content = 'other thing' WHERE id = {message}"))
    assert (await found(either, "first"), await found(either, "thing")) == ([], [message])
    await either.write(lambda tx: tx.execute(f"UPDATE chat_messages SET metrics = '{{}}' WHERE id = {message}"))
    assert await found(either, "thing") == [message]
    with pytest.raises(ZeroDivisionError):
        await either.write(_delete_and_fail)
    assert await found(either, "thing") == [message]
    await either.write(lambda tx: tx.execute(f"DELETE FROM chat_messages WHERE id = {message}"))
    assert await found(either, "thing") == []


async def _delete_and_fail(tx: Connection) -> None:
    await tx.execute("DELETE FROM chat_messages")
    raise ZeroDivisionError


async def test_another_program_may_write_the_table(database: Database, path: Path) -> None:
    """Its connection has no function of ours."""
    code = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("PRAGMA foreign_keys = ON")
    for row in ((7, 'user', 'Ёлки'), (8, 'assistant', 'x')):
        connection.execute("INSERT INTO chat_messages (id, session_id, role, content, created_at) VALUES (?, 'c', ?, ?, '')", row)
    connection.execute("UPDATE chat_messages SET content = 'лес' WHERE id = 8")
"""
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=30)
    assert (await found(database, "елка"), await found(database, "леса")) == ([7], [8])


async def test_a_deleted_chats_words_are_in_no_file(database: Database) -> None:
    """Also those that only the index held in parts: its words are compressed by their beginnings."""
    await database.write(lambda tx: add_chat(tx, "d"))
    await add_many(database, "something else stays", chat="d")
    for number in range(50):
        await add_many(database, f"canary{number} canarywords", "zzyzx")
    await database.write(lambda tx: chats.delete(tx, "c"))
    await database.scrub()
    for word in ("canary", "zzyzx"):
        assert files_with(word, database.path.parent) == []
    assert len(await find(database, "else", "d")) == 1
    assert await terms(database) == ["else", "ok", "something", "stays"]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_large_indexs_words_are_forgotten_in_steps(database: Database, monkeypatch: pytest.MonkeyPatch, is_restarted: bool) -> None:
    """Others write in between, and a process that ends is followed by one that goes on."""
    monkeypatch.setattr(deleted_words, "STEP_PAGES", 1)
    monkeypatch.setattr(database_module, "SCRUB_RETRY_SECONDS", 0.01)
    await database.write(lambda tx: add_chat(tx, "d"))
    for number in range(50):
        await add_many(database, " ".join(f"stays{number}x{word}" for word in range(200)), chat="d")
        await add_many(database, f"canary{number} zzyzx")
    await database.write(lambda tx: chats.delete(tx, "c"))
    assert not await database.scrub()
    assert files_with("zzyzx", database.path.parent) != []
    if is_restarted:
        await database.disconnect()
        await database.connect()
    await add_many(database, "meanwhile", chat="d")
    async with asyncio.timeout(30):
        while files_with("zzyzx", database.path.parent):
            await asyncio.sleep(0.05)
    left = await terms(database)
    assert not any(term.startswith(("canary", "zzyzx")) for term in left)
    assert "meanwhile" in left and len(left) == 10_002


def test_a_cleared_historys_words_are_in_no_file(path: Path) -> None:
    migrate(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO chats (id, created_at, updated_at) VALUES ('c', '', '')")
        for number in range(50):
            values = (f"canary{number} zzyzx",)
            connection.execute("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('c', 'user', ?, '')", values)
            connection.commit()
    script = PROJECT / "scripts" / "clear_history.py"
    subprocess.run([sys.executable, script, "--yes", "--no-backup", "--database", path], check=True, timeout=60, capture_output=True)
    for word in ("canary", "zzyzx"):
        assert files_with(word, path.parent) == []


def test_messages_that_were_there_before_the_index_are_in_it(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE chat_messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, created_at TEXT);
            INSERT INTO chat_messages VALUES (3, 'a', 'user', 'Ёлки', NULL), (4, 'a', 'AI', 'леса', NULL), (5, 'a', 'tool', 'hidden', NULL);
            """
        )
    migrate(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT rowid FROM message_index WHERE message_index MATCH 'елки OR леса'").fetchall() == [(3,), (4,)]
        assert connection.execute("SELECT term FROM message_terms").fetchall() == [("hidden",), ("елки",), ("леса",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a needle here", "a needle here"),
        ("x" * 10 + " Needle\n\n  there", "xxxxxxxxxx Needle there"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_a_snippet_is_the_original_text(text: str, expected: str) -> None:
    assert snippet(text, ["needle"]) == expected


def test_a_snippet_of_a_long_text_stands_around_the_word() -> None:
    text = "the " * 500 + "NEEDLE" + " end" * 500
    cut = snippet(text, ["the", "needle"])
    assert "NEEDLE" in cut and cut.startswith("… ") and cut.endswith(" …")
    assert len(cut) <= SNIPPET_CHARACTERS + 4
    assert snippet("needle " + "x " * 500, ["needle"]).startswith("needle x")


@given(some.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_asked_for(text: str) -> None:
    """Whatever is typed becomes words without an operator, and each word is among its own forms."""
    for word in words_of(text):
        assert fold(word) == word and word.isalnum()
        assert forms_among(word, [word]) == [word]
        assert word.startswith(common_beginning(word)) and common_beginning(word)


def test_stems_of_both_languages() -> None:
    assert [stem(word) for word in ("отчетами", "книги", "studies", "running", "42")] == ["отчет", "книг", "studi", "run", "42"]
    assert [common_beginning(word) for word in ("studies", "study", "loving", "отчетами", "i")] == ["stud", "stud", "lov", "отчет", "i"]


async def test_odd_queries_find_nothing_and_break_nothing(either: Units) -> None:
    await add_many(either, "plain text")
    for query in ("", "!!!", '"', "NEAR(", "text OR", "^*", "a:b", "'; --", "ь", "İ", "ß", "中文", "e" * 500, " ".join(["word"] * 300)):
        await find(either, query)
    assert len(await found(either, 'text" OR (')) == 1
