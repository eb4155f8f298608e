"""The event log of several replicas: a chat's owner keeps it in memory as a single process does, and in a stream of Redis for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backend.event_log import Logged, MemoryLog
from backend.replicas.line import EVERYONE, Line, events_key

# A stream outlives its last event by so long; a socket that comes back after it gets a snapshot.
STREAM_SECONDS = 3_600

# A stream takes no number twice: what is said again, or by an owner of before, is not told either. One command
# costs a server little more than half of what three do.
_TELL = """
redis.call('XADD', KEYS[1], 'MINID', '~', ARGV[1], ARGV[2] .. '-0', 'frame', ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', KEYS[1], ARGV[2] .. ' ' .. ARGV[3])
"""


class SharedLog:
    """Numbers are given by a chat's owner. What others publish is heard while somebody here follows the chat."""

    def __init__(self, line: Line, owns: Callable[[str], bool]) -> None:
        self._epoch = ""
        self._line = line
        self._owns = owns
        self._own = MemoryLog()
        self._heard: dict[str, int] = {}

    @property
    def epoch(self) -> str:
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: str) -> None:
        self._epoch = self._own.epoch = epoch

    def newest(self, chat_id: str) -> int:
        return self._own.newest(chat_id) if self._owns(chat_id) else self._heard.get(chat_id, 0)

    def append(self, chat_id: str, event: Logged) -> None:
        """Keep an event of a chat that this replica owns, and tell it to the others."""
        self._own.append(chat_id, event)
        self._line.say("EVAL", _TELL, 1, events_key(chat_id), f"{self._own.oldest(chat_id)}-0", event.seq, event.frame, STREAM_SECONDS)

    def broadcast(self, frame: str, user: str | None) -> None:
        self._line.tell(EVERYONE, {"from": self._line.replica, "user": user, "frame": frame})

    async def follow(self, chat_id: str) -> None:
        if not self._owns(chat_id):
            await self._line.subscribe(events_key(chat_id))

    def unfollow(self, chat_id: str) -> None:
        self._line.unsubscribe(events_key(chat_id))
        self._heard.pop(chat_id, None)

    async def since(self, chat_id: str, epoch: str | None, after_seq: int | None) -> list[Logged] | None:
        if self._owns(chat_id):
            return await self._own.since(chat_id, epoch, after_seq)
        if epoch != self.epoch or after_seq is None:
            return None
        held = await self._read(chat_id, after_seq)
        if not held or held[0].seq > after_seq + 1:
            return None  # from here on there is a gap, or nothing that says how far the chat has come
        self._hear(chat_id, held[-1].seq)
        return held[1:] if held[0].seq == after_seq else held

    async def is_watched_elsewhere(self, chat_id: str) -> bool:
        _, count = await self._line.ask("PUBSUB", "NUMSUB", events_key(chat_id))
        return bool(int(count) > self._line.is_subscribed(events_key(chat_id)))

    def forget(self, chat_id: str) -> None:
        self._own.forget(chat_id)
        self._heard.pop(chat_id, None)
        self._line.say("DEL", events_key(chat_id))

    def heard(self, chat_id: str, text: str) -> Logged | None:
        """An event as the line brought it; None when it is one of this replica's own."""
        if self._owns(chat_id):
            return None
        seq, _, frame = text.partition(" ")
        self._hear(chat_id, int(seq))
        return Logged(int(seq), frame)

    async def take_up(self, chat_id: str, newest: int) -> list[Logged]:
        """Number the chat's events from now on; those of the former owner that were not heard yet."""
        late = [event for event in await self._read(chat_id, self._heard[chat_id] + 1) if event.seq <= newest] if chat_id in self._heard else []
        self._own.begin(chat_id, newest)
        self._heard.pop(chat_id, None)
        self._line.unsubscribe(events_key(chat_id))
        return late

    def give_up(self, chat_id: str) -> None:
        """Another replica numbers the chat's events, if anybody does."""
        self._heard[chat_id] = self._own.newest(chat_id)
        self._own.forget(chat_id)

    async def missed(self, chat_id: str) -> list[Logged]:
        """What came since the newest event that is known here."""
        return await self._read(chat_id, self.newest(chat_id) + 1)

    def _hear(self, chat_id: str, seq: int) -> None:
        self._heard[chat_id] = max(seq, self._heard.get(chat_id, 0))

    async def _read(self, chat_id: str, first_seq: int) -> list[Logged]:
        entries: list[Any] = await self._line.ask("XRANGE", events_key(chat_id), f"{first_seq}-0", "+")
        return [Logged(int(name.partition("-")[0]), fields[1]) for name, fields in map(_plain, entries)]


def _plain(entry: Any) -> tuple[str, list[str]]:
    name, fields = entry
    return name, [part for pair in fields.items() for part in pair] if isinstance(fields, dict) else fields
