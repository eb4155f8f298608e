"""Ordered events for whoever watches a chat: numbered in a log, with one bounded outbox a socket.

Knows no SQL, no model and no WebSocket. Publishing never waits for a client: a socket that can't
keep up gets its deltas merged, and one that falls further behind is told to come back for a snapshot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

from pydantic import BaseModel

from backend.event_log import EventLog, Logged
from backend.protocol import Event, MessageDelta, delta_in

# What one socket may have waiting beside its largest event. A page that reads nothing reaches it after some MB.
OUTBOX_BYTES = 4_194_304
# Replies waiting for one socket before its next command is read.
OUTBOX_REPLIES = 8

# Writes a frame at once; False, with nothing written, when the socket takes none.
Write = Callable[[str], bool]

# The position of a socket whose missed events are being read: none is for it yet.
NOTHING_YET = 2**63


def takes_none(_frame: str) -> bool:
    """The `Write` of a socket that has none."""
    return False


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
        return replace(self._first, seq=self._last_seq, first_seq=self._first.seq, text=self._text.getvalue()).model_dump_json()


class Outbox:
    """The frames that wait for one socket, in order. It closes itself when they grow too many. `user` is whose socket it is.

    What comes while nothing waits is handed to `write`; all else is for the task that takes one frame after the other.
    """

    def __init__(self, user: str = "", write: Write = takes_none) -> None:
        self.user = user
        self._write = write
        self._frames: deque[_Frame | _Deltas] = deque()
        # The newest waiting frame of each chat, when the chat's next delta may join it.
        self._growing: dict[str, _Deltas] = {}
        self._bytes = 0
        self._largest = 0
        self._replies = 0
        # Clear only while the task that takes frames waits for one.
        self._filled = asyncio.Event()
        self._filled.set()
        self._drained = asyncio.Event()
        self._drained.set()
        self._is_closed = False

    def put_first(self, frame: str) -> None:
        """Queue a connection's first frame, before whatever waits already."""
        self._replies += 1
        self._frames.appendleft(_Frame(frame, is_reply=True))
        self._filled.set()

    def put_reply(self, frame: str) -> None:
        """Queue a reply, or another frame that belongs to no chat's sequence."""
        # No delta joins one across a reply: it would overtake the snapshot that the reply may hold.
        self._growing.clear()
        if self._is_written(frame):
            return
        self._replies += 1
        if self._replies >= OUTBOX_REPLIES and not self._is_closed:
            self._drained.clear()
        self._append(_Frame(frame, is_reply=True))

    def put_event(self, event: Event | MessageDelta, frame: str) -> None:
        """Queue an event, encoded as `frame`; a delta joins the one before it that still waits, if it continues that one."""
        if self._is_written(frame):
            return
        if not isinstance(event, MessageDelta):
            self.end_deltas(event.chat_id)
            self._append(_Frame(frame))
            return
        growing = self._growing.get(event.chat_id)
        if growing is not None and growing.add(event):
            self._grow(len(event.text))
        else:
            self._growing[event.chat_id] = deltas = _Deltas(event, frame)
            self._append(deltas)

    def end_deltas(self, chat_id: str) -> None:
        """No delta of the chat joins those that wait: another event of it comes between."""
        self._growing.pop(chat_id, None)

    def put_frame(self, frame: str) -> None:
        """Queue what no delta joins: an event from a log, or one that stands outside every chat's sequence."""
        if self._is_written(frame):
            return
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

    def _is_written(self, frame: str) -> bool:
        """Whether the socket took the frame at once, which it may only when nothing waits or is on its way before it."""
        return not self._filled.is_set() and self._write(frame)

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


