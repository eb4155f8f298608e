"""Row Q11 of the acceptance checks: a model's SQL never reaches PostgreSQL, and what is read for it has bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from backend.errors import StoreError, ToolFailed
from backend.store.connection import Connection
from backend.store.engines import database_at, facts_query_at
from backend.store.facts_query import QUERIES_AT_ONCE, SCHEMA, FactsQuery, Unread
from backend.store.postgres import facts_rows
from backend.store.postgres.database import READERS
from backend.store.units import Units
from tests.store.conftest import add_chat, add_message
from tests.store.test_facts_query import CALLING, OPENING, TELLING, WRITING, add_facts, refused

pytestmark = pytest.mark.anyio

OF_POSTGRESQL = [
    "SET ROLE postgres", "RESET ROLE", "SET default_transaction_read_only = off", "SET statement_timeout = 0", "SHOW data_directory",
    "COPY tasks TO '/tmp/tasks'", "COPY tasks FROM PROGRAM 'id'", "DO $$ BEGIN PERFORM 1; END $$", "CALL x()", "LISTEN x", "NOTIFY x", "LOCK TABLE tasks",
    "SELECT pg_sleep(100)", "SELECT pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('/')", "SELECT lo_import('/etc/passwd')", "SELECT version()",
    "SELECT set_config('role', 'postgres', false)", "SELECT current_setting('data_directory')", "SELECT pg_terminate_backend(1)", "SELECT pg_advisory_lock(1)",
    "SELECT * FROM dblink('dbname=postgres', 'SELECT 1') AS x(a int)", "SELECT * FROM pg_stat_activity", "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_authid", "SELECT usename FROM pg_user", "SELECT * FROM public.tasks", "SELECT COUNT(*) FROM public.chat_messages",
    "SELECT title FROM tasks FOR UPDATE", "SELECT 1; SELECT pg_sleep(100)", "SELECT 1; DROP TABLE tasks", "SELECT title::text FROM tasks", "TABLE tasks",
    "SELECT * INTO copied FROM tasks", "WITH gone AS (DELETE FROM tasks RETURNING *) SELECT * FROM gone", "EXPLAIN ANALYZE DELETE FROM tasks",
    "SELECT read_tasks.title FROM read_tasks", "SELECT * FROM temp.read_messages",
]  # fmt: skip

STATE = """
    SELECT md5(concat(
        (SELECT string_agg(tasks::text, ',' ORDER BY id) FROM tasks), (SELECT string_agg(chat_messages::text, ',' ORDER BY id) FROM chat_messages),
        (SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class), (SELECT string_agg(rolname, ',') FROM pg_roles)
    ))
"""


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Units]:
    """Connected, with one chat `c` and the facts of `add_facts`."""
    database = database_at(postgres_url)
    await database.connect()
    await database.write(add_chat)
    await database.write(add_facts)
    yield database
    await database.disconnect()


@pytest.fixture
def facts(database: Units, postgres_url: str) -> FactsQuery:
    return facts_query_at(postgres_url, database)


async def test_no_statement_reaches_the_server(facts: FactsQuery, database: Units) -> None:
    before = await database.read(lambda tx: tx.fetch_value(STATE))
    for sql in [*OF_POSTGRESQL, *WRITING, *OPENING, *TELLING, *CALLING]:
        async with asyncio.timeout(1):
            assert SCHEMA in await refused(facts, sql), sql
    assert await database.read(lambda tx: tx.fetch_value(STATE)) == before


async def test_a_read_after_a_refusal_has_the_facts_of_now(facts: FactsQuery, database: Units) -> None:
    await refused(facts, "DELETE FROM notes")
    await database.write(lambda tx: tx.execute("UPDATE notes SET content = :text WHERE title = 'milk'", {"text": "ё 👩‍👩‍👧 ' \" \\ :chat $1"}))
    assert (await facts.run("c", "SELECT content FROM notes")).rows == [["ё 👩‍👩‍👧 ' \" \\ :chat $1"]]


async def test_of_too_much_the_newest_is_read_and_the_rest_is_told(facts: FactsQuery, database: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_rows, "MAX_VIEW_BYTES", 30_000)
    monkeypatch.setattr(facts_rows, "ROW_BYTES", 0)

    async def add(tx: Connection) -> None:
        for number in range(5):
            await add_message(tx, str(number) * 12_000)

    await database.write(add)
    found = await facts.run("c", "SELECT substr(content, 1, 1), length(content) FROM messages")
    assert found.rows == [["2", 12_000], ["3", 12_000], ["4", 12_000]]
    assert found.unread == (Unread("messages", 3, 6),)
    assert str(found.unread[0]) == "the oldest 3 of 6 rows of messages"
    await database.write(lambda tx: add_message(tx, "x" * 100_000))
    assert (await facts.run("c", "SELECT length(content) FROM messages")).rows == [[100_000]]
    assert (await facts.run("d", "SELECT 1")).unread == ()


async def test_reading_has_a_time_limit_and_leaves_a_place(facts: FactsQuery, database: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that waits for a lock is ended by the server."""
    monkeypatch.setattr(facts_rows, "STATEMENT_MS", 50)

    async def hold(tx: Connection) -> None:
        await tx.execute("LOCK TABLE notes")
        for _ in range(QUERIES_AT_ONCE + 1):
            with pytest.raises(StoreError, match="took too long"):
                await facts.run("c", "SELECT 1")

    await database.write(hold)
    assert (await facts.run("c", "SELECT 1")).rows == [[1]]


async def test_tools_that_hold_every_reader_and_ask_all_end(facts: FactsQuery, database: Units) -> None:
    """Each asks from within a unit, as a tool does."""
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(*(database.read(lambda tx: facts.run("c", "SELECT 1")) for _ in range(3 * READERS)), return_exceptions=True)
    answered = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert answered and all(isinstance(outcome, ToolFailed) for outcome in outcomes if outcome not in answered)
