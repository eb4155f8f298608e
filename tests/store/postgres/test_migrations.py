"""From an empty PostgreSQL database to the newest schema, and what is refused."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from alembic import command

from backend.errors import StoreError
from backend.store import schema
from backend.store.connection import Connection
from backend.store.postgres.database import PostgresDatabase
from backend.store.postgres.migrate import migrate
from tests.store.conftest import connected

pytestmark = pytest.mark.anyio


async def test_replicas_that_start_together_make_the_tables_once(empty_url: str) -> None:
    await asyncio.gather(*(migrate(empty_url) for _ in range(3)))
    connection = await asyncpg.connect(empty_url)
    tables = {row["relname"] for row in await connection.fetch("SELECT relname FROM pg_class WHERE relkind = 'r'")}
    assert {*schema.TABLES, "alembic_version"} <= tables
    assert "older_messages" not in tables
    assert await connection.fetchval("SELECT version_num FROM alembic_version") == schema.newest_version()
    await connection.close()


async def test_an_id_is_never_given_again(empty_url: str) -> None:
    await migrate(empty_url)
    connection = await asyncpg.connect(empty_url)
    await connection.execute("INSERT INTO chats (id, created_at, updated_at) VALUES ('c', '', '')")
    add = "INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('c', 'user', 'x', '') RETURNING id"
    first = await connection.fetchval(add)
    await connection.execute("DELETE FROM chat_messages")
    assert await connection.fetchval(add) > first
    await connection.close()


async def test_a_server_of_an_older_version_goes_on_meanwhile(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a unit that holds what the migration waits for, and then wants what it has, is in the way; nor a statement that was prepared before."""
    monkeypatch.setattr(command, "upgrade", lambda config, _, upgrade=command.upgrade: upgrade(config, "0005"))
    async with connected(PostgresDatabase(empty_url)) as database:
        monkeypatch.undo()
        other = await asyncpg.connect(empty_url)

        async def hold_then_want(tx: Connection) -> None:
            await tx.fetch_all("SELECT * FROM tasks")
            if not migrating:
                migrating.append(asyncio.create_task(migrate(empty_url)))
                while not await other.fetchval("SELECT COUNT(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            await tx.fetch_all("UPDATE chats SET title = 'x' RETURNING *")

        async def columns(tx: Connection) -> list[str]:
            return list((await tx.fetch_all("SELECT * FROM chats"))[0])

        migrating: list[asyncio.Task[None]] = []
        assert "owner" not in await database.read(columns)
        await database.write(hold_then_want)
        await migrating[0]
        assert "owner" in await database.read(columns)
        await database.write(hold_then_want)
        await other.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TABLE articles (id INTEGER)", "belongs to another program; set CLEANROOM_DATABASE_URL to an empty one"),
        ("CREATE TABLE chat_messages (id INTEGER)", "of the older program, .* set CLEANROOM_DATABASE_URL to that file or to an empty database"),
        ("CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('0003')", "belongs to another program"),
    ],
)
async def test_another_programs_database_is_refused_and_unchanged(empty_url: str, statement: str, words: str) -> None:
    connection = await asyncpg.connect(empty_url)
    await connection.execute(statement)
    with pytest.raises(StoreError, match=words):
        await migrate(empty_url)
    assert await connection.fetchval("SELECT COUNT(*) FROM pg_class WHERE relname = 'chats'") == 0
    await connection.close()


async def test_a_newer_schema_is_refused(empty_url: str) -> None:
    await migrate(empty_url)
    connection = await asyncpg.connect(empty_url)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.close()
    with pytest.raises(StoreError, match="start a newer Cleanroom"):
        await migrate(empty_url)


async def test_a_server_that_is_not_there_is_told_without_the_password() -> None:
    with pytest.raises(StoreError) as caught:
        await migrate("postgresql://me:secret-word@127.0.0.1:1/chats")
    assert "can't be reached" in caught.value.message
    assert "secret-word" not in caught.value.message
