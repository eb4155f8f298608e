"""Replies under way: whole in memory, in the database as of at most a second ago, never a write per token."""

from __future__ import annotations

from typing import Any

from backend.protocol import Channel, Message, MessageCompleted, MessageCreated, MessageDeleted, MessageDelta
from backend.services.journal import Journal, Unit
from backend.services.records import Clock, to_message
from backend.services.tool_runs import TurnRecord
from backend.store import messages

# What a crash may lose of a reply.
SAVE_SECONDS = 1.0


class _Text:
    """One channel of a reply: its pieces, and its length in code points."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.length = 0

    def append(self, piece: str) -> None:
        self._pieces.append(piece)
        self.length += len(piece)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class StreamingReply:
    """A turn's assistant message of the moment. It is announced with its first text, not before."""

    def __init__(self, record: TurnRecord, journal: Journal, clock: Clock) -> None:
        self._record = record
        self._journal = journal
        self._clock = clock
        self.model: str | None = None
        self._reset()

    def _reset(self) -> None:
        self.message: Message | None = None
        self._texts: dict[Channel, _Text] = {"content": _Text(), "thinking": _Text()}
        self._saved_at = 0.0

    @property
    def content(self) -> str:
        return str(self._texts["content"])

    @property
    def thinking(self) -> str | None:
        return str(self._texts["thinking"]) or None

    @property
    def has_text(self) -> bool:
        return self._texts["content"].length > 0

    async def append(self, channel: Channel, piece: str) -> None:
        """Add a piece and send it on; saves about once a second."""
        if self.message is None:
            await self._announce()
        assert self.message is not None
        text = self._texts[channel]
        delta = MessageDelta(chat_id=self._record.chat_id, message_id=self.message.id, channel=channel, offset=text.length, text=piece)
        text.append(piece)
        self._journal.publish(delta)
        if self._clock.monotonic() - self._saved_at >= SAVE_SECONDS:
            self._saved_at = self._clock.monotonic()
            message_id = self.message.id
            await self._journal.write(lambda unit: messages.update(unit.tx, message_id, content=self.content, thinking=self.thinking))

    def as_shown(self) -> Message | None:
        """The message with the text so far."""
        if self.message is None:
            return None
        return self.message.model_copy(update={"content": self.content, "thinking": self.thinking})

    async def complete(self, unit: Unit, **columns: object) -> dict[str, Any] | None:
        """Write the message whole and say so; None when there is none, or the chat lost it meanwhile.

        A reply without text is the person's only, whatever it thought: an empty one teaches a model nothing.
        """
        if self.message is None:
            return None
        if not self.has_text:
            columns["is_ephemeral"] = 1
        row = await messages.update(unit.tx, self.message.id, content=self.content, thinking=self.thinking, **columns)
        if row is not None:
            unit.publish(MessageCompleted(chat_id=self._record.chat_id, message=to_message(row)))
        unit.after_commit(self._reset)
        return row

    async def drop(self, unit: Unit) -> None:
        """Delete the message, if it was announced: it came to nothing."""
        if self.message is None:
            return
        await messages.delete(unit.tx, self.message.id)
        unit.publish(MessageDeleted(chat_id=self._record.chat_id, message_ids=[self.message.id]))
        self.message = None
        unit.after_commit(self._reset)

    async def _announce(self) -> None:
        async def insert(unit: Unit) -> None:
            row = await messages.insert(
                unit.tx, session_id=self._record.chat_id, role="assistant", content="", is_ephemeral=0, status="streaming",
                turn_id=self._record.turn_id, model=self.model, created_at=self._clock.now(),
            )  # fmt: skip
            message = to_message(row)
            unit.publish(MessageCreated(chat_id=self._record.chat_id, message=message))
            unit.after_commit(lambda: setattr(self, "message", message))

        await self._journal.write(insert)
        self._saved_at = self._clock.monotonic()


class Replies:
    """The replies under way, by chat, for whoever opens one in the middle."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._by_chat: dict[str, StreamingReply] = {}

    def begin(self, record: TurnRecord) -> StreamingReply:
        reply = StreamingReply(record, self._journal, self._clock)
        self._by_chat[record.chat_id] = reply
        return reply

    def end(self, chat_id: str) -> None:
        self._by_chat.pop(chat_id, None)

    def overlay(self, chat_id: str, page: list[Message]) -> list[Message]:
        """The page with the reply under way as it is now, which the database lags behind."""
        reply = self._by_chat.get(chat_id)
        shown = reply.as_shown() if reply else None
        return [shown if shown is not None and message.id == shown.id else message for message in page]
