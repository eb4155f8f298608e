"""Ordered events for whoever watches a chat: one log a chat, one bounded outbox a socket.

Knows no SQL, no model and no WebSocket. Publishing never waits for a client: a socket that can't
keep up gets its deltas merged, and one that falls further behind is told to come back for a snapshot.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterable
from io import StringIO

from pydantic import BaseModel

from backend.protocol import Event, MessageDelta

# What a chat's log keeps for sockets that come back: some minutes of a fast model's deltas.
LOG_EVENTS = 2_000
LOG_BYTES = 1_048_576
# Chats whose logs are kept; beyond them the least recently active ones send a snapshot instead.
LOGS_KEPT = 64

# What one socket may have waiting beside its largest event. A page that reads nothing reaches it after some MB.
OUTBOX_BYTES = 4_194_304
# Replies waiting for one socket before its next command is read.
OUTBOX_REPLIES = 8


class _Frame:
    """A frame to be written as it is."""

    def __init__(self, text: str, *, is_reply: bool = False) -> None:
        self._text = text
        self.is_reply = is_reply
        self.bytes = len(text)

    def encoded(self) -> str:
        return self._text


class _Deltas:
    """Deltas of one text that follow each other, to be written as one. The text alone is kept: an event weighs a hundred times more."""

    is_reply = False

    def __init__(self, first: MessageDelta, frame: str) -> None:
        self._first = first
        self._frame = frame
        self._last_seq = first.seq
        self._text: StringIO | None = None
        self.bytes = len(frame)

    @property
    def chat_id(self) -> str:
        return self._first.chat_id

    def add(self, delta: MessageDelta) -> bool:
        """Take over the next delta; False when it does not continue these."""
        first = self._first
        if (delta.message_id, delta.channel, delta.seq) != (first.message_id, first.channel, self._last_seq + 1):
            return False
        if self._text is None:
            self._text = StringIO()
            self._text.write(first.text)
        self._text.write(delta.text)
        self._last_seq = delta.seq
        self.bytes += len(delta.text)
        return True

    def encoded(self) -> str:
        if self._text is None:
            return self._frame
        merged = {"seq": self._last_seq, "first_seq": self._first.seq, "text": self._text.getvalue()}
        return self._first.model_copy(update=merged).model_dump_json()


class Outbox:
    """The frames that wait for one socket, in order. It closes itself when they grow too many. `user` is whose socket it is."""

    def __init__(self, user: str = "") -> None:
        self.user = user
        self._frames: deque[_Frame | _Deltas] = deque()
        # The newest waiting frame of each chat, when the chat's next delta may join it.
        self._growing: dict[str, _Deltas] = {}
        self._bytes = 0
        self._largest = 0
        self._replies = 0
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._is_closed = False

    def put_reply(self, frame: str) -> None:
        """Queue a reply, or another frame that belongs to no chat's sequence."""
        # No delta joins one across a reply: it would overtake the snapshot that the reply may hold.
        self._growing.clear()
        self._replies += 1
        if self._replies >= OUTBOX_REPLIES and not self._is_closed:
            self._drained.clear()
        self._append(_Frame(frame, is_reply=True))

    def put_event(self, event: Event, frame: str) -> None:
        """Queue an event, encoded as `frame`; a delta joins the one before it that still waits, if it continues that one."""
        if not isinstance(event, MessageDelta):
            self._growing.pop(event.chat_id, None)
            self._append(_Frame(frame))
            return
        growing = self._growing.get(event.chat_id)
        if growing is not None and growing.add(event):
            self._grow(len(event.text))
        else:
            self._growing[event.chat_id] = deltas = _Deltas(event, frame)
            self._append(deltas)

    def put_frame(self, frame: str) -> None:
        """Queue what no delta joins: an event from a log, or one that stands outside every chat's sequence."""
        self._append(_Frame(frame))

    async def take(self) -> str | None:
        """Wait for the next frame; None once the outbox is closed."""
        while not self._frames and not self._is_closed:
            self._filled.clear()
            await self._filled.wait()
        if self._is_closed:
            return None
        frame = self._frames.popleft()
        if isinstance(frame, _Deltas) and self._growing.get(frame.chat_id) is frame:
            del self._growing[frame.chat_id]
        if frame.is_reply:
            self._replies -= 1
            if self._replies < OUTBOX_REPLIES:
                self._drained.set()
        else:
            self._bytes -= frame.bytes
        return frame.encoded()

    async def wait_for_room(self) -> None:
        """Wait until so few replies are unread that another command may be taken."""
        await self._drained.wait()

    def close(self) -> None:
        """Drop everything, now and from now on: nobody writes it any more."""
        self._is_closed = True
        self._frames.clear()
        self._growing.clear()
        self._filled.set()
        self._drained.set()

    def _append(self, frame: _Frame | _Deltas) -> None:
        if self._is_closed:
            return
        self._frames.append(frame)
        self._filled.set()
        if not frame.is_reply:
            self._largest = max(self._largest, frame.bytes)
            self._grow(frame.bytes)

    def _grow(self, size: int) -> None:
        """Count what waits. One event may be of any size: a long message must not cut off those who do read."""
        self._bytes += size
        if self._bytes > OUTBOX_BYTES + self._largest:
            self.close()


