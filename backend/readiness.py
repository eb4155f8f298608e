"""Whether this server can do its work, for whoever sends people to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

# Anybody may ask, and a look takes one of the database's few connections.
LOOK_SECONDS = 1.0


class Readiness:
    """Looks once for all who ask within a second, or while it looks."""

    def __init__(self, look: Callable[[], Awaitable[bool]], now: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._now = now
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._found = False

    async def ask(self) -> bool:
        async with self._looking:
            if self._now() - self._looked_at >= LOOK_SECONDS:
                self._found = await self._look()
                self._looked_at = self._now()
        return self._found
