"""A SQLite file as one end of a move, held by this process alone."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from backend.errors import StoreError
from backend.store import schema
from backend.store.migrate import migrate
from backend.store.moving import Key, Row, key_of
from backend.store.sqlite_file import BUSY_MS, InstanceLock, ReadConnection, WriteConnection, open_unchanged, store_error


class SqliteEnd:
    """Reads and writes on one connection. `replaced` counts the texts that had what no text of ours may have."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.name = name
        self.replaced = 0
        self._connection = connection
        connection.row_factory = None
        connection.text_factory = self._text

    async def columns(self, table: str) -> list[str]:
        return [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]

    async def rows(self, table: str, columns: list[str], after: Key | None = None) -> AsyncIterator[Row]:
        key = key_of(table)
        beyond = "" if after is None else f"WHERE {key} > :after"
        for row in self._connection.execute(f"SELECT {', '.join(columns)} FROM {table} {beyond} ORDER BY {key}", {"after": after}):
            yield row

    async def count(self, table: str) -> int:
        return int(self._connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])

    async def greatest_key(self, table: str) -> Key | None:
        key: Key | None = self._connection.execute(f"SELECT MAX({key_of(table)}) FROM {table}").fetchone()[0]
        return key

    async def last_number(self, table: str) -> int:
        given = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", [table]).fetchone()
        return int(given[0] if given else await self.greatest_key(table) or 0)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    async def source(self) -> str | None:
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [schema.UNFINISHED_MOVE]).fetchone():
            return None
        return str(self._connection.execute(f"SELECT source FROM {schema.UNFINISHED_MOVE}").fetchone()[0])

    async def begin(self, source: str) -> None:
        with self._transaction():
            self._connection.execute(f"CREATE TABLE {schema.UNFINISHED_MOVE} (source TEXT NOT NULL)")
            self._connection.execute(f"INSERT INTO {schema.UNFINISHED_MOVE} VALUES (?)", [source])

    async def add(self, table: str, columns: list[str], rows: list[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        try:
            with self._transaction():
                self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
        except sqlite3.IntegrityError as error:
            place = columns.index(key_of(table))
            raise StoreError(f"{self.name} refuses a row of {table}, {key_of(table)} {rows[0][place]!r} to {rows[-1][place]!r}: {error}.") from error

    async def number_after(self, table: str, last: int) -> None:
        if not last or not self._is_numbered(table):
            return
        with self._transaction():
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", [table])
            self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", [table, last])

    async def finish(self) -> None:
        self._connection.execute(f"DROP TABLE {schema.UNFINISHED_MOVE}")

    def _is_numbered(self, table: str) -> bool:
        """Whether SQLite keeps the last number; other tables give that of a deleted last row again."""
        statement = self._connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [table]).fetchone()[0]
        return "AUTOINCREMENT" in statement.upper()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _text(self, stored: bytes) -> str:
        """What `backend/text.py` makes of text that enters; an older program's, or another's, has not come that way."""
        text = stored.decode("utf-8", "replace").replace("\0", "\ufffd")
        if "\ufffd" in text and text.encode() != stored:
            self.replaced += 1
        return text


@asynccontextmanager
async def open_source(path: Path) -> AsyncIterator[SqliteEnd]:
    """The file to be read, as it is. Raises StoreError when it is not of the newest schema, or a server holds it."""
    _refuse_missing(path)
    with _held(path):
        if schema.version_of(path) != schema.newest_version():
            raise StoreError(f"{path.name} has an older schema; start Cleanroom on it once, then move it.")
        with closing(sqlite3.connect(path, factory=ReadConnection, timeout=BUSY_MS / 1000, isolation_level=None)) as connection:
            yield SqliteEnd(connection, path.name)


@asynccontextmanager
async def open_target(path: Path) -> AsyncIterator[SqliteEnd]:
    """The file to be filled, made when there is none. Raises StoreError when it can't be a target."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _held(path):
        if not _is_unfinished(path):
            _make_ready(path)
        with closing(sqlite3.connect(path, factory=WriteConnection, timeout=BUSY_MS / 1000, isolation_level=None)) as connection:
            yield SqliteEnd(connection, path.name)


def _refuse_missing(path: Path) -> None:
    """Before the lock, whose file would be made beside it."""
    if not path.is_file():
        raise StoreError(f"there is no database {path}.")


def _make_ready(path: Path) -> None:
    version = schema.version_of(path)
    if version == schema.EMPTY:
        migrate(path)
    elif version != schema.newest_version():
        raise StoreError(f"{path.name} is an older database; name a file that is not there yet.")


def _is_unfinished(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with closing(open_unchanged(path)) as connection:
        return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [schema.UNFINISHED_MOVE]).fetchone() is not None


@contextmanager
def _held(path: Path) -> Iterator[None]:
    lock = InstanceLock(path)
    lock.acquire()
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, path.name) or error from error
    finally:
        lock.release()
