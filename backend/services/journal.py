"""Writes and their events as one: what is committed is published, in the order of the commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel

from backend.hub import Hub
from backend.protocol import Event, UserEvent
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

    def __init__(self, database: Units, hub: Hub) -> None:
        self._database = database
        self._hub = hub

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._database.read(work)

    async def write(self, work: Callable[[Unit], Awaitable[T]]) -> T:
        """Run `work` in one transaction; its events go out after the commit, before the next writer starts."""

        async def run(tx: Connection) -> tuple[T, Unit]:
            unit = Unit(tx)
            return await work(unit), unit

        result, _ = await self._database.write(run, lambda outcome: self._settle(outcome[1]))
        return result

    def publish(self, event: BaseModel) -> None:
        """Send an event that no write belongs to: to the chat's subscribers, to one user's sockets, or to every socket."""
        if isinstance(event, Event):
            self._hub.publish(event)
        else:
            self._hub.broadcast(event, event.user if isinstance(event, UserEvent) else None)

    def tell_sockets(self, event: BaseModel) -> None:
        """Send what concerns this process alone to every socket of it."""
        self._hub.tell_all(event.model_dump_json())

    def forget(self, chat_id: str) -> None:
        """Drop a deleted chat's events, and with them its text."""
        self._hub.forget(chat_id)

    async def scrub(self) -> None:
        """Take deleted text out of the database's files."""
        await self._database.scrub()

    def _settle(self, unit: Unit) -> None:
        for consequence in unit.consequences:
            if isinstance(consequence, BaseModel):
                self.publish(consequence)
            else:
                consequence()
