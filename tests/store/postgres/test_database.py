"""Units of work on PostgreSQL: their order, cancellation, other replicas, and a server that goes away."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections.abc import AsyncIterator

import asyncpg
import pytest

from backend.errors import StoreError
from backend.store.connection import Connection
from backend.store.postgres import database as database_module
from backend.store.postgres.connection import numbered
from backend.store.postgres.database import CONNECTIONS, READERS, PostgresDatabase
from backend.store.postgres.server import IDLE_SECONDS, LOCK_SECONDS, SETTINGS
from tests.engines import Postgres, column, postgres
from tests.store.conftest import add_chat, add_message, connected

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    async with connected(PostgresDatabase(postgres_url)) as database:
        yield database


async def contents(database: PostgresDatabase) -> list[str]:
    return [row["content"] for row in await database.read(lambda tx: tx.fetch_all("SELECT content FROM chat_messages ORDER BY id"))]


def test_names_become_numbers_but_in_strings_and_casts() -> None:
    assert numbered("SELECT :a, :b_1, :a, ':no', 'it''s :no', x::int") == ("SELECT $1, $2, $1, ':no', 'it''s :no', x::int", ("a", "b_1"))


async def test_a_reader_can_not_write_and_sees_one_state(database: PostgresDatabase) -> None:
    async def read(tx: Connection) -> tuple[int, int]:
        before = await tx.fetch_value("SELECT COUNT(*) FROM chat_messages")
        await database.write(lambda other: add_message(other, "meanwhile"))
        return before, await tx.fetch_value("SELECT COUNT(*) FROM chat_messages")

    assert await database.read(read) == (0, 0)
    with pytest.raises(StoreError, match="can only be read"):
        await database.read(lambda tx: add_message(tx, "no"))
    assert await contents(database) == ["meanwhile"]


async def test_then_is_called_in_the_order_of_the_commits(database: PostgresDatabase) -> None:
    told: list[int] = []
    await asyncio.gather(*(database.write(lambda tx, n=n: add_message(tx, str(n)), told.append) for n in range(20)))  # type: ignore[misc]
    assert told == sorted(told) and len(told) == 20


async def test_a_failed_unit_leaves_nothing_and_tells_nothing(database: PostgresDatabase) -> None:
    async def fail(tx: Connection) -> None:
        await add_message(tx, "gone")
        raise ZeroDivisionError

    told: list[None] = []
    with pytest.raises(ZeroDivisionError):
        await database.write(fail, told.append)
    assert (await contents(database), told) == ([], [])


async def test_200_cancelled_callers_leave_the_pool_whole(database: PostgresDatabase) -> None:
    """A row is there whole and told of, or neither."""
    chance, told = random.Random(1), list[int]()
    for _ in range(200):
        caller = asyncio.create_task(database.write(lambda tx: add_message(tx, "x"), told.append))
        await asyncio.sleep(chance.random() * 0.004)
        caller.cancel()
        await asyncio.wait([caller])
    assert await messages_by_all_readers(database) == [len(told)] * READERS
    assert await database.read(lambda tx: tx.fetch_value("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()")) <= CONNECTIONS


async def messages_by_all_readers(database: PostgresDatabase) -> list[int]:
    """What each of them counts, all at the same time: none is lost."""
    together = asyncio.Barrier(READERS)

    async def count(tx: Connection) -> int:
        await together.wait()
        return int(await tx.fetch_value("SELECT COUNT(*) FROM chat_messages"))

    async with asyncio.timeout(10):
        return await asyncio.gather(*(database.read(count) for _ in range(READERS)))


async def test_what_takes_too_long_is_ended_and_leaves_the_pool_whole(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "lock_timeout", "50ms")
    other = await asyncpg.connect(postgres_url)
    stopped: list[int] = []

    async def stop(tx: Connection) -> None:
        """As a network does that lets nothing through."""
        stopped.append(await tx.fetch_value("SELECT pg_backend_pid()"))
        os.kill(stopped[0], signal.SIGSTOP)
        await tx.fetch_value("SELECT 1")

    async with connected(PostgresDatabase(postgres_url)) as database:
        async with other.transaction():
            await other.execute("UPDATE chats SET title = 'theirs'")
            with pytest.raises(StoreError, match="held by another program"):
                await database.write(lambda tx: tx.execute("UPDATE chats SET title = 'ours'"))
        with monkeypatch.context() as impatient:
            impatient.setattr(database_module, "READ_SECONDS", 0.1)
            with pytest.raises(StoreError, match="took too long to answer"):
                await database.read(lambda tx: tx.fetch_value("SELECT pg_sleep(60)"))
            impatient.setattr(database_module, "MARGIN_SECONDS", 0.2)
            with pytest.raises(StoreError, match="did not answer in time"):
                await database.read(stop)
        os.kill(stopped[0], signal.SIGCONT)
        await database.write(lambda tx: add_message(tx, "after"))
        assert await messages_by_all_readers(database) == [1] * READERS
    await other.close()


async def test_a_replica_that_hangs_loses_its_locks_before_others_give_up(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, goes_on = asyncio.Event(), asyncio.Event()

    async def hang(tx: Connection) -> None:
        await tx.execute("UPDATE chats SET title = 'theirs'")
        hangs.set()
        await goes_on.wait()

    assert IDLE_SECONDS < LOCK_SECONDS
    with monkeypatch.context() as impatient:
        impatient.setitem(SETTINGS, "idle_in_transaction_session_timeout", "50ms")
        hung, other = PostgresDatabase(postgres_url), PostgresDatabase(postgres_url)
        await hung.connect()
        await hung.write(add_chat)
        hanging = asyncio.create_task(hung.write(hang))
        await hangs.wait()
    await other.connect()
    assert await other.write(lambda tx: tx.execute("UPDATE chats SET title = 'ours'")) == 1
    goes_on.set()
    with pytest.raises(StoreError, match="can't be reached"):
        await hanging
    assert await hung.read(lambda tx: tx.fetch_value("SELECT title FROM chats")) == "ours"
    await hung.disconnect()
    await other.disconnect()


async def test_a_unit_that_another_replica_was_in_the_way_of_runs_again(database: PostgresDatabase, postgres_url: str) -> None:
    """Both look for the row, find none, and insert it."""
    other = await asyncpg.connect(postgres_url)
    runs = 0

    async def insert_once(tx: Connection) -> str:
        nonlocal runs
        runs += 1
        found = await tx.fetch_value("SELECT id FROM chats WHERE client_id = 'same'")
        if found is None:
            if runs == 1:
                await other.execute("INSERT INTO chats (id, client_id, created_at, updated_at) VALUES ('theirs', 'same', '', '')")
            await tx.execute("INSERT INTO chats (id, client_id, created_at, updated_at) VALUES ('ours', 'same', '', '')")
        return found or "ours"

    told: list[str] = []
    assert await database.write(insert_once, told.append) == "theirs"
    assert (runs, told) == (2, ["theirs"])
    await other.close()


async def test_units_go_on_when_a_newer_version_adds_a_column(database: PostgresDatabase, postgres_url: str) -> None:
    async def read_all(tx: Connection) -> list[str]:
        return [name for row in await tx.fetch_all("SELECT * FROM chat_messages") for name in row]

    await database.write(lambda tx: add_message(tx, "one"))
    for name, run in (("read_on", database.read), ("written_on", database.write)):
        assert name not in await run(read_all)
        await column(postgres_url, f"ALTER TABLE chat_messages ADD COLUMN {name} TEXT")
        assert name in await run(read_all)


async def test_a_deleted_chats_rows_leave_the_tables(database: PostgresDatabase) -> None:
    await database.write(lambda tx: add_message(tx, "canary"))
    await database.write(lambda tx: tx.execute("DELETE FROM chats"))
    await database.scrub()
    async with asyncio.timeout(20):
        while not await database.read(lambda tx: tx.fetch_value("SELECT pg_relation_size('chat_messages') = 0")):
            await asyncio.sleep(0.05)


async def test_after_the_server_was_restarted_the_next_unit_works(caplog: pytest.LogCaptureFixture) -> None:
    """The log has a line for it when it goes and one when it is back."""
    caplog.set_level(logging.WARNING)
    with postgres() as server:
        database = PostgresDatabase(server.url("postgres"))
        await database.connect()
        await database.write(add_chat)
        await _fail_while_down(database, server)
        assert await database.check()
        await database.write(lambda tx: add_message(tx, "after"))
        assert await contents(database) == ["after"]
        await database.disconnect()
    assert [record.message for record in caplog.records] == ["PostgreSQL is away", "PostgreSQL is back"]


async def _fail_while_down(database: PostgresDatabase, server: Postgres) -> None:
    server.stop()
    for _ in range(2):
        with pytest.raises(StoreError, match="The database"):
            await database.write(lambda tx: add_message(tx, "lost"))
    assert not await database.check()
    await asyncio.to_thread(server.start)
