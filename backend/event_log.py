"""The newest events of each chat by their numbers, for sockets that come back: one interface, and the log of one process alone."""

from __future__ import annotations

import uuid
from collections import OrderedDict, deque
from typing import NamedTuple, Protocol

# What a chat's log keeps for sockets that come back: some minutes of a fast model's deltas.
LOG_EVENTS = 2_000
LOG_BYTES = 1_048_576
# Chats whose logs are kept; beyond them the least recently active ones send a snapshot instead.
LOGS_KEPT = 64


class Logged(NamedTuple):
    """An event of a log: its number and its frame."""

    seq: int
    frame: str


class EventLog(Protocol):
    """Numbers and keeps events. Numbers rise by one within a chat and mean something within an epoch only."""

    @property
    def epoch(self) -> str: ...

    def newest(self, chat_id: str) -> int:
        """The number of the chat's newest event that is known here; 0 before the first."""

    def append(self, chat_id: str, event: Logged) -> None:
        """Keep the event that follows the newest one."""

    def broadcast(self, frame: str, user: str | None) -> None:
        """Have the other replicas, if there are any, tell the user's sockets too; None: all of them."""

    async def follow(self, chat_id: str) -> None:
        """Hear the chat's events from now on, whoever publishes them."""

    def unfollow(self, chat_id: str) -> None:
        """Nobody here watches the chat any more."""

    async def since(self, chat_id: str, epoch: str | None, after_seq: int | None) -> list[Logged] | None:
        """The events after `after_seq`, or None when only a snapshot can tell."""

    async def is_watched_elsewhere(self, chat_id: str) -> bool:
        """Whether a socket of another replica watches the chat."""

    def forget(self, chat_id: str) -> None:
        """Drop a deleted chat's events, and with them its text."""


class _Chat:
    """The log of one chat: its newest frames, whose numbers follow each other.

    A hundred thousand may be kept. Texts alone are nothing that the garbage collector would have to walk through, which
    holds up every stream.
    """

    def __init__(self) -> None:
        self.frames: deque[str] = deque()
        self.bytes = 0

    def append(self, frame: str) -> None:
        self.frames.append(frame)
        self.bytes += len(frame)
        while len(self.frames) > LOG_EVENTS or self.bytes > LOG_BYTES:
            self.bytes -= len(self.frames.popleft())


class MemoryLog:
    """The log of a process that has no other beside it."""

    def __init__(self) -> None:
        self.epoch = uuid.uuid4().hex
        # Numbers outlive logs: a client that knows a later one must never be told that it missed nothing.
        self._newest: dict[str, int] = {}
        self._chats: OrderedDict[str, _Chat] = OrderedDict()

    def newest(self, chat_id: str) -> int:
        return self._newest.get(chat_id, 0)

    def begin(self, chat_id: str, newest: int) -> None:
        """Take up a chat's numbers where another process left off; no event of before is kept."""
        self._chats.pop(chat_id, None)
        self._newest[chat_id] = newest

    def append(self, chat_id: str, event: Logged) -> None:
        self._newest[chat_id] = event.seq
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = self._chats[chat_id] = _Chat()
            if len(self._chats) > LOGS_KEPT:
                self._chats.popitem(last=False)
        else:
            self._chats.move_to_end(chat_id)
        chat.append(event.frame)

    def oldest(self, chat_id: str) -> int:
        """The number of the oldest event that is kept; beyond the newest when none is."""
        return self.newest(chat_id) + 1 - len(self._frames(chat_id))

    def _frames(self, chat_id: str) -> deque[str]:
        return self._chats[chat_id].frames if chat_id in self._chats else deque()

    def broadcast(self, frame: str, user: str | None) -> None:
        """There is nobody else."""

    async def follow(self, chat_id: str) -> None:
        """Every event is published here anyway."""

    def unfollow(self, chat_id: str) -> None:
        """It costs nothing."""

    async def since(self, chat_id: str, epoch: str | None, after_seq: int | None) -> list[Logged] | None:
        oldest = self.oldest(chat_id)
        if epoch != self.epoch or after_seq is None or not oldest - 1 <= after_seq <= self.newest(chat_id):
            return None
        return [Logged(seq, frame) for seq, frame in enumerate(self._frames(chat_id), oldest) if seq > after_seq]

    async def is_watched_elsewhere(self, chat_id: str) -> bool:
        return False

    def forget(self, chat_id: str) -> None:
        self._newest.pop(chat_id, None)
        self._chats.pop(chat_id, None)
