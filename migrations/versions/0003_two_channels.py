"""Chats, the two channels of their messages, and the facts. Every session of an older program becomes a chat.

SQLite can't add NOT NULL or AUTOINCREMENT to a table, so both older tables are built anew and their rows copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any

import sqlalchemy as sa
from alembic import op

from migrations.older_rows import role_of, state_of, text_of, time_of, title_of

revision = "0003"
down_revision = "0002"

APPLICATION_ID = 0x436C6E72
POSTGRES_MARK = "Cleanroom"
BATCH = 1000

# The columns of the older tables that have a place in ours; any others are carried along.
_READ = {
    "older_messages": {"id", "session_id", "role", "content", "created_at", "is_ephemeral"},
    "older_states": {"session_id", "state"},
}

Row = dict[str, Any]

# SQLite numbers rows by itself only where the type is called INTEGER, which has 64 bits there.
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _check_ids()
    dependants = _plain_indexes_and_triggers()
    op.rename_table("chat_messages", "older_messages")
    op.rename_table("session_states", "older_states")
    _create_chats()
    _create_messages()
    _create_states()
    _create_paused_turns()
    _create_facts()
    if _on_sqlite():  # no older program used PostgreSQL
        _take_over_rows()
    op.drop_table("older_messages")
    op.drop_table("older_states")
    for statement in dependants:
        op.get_bind().exec_driver_sql(statement)
    if _on_sqlite():
        op.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    else:
        op.execute(f"COMMENT ON TABLE chats IS '{POSTGRES_MARK}'")


def _on_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _check_ids() -> None:
    """Ids are kept, so each must be a number of its own; a table without a primary key promises neither."""
    bind = op.get_bind()
    rows, ids = bind.execute(sa.text("SELECT COUNT(*), COUNT(DISTINCT id) FROM chat_messages")).one()
    if rows != ids:
        raise ValueError("its table 'chat_messages' has ids that are empty or used twice")
    if _on_sqlite() and bind.execute(sa.text("SELECT COUNT(*) FROM chat_messages WHERE typeof(id) <> 'integer'")).scalar():
        raise ValueError("its table 'chat_messages' has ids that are no whole numbers")


def _plain_indexes_and_triggers() -> list[str]:
    """What another program hung on the older tables and goes with them. UNIQUE goes, as do the tables' own constraints."""
    if not _on_sqlite():
        return []
    found = op.get_bind().exec_driver_sql(
        "SELECT sql FROM sqlite_master WHERE lower(tbl_name) IN ('chat_messages', 'session_states') "
        "AND type IN ('index', 'trigger') AND sql IS NOT NULL AND upper(sql) NOT LIKE 'CREATE UNIQUE%'"
    )
    return list(found.scalars())


def _one_of(column: str, *values: object, table: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(map(repr, values))})", name=f"{table}_{column}")


def _id() -> sa.Column[int]:
    return sa.Column("id", _ID, sa.Identity(), primary_key=True)


def _chat(delete: str = "CASCADE") -> sa.Column[str]:
    return sa.Column("session_id", sa.Text, sa.ForeignKey("chats.id", ondelete=delete), nullable=delete != "CASCADE")


def _text(name: str, default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default=default)


