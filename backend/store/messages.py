"""Rows of `chat_messages`, in their two channels: what the person sees and what the model may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backend.store.connection import Connection, Row

HISTORY_LIMIT = 12
# Greater than any id.
NO_ID = 2**63 - 1

_COLUMNS = (
    "id", "session_id", "role", "content", "is_ephemeral", "hidden", "status", "turn_id", "client_id", "family",
    "tool", "card", "thinking", "model", "metrics", "transaction_id", "variant", "variants", "created_at",
)  # fmt: skip


async def ui_history(tx: Connection, session_id: str, before_id: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """The UI channel: the newest `limit` messages before `before_id`, whatever their kind, oldest first."""
    rows = await tx.fetch_all(
        """
        SELECT * FROM chat_messages
        WHERE session_id = :session_id AND id < :before_id
        ORDER BY id DESC LIMIT :limit
        """,
        {"session_id": session_id, "before_id": NO_ID if before_id is None else before_id, "limit": limit},
    )
    return rows[::-1]


async def db_get_chat_history(tx: Connection, session_id: str, limit: int = HISTORY_LIMIT) -> list[dict[str, Any]]:
    """The LLM channel: role and content of the newest permanent messages, oldest first.

    The only way by which stored messages reach a model. Working material is not in it, by this statement.
    """
    rows = await tx.fetch_all(
        """
        SELECT role, content FROM chat_messages
        WHERE session_id = :session_id AND is_ephemeral = 0 AND hidden = 0
        ORDER BY id DESC LIMIT :limit
        """,
        {"session_id": session_id, "limit": limit},
    )
    return rows[::-1]


async def count_history(tx: Connection, session_id: str) -> int:
    """How many messages the LLM channel has in all; the window's start follows from it."""
    return int(
        await tx.fetch_value(
            "SELECT COUNT(*) FROM chat_messages WHERE session_id = :session_id AND is_ephemeral = 0 AND hidden = 0",
            {"session_id": session_id},
        )
    )


