"""A server that has its database to itself: all chats are its own, and its events stay in its memory."""

from __future__ import annotations

from backend.connection import Dispatch
from backend.event_log import MemoryLog
from backend.hub import Hub
from backend.protocol import Command, Pull
from backend.replicas.owner import ChatOf, Owner


class Alone:
    id = "alone"
    is_alone = True
    is_ready = True

    def __init__(self) -> None:
        self.hub = Hub(MemoryLog())
        self._owner: Owner
        self._running: set[str] = set()

    def route(self, owner: Owner, dispatch: Dispatch, chat_of: ChatOf) -> Dispatch:
        self._owner = owner
        return dispatch

    async def begin(self) -> None:
        await self._owner.recover_all()

    async def leave(self) -> None:
        """There is nobody who could go on."""

    async def close(self) -> None:
        """There is nobody to tell."""

    async def owns(self, chat_id: str) -> bool:
        return True

    async def ask(self, chat_id: str, user: str, command: Command) -> None:
        """This server has every chat."""

    def lose(self, chat_id: str) -> None:
        """There is nobody who could take it."""

    def turn_began(self, chat_id: str, turn_id: str) -> None:
        self._running.add(chat_id)

    def turn_ended(self, chat_id: str) -> None:
        self._running.discard(chat_id)

    def share_pull(self, key: str, pull: Pull) -> None:
        """There is nobody who could ask."""

    async def shared_pulls(self, *, with_own: bool) -> list[Pull]:
        return []

    async def running(self) -> set[str]:
        return self._running
