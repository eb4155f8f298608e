"""What a model server's own count of a prompt says: that it read all of it, a part that it had not cached, or that it cut it.

A server that is asked not to truncate refuses a prompt that is too long; some cut it all the same and say nothing.
Their count is the only sign, and older servers count no more than what they had not cached, which is no sign at all.
"""

from __future__ import annotations

from typing import Literal

Reading = Literal["whole", "uncached", "cut"]

# An estimate from bytes may be twice the truth, as for code full of spaces: only what is less has another cause.
WELL_BELOW = 0.5
# A cut in the middle leaves half of the window and a few tokens. So near to that, less of a difference tells it.
NEAR_HALF_TOKENS = 16
WELL_BELOW_NEAR_HALF = 0.8
# The shortest window that a server gives a model unasked. A cut leaves at least half of one.
SMALLEST_WINDOW = 2_048
# Estimates hold within a third.
ABOUT = (2 / 3, 4 / 3)


class PromptCounts:
    """Reads counts, and remembers of each model whether its server leaves out what it has cached."""

    def __init__(self) -> None:
        self._kinds: dict[str, Literal["whole", "uncached"]] = {}

    def read(self, model: str, *, num_ctx: int, estimated: int, fresh: int, counted: int) -> Reading:
        """What `counted` tokens of a prompt that was estimated at `estimated` mean.

        `fresh` is the estimate of what follows the part that the server may have cached.
        """
        near_half = abs(counted - num_ctx // 2) <= NEAR_HALF_TOKENS
        leaves_much_out = fresh <= estimated * WELL_BELOW
        if counted >= estimated * (WELL_BELOW_NEAR_HALF if near_half else WELL_BELOW):
            if leaves_much_out:
                self._kinds.setdefault(model, "whole")
            return "whole"
        window = min(SMALLEST_WINDOW, num_ctx)
        if estimated <= window or counted < window // 2:  # no window is so short that it was cut
            if leaves_much_out:
                self._kinds[model] = "uncached"
            return "uncached"
        kind = self._kinds.get(model)
        if kind == "uncached" or (kind is None and ABOUT[0] * fresh <= counted <= ABOUT[1] * fresh):
            return "uncached"
        return "cut"
