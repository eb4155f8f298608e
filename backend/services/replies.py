"""Replies under way: whole in memory, in the database as of at most a second ago, never a write per token.

A reply that goes on has a row already, and its text grows from what is there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from backend.logs import fields
from backend.protocol import Channel, Message, MessageCompleted, MessageCreated, MessageDeleted, MessageDelta, MessageUpdated
from backend.services.journal import Journal, Unit
from backend.services.records import Clock, to_message
from backend.services.tool_runs import TurnRecord
from backend.store import messages

logger = logging.getLogger(__name__)

# What a crash may lose of a reply.
SAVE_SECONDS = 1.0

# What stands between the text before calls and after them in a reply that goes on.
PARAGRAPH = "\n\n"


class _Text:
    """One channel of a reply: its pieces, and its length in code points."""

    def __init__(self, begun: str = "") -> None:
        self._pieces = [begun]
        self.length = len(begun)

    def append(self, piece: str) -> None:
        self._pieces.append(piece)
        self.length += len(piece)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]


class StreamingReply:
    """A turn's assistant message of the moment. It is announced with its first text, not before."""

    goes_on = False

    def __init__(self, record: TurnRecord, journal: Journal, clock: Clock) -> None:
        self._record = record
        self._journal = journal
        self._clock = clock
        self.model: str | None = None
        self._reset()

    def _reset(self) -> None:
        self.message: Message | None = None
        self.host: str | None = None
        self._texts: dict[Channel, _Text] = {"content": _Text(), "thinking": _Text()}
        self.is_saved = True

    @property
    def begun(self) -> str:
        """What the model is to go on from."""
        return ""

    @property
    def content(self) -> str:
        return str(self._texts["content"])

    @property
    def thinking(self) -> str | None:
        return str(self._texts["thinking"]) or None

    @property
    def has_text(self) -> bool:
        return self._texts["content"].length > 0

    @property
    def has_grown(self) -> bool:
        """Whether this turn said something of it."""
        return self.has_text

    def append(self, channel: Channel, piece: str) -> None:
        """Add a piece to the message, which has been announced, and send it on."""
        assert self.message is not None
        text = self._texts[channel]
        delta = MessageDelta(chat_id=self._record.chat_id, message_id=self.message.id, channel=channel, offset=text.length, text=piece)
        text.append(piece)
        self._journal.stream(delta)
        self.is_saved = False

    def name_host(self, host: str | None) -> None:
        """A reply under way has one figure: which model server writes it, where a balancer names it."""
        assert self.message is not None
        self.host = host
        self.message = self.message.model_copy(update={"content": self.content, "thinking": self.thinking, "metrics": {"host": host}})
        self._journal.publish(MessageUpdated(chat_id=self._record.chat_id, message=self.message))

    def as_shown(self) -> Message | None:
        """The message with the text so far."""
        if self.message is None:
            return None
        return self.message.model_copy(update={"content": self.content, "thinking": self.thinking})

    async def end_before_calls(self, unit: Unit, family: str | None) -> None:
        """Text before calls is working material; what follows them is another message."""
        await self.complete(unit, status="complete", is_ephemeral=1, family=family)

    async def complete(self, unit: Unit, *, status: str, metrics: dict[str, Any] | None = None, **columns: object) -> dict[str, Any] | None:
        """Write the message whole and say so; None when there is none, or the chat lost it meanwhile.

        A reply without text is the person's only, whatever it thought: an empty one teaches a model nothing.
        """
        if self.message is None:
            return None
        if not self.has_text:
            columns["is_ephemeral"] = 1
        if metrics is not None:
            columns["metrics"] = json.dumps(metrics)
        row = await messages.save_unfinished(unit.tx, self.message.id, content=self.content, thinking=self.thinking, status=status, **columns)
        if row is not None:
            unit.publish(MessageCompleted(chat_id=self._record.chat_id, message=to_message(row)))
        unit.after_commit(self._reset)
        return row

    async def drop(self, unit: Unit) -> bool:
        """Delete the message, if it was announced: it came to nothing. False when there is something to keep."""
        if self.message is not None:
            await messages.delete(unit.tx, self.message.id)
            unit.publish(MessageDeleted(chat_id=self._record.chat_id, message_ids=[self.message.id]))
            unit.after_commit(self._reset)
        return True

    async def announce(self) -> None:
        """Begin the message, whose first piece is there."""

        async def insert(unit: Unit) -> None:
            row = await messages.insert(
                unit.tx, session_id=self._record.chat_id, role="assistant", content="", is_ephemeral=0, status="streaming",
                turn_id=self._record.turn_id, model=self.model, created_at=self._clock.now(),
            )  # fmt: skip
            message = to_message(row)
            unit.publish(MessageCreated(chat_id=self._record.chat_id, message=message))
            unit.after_commit(lambda: setattr(self, "message", message))

        # Many chats that begin at once would all wait for the last one's start before any of them says a word.
        await self._journal.write(insert, is_urgent=True)

    def stored(self) -> dict[str, Any] | None:
        """The text so far as it goes into the database; None before the message is announced."""
        if self.message is None:
            return None
        return {"id": self.message.id, "content": self.content, "thinking": self.thinking}