class Hub:
    """All sockets' outboxes of this process, and the chats that they watch."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        # Each chat's watchers, with the number of the last event that they had when they came.
        self._watchers: dict[str, dict[Outbox, int]] = {}
        self._outboxes: set[Outbox] = set()

    @property
    def epoch(self) -> str:
        return self.log.epoch

    def attach(self, outbox: Outbox) -> None:
        self._outboxes.add(outbox)

    def detach(self, outbox: Outbox) -> None:
        """Take a socket out of everything that it watched."""
        self._outboxes.discard(outbox)
        for chat_id in [chat_id for chat_id, watchers in self._watchers.items() if outbox in watchers]:
            self.unsubscribe(chat_id, outbox)

    def subscribe(self, chat_id: str, outbox: Outbox) -> None:
        """Have a socket get what comes after the newest event."""
        self._watchers.setdefault(chat_id, {})[outbox] = self.seq(chat_id)

    async def resume(self, chat_id: str, epoch: str | None, after_seq: int | None, outbox: Outbox, reply: Callable[[int], None]) -> bool:
        """Have a socket get what comes after `after_seq`, behind the `reply` that is told the newest number.

        False, and nothing was done, when the log does not reach back so far.
        """
        watchers = self._watchers.setdefault(chat_id, {})
        had = watchers.get(outbox)
        watchers[outbox] = NOTHING_YET
        missed = None
        try:
            missed = await self._missed(chat_id, epoch, after_seq)
        finally:
            if missed is None:
                self._put_back(chat_id, outbox, had)
        if missed is None or after_seq is None:
            return False
        watchers[outbox] = missed[-1].seq if missed else after_seq
        reply(watchers[outbox])
        for event in missed:
            outbox.put_frame(event.frame)
        return True

    async def _missed(self, chat_id: str, epoch: str | None, after_seq: int | None) -> list[Logged] | None:
        """The events after `after_seq` up to the newest that was heard, from now on none of which is lost."""
        await self.log.follow(chat_id)
        missed: list[Logged] = []
        while True:
            later = await self.log.since(chat_id, epoch, missed[-1].seq if missed else after_seq)
            if later is None:
                return None
            missed += later
            if (missed[-1].seq if missed else after_seq) == self.seq(chat_id):
                return missed  # else some came while these were read

    def _put_back(self, chat_id: str, outbox: Outbox, had: int | None) -> None:
        if had is None:
            self.unsubscribe(chat_id, outbox)
        else:
            self._watchers[chat_id][outbox] = had

    def unsubscribe(self, chat_id: str, outbox: Outbox) -> None:
        watchers = self._watchers.get(chat_id, {})
        watchers.pop(outbox, None)
        if not watchers and self._watchers.pop(chat_id, None) is not None:
            self.log.unfollow(chat_id)

    def is_watched_here(self, chat_id: str) -> bool:
        """Whether a socket of this process has subscribed to the chat."""
        return chat_id in self._watchers

    async def is_watched(self, chat_id: str) -> bool:
        """Whether any socket has."""
        return self.is_watched_here(chat_id) or await self.log.is_watched_elsewhere(chat_id)

    def publish(self, event: Event | MessageDelta) -> None:
        """Number an event, log it, and queue it for every subscriber of its chat."""
        event.seq = self.seq(event.chat_id) + 1
        frame = event.model_dump_json()
        self.log.append(event.chat_id, Logged(event.seq, frame))
        for outbox in self._watchers.get(event.chat_id, ()):
            outbox.put_event(event, frame)

    def deliver(self, chat_id: str, heard: Logged) -> None:
        """Queue an event that another process has numbered."""
        watchers = self._watchers.get(chat_id, {})
        delta = delta_in(heard.frame) if watchers else None
        for outbox, had in watchers.items():
            if heard.seq <= had:
                continue
            if delta is not None:
                outbox.put_event(delta, heard.frame)
            else:
                outbox.end_deltas(chat_id)
                outbox.put_frame(heard.frame)

    def broadcast(self, event: BaseModel, user: str | None = None) -> None:
        """Queue an event without a number for every socket of a user, those of the other replicas too; None: for every socket."""
        frame = event.model_dump_json()
        self.tell_all(frame, user)
        self.log.broadcast(frame, user)

    def tell_all(self, frame: str, user: str | None = None) -> None:
        """Queue a frame in the same way for the sockets of this process alone."""
        for outbox in self._outboxes:
            if user is None or outbox.user == user:
                outbox.put_frame(frame)

    def send_away(self) -> None:
        """Close every socket: its page comes back at once, and is told what it missed."""
        for outbox in list(self._outboxes):
            outbox.close()

    def seq(self, chat_id: str) -> int:
        """The number of the chat's newest event; 0 before the first."""
        return self.log.newest(chat_id)

    def forget(self, chat_id: str) -> None:
        """Drop a deleted chat's events, and with them its text, and its watchers."""
        self.forget_watchers(chat_id)
        self.log.forget(chat_id)

    def forget_watchers(self, chat_id: str) -> None:
        """Nobody can watch the chat any more."""
        if self._watchers.pop(chat_id, None) is not None:
            self.log.unfollow(chat_id)
