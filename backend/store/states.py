"""Rows of `session_states` (the working state of a chat) and of `context_events` (what was cleared and why)."""

from __future__ import annotations

import json
from typing import Any

from backend.store.connection import Connection


async def get(tx: Connection, session_id: str) -> dict[str, Any] | None:
    """The chat's working state with its JSON columns read; None when it has none."""
    row = await tx.fetch_one("SELECT * FROM session_states WHERE session_id = :id", {"id": session_id})
    if row is not None:
        row["state"] = json.loads(row["state"] or "{}")
        row["pending_transaction"] = json.loads(row["pending_transaction"] or "null")
    return row


async def save(
    tx: Connection,
    session_id: str,
    *,
    active_tool: str | None,
    state: dict[str, Any],
    unrelated_count: int,
    pending_transaction: dict[str, Any] | None,
    now: str,
) -> None:
    await tx.execute(
        """
        INSERT INTO session_states (session_id, active_tool, state, unrelated_count, pending_transaction, updated_at)
        VALUES (:session_id, :active_tool, :state, :unrelated_count, :pending_transaction, :now)
        ON CONFLICT (session_id) DO UPDATE SET
            active_tool = excluded.active_tool, state = excluded.state, unrelated_count = excluded.unrelated_count,
            pending_transaction = excluded.pending_transaction, updated_at = excluded.updated_at
        """,
        {
            "session_id": session_id,
            "active_tool": active_tool,
            "state": json.dumps(state, ensure_ascii=False),
            "unrelated_count": unrelated_count,
            "pending_transaction": json.dumps(pending_transaction, ensure_ascii=False) if pending_transaction else None,
            "now": now,
        },
    )


async def delete(tx: Connection, session_id: str) -> None:
    await tx.execute("DELETE FROM session_states WHERE session_id = :id", {"id": session_id})


async def record_event(
    tx: Connection,
    session_id: str,
    *,
    kind: str,
    reason: str,
    family: str | None,
    messages: int,
    tokens: int,
    now: str,
    transaction_id: str | None = None,
) -> None:
    """Note what happened to the context. `transaction_id` is unique: an operation has one outcome."""
    await tx.execute(
        """
        INSERT INTO context_events (session_id, kind, reason, family, messages, tokens, transaction_id, created_at)
        VALUES (:session_id, :kind, :reason, :family, :messages, :tokens, :transaction_id, :now)
        """,
        {
            "session_id": session_id, "kind": kind, "reason": reason, "family": family, "messages": messages,
            "tokens": tokens, "transaction_id": transaction_id, "now": now,
        },
    )  # fmt: skip


async def transaction_outcome(tx: Connection, session_id: str, transaction_id: str) -> str | None:
    """How the operation ended: yes, no or expired; None when it has not, or never was."""
    outcome = await tx.fetch_value(
        "SELECT reason FROM context_events WHERE session_id = :session_id AND transaction_id = :transaction_id",
        {"session_id": session_id, "transaction_id": transaction_id},
    )
    return None if outcome is None else str(outcome)


async def cleared_tokens(tx: Connection, session_id: str) -> int:
    """The tokens of all that was cleared from the chat and not put back."""
    return int(
        await tx.fetch_value(
            """
            SELECT COALESCE(SUM(CASE kind WHEN 'cleared' THEN tokens WHEN 'restored' THEN -tokens ELSE 0 END), 0)
            FROM context_events WHERE session_id = :session_id
            """,
            {"session_id": session_id},
        )
    )
