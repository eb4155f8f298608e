"""Rows of `snapshots`: labelled slices of the facts, each of one chat. What a slice is made of is not known here."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection


async def insert(tx: Connection, session_id: str, label: str, content: str, now: str) -> int:
    """Keep a slice and return its number."""
    return int(
        await tx.fetch_value(
            "INSERT INTO snapshots (session_id, label, content, created_at) VALUES (:session_id, :label, :content, :now) RETURNING id",
            {"session_id": session_id, "label": label, "content": content, "now": now},
        )
    )


async def get(tx: Connection, session_id: str, snapshot_id: int) -> dict[str, Any] | None:
    """The chat's snapshot of that number; another chat's is none of its."""
    return await tx.fetch_one(
        "SELECT * FROM snapshots WHERE session_id = :session_id AND id = :id",
        {"session_id": session_id, "id": snapshot_id},
    )


async def get_same(tx: Connection, session_id: str, content: str) -> dict[str, Any] | None:
    """The chat's newest snapshot of exactly that content."""
    return await tx.fetch_one(
        "SELECT * FROM snapshots WHERE session_id = :session_id AND content = :content ORDER BY id DESC LIMIT 1",
        {"session_id": session_id, "content": content},
    )


async def list_heads(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """The chat's snapshots without their content: `{id, label, created_at}`, newest first."""
    return await tx.fetch_all(
        "SELECT id, label, created_at FROM snapshots WHERE session_id = :session_id ORDER BY id DESC",
        {"session_id": session_id},
    )


async def count(tx: Connection, session_id: str) -> int:
    return int(await tx.fetch_value("SELECT COUNT(*) FROM snapshots WHERE session_id = :session_id", {"session_id": session_id}))
