"""Whole chats: what an export, an import and a fork read and write, of several tables and many rows at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from backend.store.connection import Connection
from backend.store.messages import NO_ID


async def permanent(tx: Connection, session_id: str, until_id: int | None = None) -> list[dict[str, Any]]:
    """The chat's whole permanent messages, those hidden from the model too, up to one of them; oldest first."""
    return await tx.fetch_all(
        """
        SELECT * FROM chat_messages
        WHERE session_id = :session_id AND is_ephemeral = 0 AND status <> 'streaming' AND id <= :until_id
        ORDER BY id
        """,
        {"session_id": session_id, "until_id": NO_ID if until_id is None else until_id},
    )


async def variants(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """The replies that are not shown, those to one message at their numbers."""
    return await tx.fetch_all(
        "SELECT * FROM reply_variants WHERE session_id = :session_id ORDER BY user_message_id, position",
        {"session_id": session_id},
    )


async def prompts(tx: Connection, session_id: str) -> list[dict[str, Any]]:
    """The prompt's versions that are or were in force."""
    return await tx.fetch_all(
        "SELECT * FROM system_prompts WHERE session_id = :session_id AND status IN ('applied', 'superseded') ORDER BY version",
        {"session_id": session_id},
    )


async def insert_prompt(tx: Connection, session_id: str, *, version: int, content: str, status: str, created_at: str) -> None:
    await tx.execute(
        """
        INSERT INTO system_prompts (session_id, version, content, status, created_at)
        VALUES (:session_id, :version, :content, :status, :created_at)
        """,
        {"session_id": session_id, "version": version, "content": content, "status": status, "created_at": created_at},
    )


async def insert_messages(tx: Connection, session_id: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Insert permanent messages in one statement, since there may be thousands; the whole rows, in the same order."""
    values = {"session_id": session_id, "rows": json.dumps(list(rows))}
    inserted = await tx.fetch_all(_INSERT_IN_POSTGRES if tx.is_postgres else _INSERT_IN_SQLITE, values)
    return sorted(inserted, key=lambda row: int(row["id"]))


async def titles_beginning(tx: Connection, owner: str, beginning: str) -> list[str]:
    rows = await tx.fetch_all(
        "SELECT title FROM chats WHERE owner = :owner AND substr(title, 1, length(:beginning)) = :beginning",
        {"owner": owner, "beginning": beginning},
    )
    return [row["title"] for row in rows]


_INSERTED = "session_id, role, content, status, hidden, thinking, model, metrics, variant, variants, turn_id, created_at"
_INSERT_IN_SQLITE = f"""
    INSERT INTO chat_messages ({_INSERTED})
    SELECT :session_id, value ->> 'role', value ->> 'content', value ->> 'status', value ->> 'hidden', value ->> 'thinking',
        value ->> 'model', value ->> 'metrics', value ->> 'variant', value ->> 'variants', value ->> 'turn_id', value ->> 'created_at'
    FROM json_each(:rows) ORDER BY key
    RETURNING *
"""
_INSERT_IN_POSTGRES = f"""
    INSERT INTO chat_messages ({_INSERTED})
    SELECT :session_id, {_INSERTED.removeprefix("session_id, ")} FROM json_populate_recordset(NULL::chat_messages, :rows)
    RETURNING *
"""
