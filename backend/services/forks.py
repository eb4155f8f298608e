"""Forks: a new chat that goes on from a message of another one."""

from __future__ import annotations

import re
from dataclasses import replace

from backend.errors import Conflict, NotFound
from backend.protocol import Chat, ChatEvent
from backend.services import transcripts
from backend.services.chat_rows import ChatRows
from backend.services.chats import Chats
from backend.services.formats.transcript import Transcript
from backend.services.journal import Journal, Unit
from backend.services.records import Clock
from backend.store import chats, messages
from backend.store.connection import Connection
from backend.store.transcripts import titles_beginning

# A number of a year in a title is none of ours.
_NUMBERED = re.compile(r"(.+?) \((\d{1,3})\)", re.DOTALL)


class Forks:
    def __init__(self, journal: Journal, chat_rows: ChatRows, chats: Chats, clock: Clock) -> None:
        self._journal = journal
        self._rows = chat_rows
        self._chats = chats
        self._clock = clock

    async def fork(self, user: str, chat_id: str, message_id: int, client_id: str | None) -> Chat:
        """Make a chat of the permanent messages up to that one, and of the prompt in force; the same `client_id` again gives the same one.

        Working material and its state stay where they are. Raises NotFound, Conflict for a message that isn't permanent.
        """

        async def copy(unit: Unit) -> Chat:
            known = await chats.get_by_client_id(unit.tx, user, client_id) if client_id else None
            if known is not None:
                return await self._chats.wire(unit.tx, known["id"])
            row = await self._rows.stored(unit.tx, chat_id)
            await self._check(unit.tx, chat_id, message_id)
            transcript = self._begun_now(await transcripts.read(unit.tx, row, message_id))
            transcript.title = await _next_title(unit.tx, user, row["title"])
            copied = await transcripts.write(unit, user, transcript, client_id, temporary=bool(row["temporary"]))
            chat = await self._chats.wire(unit.tx, copied)
            unit.publish(ChatEvent(type="chat.created", chat=chat, user=chat.owner))
            return chat

        return await self._journal.write(copy)

    async def _check(self, tx: Connection, chat_id: str, message_id: int) -> None:
        message = await messages.get(tx, message_id)
        if message is None or message["session_id"] != chat_id:
            raise NotFound("This message is not in this chat, or was deleted.")
        if message["status"] == "streaming":
            raise Conflict("This message is still being written; fork the chat once it is complete, or at an earlier message.")
        if message["is_ephemeral"]:
            raise Conflict("This is working material, which does not go along; fork the chat at a question or a reply.")

    def _begun_now(self, transcript: Transcript) -> Transcript:
        """The fork is a new chat: not pinned, used just now, with the prompt in force as its first version."""
        now = self._clock.now()
        prompts = [replace(prompt, version=1) for prompt in transcript.prompts if prompt.status == "applied"]
        return replace(transcript, created_at=now, updated_at=now, pinned=False, prompts=prompts)


async def _next_title(tx: Connection, owner: str, title: str) -> str:
    """The title with the first number that is free from 2 on; a chat without a title stays so."""
    if not title:
        return ""
    numbered = _NUMBERED.fullmatch(title)
    name = numbered[1] if numbered else title
    taken = set(await titles_beginning(tx, owner, name))
    return next(candidate for number in range(2, len(taken) + 3) if (candidate := f"{name} ({number})") not in taken)
