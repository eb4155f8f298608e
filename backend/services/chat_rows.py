"""A chat's own row: finding it, and showing it."""

from __future__ import annotations

from typing import Any

from backend.errors import NotFound
from backend.protocol import Chat
from backend.services.records import to_chat
from backend.settings import Settings
from backend.store import chats
from backend.store.connection import Connection

NO_CHAT = "This chat does not exist, or was deleted."

# A title made from the first message; longer ones are cut on a word.
TITLE_CHARACTERS = 60


class ChatRows:
    """Reads rows of `chats` inside the caller's transaction."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def get(self, tx: Connection, chat_id: str) -> dict[str, Any]:
        """The row, with the setting's TTL where the chat has none of its own. Raises NotFound."""
        return self._filled(await self.stored(tx, chat_id))

    async def update(self, tx: Connection, chat_id: str, **columns: object) -> dict[str, Any]:
        """Write the named columns; the row as it is then, in the same way. Raises NotFound."""
        return self._filled(_found(await chats.update(tx, chat_id, **columns)))

    async def stored(self, tx: Connection, chat_id: str) -> dict[str, Any]:
        """The row as it is in the table. Raises NotFound."""
        return _found(await chats.get(tx, chat_id))

    async def list_all(self, tx: Connection, owner: str) -> list[dict[str, Any]]:
        """The row of every chat of a user in the same way: pinned ones first, then by last use."""
        return [self._filled(row) for row in await chats.list_all(tx, owner)]

    async def wire(self, tx: Connection, chat_id: str, *, turn_running: bool) -> Chat:
        return to_chat(await self.get(tx, chat_id), turn_running=turn_running)

    def _filled(self, row: dict[str, Any]) -> dict[str, Any]:
        row["ttl_messages"] = row["ttl_messages"] or self._settings.ttl_messages
        return row


def _found(row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        raise NotFound(NO_CHAT)
    return row


def title_from(text: str) -> str:
    """A chat's title from its first message: the first line, cut on a word."""
    line = " ".join(text.strip().splitlines()[0].split())
    if len(line) <= TITLE_CHARACTERS:
        return line
    cut = line[: TITLE_CHARACTERS - 1]
    head, space, _ = cut.rpartition(" ")
    return (head if space and len(head) > TITLE_CHARACTERS // 2 else cut).rstrip() + "…"
