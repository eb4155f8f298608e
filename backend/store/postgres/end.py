"""A PostgreSQL database as one end of a move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from backend.errors import StoreError
from backend.store import schema
from backend.store.moving import TABLES, TEXT_KEYS, Key, Row, key_of
from backend.store.postgres.migrate import PATIENT, migrate, version_of
from backend.store.postgres.server import CONNECT_SECONDS, ERRORS, SETTINGS, place, store_error

# Another than a server's, which is looked for.
_SETTINGS = {**PATIENT, "application_name": "cleanroom-move"}
# Beside the lock of a migration, which may be waited for; this one keeps a second move out.
_LOCK_KEY = schema.APPLICATION_ID + 1
_PREFETCH_ROWS = 500
# SQLite keeps a value of any type in any column; the driver's own errors are Python's.
_UNFIT = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, TypeError, ValueError, OverflowError)


class PostgresEnd:
    """Reads and writes on one connection."""

    replaced = 0  # PostgreSQL stores no text that would have to be

    def __init__(self, connection: Any, name: str) -> None:
        self.name = name
        self._connection = connection

    async def columns(self, table: str) -> list[str]:
        found = await self._connection.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum", table
        )
        return [row[0] for row in found]

    async def rows(self, table: str, columns: list[str], after: Key | None = None) -> AsyncIterator[Row]:
        key = _sorted_key(table)
        condition, values = ("", []) if after is None else (f"WHERE {key} > $1", [after])
        statement = f"SELECT {', '.join(columns)} FROM {table} {condition} ORDER BY {key}"
        async for row in self._connection.cursor(statement, *values, prefetch=_PREFETCH_ROWS):
            yield tuple(row)

    async def count(self, table: str) -> int:
        return int(await self._connection.fetchval(f"SELECT COUNT(*) FROM {table}"))

    async def greatest_key(self, table: str) -> Key | None:
        key: Key | None = await self._connection.fetchval(f"SELECT MAX({_sorted_key(table)}) FROM {table}")
        return key

    async def last_number(self, table: str) -> int:
        sequence = await self._sequence(table)
        return int(await self._connection.fetchval(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}"))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            yield

    async def source(self) -> str | None:
        if await self._connection.fetchval("SELECT to_regclass($1)", schema.UNFINISHED_MOVE) is None:
            return None
        return str(await self._connection.fetchval(f"SELECT source FROM {schema.UNFINISHED_MOVE}"))

    async def begin(self, source: str) -> None:
        async with self._connection.transaction():
            await self._connection.execute(f"CREATE TABLE {schema.UNFINISHED_MOVE} (source TEXT NOT NULL)")
            await self._connection.execute(f"INSERT INTO {schema.UNFINISHED_MOVE} VALUES ($1)", source)

    async def add(self, table: str, columns: list[str], rows: list[Row]) -> None:
        try:
            await self._connection.copy_records_to_table(table, columns=columns, records=rows)
        except _UNFIT as error:
            position = columns.index(key_of(table))
            first, last = rows[0][position], rows[-1][position]
            raise StoreError(f"{self.name} refuses a row of {table}, {key_of(table)} {first!r} to {last!r}: {error}.") from error

    async def number_after(self, table: str, last: int) -> None:
        greatest = max(last, int(await self.greatest_key(table) or 0))
        if greatest:
            await self._connection.execute("SELECT setval($1::text::regclass, $2)", await self._sequence(table), greatest)

    async def finish(self) -> None:
        await self._connection.execute(f"ANALYZE {', '.join(TABLES)}")
        await self._connection.execute(f"DROP TABLE {schema.UNFINISHED_MOVE}")

    async def _sequence(self, table: str) -> str:
        return str(await self._connection.fetchval("SELECT pg_get_serial_sequence($1, 'id')", table))


def _sorted_key(table: str) -> str:
    """The key in SQLite's order, whatever the database's collation is."""
    return f'{key_of(table)} COLLATE "C"' if table in TEXT_KEYS else key_of(table)


@asynccontextmanager
async def open_source(url: str) -> AsyncIterator[PostgresEnd]:
    """The database to be read. Raises StoreError when it is not of the newest schema, or a server runs on it."""
    async with _connected(url) as end:
        if await version_of(url) != schema.newest_version():
            raise StoreError(f"{end.name} has no schema or an older one; start Cleanroom on it once, then move it.")
        yield end


@asynccontextmanager
async def open_target(url: str) -> AsyncIterator[PostgresEnd]:
    """The database to be filled. Raises StoreError when it can't be a target."""
    async with _connected(url) as end:
        if await end.source() is None:
            await _make_ready(url)
        yield end


async def _make_ready(url: str) -> None:
    version = await version_of(url)
    if version == schema.EMPTY:
        await migrate(url)
    elif version != schema.newest_version():
        raise StoreError(f"{place(url)} has an older schema; name an empty database.")


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[PostgresEnd]:
    name = place(url)
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, server_settings=_SETTINGS)
        try:
            await _refuse_others(connection, name)
            yield PostgresEnd(connection, name)
        finally:
            await connection.close()
    except ERRORS as error:
        raise store_error(error, name) or error from error


async def _refuse_others(connection: Any, name: str) -> None:
    """What a server wrote from now on would stay behind."""
    servers = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
    if await connection.fetchval(servers, SETTINGS["application_name"]):
        raise StoreError(f"{name} is in use by a running Cleanroom; stop all its servers first.")
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
        raise StoreError(f"{name} is being moved by another process; wait for that one.")
