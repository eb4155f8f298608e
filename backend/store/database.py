"""The held connections to a SQLite file and the units of work that run on them.

`databases` opens the connections and closes them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import databases

from backend.errors import StoreError
from backend.store import deleted_words, schema
from backend.store.connection import Connection
from backend.store.sqlite_file import BUSY_MS, InstanceLock, ReadConnection, WriteConnection, file_path, store_error
from backend.store.units import Running, WritersTurn, to_its_end

T = TypeVar("T")

# A query of facts keeps one waiting for about a second, and two may run: the chats have as many to themselves.
READERS = 4
# Rebuilding the file holds up the writers: about a second for this much.
COMPACT_BYTES = 134_217_728
# How long a scrub may hold up the writers while a reader is in its way, and when it is tried again.
SCRUB_BUSY_MS = 100
SCRUB_RETRY_SECONDS = 1.0
# Between two steps of a long one, so that whoever writes or reads comes through.
SCRUB_PAUSE_SECONDS = 0.05
# SQLite's extended codes carry the primary one in their lowest byte.
PRIMARY_CODE = 0xFF


class Database:
    """One SQLite file, held by this process alone between `connect` and `disconnect`."""

    def __init__(self, url: str) -> None:
        self.path = file_path(url)
        self._resources: AsyncExitStack | None = None
        self._writer: Connection
        self._writers_turn = WritersTurn()
        self._readers: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        self._units = Running()
        self._scrubbing: asyncio.Task[None] | None = None
        self._is_compact = True

    async def connect(self) -> None:
        """Lock the file, bring it to the newest schema and open it. Raises StoreError, with nothing left open."""
        try:
            await to_its_end(asyncio.create_task(self._open()))
            if await self.read(deleted_words.are_left):  # the process before this one ended in the middle of it
                await self.scrub()
        except asyncio.CancelledError:
            await self.disconnect()
            raise

    async def disconnect(self) -> None:
        """Wait for the units under way, empty the write-ahead log into the file and close everything."""
        resources, self._resources = self._resources, None
        if self._scrubbing is not None:
            self._scrubbing.cancel()
            self._scrubbing = None
        await self._units.wait()
        if resources is not None:
            await to_its_end(asyncio.create_task(resources.aclose()))

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` on a reader in one snapshot of the database."""
        return await self._run(self._read(work))

    async def write(self, work: Callable[[Connection], Awaitable[T]], then: Callable[[T], object] | None = None, *, is_urgent: bool = False) -> T:
        """Run `work` in a transaction of its own; an exception rolls it back. An urgent one comes before all that wait.

        `then` is called with the result after the commit and before the next writer starts, so what it
        publishes has the order of the commits. A unit that began ends: a caller that is cancelled
        waits for it. A unit must not start another one and wait for that.
        """
        return await self._run(self._write(work, then, is_urgent))

    async def scrub(self) -> bool:
        """Take deleted text out of the index of words, the file and its log.

        False when it goes on in the background: there is much of it, or another program is in the way.
        """
        self._is_compact = False
        with suppress(StoreError):
            await self.write(deleted_words.forget_some)
        if not await self.read(deleted_words.are_left) and await self._scrub_file():
            return True
        if self._scrubbing is None or self._scrubbing.done():
            self._scrubbing = asyncio.create_task(self._scrub_until_done())
        return False

    async def check(self) -> bool:
        """Whether the database answers."""
        try:
            return bool(await self.read(lambda tx: tx.fetch_value("SELECT COUNT(*) FROM alembic_version")))
        except (StoreError, sqlite3.Error):
            return False

    async def _open(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"The folder of {self.path.name} can't be made: {error.strerror}. Set CLEANROOM_DATABASE_URL to another.") from None
        try:
            await self._open_file()
        except sqlite3.Error as error:
            raise store_error(error, self.path.name) or error from error

    async def _open_file(self) -> None:
        async with AsyncExitStack() as stack:
            lock = InstanceLock(self.path)
            lock.acquire()
            stack.callback(lock.release)
            await asyncio.to_thread(_bring_up_to_date, self.path)
            self._writer = await self._hold(stack, WriteConnection)
            stack.push_async_callback(self._checkpoint_quietly)
            await self._checkpoint()  # what a process that was killed had deleted may still be in its log
            self._readers = asyncio.LifoQueue()
            for _ in range(READERS):
                self._readers.put_nowait(await self._hold(stack, ReadConnection))
            self._resources = stack.pop_all()

    async def _hold(self, stack: AsyncExitStack, factory: type[sqlite3.Connection]) -> Connection:
        """Open a connection that stays open until `stack` ends; `databases` alone would open one for each task."""
        url = f"sqlite:///{quote(str(self.path))}"
        held = await stack.enter_async_context(databases.Database(url, factory=factory, timeout=BUSY_MS / 1000).connection())
        return Connection(held.raw_connection)

    async def _run(self, unit: Coroutine[Any, Any, T]) -> T:
        if self._resources is None:
            unit.close()
            raise StoreError("The database is closed; start the server again.")
        try:
            return await self._units.run(unit)
        except sqlite3.Error as error:
            raise store_error(error) or error from error

    async def _read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        reader = await self._readers.get()
        try:
            await reader.execute("BEGIN")
            return await work(reader)
        finally:
            await _roll_back(reader)
            self._readers.put_nowait(reader)

    async def _write(self, work: Callable[[Connection], Awaitable[T]], then: Callable[[T], object] | None, is_urgent: bool) -> T:
        async with self._writers_turn.taken(is_urgent=is_urgent):
            try:
                await self._writer.execute("BEGIN IMMEDIATE")
                result = await work(self._writer)
                await self._writer.execute("COMMIT")
            except BaseException:
                await _roll_back(self._writer)
                raise
            if then is not None:
                then(result)
            return result

    async def _compact(self) -> bool:
        """Rebuild a file of moderate size: moving rows between pages leaves copies that secure_delete doesn't know of.

        False when another program was writing. Without room on the disk for the copy the rows are gone all the same.
        """
        if self.path.stat().st_size > COMPACT_BYTES:
            return True
        async with self._writers_turn.taken():
            try:
                await self._writer.execute("VACUUM")
            except sqlite3.OperationalError as error:
                return error.sqlite_errorcode & PRIMARY_CODE != sqlite3.SQLITE_BUSY
        return True

    async def _checkpoint(self) -> bool:
        async with self._writers_turn.taken():
            await self._writer.fetch_value(f"PRAGMA busy_timeout = {SCRUB_BUSY_MS}")
            try:
                blocked = await self._writer.fetch_value("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                await self._writer.fetch_value(f"PRAGMA busy_timeout = {BUSY_MS}")  # a row left unread would stop the next VACUUM
            return not blocked

    async def _checkpoint_quietly(self) -> None:
        with suppress(sqlite3.Error):  # at the end nobody can be told; the next start does it
            await self._checkpoint()

    async def _scrub_file(self) -> bool:
        self._is_compact = self._is_compact or await self._run(self._compact())
        return await self._run(self._checkpoint()) and self._is_compact

    async def _scrub_until_done(self) -> None:
        is_done = False
        while not is_done:
            await asyncio.sleep(SCRUB_RETRY_SECONDS)
            with suppress(StoreError):
                while await self.read(deleted_words.are_left):
                    await self.write(deleted_words.forget_some)
                    await asyncio.sleep(SCRUB_PAUSE_SECONDS)
                is_done = await self._scrub_file()


def _bring_up_to_date(path: Path) -> None:
    if schema.version_of(path) != schema.newest_version():
        # Not at the top: Alembic takes a third of a second to import, and most starts have no need of it.
        from backend.store.migrate import migrate

        migrate(path)
    # A file that can't be written shows itself here: aiosqlite's thread outlives a connection that can't be opened.
    with closing(sqlite3.connect(path, factory=WriteConnection, timeout=BUSY_MS / 1000, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


async def _roll_back(connection: Connection) -> None:
    with suppress(sqlite3.Error):  # SQLite has already done so when the disk was full
        await connection.execute("ROLLBACK")
