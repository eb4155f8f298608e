"""Chats: making, changing, opening and deleting them, and their UI channel."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from backend.protocol import Chat, ChatDeleted, ChatEvent, Message
from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal, Unit
from backend.services.records import Clock, to_chat, to_message
from backend.services.replies import Replies
from backend.services.sent import SentRequests
from backend.services.turns import Turns
from backend.services.working import WorkingStates
from backend.store import chats, messages
from backend.store.connection import Connection

Snapshot = dict[str, Any]


class Chats:
    def __init__(self, journal: Journal, chat_rows: ChatRows, states: WorkingStates, turns: Turns, replies: Replies, sent: SentRequests, clock: Clock) -> None:
        self._journal = journal
        self._rows = chat_rows
        self._states = states
        self._turns = turns
        self._replies = replies
        self._sent = sent
        self._clock = clock

    async def list_all(self, user: str) -> list[Chat]:
        """All chats of a user as they are now."""
        listed = await self._journal.read(lambda tx: self._rows.list_all(tx, user))
        running = await self._turns.running_anywhere()
        return [to_chat(row, turn_running=row["id"] in running) for row in listed]

    async def create(self, user: str, title: str | None, model: str | None, client_id: str | None, *, temporary: bool = False) -> Chat:
        """Make a chat of the user's; the same `client_id` again gives the same one."""

        async def insert(unit: Unit) -> Chat:
            known = await chats.get_by_client_id(unit.tx, user, client_id) if client_id else None
            if known is not None:
                return await self.wire(unit.tx, known["id"])
            chat_id, title_by = uuid.uuid4().hex, "person" if title else "auto"
            now = self._clock.now()
            await chats.insert(
                unit.tx, owner=user, chat_id=chat_id, title=title or "", title_by=title_by, model=model, client_id=client_id,
                now=now, temporary=temporary,
            )  # fmt: skip
            chat = await self.wire(unit.tx, chat_id)
            unit.publish(ChatEvent(type="chat.created", chat=chat, user=chat.owner))
            return chat

        return await self._journal.write(insert)

    async def update(self, chat_id: str, **columns: object) -> Chat:
        """Write the named columns of a chat. Raises NotFound."""

        async def write(unit: Unit) -> Chat:
            await self._rows.get(unit.tx, chat_id)
            if columns:
                await chats.update(unit.tx, chat_id, **columns)
            return await self.publish_changed(unit, chat_id, context="ttl_messages" in columns)

        return await self._journal.write(write)

    async def rename(self, chat_id: str, title: str) -> Chat:
        """Give a chat a person's title, which nothing else overwrites."""
        return await self.update(chat_id, title=title, title_by="person")

    async def delete(self, chat_id: str, *, only_temporary: bool = False) -> None:
        """Stop the chat's turn, delete every row of it and leave no text of it in the files. Raises NotFound.

        With `only_temporary` a chat that was kept meanwhile is left alone.
        """
        while not await self._journal.write(lambda unit: self._delete_idle(unit, chat_id, only_temporary)):
            await self._turns.stop(chat_id)
        await self._journal.scrub()

    async def _delete_idle(self, unit: Unit, chat_id: str, only_temporary: bool) -> bool:
        """Whether there is nothing left to wait for."""
        row = await self._rows.get(unit.tx, chat_id)
        if only_temporary and not row["temporary"]:
            return True
        if self.is_busy(chat_id):
            return False
        await chats.delete(unit.tx, chat_id)
        unit.publish(ChatDeleted(chat_id=chat_id, user=row["owner"]))
        unit.after_commit(lambda: self._journal.forget(chat_id))
        unit.after_commit(lambda: self._states.forget(chat_id))
        unit.after_commit(lambda: self._sent.forget(chat_id))
        return True

    async def snapshot(self, chat_id: str, limit: int, then: Callable[[Snapshot], None]) -> None:
        """Read a chat as the person sees it; `then` gets it before anything else can change or be told.

        A snapshot is `{chat, messages, has_more, context}`, a reply under way with the text so far.
        """

        async def read(unit: Unit) -> None:
            chat = await self.wire(unit.tx, chat_id)
            page, has_more = await self._page(unit.tx, chat_id, None, limit)
            running = self._turns.running_turn(chat_id)
            context = await self._states.snapshot(unit.tx, chat_id, chat.ttl_messages, running)
            unit.after_commit(lambda: then({"chat": chat, "messages": self._replies.overlay(chat_id, page), "has_more": has_more, "context": context}))

        await self._journal.write(read)

    async def history(self, chat_id: str, before_id: int, limit: int) -> tuple[list[Message], bool]:
        """Older messages of the UI channel, and whether there are older ones still. Raises NotFound."""

        async def read(tx: Connection) -> tuple[list[Message], bool]:
            await self._rows.get(tx, chat_id)
            return await self._page(tx, chat_id, before_id, limit)

        return await self._journal.read(read)

    async def _page(self, tx: Connection, chat_id: str, before_id: int | None, limit: int) -> tuple[list[Message], bool]:
        rows = await messages.ui_history(tx, chat_id, before_id, limit + 1)
        return [to_message(row) for row in rows[-limit:]], len(rows) > limit

    async def publish_changed(self, unit: Unit, chat_id: str, *, context: bool = True) -> Chat:
        """Tell what the chat is now and, with `context`, what its model has."""
        chat = await self.wire(unit.tx, chat_id)
        unit.publish(ChatEvent(type="chat.updated", chat=chat, user=chat.owner))
        if context:
            await self._states.publish_snapshot(unit, chat_id, chat.ttl_messages, self._turns.running_turn(chat_id))
        return chat

    def is_busy(self, chat_id: str) -> bool:
        """Whether a turn runs in the chat."""
        return self._turns.running_turn(chat_id) is not None

    async def wire(self, tx: Connection, chat_id: str) -> Chat:
        """The chat as a person gets it. Raises NotFound."""
        return await self._rows.wire(tx, chat_id, turn_running=self.is_busy(chat_id))
