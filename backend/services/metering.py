"""What a turn asks of its model, measured on the way."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from backend.llm.agent import Model
from backend.llm.wire import Chunk


class MeteredModel:
    """A model for one turn that counts its rounds and their tokens, and times its first word.

    Tokens are those that the server counted: a reply that broke off or was stopped has none. `first_token_seconds`
    counts from the first request, waits for a busy server included; None until something came.
    """

    def __init__(self, model: Model, name: str, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._asked_at: float | None = None
        self.name = name
        self.rounds = 0
        self.prompt_tokens = 0
        self.reply_tokens = 0
        self.first_token_seconds: float | None = None
        self.is_waiting = False

    @property
    def can_call_tools(self) -> bool:
        return self._model.can_call_tools

    async def stream(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], options: dict[str, Any]) -> AsyncGenerator[Chunk, None]:
        self.rounds += 1
        self.is_waiting = True
        if self._asked_at is None:
            self._asked_at = self._clock()
        stream = self._model.stream(messages, tools, options)
        try:
            async for chunk in stream:
                self._note(chunk, self._clock() - self._asked_at)
                yield chunk
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    def _note(self, chunk: Chunk, seconds: float) -> None:
        self.is_waiting = False
        if self.first_token_seconds is None and (chunk.text or chunk.thinking or chunk.tool_calls):
            self.first_token_seconds = seconds
        if chunk.done is not None:
            self.prompt_tokens += chunk.done.prompt_tokens or 0
            self.reply_tokens += chunk.done.reply_tokens or 0