class _Log:
    """A chat's newest events: their numbers and frames alone, which the garbage collector need not walk through."""

    def __init__(self) -> None:
        self.events: deque[tuple[int, str]] = deque()
        self.bytes = 0

    def append(self, seq: int, frame: str) -> None:
        self.events.append((seq, frame))
        self.bytes += len(frame)
        while len(self.events) > LOG_EVENTS or self.bytes > LOG_BYTES:
            self.bytes -= len(self.events.popleft()[1])


class Hub:
    """All chats' logs and all sockets' outboxes of this process."""

    def __init__(self) -> None:
        self.epoch = uuid.uuid4().hex
        # Numbers outlive logs: a client that knows a later one must never be told that it missed nothing.
        self._seqs: dict[str, int] = {}
        self._logs: OrderedDict[str, _Log] = OrderedDict()
        self._watchers: dict[str, set[Outbox]] = {}
        self._outboxes: set[Outbox] = set()

    def attach(self, outbox: Outbox) -> None:
        self._outboxes.add(outbox)

    def detach(self, outbox: Outbox) -> None:
        """Take a socket out of everything that it watched."""
        self._outboxes.discard(outbox)
        for chat_id in [chat_id for chat_id, watchers in self._watchers.items() if outbox in watchers]:
            self.unsubscribe(chat_id, outbox)

    def subscribe(self, chat_id: str, outbox: Outbox) -> None:
        self._watchers.setdefault(chat_id, set()).add(outbox)

    def unsubscribe(self, chat_id: str, outbox: Outbox) -> None:
        watchers = self._watchers.get(chat_id, set())
        watchers.discard(outbox)
        if not watchers:
            self._watchers.pop(chat_id, None)

    def is_watched(self, chat_id: str) -> bool:
        """Whether any socket has subscribed to the chat."""
        return chat_id in self._watchers

    def publish(self, event: Event) -> None:
        """Number an event, log it, and queue it for every subscriber of its chat."""
        event.seq = self._seqs[event.chat_id] = self.seq(event.chat_id) + 1
        frame = event.model_dump_json()
        self._log(event.chat_id).append(event.seq, frame)
        for outbox in self._watchers.get(event.chat_id, ()):
            outbox.put_event(event, frame)

    def broadcast(self, event: BaseModel, user: str | None = None) -> None:
        """Queue an event without a number for every socket of a user; None: for every socket."""
        frame = event.model_dump_json()
        for outbox in self._outboxes:
            if user is None or outbox.user == user:
                outbox.put_frame(frame)

    def seq(self, chat_id: str) -> int:
        """The number of the chat's newest event; 0 before the first."""
        return self._seqs.get(chat_id, 0)

    def missed(self, chat_id: str, epoch: str | None, after_seq: int | None) -> Iterable[str] | None:
        """Return the frames of the events after `after_seq`, or None when only a snapshot can tell."""
        newest = self.seq(chat_id)
        if epoch != self.epoch or after_seq is None or after_seq > newest:
            return None
        events = self._logs[chat_id].events if chat_id in self._logs else ()
        missed = [frame for seq, frame in events if seq > after_seq]
        return missed if len(missed) == newest - after_seq else None

    def forget(self, chat_id: str) -> None:
        """Drop a deleted chat's events, and with them its text, and its watchers."""
        self._seqs.pop(chat_id, None)
        self._logs.pop(chat_id, None)
        self._watchers.pop(chat_id, None)

    def _log(self, chat_id: str) -> _Log:
        log = self._logs.setdefault(chat_id, _Log())
        self._logs.move_to_end(chat_id)
        if len(self._logs) > LOGS_KEPT:
            self._logs.popitem(last=False)
        return log
