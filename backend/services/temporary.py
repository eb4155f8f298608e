"""Temporary chats leave nothing behind: they go when nobody has watched them for a while, and when the server stops or starts."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from backend.errors import NotFound, StoreError, Unreachable
from backend.services.chats import Chats
from backend.services.journal import Journal
from backend.services.peers import Peers
from backend.services.records import Clock
from backend.store import chats

# A page that is loaded again, or a network that comes back, is there well before.
GRACE_SECONDS = 300.0
# How often in that time it is looked who watches.
LOOKS = 10


class TemporaryChats:
    """A page deletes the temporary chat whose tab is closed; this sees to those that no page has any more."""

    def __init__(self, journal: Journal, peers: Peers, chats: Chats, clock: Clock) -> None:
        self._journal = journal
        self._peers = peers
        self._chats = chats
        self._clock = clock
        self._unwatched_since: dict[str, float] = {}
        self._looking: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Delete what an ended process left, unless others run; then look after those to come."""
        if self._peers.is_alone:
            await self._delete_all()
        self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Delete them all, unless other servers go on with them; no turn may run any more. Does nothing when it has not begun."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None
            if self._peers.is_alone:
                await self._delete_all()

    async def _delete_all(self) -> None:
        if await self._journal.write(lambda unit: chats.delete_temporary(unit.tx)):
            await self._journal.scrub()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(GRACE_SECONDS / LOOKS)
            with suppress(StoreError, Unreachable):  # a full disk, say: the next look tries again
                await self._delete_left_alone()

    async def _delete_left_alone(self) -> None:
        for chat_id in await self._left_alone():
            with suppress(NotFound):  # its page was quicker
                if await self._peers.owns(chat_id):
                    await self._chats.delete(chat_id, only_temporary=True)

    async def _left_alone(self) -> list[str]:
        """Those that nobody has watched for long enough."""
        now = self._clock.monotonic()
        unwatched = [chat_id for chat_id in await self._journal.read(chats.list_temporary) if not await self._peers.hub.is_watched(chat_id)]
        self._unwatched_since = {chat_id: self._unwatched_since.get(chat_id, now) for chat_id in unwatched}
        return [chat_id for chat_id, since in self._unwatched_since.items() if now - since >= GRACE_SECONDS]
