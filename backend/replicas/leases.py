"""Which replica a chat belongs to: the one that runs its turns, numbers its events and carries out its commands.

A chat is taken up by the first replica that is asked for it, and belongs to it for as long as its heartbeat is heard
in Redis. What is decided here for several replicas at once is decided by a script within Redis.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from backend.errors import Unreachable
from backend.replicas.line import EPOCH, SETTLING, TURNS, UNREACHABLE, Line, events_key, owner_key

logger = logging.getLogger(__name__)

# A replica that isn't heard for so long has lost its chats; it gives them up by itself before that.
LEASE_SECONDS = 5.0
FENCE_SECONDS = 3.0
HEARTBEAT_SECONDS = 1.0
# After Redis has lost its data, owners get this long to say again what is theirs.
SETTLING_SECONDS = 2 * HEARTBEAT_SECONDS
# A chat that nobody has asked for is let go; what is cleared can be put back for as long as that.
IDLE_SECONDS = 900.0
# After an owner that is gone, numbers go on beyond any that it may have used without Redis hearing of it.
LOST_NUMBERS = 1_000

WAIT_SECONDS = 0.1

# An empty owner's name says that the last one left in good order.
_CLAIM = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= '' and owner ~= ARGV[1] then return {owner} end
if redis.call('EXISTS', KEYS[3]) == 1 then return {''} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
return {ARGV[1], owner == '' and 'left' or 'gone', newest[1] and newest[1][1] or '', redis.call('HGET', KEYS[4], ARGV[3]) or ''}
"""

_RENEW = """
local epoch = redis.call('GET', KEYS[1])
if not epoch then
    epoch = ARGV[3]
    redis.call('SET', KEYS[1], epoch)
    redis.call('SET', KEYS[2], '1', 'PX', ARGV[4])
end
local lost = {epoch}
for index = 3, #KEYS do
    local owner = redis.call('GET', KEYS[index])
    if not owner or owner == ARGV[1] then
        redis.call('SET', KEYS[index], ARGV[1], 'PX', ARGV[2])
    else
        table.insert(lost, index - 2)
    end
end
return lost
"""

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], '', 'EX', 86400) end
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A chat that was taken up. `newest` is the number that its next event follows.

    `turn_id` is the turn that its last owner left unfinished. `was_left` when that one ended in good order.
    """

    chat_id: str
    newest: int
    turn_id: str | None
    was_left: bool


class Keeper(Protocol):
    """Who does what an owner has to do."""

    async def take_up(self, claim: Claim) -> None:
        """The chat is this replica's from now on."""

    def is_busy(self, chat_id: str) -> bool:
        """Whether a turn runs in it."""

    def let_go(self, chat_id: str) -> None:
        """The chat is not this replica's any more: nothing of it may be written or told."""

    async def interrupt(self) -> None:
        """End every turn, keeping its text: the leases run out."""

    def epoch_changed(self, epoch: str) -> None:
        """Numbers of events before now mean nothing any more."""


@dataclass(slots=True)
class _Owned:
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)


