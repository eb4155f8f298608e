"""Rows of `notes`: facts of a user's whole workspace. A chat reaches those of its owner, and no others."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection
from backend.store.owners import OWNER


async def insert(tx: Connection, title: str, content: str, session_id: str, now: str) -> dict[str, Any]:
    row = await tx.fetch_one(
        f"""
        INSERT INTO notes (title, content, session_id, owner, created_at, updated_at)
        VALUES (:title, :content, :session_id, {OWNER}, :now, :now) RETURNING *
        """,
        {"title": title, "content": content, "session_id": session_id, "now": now},
    )
    assert row is not None
    return row


async def restore(tx: Connection, session_id: str, row: dict[str, Any], now: str) -> None:
    """Put a deleted note back under the number that it had; the chat that it came from may be gone meanwhile."""
    await tx.execute(
        f"""
        INSERT INTO notes (id, title, content, session_id, owner, created_at, updated_at)
        VALUES (:id, :title, :content, (SELECT id FROM chats WHERE id = :origin), {OWNER}, :created_at, :now)
        """,
        {**row, "origin": row["session_id"], "session_id": session_id, "now": now},
    )


async def get(tx: Connection, session_id: str, note_id: int) -> dict[str, Any] | None:
    return await tx.fetch_one(f"SELECT * FROM notes WHERE id = :id AND owner = {OWNER}", {"id": note_id, "session_id": session_id})


async def list_all(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """Every note, the last changed first."""
    return await tx.fetch_all(f"SELECT * FROM notes WHERE owner = {OWNER} ORDER BY updated_at DESC, id DESC", {"session_id": session_id})


async def list_heads(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """Every note without its text, which may be long: `{id, title, characters}`, the last changed first."""
    return await tx.fetch_all(
        f"SELECT id, title, LENGTH(content) AS characters FROM notes WHERE owner = {OWNER} ORDER BY updated_at DESC, id DESC", {"session_id": session_id}
    )


async def update(tx: Connection, note_id: int, *, title: str, content: str, now: str) -> None:
    await tx.execute(
        "UPDATE notes SET title = :title, content = :content, updated_at = :now WHERE id = :id",
        {"id": note_id, "title": title, "content": content, "now": now},
    )


async def delete(tx: Connection, note_id: int) -> None:
    await tx.execute("DELETE FROM notes WHERE id = :id", {"id": note_id})


async def count(tx: Connection, session_id: str) -> int:
    return int(await tx.fetch_value(f"SELECT COUNT(*) FROM notes WHERE owner = {OWNER}", {"session_id": session_id}))
