"""Whose is what a command names: the one place where that is asked, before the command's handler runs."""

from __future__ import annotations

from typing import Any

from backend.errors import NotFound
from backend.protocol import Command, ModelPull, ModelPullCancel
from backend.services.chat_rows import NO_CHAT
from backend.services.journal import Journal
from backend.store import chats, messages
from backend.store.connection import Connection

# Pulls are followed by one server at a time, as if they were a chat's: whoever cancels one reaches the server that began it.
PULLS = "pulls"


class Ownership:
    """Other ids (a call's, a transaction's, a fact's) are looked for by their handlers inside the chat that was checked here."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def chat_of(self, user: str, command: Command) -> str | None:
        """The chat that a command is for, PULLS for those of pulls; None when it is for none.

        Raises NotFound for a chat or a message that is not there and for one of another user, in the same words.
        """
        if isinstance(command, ModelPull | ModelPullCancel):
            return PULLS
        chat_id: str | None = getattr(command, "chat_id", None)
        message_id: Any = getattr(command, "message_id", None)
        if not command.is_owner_checked or (chat_id is None and message_id is None):
            return None

        async def look(tx: Connection) -> str:
            found = await messages.chat_of(tx, message_id) if chat_id is None else chat_id
            if found is None or not await chats.is_owned(tx, user, found):
                raise NotFound(NO_CHAT if chat_id is not None else "This message does not exist, or was deleted.")
            return found

        return await self._journal.read(look)
