"""How many tokens a text costs: an estimate that the model server's own counts correct."""

from __future__ import annotations

import json
import math

# Four bytes of UTF-8 a token holds within a third for English, Russian and Chinese on today's vocabularies.
BYTES_PER_TOKEN = 4
# What a chat template puts around each message.
MESSAGE_TOKENS = 4

# A single odd count (an old server that leaves out cached tokens) must not carry the estimate away.
FACTOR_LIMITS = (0.5, 4.0)
# How far one count moves the factor.
LEARNING_RATE = 0.3


class TokenCounter:
    """Estimates per model; starts from bytes and learns from `prompt_eval_count`."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}

    def text(self, text: str, model: str | None = None) -> int:
        """Estimated tokens of a text, 0 for an empty one."""
        return math.ceil(len(text.encode()) / BYTES_PER_TOKEN * self._factor(model))

    def message(self, text: str, model: str | None = None) -> int:
        """Estimated tokens of a message with what the template puts around it."""
        return self.text(text, model) + MESSAGE_TOKENS

    def json(self, value: object, model: str | None = None) -> int:
        """Estimated tokens of a value as the template writes it: 0 for nothing."""
        return self.text(json.dumps(value, ensure_ascii=False), model) if value else 0

    def learn(self, model: str, estimated: int, counted: int) -> None:
        """Move the model's factor towards what the server counted for a prompt that we had estimated."""
        if estimated <= 0 or counted <= 0:
            return
        low, high = FACTOR_LIMITS
        target = min(max(self._factor(model) * counted / estimated, low), high)
        self._factors[model] = self._factor(model) + LEARNING_RATE * (target - self._factor(model))

    def _factor(self, model: str | None) -> float:
        return self._factors.get(model or "", 1.0)
