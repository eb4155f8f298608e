"""Rows of `chats`, each owned by a user."""

from __future__ import annotations

from typing import Any

from backend.store import deleted_words
from backend.store.connection import Connection

_UPDATABLE = ("title", "title_by", "pinned", "model", "ttl_messages", "approval", "families_off", "parameters", "temporary", "updated_at")


async def insert(
    tx: Connection, *, owner: str, chat_id: str, title: str, title_by: str, model: str | None, client_id: str | None, now: str, temporary: bool = False
) -> None:
    await tx.execute(
        """
        INSERT INTO chats (owner, id, title, title_by, pinned, model, approval, client_id, temporary, created_at, updated_at)
        VALUES (:owner, :id, :title, :title_by, 0, :model, 'after', :client_id, :temporary, :now, :now)
        """,
        {
            "owner": owner,
            "id": chat_id,
            "title": title,
            "title_by": title_by,
            "model": model,
            "client_id": client_id,
            "temporary": int(temporary),
            "now": now,
        },
    )


async def get(tx: Connection, chat_id: str) -> dict[str, Any] | None:
    return await tx.fetch_one("SELECT * FROM chats WHERE id = :id", {"id": chat_id})


async def is_owned(tx: Connection, owner: str, chat_id: str) -> bool:
    """Whether there is such a chat and it is the user's."""
    return await tx.fetch_one("SELECT 1 FROM chats WHERE id = :id AND owner = :owner", {"id": chat_id, "owner": owner}) is not None


async def owner_of(tx: Connection, chat_id: str) -> str:
    """Whose the chat is, which has to be there."""
    return str(await tx.fetch_value("SELECT owner FROM chats WHERE id = :id", {"id": chat_id}))


async def get_by_client_id(tx: Connection, owner: str, client_id: str) -> dict[str, Any] | None:
    return await tx.fetch_one("SELECT * FROM chats WHERE owner = :owner AND client_id = :client_id", {"owner": owner, "client_id": client_id})


async def list_all(tx: Connection, owner: str) -> list[dict[str, Any]]:
    """Every chat of a user: pinned ones first, then by last use."""
    return await tx.fetch_all("SELECT * FROM chats WHERE owner = :owner ORDER BY pinned DESC, updated_at DESC, id", {"owner": owner})


async def list_temporary(tx: Connection) -> list[str]:
    return [row["id"] for row in await tx.fetch_all("SELECT id FROM chats WHERE temporary = 1")]


async def update(tx: Connection, chat_id: str, **columns: object) -> dict[str, Any] | None:
    """Write just the named columns, so that no save can undo another's; the row as it is then, None when there is none."""
    names = [name for name in _UPDATABLE if name in columns]
    assignments = ", ".join(f"{name} = :{name}" for name in names)
    return await tx.fetch_one(f"UPDATE chats SET {assignments} WHERE id = :id RETURNING *", {**columns, "id": chat_id})


async def hold(tx: Connection, chat_id: str, server: str) -> None:
    """Note that a server has taken the chat up. A unit of the one that had it ends before, or is refused."""
    await tx.execute("UPDATE chats SET server = :server WHERE id = :id", {"id": chat_id, "server": server})


async def is_held(tx: Connection, chat_id: str, server: str) -> bool:
    """Whether no other server of a PostgreSQL database has taken the chat up since; none does before the transaction ends."""
    return await tx.fetch_one("SELECT 1 FROM chats WHERE id = :id AND server = :server FOR SHARE", {"id": chat_id, "server": server}) is not None


async def delete(tx: Connection, chat_id: str) -> None:
    """Delete the chat; foreign keys take every row that belongs to it along, and its words leave the index with the next scrub."""
    await tx.execute("DELETE FROM chats WHERE id = :id", {"id": chat_id})
    await deleted_words.mark(tx)


async def delete_temporary(tx: Connection) -> int:
    """Delete every temporary chat in the same way; how many there were."""
    deleted = await tx.execute("DELETE FROM chats WHERE temporary = 1")
    if deleted:
        await deleted_words.mark(tx)
    return deleted
