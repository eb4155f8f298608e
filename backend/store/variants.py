"""Rows of `reply_variants`: the replies to a message that are not the shown one, each at its number."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection


async def insert(tx: Connection, **columns: object) -> None:
    await tx.execute(
        """
        INSERT INTO reply_variants
            (session_id, user_message_id, position, content, status, thinking, model, metrics, receipts, created_at)
        VALUES
            (:session_id, :user_message_id, :position, :content, :status, :thinking, :model, :metrics, :receipts, :created_at)
        """,
        columns,
    )


async def count(tx: Connection, user_message_id: int) -> int:
    return int(await tx.fetch_value("SELECT COUNT(*) FROM reply_variants WHERE user_message_id = :id", {"id": user_message_id}))


async def take(tx: Connection, user_message_id: int, position: int) -> dict[str, Any] | None:
    """Delete a variant and return it, to be shown; None when there is none at that number."""
    return await tx.fetch_one(
        "DELETE FROM reply_variants WHERE user_message_id = :id AND position = :position RETURNING *",
        {"id": user_message_id, "position": position},
    )


async def delete_all(tx: Connection, user_message_id: int) -> None:
    await tx.execute("DELETE FROM reply_variants WHERE user_message_id = :id", {"id": user_message_id})


async def without_shown(tx: Connection, session_id: str | None = None) -> list[dict[str, Any]]:
    """The newest questions, of all chats or of one, that have variants and show none of them, their turns being over.

    An ended process left them so.
    """
    return await tx.fetch_all(
        """
        SELECT * FROM chat_messages AS question
        WHERE id IN (SELECT user_message_id FROM reply_variants) AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
            AND NOT EXISTS (
                SELECT 1 FROM chat_messages AS later
                WHERE later.session_id = question.session_id AND later.id > question.id AND (later.role = 'user' OR later.variants IS NOT NULL)
            )
            AND NOT EXISTS (SELECT 1 FROM paused_turns WHERE paused_turns.session_id = question.session_id)
        """,
        {"session_id": session_id},
    )
