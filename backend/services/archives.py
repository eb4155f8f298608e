"""Chats as files: export as JSON and Markdown, and taking in chats of ours and of other programs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from backend.errors import Invalid
from backend.protocol import Chat, ChatEvent, ChatImport, MessageCreated
from backend.services import transcripts
from backend.services.chat_rows import ChatRows, title_from
from backend.services.chats import Chats
from backend.services.formats import chatgpt, cleanroom, markdown, open_webui, values
from backend.services.formats.filename import filename
from backend.services.formats.transcript import Transcript, Unreadable
from backend.services.journal import Journal, Unit
from backend.services.peers import Peers
from backend.services.records import Clock, to_message
from backend.store import chats
from backend.store.connection import Connection
from backend.store.transcripts import permanent

# What reads a conversation, by what the conversation's name here begins with.
_Format = tuple[str, Callable[[dict[str, Any]], bool], Callable[[dict[str, Any], str], Transcript]]
_FORMATS: tuple[_Format, ...] = (
    ("cleanroom", cleanroom.is_one, cleanroom.decode),
    ("chatgpt", chatgpt.is_one, chatgpt.decode),
    ("openwebui", open_webui.is_one, open_webui.decode),
)
_EXPECTED = "Expected a chat that was exported here, ChatGPT's conversations.json or an export of chats from Open WebUI."

# Longer ids than any program makes are known by their hash.
_ID_CHARACTERS = 100


@dataclass(slots=True)
class _Outcome:
    """What came of each conversation of a file; `all` holds the chats of those that are here now."""

    all: list[Chat] = field(default_factory=list)
    taken: list[Chat] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)


class Archives:
    def __init__(self, journal: Journal, chat_rows: ChatRows, chats: Chats, peers: Peers, clock: Clock, max_message_bytes: int) -> None:
        self._journal = journal
        self._peers = peers
        self._rows = chat_rows
        self._chats = chats
        self._clock = clock
        self._max_message_bytes = max_message_bytes

    async def export(self, chat_id: str, form: Literal["json", "markdown"]) -> tuple[str, str]:
        """A file's name and its text: the permanent messages, with what is hidden from the model and without working material.

        A reply under way isn't in it yet. Raises NotFound.
        """
        transcript = await self._journal.read(lambda tx: self._transcript(tx, chat_id))
        if form == "markdown":
            return filename(transcript.title, "md"), await asyncio.to_thread(markdown.encode, transcript)
        archive = cleanroom.encode(transcript, self._clock.now())
        return filename(transcript.title, "json"), await asyncio.to_thread(json.dumps, archive, ensure_ascii=False, indent=1)

    async def _transcript(self, tx: Connection, chat_id: str) -> Transcript:
        return await transcripts.read(tx, await self._rows.stored(tx, chat_id))

    async def take_in(self, user: str, content: str) -> dict[str, Any]:
        """Make a chat of the user's of each conversation in a file's text, as `{chat, chats, skipped, failed}`.

        One that was taken in before is skipped, or goes on in its chat when it has grown and nothing was done to the
        chat here; `chats` holds the new and the grown ones, `chat` is the first of all. What can't be read is in `failed`,
        each `{title, reason}`. Raises Invalid when nothing could be taken in.
        """
        found, failed = await asyncio.to_thread(self._read, content)
        outcome = _Outcome(failed=failed)
        for conversation, transcript in found:
            try:
                chat, is_news = await self._take_in_one(user, conversation, transcript)
            except Unreadable as error:
                outcome.failed.append({"title": transcript.title, "reason": str(error)})
                continue
            outcome.all.append(chat)
            if is_news:
                outcome.taken.append(chat)
        if not outcome.all:
            raise Invalid(_refusal(outcome.failed))
        skipped = len(outcome.all) - len(outcome.taken)
        return {"chat": outcome.all[0], "chats": outcome.taken, "skipped": skipped, "failed": outcome.failed}

    async def _take_in_one(self, user: str, conversation: dict[str, Any], transcript: Transcript) -> tuple[Chat, bool]:
        """The conversation's chat, and whether anything of it is new. A chat that another server has grows there.

        Raises Unreadable when that server refuses it.
        """
        known = await self._journal.read(lambda tx: chats.get_by_client_id(tx, user, transcript.source))
        if known is not None:
            command = ChatImport(type="chat.import", content=json.dumps(conversation))
            reply = await self._peers.ask(known["id"], user, command)
            if reply is not None:
                return _taken_elsewhere(user, reply)
        return await self._journal.write(lambda unit: self._write(unit, user, transcript, may_grow=known is not None))

    async def _write(self, unit: Unit, user: str, transcript: Transcript, *, may_grow: bool) -> tuple[Chat, bool]:
        known = await chats.get_by_client_id(unit.tx, user, transcript.source)
        if known is not None:
            # One that was made since it was looked for may be another server's by now.
            has_grown = may_grow and await self._grow(unit, known, transcript)
            return await self._chats.wire(unit.tx, known["id"]), has_grown
        chat = await self._chats.wire(unit.tx, await transcripts.write(unit, user, transcript, transcript.source))
        unit.publish(ChatEvent(type="chat.created", chat=chat, user=chat.owner))
        return chat, True

    async def _grow(self, unit: Unit, chat: dict[str, Any], transcript: Transcript) -> bool:
        """Add what was said since, if the chat is still the beginning of that."""
        held = await permanent(unit.tx, chat["id"])
        beginning = [(said.role, said.content) for said in transcript.messages[: len(held)]]
        later = transcript.messages[len(held) :]
        if not later or self._chats.is_busy(chat["id"]) or beginning != [(row["role"], row["content"]) for row in held]:
            return False
        for row in await transcripts.append(unit, chat["id"], later, held[-1] if held else None):
            unit.publish(MessageCreated(chat_id=chat["id"], message=to_message(row)))
        await chats.update(unit.tx, chat["id"], updated_at=max(chat["updated_at"], transcript.updated_at))
        await self._chats.publish_changed(unit, chat["id"])
        return True

    def _read(self, content: str) -> tuple[list[tuple[dict[str, Any], Transcript]], list[dict[str, str]]]:
        """The conversations of a file with what is read of each, and those that can't be taken in. Raises Invalid for a file of another kind."""
        now = self._clock.now()
        found, failed = [], []
        for conversation in _conversations(content):
            try:
                found.append((conversation, self._checked(_decode(conversation, now))))
            except Unreadable as error:
                failed.append({"title": _title_in(conversation), "reason": str(error)})
            except RecursionError:
                failed.append({"title": _title_in(conversation), "reason": "It nests too deep to be a conversation."})
        return found, failed

    def _checked(self, transcript: Transcript) -> Transcript:
        """Raises Unreadable for what is more than a chat may hold."""
        if not transcript.messages:
            raise Unreadable("There is no message of a person or a model in it.")
        if len(transcript.messages) > values.MAX_MESSAGES:
            raise Unreadable(f"It has {len(transcript.messages):,} messages; {values.MAX_MESSAGES:,} are the most.")
        largest = max(len(text.encode()) for text in transcript.texts())
        if largest > self._max_message_bytes:
            raise Unreadable(f"A message in it has {largest:,} bytes; {self._max_message_bytes:,} are the most.")
        return transcript


