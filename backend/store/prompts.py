"""Rows of `system_prompts`: a chat's prompt versions, one of them applied and at most one an open draft."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection


async def get_with_status(tx: Connection, session_id: str, status: str) -> dict[str, Any] | None:
    """The newest version with that status."""
    return await tx.fetch_one(
        "SELECT * FROM system_prompts WHERE session_id = :session_id AND status = :status ORDER BY version DESC LIMIT 1",
        {"session_id": session_id, "status": status},
    )


async def get_version(tx: Connection, session_id: str, version: int) -> dict[str, Any] | None:
    return await tx.fetch_one(
        "SELECT * FROM system_prompts WHERE session_id = :session_id AND version = :version",
        {"session_id": session_id, "version": version},
    )


async def list_versions(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    return await tx.fetch_all("SELECT * FROM system_prompts WHERE session_id = :session_id ORDER BY version DESC", {"session_id": session_id})


async def insert(tx: Connection, session_id: str, content: str, status: str, now: str) -> int:
    """Add the next version and return its number."""
    return int(
        await tx.fetch_value(
            """
            INSERT INTO system_prompts (session_id, version, content, status, created_at)
            SELECT :session_id, COALESCE(MAX(version), 0) + 1, :content, :status, :now
            FROM system_prompts WHERE session_id = :session_id
            RETURNING version
            """,
            {"session_id": session_id, "content": content, "status": status, "now": now},
        )
    )


async def replace_status(tx: Connection, session_id: str, old: str, new: str) -> None:
    """Give every version with the status `old` the status `new`."""
    await tx.execute(
        "UPDATE system_prompts SET status = :new WHERE session_id = :session_id AND status = :old",
        {"session_id": session_id, "old": old, "new": new},
    )


async def set_status(tx: Connection, session_id: str, version: int, status: str) -> None:
    await tx.execute(
        "UPDATE system_prompts SET status = :status WHERE session_id = :session_id AND version = :version",
        {"session_id": session_id, "version": version, "status": status},
    )
