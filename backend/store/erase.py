"""Emptying a database of its conversations, in the file too; for `scripts/clear_history.py`, which runs without a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from backend.errors import StoreError
from backend.store import schema
from backend.store.sqlite_file import open_file, store_error

HISTORY_TABLES = ("reply_variants", "chat_messages", "session_states", "paused_turns", "context_events")


def rows_to_erase(path: Path, *, everything: bool) -> dict[str, int]:
    """How many rows each table would lose: the history's, or with `everything` all of ours. Other programs' tables never."""
    version = schema.version_of(path)
    if version == schema.EMPTY:
        return {}
    ours = schema.OLDER_TABLES if version in (schema.OLDER_PROGRAM, *schema.OLDER_VERSIONS) else schema.TABLES
    wanted = [table for table in ours if everything or table in HISTORY_TABLES]
    with _opened(path) as connection:
        present = {row[0].lower() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in wanted if table in present}


def erase(path: Path, tables: list[str]) -> None:
    """Delete every row of `tables` in one transaction. Titles made from a chat's first message go with the messages."""
    with _opened(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for table in tables:
            connection.execute(f"DELETE FROM {table}")
        if "chat_messages" in tables and _has_chats(connection):
            connection.execute("UPDATE chats SET title = '' WHERE title_by = 'auto'")
        connection.execute("COMMIT")


def compact(path: Path) -> None:
    """Leave nothing that was deleted in the file or its log. Raises StoreError when another connection is in the way."""
    with _opened(path) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'message_index'").fetchone():
            connection.execute("INSERT INTO message_index (message_index) VALUES ('optimize')")  # deleted words wait in it for this
        connection.execute("VACUUM")
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreError(f"{path.name} is read by another program, so its log still holds deleted text.")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that keeps the file's journal mode. Foreign keys stay off: no other program's row goes along."""
    try:
        with closing(open_file(path)) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            yield connection
    except sqlite3.Error as error:
        raise store_error(error, path.name) or error from error


def _has_chats(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID)
