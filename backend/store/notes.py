"""Rows of `notes`: facts of the whole workspace."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection


async def insert(tx: Connection, title: str, content: str, session_id: str, now: str) -> dict[str, Any]:
    row = await tx.fetch_one(
        """
        INSERT INTO notes (title, content, session_id, created_at, updated_at)
        VALUES (:title, :content, :session_id, :now, :now) RETURNING *
        """,
        {"title": title, "content": content, "session_id": session_id, "now": now},
    )
    assert row is not None
    return row


async def restore(tx: Connection, row: dict[str, Any], now: str) -> None:
    """Put a deleted note back under the number that it had; its chat may be gone meanwhile."""
    await tx.execute(
        """
        INSERT INTO notes (id, title, content, session_id, created_at, updated_at)
        VALUES (:id, :title, :content, (SELECT id FROM chats WHERE id = :session_id), :created_at, :now)
        """,
        {**row, "now": now},
    )


async def get(tx: Connection, note_id: int) -> dict[str, Any] | None:
    return await tx.fetch_one("SELECT * FROM notes WHERE id = :id", {"id": note_id})


async def list_all(tx: Connection) -> list[dict[str, Any]]:
    """Every note, the last changed first."""
    return await tx.fetch_all("SELECT * FROM notes ORDER BY updated_at DESC, id DESC")


async def list_heads(tx: Connection) -> list[dict[str, Any]]:
    """Every note without its text, which may be long: `{id, title, characters}`, the last changed first."""
    return await tx.fetch_all("SELECT id, title, LENGTH(content) AS characters FROM notes ORDER BY updated_at DESC, id DESC")


async def update(tx: Connection, note_id: int, *, title: str, content: str, now: str) -> None:
    await tx.execute(
        "UPDATE notes SET title = :title, content = :content, updated_at = :now WHERE id = :id",
        {"id": note_id, "title": title, "content": content, "now": now},
    )


async def delete(tx: Connection, note_id: int) -> None:
    await tx.execute("DELETE FROM notes WHERE id = :id", {"id": note_id})


async def count(tx: Connection) -> int:
    return int(await tx.fetch_value("SELECT COUNT(*) FROM notes"))
