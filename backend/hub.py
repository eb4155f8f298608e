"""Ordered events for whoever watches a chat: one log a chat, one bounded outbox a socket.

Knows no SQL, no model and no WebSocket. Publishing never waits for a client: a socket that can't
keep up gets its deltas merged, and one that falls further behind is told to come back for a snapshot.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel

from backend.protocol import Event, MessageDelta

# What a chat's log keeps for sockets that come back: some minutes of a fast model's deltas.
LOG_EVENTS = 2_000
LOG_BYTES = 1_048_576
# Chats whose logs are kept; beyond them the least recently active ones send a snapshot instead.
LOGS_KEPT = 64

# What one socket may have waiting. A page that reads nothing reaches it after some MB of events.
OUTBOX_BYTES = 4_194_304
# Replies waiting for one socket before its next command is read.
OUTBOX_REPLIES = 8


@dataclass(slots=True)
class LoggedEvent:
    """An event with its frame, encoded once for all who get it."""

    event: Event
    frame: str


@dataclass(slots=True)
class _Entry:
    """One frame to be written. `deltas` are the events merged into it, when it is a delta."""

    frame: str
    deltas: list[MessageDelta] = field(default_factory=list)
    is_reply: bool = False
    bytes: int = 0

    def encoded(self) -> str:
        if len(self.deltas) < 2:
            return self.frame
        first, last = self.deltas[0], self.deltas[-1]
        text = "".join(delta.text for delta in self.deltas)
        return first.model_copy(update={"seq": last.seq, "first_seq": first.seq, "text": text}).model_dump_json()


class Outbox:
    """The frames that wait for one socket, in order. Closed by `overflow` when they grow too many."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._newest: dict[str, _Entry] = {}
        self._bytes = 0
        self._replies = 0
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self.overflow = False

    def put_reply(self, frame: str) -> None:
        """Queue a reply, or another frame that belongs to no chat's sequence."""
        self._replies += 1
        if self._replies >= OUTBOX_REPLIES:
            self._drained.clear()
        self._append(_Entry(frame, is_reply=True))

    def put_event(self, logged: LoggedEvent) -> None:
        """Queue an event; a delta joins the one before it that still waits, if it continues that one."""
        if self.overflow:
            return
        event = logged.event
        waiting = self._newest.get(event.chat_id)
        if isinstance(event, MessageDelta):
            if waiting is not None and _continues(waiting, event):
                waiting.deltas.append(event)
                self._grow(waiting, len(event.text))
                return
            entry = _Entry(logged.frame, [event])
        else:
            entry = _Entry(logged.frame)
        self._newest[event.chat_id] = entry
        self._append(entry)
        self._grow(entry, len(logged.frame))

    def put_broadcast(self, frame: str) -> None:
        """Queue an event that stands outside every chat's sequence."""
        if self.overflow:
            return
        entry = _Entry(frame)
        self._append(entry)
        self._grow(entry, len(frame))

    async def take(self) -> str | None:
        """Wait for the next frame; None once the socket has fallen too far behind."""
        while not self._entries and not self.overflow:
            self._filled.clear()
            await self._filled.wait()
        if self.overflow:
            return None
        entry = self._entries.popleft()
        self._bytes -= entry.bytes
        if entry.is_reply:
            self._replies -= 1
            if self._replies < OUTBOX_REPLIES:
                self._drained.set()
        elif not self._entries:
            self._newest.clear()
        else:
            self._newest = {chat: kept for chat, kept in self._newest.items() if kept is not entry}
        return entry.encoded()

    async def wait_for_room(self) -> None:
        """Wait until so few replies are unread that another command may be taken."""
        await self._drained.wait()

    def _append(self, entry: _Entry) -> None:
        self._entries.append(entry)
        self._filled.set()

    def _grow(self, entry: _Entry, size: int) -> None:
        entry.bytes += size
        self._bytes += size
        if self._bytes > OUTBOX_BYTES:
            self.overflow = True
            self._entries.clear()
            self._newest.clear()
            self._filled.set()


def _continues(waiting: _Entry, delta: MessageDelta) -> bool:
    if not waiting.deltas:
        return False
    last = waiting.deltas[-1]
    return last.message_id == delta.message_id and last.channel == delta.channel and last.seq + 1 == delta.seq


class _Log:
    """A chat's newest events."""

    def __init__(self) -> None:
        self.events: deque[LoggedEvent] = deque()
        self.bytes = 0

    def append(self, logged: LoggedEvent) -> None:
        self.events.append(logged)
        self.bytes += len(logged.frame)
        while len(self.events) > LOG_EVENTS or self.bytes > LOG_BYTES:
            self.bytes -= len(self.events.popleft().frame)


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

    def publish(self, event: Event) -> None:
        """Number an event, log it, and queue it for every subscriber of its chat."""
        event.seq = self._seqs[event.chat_id] = self.seq(event.chat_id) + 1
        logged = LoggedEvent(event, event.model_dump_json())
        self._log(event.chat_id).append(logged)
        for outbox in self._watchers.get(event.chat_id, ()):
            outbox.put_event(logged)

    def broadcast(self, event: BaseModel) -> None:
        """Queue an event without a number for every socket."""
        frame = event.model_dump_json()
        for outbox in self._outboxes:
            outbox.put_broadcast(frame)

    def seq(self, chat_id: str) -> int:
        """The number of the chat's newest event; 0 before the first."""
        return self._seqs.get(chat_id, 0)

    def missed(self, chat_id: str, epoch: str | None, after_seq: int | None) -> Iterable[LoggedEvent] | None:
        """Return the events after `after_seq`, or None when only a snapshot can tell."""
        newest = self.seq(chat_id)
        if epoch != self.epoch or after_seq is None or after_seq > newest:
            return None
        events = self._logs[chat_id].events if chat_id in self._logs else ()
        missed = [logged for logged in events if logged.event.seq > after_seq]
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
