"""Writes and their events as one: what is committed is published, in the order of the commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel

from backend.errors import Unreachable
from backend.protocol import Event, MessageDelta, UserEvent
from backend.services.peers import Peers
from backend.store import chats
from backend.store.connection import Connection
from backend.store.units import Units

T = TypeVar("T")


class Unit:
    """One transaction, and what is to happen once it is committed: nothing does when it fails."""

    def __init__(self, tx: Connection) -> None:
        self.tx = tx
        self.consequences: list[BaseModel | Callable[[], object]] = []

    def publish(self, event: BaseModel) -> None:
        self.consequences.append(event)

    def after_commit(self, callback: Callable[[], object]) -> None:
        """Have `callback` called in its place among the events."""
        self.consequences.append(callback)


class Journal:
    """The one way by which services change the database and tell of it."""

    def __init__(self, database: Units, peers: Peers) -> None:
        self._database = database
        self._peers = peers
        self._hub = peers.hub

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._database.read(work)

    async def write(self, work: Callable[[Unit], Awaitable[T]], *, is_urgent: bool = False) -> T:
        """Run `work` in one transaction; its events go out after the commit, before the next writer starts.

        An urgent one comes before all that wait: for what a stream stands still for.

        Raises Unreachable, with nothing written, when an event is of a chat that another server has taken up.
        """

        async def run(tx: Connection) -> tuple[T, Unit]:
            unit = Unit(tx)
            result = await work(unit)
            if not self._peers.is_alone:
                await self._check_held(unit)
            return result, unit

        result, _ = await self._database.write(run, lambda outcome: self._settle(outcome[1]), is_urgent=is_urgent)
        return result

    def publish(self, event: BaseModel) -> None:
        """Send an event that no write belongs to: to the chat's subscribers, to one user's sockets, or to every socket."""
        if isinstance(event, Event):
            self._hub.publish(event)
        else:
            self._hub.broadcast(event, event.user if isinstance(event, UserEvent) else None)

    def stream(self, delta: MessageDelta) -> None:
        """Send a piece of a reply under way, which no write waits for."""
        self._hub.publish(delta)

    def tell_sockets(self, event: BaseModel) -> None:
        """Send what concerns this process alone to every socket of it."""
        self._hub.tell_all(event.model_dump_json())

    def forget(self, chat_id: str) -> None:
        """Drop a deleted chat's events, and with them its text."""
        self._hub.forget(chat_id)

    async def scrub(self) -> None:
        """Take deleted text out of the database's files."""
        await self._database.scrub()

    async def _check_held(self, unit: Unit) -> None:
        """A server that stood still for a while may not know yet that its chats are another one's: the database does."""
        for chat_id in {event.chat_id for event in unit.consequences if isinstance(event, Event)}:
            if not await chats.is_held(unit.tx, chat_id, self._peers.id):
                self._peers.lose(chat_id)
                raise Unreachable("This chat was taken over by another server meanwhile; nothing was changed. Please try again.")

    def _settle(self, unit: Unit) -> None:
        for consequence in unit.consequences:
            if isinstance(consequence, BaseModel):
                self.publish(consequence)
            else:
                consequence()