def _conversations(content: str) -> list[dict[str, Any]]:
    """The objects of a file that may be conversations. Raises Invalid."""
    try:
        value = json.loads(content.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        raise Invalid(f"This is no JSON that can be read. {_EXPECTED}") from None
    if isinstance(value, dict) and isinstance(value.get("chats"), list):
        value = value["chats"]
    found = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
    if not any(is_one(item) for item in found for _, is_one, _ in _FORMATS):
        raise Invalid(f"There is no chat in it. {_EXPECTED}")
    return found


def _decode(conversation: dict[str, Any], now: str) -> Transcript:
    """Read a conversation of any of the formats and name it. Raises Unreadable."""
    values.nesting_limited(conversation)
    name, decode = next(((name, decode) for name, is_one, decode in _FORMATS if is_one(conversation)), (None, None))
    if name is None or decode is None:
        raise Unreadable("It has the shape of none of the known formats.")
    transcript = decode(conversation, now)
    source = f"import:{name}:{_identity(transcript)}"
    if transcript.title:
        return replace(transcript, source=source)
    question = next((said.content for said in transcript.messages if said.role == "user" and said.content.strip()), "")
    return replace(transcript, source=source, title=title_from(question) if question else "")


def _identity(transcript: Transcript) -> str:
    """The conversation's own id, or what makes it that one."""
    if transcript.source and len(transcript.source) <= _ID_CHARACTERS:
        return transcript.source
    first = transcript.messages[0].content if transcript.messages else ""
    marks = [transcript.source] if transcript.source else [transcript.title, transcript.created_at, first]
    return "sha256:" + hashlib.sha256(json.dumps(marks).encode()).hexdigest()


def _taken_elsewhere(user: str, reply: dict[str, Any]) -> tuple[Chat, bool]:
    """What another server says of a conversation that it was to take in. Raises Unreadable."""
    if reply["type"] == "error":
        raise Unreadable(reply["message"])
    return Chat.model_validate({**reply["chat"], "owner": user}), bool(reply["chats"])


def _title_in(conversation: dict[str, Any]) -> str:
    inner = values.record(conversation.get("chat"))
    return values.title(conversation.get("title")) or values.title(inner.get("title"))


def _refusal(failed: list[dict[str, str]]) -> str:
    """Why nothing of a file could be taken in: the first reason, and how many there were."""
    others = f" The same or other reasons hold for {len(failed) - 1} more." if len(failed) > 1 else ""
    return f"This can't be taken in. {failed[0]['reason']}{others}"
