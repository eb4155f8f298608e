"""Rows of `paused_turns`: turns that wait for a person's Allow or Deny, at most one in each chat."""

from __future__ import annotations

from typing import Any

from backend.store.connection import Connection


async def insert(tx: Connection, session_id: str, turn_id: str, call_id: str, state: str) -> None:
    await tx.execute(
        "INSERT INTO paused_turns (session_id, turn_id, call_id, state) VALUES (:session_id, :turn_id, :call_id, :state)",
        {"session_id": session_id, "turn_id": turn_id, "call_id": call_id, "state": state},
    )


async def get(tx: Connection, session_id: str) -> dict[str, Any] | None:
    return await tx.fetch_one("SELECT * FROM paused_turns WHERE session_id = :session_id", {"session_id": session_id})


async def list_all(tx: Connection, session_id: str | None = None) -> list[dict[str, Any]]:
    """Those of all chats, or of one."""
    return await tx.fetch_all(
        "SELECT * FROM paused_turns WHERE CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id ORDER BY session_id", {"session_id": session_id}
    )


async def set_answer(tx: Connection, session_id: str, answer: str) -> None:
    """Keep the first answer; it outlives a crash between the answer and what follows."""
    await tx.execute(
        "UPDATE paused_turns SET answer = COALESCE(answer, :answer) WHERE session_id = :session_id",
        {"session_id": session_id, "answer": answer},
    )


async def delete(tx: Connection, session_id: str) -> None:
    await tx.execute("DELETE FROM paused_turns WHERE session_id = :session_id", {"session_id": session_id})
