"""How many commands one socket may send: a token bucket, so that a page may ask much at once but not without end."""

from __future__ import annotations

import time
from collections.abc import Callable

# A page with 40 tabs asks some hundred things when it comes back; nobody clicks two hundred times a second for long.
BURST = 1_000
PER_SECOND = 200.0
# Refusals in a row after which a socket is taken for broken or hostile.
REFUSALS = 500


class RateLimit:
    """One socket's allowance."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._left = float(BURST)
        self._seen = now()
        self._refused = 0

    def allows(self) -> bool:
        """Take one command from the allowance; False when none is left."""
        seen, self._seen = self._seen, self._now()
        self._left = min(float(BURST), self._left + (self._seen - seen) * PER_SECOND)
        if self._left < 1:
            self._refused += 1
            return False
        self._left -= 1
        self._refused = 0
        return True

    @property
    def is_abused(self) -> bool:
        """Whether the client goes on and on although it is refused."""
        return self._refused >= REFUSALS