class ContinuedReply(StreamingReply):
    """A reply that goes on in its message: whatever the turn says joins the text so far, before calls and after them.

    `former` is its row as it was, to which it goes back when nothing is added.
    """

    goes_on = True

    def __init__(self, record: TurnRecord, journal: Journal, clock: Clock, former: dict[str, Any]) -> None:
        super().__init__(record, journal, clock)
        self._former = former
        self._joints: dict[Channel, str] = {"content": "", "thinking": PARAGRAPH if former["thinking"] else ""}
        self._spaces = len(former["content"]) - len(self.begun)
        self.message = to_message({**former, "status": "streaming", "turn_id": record.turn_id})
        self._texts = {"content": _Text(former["content"]), "thinking": _Text(former["thinking"] or "")}

    @property
    def begun(self) -> str:
        """The text so far but the spaces at its end: a model's words begin with theirs."""
        return str(self._former["content"]).rstrip(" ")

    @property
    def has_grown(self) -> bool:
        return self._texts["content"].length > len(self._former["content"])

    def append(self, channel: Channel, piece: str) -> None:
        if channel == "content":
            piece = self._without_known_spaces(piece)
        if piece:
            super().append(channel, self._joints[channel] + piece)
            self._joints[channel] = ""

    async def end_before_calls(self, unit: Unit, family: str | None) -> None:
        await save([self], unit)
        unit.after_commit(self.begin_paragraph)

    def begin_paragraph(self) -> None:
        """What comes next follows calls."""
        self._joints["content"], self._spaces = PARAGRAPH, 0

    async def complete(self, unit: Unit, *, status: str, metrics: dict[str, Any] | None = None, **columns: object) -> dict[str, Any] | None:
        former, newest = json.loads(self._former["metrics"] or "{}"), metrics or {}
        if self.has_grown:
            return await super().complete(unit, status=status, metrics=joined_metrics(former, newest), model=self.model, **columns)
        self._texts["thinking"] = _Text(self._former["thinking"] or "")
        kept = former | _sums(former, newest) | {name: value for name, value in newest.items() if name == "error"}
        return await super().complete(unit, status=self._former["status"], metrics=kept, **columns)

    async def drop(self, unit: Unit) -> bool:
        """A round that says nothing takes nothing away."""
        return False

    def _without_known_spaces(self, piece: str) -> str:
        """The piece without the spaces that the text so far ends with: the model was not shown them and may write them again."""
        repeated = min(self._spaces, len(piece) - len(piece.lstrip(" ")))
        self._spaces = self._spaces - repeated if repeated == len(piece) else 0
        return piece[repeated:]


def joined_metrics(former: dict[str, Any], newest: dict[str, Any]) -> dict[str, Any]:
    """What is told of a reply that was made in two runs. What only one of them knows of the whole is left out."""
    joined = former | newest | _sums(former, newest)
    for ended in {"error", "done_reason"} - newest.keys():
        joined.pop(ended, None)
    if joined["changes"]:
        joined.pop("nothing_changed", None)
    if "first_token_ms" in former:
        joined["first_token_ms"] = former["first_token_ms"]
    joined.pop("reply_tokens", None)
    first, second = former.get("reply_tokens"), newest.get("reply_tokens")
    if first and second:
        joined["reply_tokens"] = first + second
        if "tokens_per_second" in former and "tokens_per_second" in newest:
            seconds = first / former["tokens_per_second"] + second / newest["tokens_per_second"]
            joined["tokens_per_second"] = round((first + second) / seconds, 1)
    return joined


def _sums(former: dict[str, Any], newest: dict[str, Any]) -> dict[str, int]:
    return {name: former.get(name, 0) + newest.get(name, 0) for name in ("changes", "failed_calls")}


async def save(replies: Sequence[StreamingReply], unit: Unit) -> None:
    """Write the replies' texts so far, all in one statement."""
    for reply in replies:
        reply.is_saved = True
    await messages.save_texts(unit.tx, [stored for reply in replies if (stored := reply.stored()) is not None])


class Replies:
    """The replies under way, by chat, for whoever opens one in the middle."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._by_chat: dict[str, StreamingReply] = {}
        self._saving: asyncio.Task[None] | None = None

    def begin(self, record: TurnRecord) -> StreamingReply:
        """The reply of a turn that is to make one."""
        return self._keep(record, StreamingReply(record, self._journal, self._clock))

    def resume(self, record: TurnRecord, former: dict[str, Any], *, after_calls: bool) -> StreamingReply:
        """The reply of a turn that goes on with one; `former` is its row."""
        reply = ContinuedReply(record, self._journal, self._clock, former)
        if after_calls:
            reply.begin_paragraph()
        return self._keep(record, reply)

    def end(self, chat_id: str) -> None:
        self._by_chat.pop(chat_id, None)
        if not self._by_chat and self._saving is not None:
            self._saving.cancel()
            self._saving = None

    def overlay(self, chat_id: str, page: list[Message]) -> list[Message]:
        """The page with the reply under way as it is now, which the database lags behind."""
        reply = self._by_chat.get(chat_id)
        shown = reply.as_shown() if reply else None
        return [shown if shown is not None and message.id == shown.id else message for message in page]

    def _keep(self, record: TurnRecord, reply: StreamingReply) -> StreamingReply:
        self._by_chat[record.chat_id] = reply
        if self._saving is None:
            self._saving = asyncio.create_task(self._save_on())
        return reply

    async def _save_on(self) -> None:
        """Save what has grown about once a second, until cancelled: by the clock, since a model may fall silent."""
        is_failing = False
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            grown = [reply for reply in self._by_chat.values() if not reply.is_saved]
            if not grown:
                continue
            try:
                await self._journal.write(partial(save, grown))
                is_failing = False
            except Exception:  # a full disk may have room again in a second; a turn's end waits until it has
                for reply in grown:
                    reply.is_saved = False
                if not is_failing:
                    is_failing = True
                    logger.exception("replies could not be saved", extra=fields(replies=len(grown)))
