"""Backups as files: whether one can be trusted, and putting it in the database's place."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from backend.errors import StoreError
from backend.store import schema
from backend.store.sqlite_file import back_up, open_unchanged, store_error

# SQLite keeps these beside a database; another file's must not be read into a restored one.
COMPANIONS = ("-wal", "-shm", "-journal")


def beside(path: Path) -> Path:
    """Where a copy of the database goes that nobody named: beside it, by the time."""
    return path.with_name(f"{path.name}.{datetime.now():%Y%m%d-%H%M%S}.bak")


def make(path: Path, target: Path) -> None:
    """Copy the database to `target`, which is whole or not there. Raises StoreError."""
    try:
        back_up(path, target)
    except sqlite3.Error as error:
        raise store_error(error, "The backup") or error from error


def check(backup: Path) -> int:
    """How many messages a backup holds. Raises StoreError when it is no whole database of ours that this version can use."""
    if not backup.is_file():
        raise StoreError(f"there is no backup {backup}.")
    if schema.version_of(backup) == schema.EMPTY:
        raise StoreError(f"{backup.name} is empty.")
    try:
        with closing(open_unchanged(backup)) as connection:
            verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
            messages = int(connection.execute("SELECT COUNT(*) FROM chat_messages").fetchone()[0])
    except sqlite3.Error as error:
        raise store_error(error, backup.name) or error from error
    if verdict != "ok":
        raise StoreError(f"{backup.name} is damaged; take another backup.")
    return messages


def put_back(backup: Path, path: Path) -> None:
    """Put a copy of `backup` in the place of `path`: whole, or the old file is still there.

    The caller holds the instance lock and has kept what is there, its log included.
    """
    unfinished = path.with_name(path.name + ".part")
    try:
        shutil.copyfile(backup, unfinished)
        unfinished.chmod(0o600)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        for companion in COMPANIONS:  # before the new file is there: an old log read into it would damage it
            path.with_name(path.name + companion).unlink(missing_ok=True)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def keep(path: Path, target: Path) -> None:
    """Copy the database to `target`; one that is damaged as it is, with its log beside it."""
    try:
        back_up(path, target)
    except (sqlite3.Error, StoreError):
        for companion in ("", *COMPANIONS):
            source = path.with_name(path.name + companion)
            if source.exists():
                shutil.copyfile(source, target.with_name(target.name + companion))