async def withheld(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """What the LLM channel leaves out or may leave out: id, kind and texts of every message, newest first."""
    return await tx.fetch_all(
        """
        SELECT id, role, content, card, thinking, is_ephemeral, hidden, family, tool, created_at
        FROM chat_messages WHERE session_id = :session_id ORDER BY id DESC
        """,
        {"session_id": session_id},
    )


async def insert(tx: Connection, **columns: object) -> dict[str, Any]:
    """Insert a message and return its whole row; columns that aren't named take their defaults."""
    names = [name for name in _COLUMNS if name in columns]
    row = await tx.fetch_one(
        f"INSERT INTO chat_messages ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)}) RETURNING *",
        columns,
    )
    assert row is not None
    return row


async def update(tx: Connection, message_id: int, **columns: object) -> dict[str, Any] | None:
    """Write the named columns; the whole row, or None when the message is gone."""
    return await _update(tx, "id = :id", message_id, columns)


async def _update(tx: Connection, condition: str, message_id: int, columns: dict[str, object]) -> dict[str, Any] | None:
    names = [name for name in _COLUMNS if name in columns]
    assignments = ", ".join(f"{name} = :{name}" for name in names)
    return await tx.fetch_one(f"UPDATE chat_messages SET {assignments} WHERE {condition} RETURNING *", {**columns, "id": message_id})


async def chat_of(tx: Connection, message_id: int) -> str | None:
    """The chat that a message is in; None when it is gone."""
    found = await tx.fetch_value("SELECT session_id FROM chat_messages WHERE id = :id", {"id": message_id})
    return None if found is None else str(found)


async def get_by_client_id(tx: Connection, session_id: str, client_id: str) -> dict[str, Any] | None:
    return await tx.fetch_one(
        "SELECT * FROM chat_messages WHERE session_id = :session_id AND client_id = :client_id",
        {"session_id": session_id, "client_id": client_id},
    )


async def get(tx: Connection, message_id: int) -> dict[str, Any] | None:
    return await tx.fetch_one("SELECT * FROM chat_messages WHERE id = :id", {"id": message_id})


async def last_user_message(tx: Connection, session_id: str) -> dict[str, Any] | None:
    return await tx.fetch_one(
        "SELECT * FROM chat_messages WHERE session_id = :session_id AND role = 'user' ORDER BY id DESC LIMIT 1",
        {"session_id": session_id},
    )


async def question_of(tx: Connection, session_id: str, reply_id: int) -> dict[str, Any]:
    """The user message that a reply answers."""
    row = await tx.fetch_one(
        "SELECT * FROM chat_messages WHERE session_id = :session_id AND role = 'user' AND id < :id ORDER BY id DESC LIMIT 1",
        {"session_id": session_id, "id": reply_id},
    )
    assert row is not None
    return row


async def is_first_question(tx: Connection, session_id: str, message_id: int) -> bool:
    """Whether no user message stands before this one."""
    first = await tx.fetch_value("SELECT MIN(id) FROM chat_messages WHERE session_id = :session_id AND role = 'user'", {"session_id": session_id})
    return bool(first == message_id)


async def free_id(tx: Connection, after: int, before: int) -> int | None:
    """The first id between two others that no message has, such as one that a deleted row had."""
    found = await tx.fetch_value(
        """
        SELECT MIN(id) + 1 FROM chat_messages AS taken
        WHERE id >= :after AND id + 1 < :before AND NOT EXISTS (SELECT 1 FROM chat_messages AS other WHERE other.id = taken.id + 1)
        """,
        {"after": after, "before": before},
    )
    return None if found is None else int(found)


async def list_after(tx: Connection, session_id: str, message_id: int) -> list[dict[str, Any]]:
    return await tx.fetch_all(
        "SELECT * FROM chat_messages WHERE session_id = :session_id AND id > :id ORDER BY id",
        {"session_id": session_id, "id": message_id},
    )


async def give_turn(tx: Connection, session_id: str, first_id: int, turn_id: str) -> list[dict[str, Any]]:
    """Make a message and all that follow it those of another turn; the whole rows, oldest first."""
    rows = await tx.fetch_all(
        "UPDATE chat_messages SET turn_id = :turn_id WHERE session_id = :session_id AND id >= :id RETURNING *",
        {"session_id": session_id, "id": first_id, "turn_id": turn_id},
    )
    return sorted(rows, key=lambda row: int(row["id"]))


async def receipts_of_turn(tx: Connection, session_id: str, turn_id: str | None) -> list[dict[str, Any]]:
    return await tx.fetch_all(
        "SELECT * FROM chat_messages WHERE session_id = :session_id AND turn_id = :turn_id AND role = 'tool' AND is_ephemeral = 0",
        {"session_id": session_id, "turn_id": turn_id},
    )


async def delete(tx: Connection, message_id: int) -> None:
    await tx.execute("DELETE FROM chat_messages WHERE id = :id", {"id": message_id})


async def delete_after(tx: Connection, session_id: str, message_id: int, kept: int | None) -> list[int]:
    """Delete all messages that follow one, but `kept`; their ids."""
    rows = await tx.fetch_all(
        "DELETE FROM chat_messages WHERE session_id = :session_id AND id > :id AND id <> COALESCE(:kept, :id) RETURNING id",
        {"session_id": session_id, "id": message_id, "kept": kept},
    )
    return sorted(int(row["id"]) for row in rows)


async def list_ephemeral(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    return await tx.fetch_all(
        "SELECT * FROM chat_messages WHERE session_id = :session_id AND is_ephemeral = 1 ORDER BY id",
        {"session_id": session_id},
    )


async def delete_ephemeral(tx: Connection, session_id: str, keep_family: str | None = None) -> list[dict[str, Any]]:
    """Delete the chat's working material, but that of `keep_family`; the rows as they were.

    A card that waits for an answer stays: without it nobody could give one.
    """
    rows = await tx.fetch_all(
        """
        DELETE FROM chat_messages
        WHERE session_id = :session_id AND is_ephemeral = 1 AND status <> 'streaming' AND COALESCE(family, '') <> :keep_family
        RETURNING *
        """,
        {"session_id": session_id, "keep_family": keep_family or "no family"},
    )
    return sorted(rows, key=lambda row: int(row["id"]))


async def interrupt_streaming(tx: Connection, session_id: str | None = None) -> list[dict[str, Any]]:
    """Mark the replies that an ended process left unfinished, in all chats or in one; the whole rows.

    Their saved text stays; without any they are the person's only.
    """
    return await tx.fetch_all(
        """
        UPDATE chat_messages
        SET status = 'interrupted', is_ephemeral = CASE WHEN content = '' THEN 1 ELSE is_ephemeral END
        WHERE status = 'streaming' AND role = 'assistant' AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
        RETURNING *
        """,
        {"session_id": session_id},
    )


async def unfinished_chats(tx: Connection) -> list[str]:
    """The chats with a message that is not whole: its turn runs, waits for a person, or was left by a process that ended."""
    return [row["session_id"] for row in await tx.fetch_all("SELECT DISTINCT session_id FROM chat_messages WHERE status = 'streaming'")]


# The message `:id`, unless it is whole, or was ended by another process.
_IS_UNFINISHED = "id = :id AND status = 'streaming'"


async def save_unfinished(tx: Connection, message_id: int, **columns: object) -> dict[str, Any] | None:
    """Write the named columns of a message that is not whole; None when it is gone, or was ended by another process."""
    return await _update(tx, _IS_UNFINISHED, message_id, columns)


async def save_texts(tx: Connection, texts: Iterable[Row]) -> None:
    """Write `content` and `thinking` of messages that are not whole, each by its `id`; one that is gone or was ended is passed over."""
    await tx.execute_many(f"UPDATE chat_messages SET content = :content, thinking = :thinking WHERE {_IS_UNFINISHED}", texts)
