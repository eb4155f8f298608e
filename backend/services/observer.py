"""What the services tell whoever runs the server: ids and figures, never words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from backend.protocol import ClearReason, TurnStatus


@dataclass(frozen=True, slots=True)
class TurnReport:
    """A turn that has ended. `model` is None when none was asked, as for a button; `host` unless a
    balancer named the model server that answered.

    `seconds` counts from the turn's start (from the server's, for one that waited for a person over a restart) and has
    all waits in it. `calls` are the tools used, each with `ok`, `denied` or its error's code. `error` is the code that
    the person was told, `model_error` the kind of ModelError behind it.
    """

    chat_id: str
    turn_id: str
    outcome: TurnStatus
    seconds: float
    model: str | None
    host: str | None
    rounds: int
    first_token_seconds: float | None
    prompt_tokens: int
    reply_tokens: int
    calls: tuple[tuple[str, str], ...]
    error: str | None
    model_error: str | None

    def for_log(self) -> dict[str, object]:
        """The fields of the turn's line; of its calls, how many."""
        return {
            "chat_id": self.chat_id,
            "turn_id": self.turn_id,
            "model": self.model,
            "host": self.host,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
            "first_token_seconds": None if self.first_token_seconds is None else round(self.first_token_seconds, 3),
            "prompt_tokens": self.prompt_tokens,
            "reply_tokens": self.reply_tokens,
            "rounds": self.rounds,
            "tool_calls": len(self.calls),
            "failed_calls": sum(outcome != "ok" for _, outcome in self.calls),
            "error": self.error,
            "model_error": self.model_error,
        }


class Observer(Protocol):
    """Who counts what happens. Called in the middle of things, so it must be quick and never raise."""

    def turn_ended(self, report: TurnReport) -> None: ...

    def cleared(self, reason: ClearReason) -> None: ...
