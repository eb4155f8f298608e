"""Whose is what a command names: the one place where that is asked, before the command's handler runs."""

from __future__ import annotations

from backend.errors import NotFound
from backend.protocol import Command
from backend.services.chat_rows import NO_CHAT
from backend.services.journal import Journal
from backend.store import chats, messages
from backend.store.connection import Connection


class Ownership:
    """Other ids (a call's, a transaction's, a fact's) are looked for by their handlers inside the chat that was checked here."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def check(self, user: str, command: Command) -> None:
        """Raises NotFound for a chat or a message that is not there and for one of another user, in the same words."""
        chat_id, message_id = getattr(command, "chat_id", None), getattr(command, "message_id", None)
        if not command.is_owner_checked or (chat_id is None and message_id is None):
            return

        async def look(tx: Connection) -> None:
            if chat_id is not None and not await chats.is_owned(tx, user, chat_id):
                raise NotFound(NO_CHAT)
            if chat_id is None and message_id is not None and not await messages.is_owned(tx, user, message_id):
                raise NotFound("This message does not exist, or was deleted.")

        await self._journal.read(look)
