"""Rows of `tasks`: facts of a user's whole workspace. A chat reaches those of its owner, and no others."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection
from backend.store.owners import OWNER


async def insert(tx: Connection, title: str, session_id: str, now: str) -> dict[str, Any]:
    row = await tx.fetch_one(
        f"""
        INSERT INTO tasks (title, done, session_id, owner, created_at, updated_at)
        VALUES (:title, 0, :session_id, {OWNER}, :now, :now) RETURNING *
        """,
        {"title": title, "session_id": session_id, "now": now},
    )
    assert row is not None
    return row


async def restore(tx: Connection, session_id: str, row: dict[str, Any], now: str) -> None:
    """Put a deleted task back under the number that it had; the chat that it came from may be gone meanwhile."""
    await tx.execute(
        f"""
        INSERT INTO tasks (id, title, done, session_id, owner, created_at, updated_at)
        VALUES (:id, :title, :done, (SELECT id FROM chats WHERE id = :origin), {OWNER}, :created_at, :now)
        """,
        {**row, "origin": row["session_id"], "session_id": session_id, "now": now},
    )


async def get(tx: Connection, session_id: str, task_id: int) -> dict[str, Any] | None:
    return await tx.fetch_one(f"SELECT * FROM tasks WHERE id = :id AND owner = {OWNER}", {"id": task_id, "session_id": session_id})


async def list_all(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """Open tasks first, each group oldest first."""
    return await tx.fetch_all(f"SELECT * FROM tasks WHERE owner = {OWNER} ORDER BY done, id", {"session_id": session_id})


async def update(tx: Connection, task_id: int, *, title: str, done: bool, now: str) -> None:
    await tx.execute(
        "UPDATE tasks SET title = :title, done = :done, updated_at = :now WHERE id = :id",
        {"id": task_id, "title": title, "done": int(done), "now": now},
    )


async def delete(tx: Connection, task_id: int) -> None:
    await tx.execute("DELETE FROM tasks WHERE id = :id", {"id": task_id})


async def counts(tx: Connection, session_id: str) -> tuple[int, int]:
    """How many tasks are open, and how many there are."""
    row = await tx.fetch_one(f"SELECT COUNT(*) AS total, COALESCE(SUM(1 - done), 0) AS open FROM tasks WHERE owner = {OWNER}", {"session_id": session_id})
    assert row is not None
    return int(row["open"]), int(row["total"])
