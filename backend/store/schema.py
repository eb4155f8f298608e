"""What schema a database file has, and whether the file may be ours at all; looks and changes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from backend.errors import StoreError
from backend.store.sqlite_file import open_unchanged, store_error

MIGRATIONS = Path(__file__).resolve().parent.parent.parent / "migrations"

APPLICATION_ID = 0x436C6E72  # "Clnr" in the file's header, written by the migration that makes the new tables
UNFINISHED_MOVE = "unfinished_move"  # a table that is there while `scripts/move_database` fills the database
POSTGRES_MARK = "Cleanroom"  # the comment on the table of chats, in the same way
EMPTY = ""
OLDER_PROGRAM = "0000"
OLDER_VERSIONS = ("0001", "0002")  # have the older program's tables and no application id

OLDER_TABLES = {"chat_messages": {"id", "session_id", "role", "content"}, "session_states": {"session_id", "state"}}
# Children before their parents: emptied in this order, nothing is deleted behind one's back.
TABLES = (
    "reply_variants", "chat_messages", "session_states", "paused_turns", "context_events", "snapshots", "system_prompts", "tasks", "notes",
    "deleted_facts", "chats", "model_windows",
)  # fmt: skip
# Every other name that a migration gives, if only for a moment.
OTHER_NAMES = (
    "older_messages", "older_states", "chat_messages_by_session", "chat_messages_by_channel", "chat_messages_streaming",
    "reply_variants_by_session", "context_events_by_session", "snapshots_by_session", "tasks_by_session", "notes_by_session",
    "message_index", "message_index_data", "message_index_idx", "message_index_docsize", "message_index_config", "message_terms",
    "message_index_added", "message_index_changed", "message_index_removed",
    "_alembic_tmp_chats", "tasks_by_owner", "notes_by_owner", "deleted_facts_by_owner",
)  # fmt: skip


def known_versions() -> list[str]:
    """The schema's versions, oldest first: the numbers that the migrations' files begin with."""
    return sorted(file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def newest_version() -> str:
    return known_versions()[-1]


def version_of(path: Path) -> str:
    """A known version, OLDER_PROGRAM or EMPTY (also: no such file). Raises StoreError for a file that can't be ours."""
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return EMPTY
    try:
        with closing(open_unchanged(path)) as connection:
            return _identify(connection, path.name)
    except sqlite3.Error as error:
        raise store_error(error, path.name) or error from error


def unfinished_move(name: str) -> StoreError:
    return StoreError(f"{name} holds only a part of a move; run the same scripts/move_database again, or use another database.")


def _identify(connection: sqlite3.Connection, name: str) -> str:
    kinds = {row[0].lower(): row[1] for row in connection.execute("SELECT name, type FROM sqlite_master")}
    if not kinds:
        return EMPTY
    version = _recorded_version(connection) if "alembic_version" in kinds else None
    if version is not None and connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        if UNFINISHED_MOVE in kinds:
            raise unfinished_move(name)
        if version not in known_versions():
            raise StoreError(f"{name} has schema {version}, and this Cleanroom knows {newest_version()} at most; start a newer Cleanroom.")
        return version
    if version not in (None, *OLDER_VERSIONS) or not _has_older_tables(connection, kinds):
        raise StoreError(f"{name} belongs to another program; set CLEANROOM_DATABASE_URL to another file.")
    _refuse_clashes(kinds, name)
    return version or OLDER_PROGRAM


def _recorded_version(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT * FROM alembic_version").fetchone()
    return str(row[0]) if row else None


def _has_older_tables(connection: sqlite3.Connection, kinds: dict[str, str]) -> bool:
    """Whether one of the two older tables is there, and neither has another program's shape."""
    present = [table for table in OLDER_TABLES if table in kinds]
    return bool(present) and all(kinds[table] == "table" and OLDER_TABLES[table] <= _columns(connection, table) for table in present)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1].lower() for row in connection.execute(f"PRAGMA table_info({table})")}


def _refuse_clashes(kinds: dict[str, str], name: str) -> None:
    clashes = sorted(kinds.keys() & {*TABLES, *OTHER_NAMES} - OLDER_TABLES.keys())
    if clashes:
        raise StoreError(
            f"{name} has a {kinds[clashes[0]]} {clashes[0]!r} of its own, a name that Cleanroom needs; "
            "rename it there, or set CLEANROOM_DATABASE_URL to another file."
        )
