"""Rows of `tasks`: facts of the whole workspace."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection


async def insert(tx: Connection, title: str, session_id: str, now: str) -> dict[str, Any]:
    row = await tx.fetch_one(
        """
        INSERT INTO tasks (title, done, session_id, created_at, updated_at)
        VALUES (:title, 0, :session_id, :now, :now) RETURNING *
        """,
        {"title": title, "session_id": session_id, "now": now},
    )
    assert row is not None
    return row


async def restore(tx: Connection, row: dict[str, Any], now: str) -> None:
    """Put a deleted task back under the number that it had; its chat may be gone meanwhile."""
    await tx.execute(
        """
        INSERT INTO tasks (id, title, done, session_id, created_at, updated_at)
        VALUES (:id, :title, :done, (SELECT id FROM chats WHERE id = :session_id), :created_at, :now)
        """,
        {**row, "now": now},
    )


async def get(tx: Connection, task_id: int) -> dict[str, Any] | None:
    return await tx.fetch_one("SELECT * FROM tasks WHERE id = :id", {"id": task_id})


async def list_all(tx: Connection) -> list[dict[str, Any]]:
    """Open tasks first, each group oldest first."""
    return await tx.fetch_all("SELECT * FROM tasks ORDER BY done, id")


async def update(tx: Connection, task_id: int, *, title: str, done: bool, now: str) -> None:
    await tx.execute(
        "UPDATE tasks SET title = :title, done = :done, updated_at = :now WHERE id = :id",
        {"id": task_id, "title": title, "done": int(done), "now": now},
    )


async def delete(tx: Connection, task_id: int) -> None:
    await tx.execute("DELETE FROM tasks WHERE id = :id", {"id": task_id})


async def counts(tx: Connection) -> tuple[int, int]:
    """How many tasks are open, and how many there are."""
    row = await tx.fetch_one("SELECT COUNT(*) AS total, COALESCE(SUM(1 - done), 0) AS open FROM tasks")
    assert row is not None
    return int(row["open"]), int(row["total"])
