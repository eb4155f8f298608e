"""The pool of connections to PostgreSQL and the units of work that run on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg
import databases

from backend.errors import StoreError
from backend.logs import fields
from backend.store import schema
from backend.store.connection import Connection
from backend.store.postgres.connection import PostgresConnection
from backend.store.postgres.migrate import migrate
from backend.store.postgres.server import (
    CONNECT_SECONDS,
    ERRORS,
    MARGIN_SECONDS,
    READ_SECONDS,
    SETTINGS,
    STATEMENT_SECONDS,
    is_cut_off,
    place,
    store_error,
)
from backend.store.units import Running, WritersTurn, to_its_end

T = TypeVar("T")

logger = logging.getLogger(__name__)

READERS = 4
# Beside the readers: the writer, and a vacuum.
CONNECTIONS = READERS + 2

# Another process's doing: the same unit finds a new state when it runs again. An upgrade that ends may be in its way twice,
# by a lock and by a statement that was prepared for the tables of before.
_PASSING = (asyncpg.UniqueViolationError, asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.InvalidCachedStatementError)
ATTEMPTS = 3

VACUUM_SECONDS = 3_600


class PostgresDatabase:
    """One PostgreSQL database, which other processes may use at the same time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: databases.Database | None = None
        self._writers_turn = WritersTurn()
        self._readers = asyncio.Semaphore(READERS)
        self._units = Running()
        self._vacuuming: asyncio.Task[None] | None = None
        self._is_vacuumed = True
        self._is_away = False

    async def connect(self) -> None:
        try:
            await to_its_end(asyncio.create_task(self._open()))
        except asyncio.CancelledError:
            await self.disconnect()
            raise

    async def disconnect(self) -> None:
        pool, self._pool = self._pool, None
        if self._vacuuming is not None:
            self._vacuuming.cancel()
            await asyncio.wait([self._vacuuming])
            self._vacuuming = None
        await self._units.wait()
        if pool is not None:
            await to_its_end(asyncio.create_task(pool.disconnect()))

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._run(lambda pool: self._read(pool, work))

    async def write(self, work: Callable[[Connection], Awaitable[T]], then: Callable[[T], object] | None = None, *, is_urgent: bool = False) -> T:
        return await self._run(lambda pool: self._write(pool, work, then, is_urgent))

    async def scrub(self) -> bool:
        """Have deleted rows and their words taken out of tables and indexes, in the background: it may take long and blocks nobody."""
        self._is_vacuumed = False
        if self._pool is not None and (self._vacuuming is None or self._vacuuming.done()):
            self._vacuuming = asyncio.create_task(self._vacuum(self._pool))
        return False

    async def check(self) -> bool:
        try:
            return bool(await self.read(lambda tx: tx.fetch_value("SELECT COUNT(*) FROM alembic_version")))
        except (StoreError, *ERRORS):
            return False

    async def _open(self) -> None:
        await migrate(self._url)
        logging.getLogger("asyncpg.pool").addFilter(_is_news)
        pool = databases.Database(
            self._url,
            min_size=1,  # by which a move sees that a server runs
            max_size=CONNECTIONS,
            timeout=CONNECT_SECONDS,
            command_timeout=STATEMENT_SECONDS + MARGIN_SECONDS,
            server_settings=SETTINGS,
        )
        try:
            await pool.connect()
        except ERRORS as error:
            raise store_error(error, place(self._url)) or error from error
        self._pool = pool

    async def _run(self, start: Callable[[databases.Database], Coroutine[Any, Any, T]]) -> T:
        """Run a unit as a task of its own: one that is cancelled in the middle would never give its connection back."""
        if self._pool is None:
            raise StoreError("The database is closed; start the server again.")
        try:
            result = await self._units.run(start(self._pool))
        except ERRORS as error:
            told = store_error(error)
            self._notice(told if is_cut_off(error) else None)
            raise told or error from error
        self._notice(None)
        return result

    def _notice(self, failure: StoreError | None) -> None:
        """Log that the server went away or is back: a line each, however many units it was away for."""
        if self._is_away != (failure is not None):
            self._is_away = failure is not None
            logger.warning("PostgreSQL is away" if failure else "PostgreSQL is back", extra=fields(reason=failure) if failure else None)

    async def _read(self, pool: databases.Database, work: Callable[[Connection], Awaitable[T]]) -> T:
        begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '{READ_SECONDS}s'"
        async with self._readers:
            return await _attempted(lambda: _transaction(pool, begin, work, READ_SECONDS + MARGIN_SECONDS))

    async def _write(self, pool: databases.Database, work: Callable[[Connection], Awaitable[T]], then: Callable[[T], object] | None, is_urgent: bool) -> T:
        async with self._writers_turn.taken(is_urgent=is_urgent):
            result = await _attempted(lambda: _transaction(pool, "BEGIN", work))
            if then is not None:
                then(result)
            return result

    async def _vacuum(self, pool: databases.Database) -> None:
        while not self._is_vacuumed:
            self._is_vacuumed = True
            with suppress(*ERRORS):  # PostgreSQL does it by itself too, later
                async with pool.connection() as held:
                    await held.raw_connection.execute("SET statement_timeout = 0")
                    await held.raw_connection.execute(f"VACUUM (SKIP_LOCKED) {', '.join(schema.TABLES)}", timeout=VACUUM_SECONDS)


def _is_news(record: logging.LogRecord) -> bool:
    """Not that the pool could not connect once more: that the server is away is said once (`_notice`)."""
    return "retrying" not in record.msg


async def _attempted(transaction: Callable[[], Awaitable[T]]) -> T:
    for _ in range(ATTEMPTS - 1):
        with suppress(*_PASSING):
            return await transaction()
    return await transaction()


async def _transaction(pool: databases.Database, begin: str, work: Callable[[Connection], Awaitable[T]], answer_seconds: float | None = None) -> T:
    async with pool.connection() as held:
        driver: Any = held.raw_connection
        try:
            await driver.execute(begin, timeout=answer_seconds)
            result = await work(PostgresConnection(driver, answer_seconds))
            await driver.execute("COMMIT", timeout=answer_seconds)
        except BaseException as error:
            with suppress(*ERRORS):  # a lost connection has rolled back already
                if is_cut_off(error):
                    driver.terminate()  # it would have us wait once more
                else:
                    await driver.execute("ROLLBACK", timeout=answer_seconds)
            raise
        return result
