"""Rows of `chat_messages`, in their two channels: what the person sees and what the model may see."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection

HISTORY_LIMIT = 12

_COLUMNS = (
    "id", "session_id", "role", "content", "is_ephemeral", "hidden", "status", "turn_id", "client_id", "family",
    "tool", "card", "thinking", "model", "metrics", "transaction_id", "variant", "variants", "created_at",
)  # fmt: skip


async def ui_history(tx: Connection, session_id: str, before_id: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """The UI channel: the newest `limit` messages before `before_id`, whatever their kind, oldest first."""
    rows = await tx.fetch_all(
        """
        SELECT * FROM chat_messages
        WHERE session_id = :session_id AND (:before_id IS NULL OR id < :before_id)
        ORDER BY id DESC LIMIT :limit
        """,
        {"session_id": session_id, "before_id": before_id, "limit": limit},
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
    names = [name for name in _COLUMNS if name in columns]
    assignments = ", ".join(f"{name} = :{name}" for name in names)
    return await tx.fetch_one(f"UPDATE chat_messages SET {assignments} WHERE id = :id RETURNING *", {**columns, "id": message_id})


async def is_owned(tx: Connection, owner: str, message_id: int) -> bool:
    """Whether there is such a message, in a chat of the user's."""
    row = await tx.fetch_one(
        "SELECT 1 FROM chat_messages JOIN chats ON chats.id = session_id WHERE chat_messages.id = :id AND owner = :owner",
        {"id": message_id, "owner": owner},
    )
    return row is not None


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


async def interrupt_streaming(tx: Connection) -> int:
    """Mark the replies that an ended process left unfinished. Their saved text stays; without any they are the person's only."""
    return await tx.execute(
        """
        UPDATE chat_messages
        SET status = 'interrupted', is_ephemeral = CASE WHEN content = '' THEN 1 ELSE is_ephemeral END
        WHERE status = 'streaming' AND role = 'assistant'
        """
    )
