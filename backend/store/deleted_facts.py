"""Rows of `deleted_facts`: tasks and notes that were deleted and can be brought back for a while."""

from __future__ import annotations

import json
from typing import Any, Literal

from backend.store.connection import Connection
from backend.store.owners import OWNER

Kind = Literal["task", "note"]


async def keep(tx: Connection, session_id: str, kind: Kind, row: dict[str, Any], now: str) -> None:
    """Keep a fact's whole row; one of the same number that was kept before gives way."""
    await tx.execute(
        f"""
        INSERT INTO deleted_facts (kind, fact_id, content, owner, deleted_at) VALUES (:kind, :fact_id, :content, {OWNER}, :now)
        ON CONFLICT (kind, fact_id) DO UPDATE SET content = excluded.content, deleted_at = excluded.deleted_at
        """,
        {"session_id": session_id, "kind": kind, "fact_id": row["id"], "content": json.dumps(row, ensure_ascii=False), "now": now},
    )


async def take(tx: Connection, session_id: str, kind: Kind, fact_id: int) -> dict[str, Any] | None:
    """The kept row, which is kept no longer; None when there is none."""
    content = await tx.fetch_value(
        f"DELETE FROM deleted_facts WHERE kind = :kind AND fact_id = :fact_id AND owner = {OWNER} RETURNING content",
        {"session_id": session_id, "kind": kind, "fact_id": fact_id},
    )
    return None if content is None else dict(json.loads(content))


async def list_all(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """`{kind, fact_id, content, deleted_at}`, newest first; `content` is the row as it was."""
    rows = await tx.fetch_all(
        f"SELECT kind, fact_id, content, deleted_at FROM deleted_facts WHERE owner = {OWNER} ORDER BY deleted_at DESC, id DESC",
        {"session_id": session_id},
    )
    return [{**row, "content": json.loads(row["content"])} for row in rows]


async def purge(tx: Connection, before: str) -> int:
    """Delete for good what was deleted before that time; how many."""
    return await tx.execute("DELETE FROM deleted_facts WHERE deleted_at < :before", {"before": before})