def _optional(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def _create_chats() -> None:
    op.create_table(
        "chats",
        sa.Column("id", sa.Text, primary_key=True, nullable=False),
        _text("title", ""),
        _text("title_by", "auto"),
        _number("pinned"),
        _optional("model"),
        sa.Column("ttl_messages", sa.Integer),  # NULL: the setting's
        _text("approval", "after"),
        _text("families_off", "[]"),  # a JSON list of the tool families that the chat's model is not offered
        sa.Column("client_id", sa.Text, unique=True),
        _text("created_at"),
        _text("updated_at"),
        _one_of("title_by", "auto", "person", table="chats"),
        _one_of("pinned", 0, 1, table="chats"),
        _one_of("approval", "after", "before", table="chats"),
    )


def _create_messages() -> None:
    op.create_table(
        "chat_messages",
        _id(),
        _chat(),
        _text("role"),
        _text("content"),
        _number("is_ephemeral"),
        _number("hidden"),
        _text("status", "complete"),
        _optional("turn_id"),
        _optional("client_id"),
        _optional("family"),
        _optional("tool"),
        _optional("card"),
        _optional("thinking"),
        _optional("model"),
        _optional("metrics"),
        _optional("transaction_id"),
        _text("created_at"),
        sa.UniqueConstraint("session_id", "client_id"),
        _one_of("role", "user", "assistant", "tool", table="chat_messages"),
        _one_of("is_ephemeral", 0, 1, table="chat_messages"),
        _one_of("hidden", 0, 1, table="chat_messages"),
        _one_of("status", "streaming", "complete", "stopped", "interrupted", "failed", table="chat_messages"),
        # SQLite would give the id of a deleted draft again, and the order by id would break.
        sqlite_autoincrement=True,
    )
    op.create_index("chat_messages_by_channel", "chat_messages", ["session_id", "is_ephemeral", "id"])
    op.create_index("chat_messages_by_session", "chat_messages", ["session_id", "id"])
    unfinished = sa.text("status = 'streaming'")
    op.create_index("chat_messages_streaming", "chat_messages", ["id"], sqlite_where=unfinished, postgresql_where=unfinished)


def _create_states() -> None:
    op.create_table(
        "session_states",
        sa.Column("session_id", sa.Text, sa.ForeignKey("chats.id", ondelete="CASCADE"), primary_key=True, nullable=False),
        _optional("active_tool"),
        _text("state", "{}"),
        _number("unrelated_count"),
        _optional("pending_transaction"),
        _text("updated_at"),
    )


def _create_paused_turns() -> None:
    op.create_table(
        "paused_turns",  # turns that wait for the person's Allow or Deny, with all that they need to go on
        sa.Column("session_id", sa.Text, sa.ForeignKey("chats.id", ondelete="CASCADE"), primary_key=True, nullable=False),
        _text("turn_id"),
        _text("call_id"),
        _text("state"),
        _optional("answer"),
        _one_of("answer", "allow", "deny", table="paused_turns"),
    )


def _create_facts() -> None:
    op.create_table(
        "system_prompts",
        _id(),
        _chat(),
        sa.Column("version", sa.Integer, nullable=False),
        _text("content"),
        _text("status"),
        _text("created_at"),
        sa.UniqueConstraint("session_id", "version"),
        _one_of("status", "draft", "applied", "superseded", "discarded", table="system_prompts"),
        sqlite_autoincrement=True,
    )
    _create_of_chat("tasks", _text("title"), _number("done"), _chat("SET NULL"), _text("updated_at"), _one_of("done", 0, 1, table="tasks"))
    _create_of_chat("notes", _text("title"), _text("content"), _chat("SET NULL"), _text("updated_at"))
    op.create_table(
        "deleted_facts",  # tasks and notes that can still be brought back
        _id(),
        _text("kind"),
        sa.Column("fact_id", _ID, nullable=False),
        _text("content"),
        _text("deleted_at"),
        sa.UniqueConstraint("kind", "fact_id"),
        _one_of("kind", "task", "note", table="deleted_facts"),
    )
    _create_of_chat("snapshots", _chat(), _text("label"), _text("content"))
    _create_of_chat(
        "context_events",
        _chat(),
        _text("kind"),
        _text("reason"),
        _optional("family"),
        _number("messages"),
        _number("tokens"),
        sa.Column("transaction_id", sa.Text, unique=True),
    )


def _create_of_chat(name: str, *items: sa.Column[Any] | sa.CheckConstraint) -> None:
    op.create_table(name, _id(), *items, _text("created_at"), sqlite_autoincrement=True)
    op.create_index(f"{name}_by_session", name, ["session_id"])


def _take_over_rows() -> None:
    """Copy every row of the older tables, and make a chat of each session that stands in one of them."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    unnamed = _unused_session_id()
    message_extras = _carry_columns("older_messages", "chat_messages")
    state_extras = _carry_columns("older_states", "session_states")
    states = _older_states(unnamed, state_extras)
    chats = _chats_of(_older_messages(unnamed, {}), states, now)
    _insert("chats", iter(chats.values()))
    _insert("chat_messages", _dated(_older_messages(unnamed, message_extras), chats))
    _insert("session_states", ({**row, "updated_at": now} for row in states.values()))


def _unused_session_id() -> str:
    """The id of the chat for rows without a session."""
    used = {text_of(row[key]) for table in ("older_messages", "older_states") for row in _rows(table, ["session_id"]) for key in row}
    return next(name for name in (f"older-{number}" for number in count(1)) if name not in used)


def _carry_columns(source: str, target: str) -> dict[str, str]:
    """Add the columns that only the older table has to the new one; old name to new name.

    BLOB is what SQLite converts nothing for, so values stay exactly as they were. A name of ours gets a prefix.
    """
    ours = {column.lower() for column in _columns(target)}
    extras = [column for column in _columns(source) if column.lower() not in _READ[source]]
    carried = {column: f"older_{column}" if column.lower() in ours else column for column in extras}
    for column in carried.values():
        op.add_column(target, sa.Column(column, sa.LargeBinary))
    return carried


def _columns(table: str) -> list[str]:
    return list(op.get_bind().execute(sa.select(sa.text("*")).select_from(sa.table(table)).limit(0)).keys())


def _rows(table: str, columns: list[str], order_by: str | None = None) -> Iterator[Row]:
    """Rows as dicts, read in batches; the names of the columns that we know are in lower case."""
    source = sa.table(table, *(sa.column(column) for column in columns))
    query = sa.select(source).order_by(sa.text(order_by)) if order_by else sa.select(source)
    for row in op.get_bind().execute(query, execution_options={"yield_per": BATCH}).mappings():
        yield dict(row)


def _older_messages(unnamed: str, extras: dict[str, str]) -> Iterator[Row]:
    """Each older message as a row of ours; its time may be None."""
    for older in _rows("older_messages", _columns("older_messages"), "id"):
        known = {column.lower(): value for column, value in older.items()}
        role, hidden = role_of(known["role"])
        yield {
            "id": known["id"],
            "session_id": _session_id(known["session_id"], unnamed),
            "role": role,
            "content": text_of(known["content"]),
            "is_ephemeral": int(known["is_ephemeral"] == 1),
            "hidden": hidden,
            "created_at": time_of(known.get("created_at")),
            **{new: older[old] for old, new in extras.items()},
        }


def _older_states(unnamed: str, extras: dict[str, str]) -> dict[str, Row]:
    """The older working states by chat. Keys that differ only in type fall together; all their texts are kept."""
    found: dict[str, list[Row]] = {}
    for older in _rows("older_states", _columns("older_states")):
        known = {column.lower(): value for column, value in older.items()}
        found.setdefault(_session_id(known["session_id"], unnamed), []).append({**older, "state": known["state"]})
    return {
        session_id: {
            "session_id": session_id,
            "state": state_of([row["state"] for row in rows]),
            **{new: rows[0][old] for old, new in extras.items()},
        }
        for session_id, rows in found.items()
    }


def _session_id(value: Any, unnamed: str) -> str:
    return text_of(value) if text_of(value).strip() else unnamed


def _chats_of(messages: Iterator[Row], states: dict[str, Row], now: str) -> dict[str, Row]:
    chats: dict[str, Row] = {}
    for row in messages:
        chat = chats.setdefault(row["session_id"], _new_chat(row["session_id"]))
        if row["role"] == "user" and not chat["title"]:
            chat["title"] = title_of(row["content"])
        chat["created_at"] = chat["created_at"] or row["created_at"]
        chat["updated_at"] = row["created_at"] or chat["updated_at"]
    for session_id in states:
        chats.setdefault(session_id, _new_chat(session_id))
    for chat in chats.values():
        chat["created_at"] = chat["created_at"] or now
        chat["updated_at"] = chat["updated_at"] or chat["created_at"]
    return chats


def _new_chat(session_id: str) -> Row:
    return {"id": session_id, "title": "", "created_at": None, "updated_at": None}


def _dated(messages: Iterator[Row], chats: dict[str, Row]) -> Iterator[Row]:
    """Give a message without a time that of the one before it in its chat."""
    latest = {session_id: chat["created_at"] for session_id, chat in chats.items()}
    for row in messages:
        latest[row["session_id"]] = row["created_at"] = row["created_at"] or latest[row["session_id"]]
        yield row


def _insert(table: str, rows: Iterator[Row]) -> None:
    while batch := list(islice(rows, BATCH)):
        target = sa.table(table, *(sa.column(column) for column in batch[0]))
        op.get_bind().execute(sa.insert(target), batch)
