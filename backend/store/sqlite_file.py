"""The database as a file: its path, the connections' settings, the lock of the one process that holds it, copies of it.

Knows SQLite and its errors, but none of our tables.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from backend.errors import StoreError

BUSY_MS = 5000

_SCHEME = "sqlite:///"

_PRAGMAS = (
    f"busy_timeout = {BUSY_MS}",
    "journal_mode = WAL",
    "foreign_keys = ON",
    "synchronous = NORMAL",  # with WAL: a power cut may take the last commits, never the database
    "secure_delete = ON",  # deleted text is overwritten, not left in free pages
)

_REASONS = {
    sqlite3.SQLITE_BUSY: "is locked by another program; close that program, then try again",
    sqlite3.SQLITE_LOCKED: "is locked by another program; close that program, then try again",
    sqlite3.SQLITE_FULL: "can't be written because the disk is full; free some space, then try again",
    sqlite3.SQLITE_READONLY: "can't be written; make the file and its folder writable for this user",
    sqlite3.SQLITE_PERM: "can't be opened; make the file and its folder writable for this user",
    sqlite3.SQLITE_CANTOPEN: "can't be opened; make the file and its folder writable for this user",
    sqlite3.SQLITE_IOERR: "can't be read or written; check the disk and the space left on it",
    sqlite3.SQLITE_CORRUPT: "is damaged; put a backup in its place",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; set CLEANROOM_DATABASE_URL to another file",
}


class WriteConnection(sqlite3.Connection):
    """A connection with every setting that SQLite forgets between connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row_factory = sqlite3.Row
        for pragma in _PRAGMAS:
            self.execute(f"PRAGMA {pragma}")


class ReadConnection(WriteConnection):
    """The same for readers: a write by mistake is refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA query_only = ON")


def file_path(url: str) -> Path:
    """The file that a sqlite:/// URL names; its text is the path as it is, with no escapes and no options."""
    if not url.startswith(_SCHEME) or url == _SCHEME:  # not quoted: another engine's has a password
        raise StoreError("CLEANROOM_DATABASE_URL names no file; this is for a SQLite file, and PostgreSQL has pg_dump, pg_restore and psql.")
    return Path(url.removeprefix(_SCHEME)).resolve()


def open_unchanged(path: Path) -> sqlite3.Connection:
    """Open an existing database to look at it; nothing is written, but what a killed writer left is recovered.

    Not for a file that this process has open: the look at its first bytes would drop SQLite's locks on it.
    """
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError as error:
        raise StoreError(f"{path.name} can't be read: {error.strerror}. Set CLEANROOM_DATABASE_URL to a file that can.") from None
    if not header.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{path.name} {_REASONS[sqlite3.SQLITE_NOTADB]}.")
    # Opening a file in WAL mode makes a log beside it, unless it is told that there is nothing to log.
    in_wal_mode = header[18:20] == b"\2\2"
    at_rest = in_wal_mode and not path.with_name(path.name + "-wal").exists()
    return open_file(path, "mode=ro&immutable=1" if at_rest else "mode=rw")


def open_file(path: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    """Open a database in autocommit mode: transactions begin and end where the caller says so."""
    return sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, timeout=BUSY_MS / 1000, isolation_level=None)


def store_error(error: sqlite3.Error, name: str = "The database") -> StoreError | None:
    """What the person is told about SQLite's error; None when the error is the program's own fault."""
    reason = _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return StoreError(f"{name} {reason}.") if reason else None


def back_up(path: Path, target: Path) -> None:
    """Copy the database to `target` in one consistent state, checked; `target` is whole or not there. Raises sqlite3.Error."""
    unfinished = target.with_name(target.name + ".part")
    unfinished.unlink(missing_ok=True)
    try:
        with closing(open_file(path)) as source, closing(sqlite3.connect(unfinished)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, with no -wal beside it
            verdict = copy.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict != "ok":
            raise StoreError(f"{path.name} is damaged, so no backup of it could be made; put an older backup in its place.")
        shutil.copymode(path, unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


class InstanceLock:
    """The right to be the one process that serves a database; the system takes it back when the process ends."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        # A file of its own: closing any handle of the database would drop SQLite's locks on it.
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock or raise StoreError naming the process that holds it."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"The folder of {self._name} can't be written: {error.strerror}. Make it writable for this user.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            process = f" (process {holder})" if holder else ""
            raise StoreError(f"{self._name} is in use by a running Cleanroom{process}; stop that one first or use another file.") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it could part two processes that wait for it."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
