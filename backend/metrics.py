"""What the server counts of its work, as Prometheus reads it. Labels are words of ours, never a person's or a model's."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from backend.protocol import ClearReason, TurnStatus
from backend.services.observer import TurnReport

CONTENT_TYPE = CONTENT_TYPE_LATEST

# From a small model that has the prompt in its cache to a large one that is loaded first.
FIRST_TOKEN_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# From a button to a turn of many rounds on a slow machine.
TURN_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """The figures of one server; an observer of its services. A registry of its own keeps servers of one process apart."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._turns = Counter("cleanroom_turns", "Turns that have ended.", ["outcome"], registry=registry)
        self._turn_seconds = Histogram("cleanroom_turn_duration_seconds", "From a turn's start to its end.", registry=registry, buckets=TURN_BUCKETS)
        self._first_token_seconds = Histogram(
            "cleanroom_first_token_seconds", "From a turn's first request to the model's first word.", registry=registry, buckets=FIRST_TOKEN_BUCKETS
        )
        self._tokens = Counter("cleanroom_tokens", "Tokens of prompts and replies as model servers counted them.", ["kind"], registry=registry)
        self._tool_calls = Counter("cleanroom_tool_calls", "Tools used by models and persons.", ["tool", "outcome"], registry=registry)
        self._clears = Counter("cleanroom_clears", "Clearings of working material.", ["reason"], registry=registry)
        self._model_errors = Counter("cleanroom_model_errors", "Turns that a model server's failure ended.", ["kind"], registry=registry)
        self.sockets = Gauge("cleanroom_sockets", "Open WebSockets.", registry=registry)
        self._running = Gauge("cleanroom_turns_running", "Turns under way, those that wait among them.", registry=registry)
        self._waiting = Gauge("cleanroom_turns_waiting", "Turns that wait for a model's next word or a person's answer.", ["waits_for"], registry=registry)
        # A rate can be told of a counter that begins at 0, not of one that begins with its first event.
        for counter, values in ((self._turns, get_args(TurnStatus)), (self._tokens, ("prompt", "reply")), (self._clears, get_args(ClearReason))):
            for value in values:
                counter.labels(value)

    def watch_turns(self, running: Callable[[], int], waiting: dict[str, Callable[[], int]]) -> None:
        """Ask for the numbers of turns whenever the figures are read; `waiting` by what they wait for."""
        self._running.set_function(running)
        for what, count in waiting.items():
            self._waiting.labels(what).set_function(count)

    def turn_ended(self, report: TurnReport) -> None:
        self._turns.labels(report.outcome).inc()
        self._turn_seconds.observe(report.seconds)
        if report.first_token_seconds is not None:
            self._first_token_seconds.observe(report.first_token_seconds)
        self._tokens.labels("prompt").inc(report.prompt_tokens)
        self._tokens.labels("reply").inc(report.reply_tokens)
        for tool, outcome in report.calls:
            self._tool_calls.labels(tool, outcome).inc()
        if report.model_error is not None:
            self._model_errors.labels(report.model_error).inc()

    def cleared(self, reason: ClearReason) -> None:
        self._clears.labels(reason).inc()

    def render(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self._registry)