class Leases:
    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._owned: dict[str, _Owned] = {}
        self._claiming: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._heard_at = 0.0
        self._epoch = ""
        self._tasks: list[asyncio.Task[None]] = []
        self.is_draining = False

    @property
    def is_fenced(self) -> bool:
        """Whether Redis has not been heard for so long that nothing can be called this replica's."""
        return time.monotonic() - self._heard_at > FENCE_SECONDS

    async def begin(self) -> None:
        """Say that this replica is there, and go on saying so. Raises Unreachable."""
        await self._renew()
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._see_to_orphans())]

    async def close(self) -> None:
        """Let all chats go in good order; no turn may run any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for chat_id in list(self._owned):
            self._release(chat_id)

    def drain(self) -> list[str]:
        """Look for nothing more to take up, and let go of what is not in use; the chats that are left."""
        self.is_draining = True
        self._let_go(unused_for=0)
        return self.owned

    @property
    def owned(self) -> list[str]:
        return list(self._owned)

    def owns(self, chat_id: str) -> bool:
        return chat_id in self._owned

    @contextmanager
    def using(self, chat_id: str) -> Iterator[None]:
        """Keep a chat of this replica's for as long as the block runs."""
        owned = self._owned.setdefault(chat_id, _Owned())
        owned.users += 1
        try:
            yield
        finally:
            owned.users -= 1
            owned.used_at = time.monotonic()

    async def owner_of(self, chat_id: str) -> str:
        """The replica that has the chat; this one takes it up when nobody has. Raises Unreachable."""
        claiming = self._claiming.setdefault(chat_id, asyncio.Lock())
        async with claiming:
            while chat_id not in self._owned:
                if self.is_fenced:
                    raise Unreachable(UNREACHABLE)
                keys = (owner_key(chat_id), events_key(chat_id), SETTLING, TURNS)
                answer = await self._line.ask("EVAL", _CLAIM, len(keys), *keys, self._line.replica, _milliseconds(LEASE_SECONDS), chat_id)
                if answer[0] == self._line.replica:
                    await self._take_up(_claim_in(chat_id, answer))
                elif answer[0]:
                    return str(answer[0])
                else:
                    await asyncio.sleep(WAIT_SECONDS)
        return self._line.replica

    async def _take_up(self, claim: Claim) -> None:
        self._owned[claim.chat_id] = _Owned()
        try:
            await self._keeper.take_up(claim)
        except BaseException:
            self._owned.pop(claim.chat_id, None)  # the lease runs out, and whoever comes then finds the same
            raise

    async def holder(self, chat_id: str) -> str:
        """The replica that has the chat now; empty when nobody has. Raises Unreachable."""
        return str(await self._line.ask("GET", owner_key(chat_id)) or "")

    async def _beat(self) -> None:
        pause = HEARTBEAT_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = HEARTBEAT_SECONDS
            try:
                await self._renew()
                self._let_go(unused_for=IDLE_SECONDS)
            except Unreachable:
                pause = WAIT_SECONDS
                if self.is_fenced and self._owned:
                    await self._give_up()
            except Exception:
                logger.exception("the heartbeat failed")

    async def _renew(self) -> None:
        chats, asked_at = list(self._owned), time.monotonic()
        keys = (EPOCH, SETTLING, *map(owner_key, chats))
        values = (self._line.replica, _milliseconds(LEASE_SECONDS), uuid.uuid4().hex, _milliseconds(SETTLING_SECONDS))
        epoch, *lost = await self._line.ask("EVAL", _RENEW, len(keys), *keys, *values)
        self._heard_at = asked_at
        for position in lost:
            self.lose(chats[position - 1])
        if epoch != self._epoch:
            self._epoch = epoch
            self._keeper.epoch_changed(epoch)

    def lose(self, chat_id: str) -> None:
        """Another replica has the chat: let go of it."""
        if self._owned.pop(chat_id, None) is not None:
            logger.warning("a chat was taken up by another replica", extra={"chat_id": chat_id})
            self._keeper.let_go(chat_id)

    async def _give_up(self) -> None:
        """Redis is gone for too long: end what runs while the chats are still this replica's, and forget that they were."""
        logger.error("Redis does not answer; the turns under way are interrupted")
        with suppress(TimeoutError):  # a database that is gone too
            await asyncio.wait_for(self._keeper.interrupt(), LEASE_SECONDS - FENCE_SECONDS)
        self._line.forget_unsaid()
        for chat_id in list(self._owned):
            del self._owned[chat_id]
            self._keeper.let_go(chat_id)

    async def _see_to_orphans(self) -> None:
        """Beside the heartbeat: a database that answers late must not stop that."""
        while not self.is_draining:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self._take_up_orphans()
            except Unreachable:
                pass  # the next look tries again
            except Exception:
                logger.exception("a turn that was left could not be seen to")

    async def _take_up_orphans(self) -> None:
        """See to the turns whose replica is gone."""
        for chat_id in await self._line.ask("HKEYS", TURNS):
            if chat_id not in self._owned and not await self.holder(chat_id):
                await self.owner_of(chat_id)

    def _let_go(self, *, unused_for: float) -> None:
        latest = time.monotonic() - unused_for
        for chat_id, owned in list(self._owned.items()):
            if not owned.users and owned.used_at <= latest and not self._keeper.is_busy(chat_id):
                self._release(chat_id)
                self._keeper.let_go(chat_id)

    def _release(self, chat_id: str) -> None:
        self._owned.pop(chat_id, None)
        self._line.say("EVAL", _RELEASE, 1, owner_key(chat_id), self._line.replica)


def _claim_in(chat_id: str, answer: list[str]) -> Claim:
    _, how, newest_id, turn_id = answer
    newest = int(newest_id.partition("-")[0]) if newest_id else 0
    if how != "left" or not newest:
        # Never a number that somebody may hold for another event, nor one from before a stream that is gone.
        newest = max(newest + LOST_NUMBERS, int(time.time() * 1000))
    return Claim(chat_id, newest, turn_id or None, how == "left")


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
