"""What services know of a database, whichever engine it is: units of work, each in a transaction of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from backend.store.connection import Connection

T = TypeVar("T")


class Units(Protocol):
    """A database between `connect` and `disconnect`."""

    async def connect(self) -> None:
        """Bring it to the newest schema and open it. Raises StoreError, with nothing left open."""

    async def disconnect(self) -> None:
        """Wait for the units under way, and close everything."""

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` on a reader in one snapshot of the database. It may be run a second time, as a unit that writes may."""

    async def write(self, work: Callable[[Connection], Awaitable[T]], then: Callable[[T], object] | None = None, *, is_urgent: bool = False) -> T:
        """Run `work` in a transaction of its own; an exception rolls it back. An urgent one comes before all that wait.

        `then` is called with the result after the commit and before this process's next writer starts, so what it
        publishes has the order of the commits. A unit that began ends: a caller that is cancelled
        waits for it. A unit must not start another one and wait for that. It may be run a second time when another
        process was in its way, so that all it does is in its transaction.
        """

    async def scrub(self) -> bool:
        """Take deleted text out of what the database keeps. False when it goes on in the background."""

    async def check(self) -> bool:
        """Whether the database answers."""


class WritersTurn:
    """One writer of this process after the other, in the order of their coming; the urgent ones come first."""

    def __init__(self) -> None:
        self._queue = asyncio.Lock()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def taken(self, *, is_urgent: bool = False) -> AsyncIterator[None]:
        if is_urgent:
            async with self._turn:
                yield
        else:
            # Whoever is at the head of the queue is the only one of it that an urgent writer may find before it.
            async with self._queue, self._turn:
                yield


class Running:
    """The units under way. Each is a task of its own, so that it ends whoever still waits for it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, unit: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(unit)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await to_its_end(task)

    async def wait(self) -> None:
        """Until none is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def to_its_end(task: asyncio.Task[T]) -> T:
    """Wait for `task` even when the caller is cancelled meanwhile; then the caller's cancellation goes on."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()
