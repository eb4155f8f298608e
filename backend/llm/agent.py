"""One turn of a model: ask, stream the reply, carry out its tool calls, ask again, until it answers in text.

Given a model, a journal that shows and keeps what happens, and a clock; knows neither sockets nor SQL.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from backend.errors import ModelBusy, ToolFailed
from backend.llm.core.tool_injector import Exchange, Request, Round
from backend.llm.textcall import call_openings, may_become_call, parse_call
from backend.llm.wire import Chunk, Done, ToolCall

# Requests of one turn that may end in tool calls.
MAX_TOOL_ROUNDS = 8
# Calls carried out of one reply; further ones are left out of the conversation.
MAX_CALLS_A_ROUND = 8
# Rounds of one turn in which calls fail: the first, and two that try to mend it.
MAX_FAILED_ROUNDS = 3
# The same call with the same arguments: a model that repeats it a third time is in a loop.
MAX_SAME_CALLS = 3

# A busy server is asked again for this long.
BUSY_SECONDS = 5.0
BUSY_PAUSE_SECONDS = 1.0
# Silence before the person is told that the model has not begun.
NOTICE_SECONDS = 2.0

# A reply that came out empty is asked for once more with the same messages, away from the same path.
RETRY_OPTIONS = {"seed": 1, "temperature": 0.8}

Channel = Literal["content", "thinking"]
WaitReason = Literal["model_busy", "model_loading"]


class Model(Protocol):
    """A model of a server, with its options bound."""

    @property
    def can_call_tools(self) -> bool: ...

    def stream(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], options: dict[str, Any]) -> AsyncGenerator[Chunk, None]: ...


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call that was carried out or refused, as the next request tells it."""

    exchange: Exchange
    failed: bool


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A round whose calls are being carried out: `exchanges` are those of the first calls."""

    text: str
    calls: tuple[ToolCall, ...]
    exchanges: tuple[Exchange, ...] = ()


class Journal(Protocol):
    """Where a turn's happenings go: to the person's page and into the database."""

    async def request(self, rounds: Sequence[Round]) -> Request:
        """Read the facts of this moment and assemble the next request."""

    def waiting(self, reason: WaitReason | None) -> None:
        """The model has not begun; None: look for the reason yourself."""

    async def say(self, channel: Channel, piece: str) -> None:
        """A piece of the reply; the first one announces the message."""

    async def end_reply(self, *, precedes_calls: bool, calls: Sequence[ToolCall]) -> None:
        """The reply under way is complete; text that precedes calls is working material."""

    async def drop_reply(self) -> None:
        """The reply under way came out empty: nothing of it stays."""

    async def call(self, call: ToolCall, so_far: Unfinished) -> CallResult:
        """Carry out one call, whole or not at all. `so_far` is the round that it belongs to."""


@dataclass(slots=True)
class Reply:
    """What one request brought."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    done: Done | None = None
    first_token_seconds: float | None = None
    thinking_seconds: float | None = None

    def heard(self, chunk: Chunk, seconds: float) -> None:
        """Note calls, counters, when the first word came, and how long the model has thought. `seconds` is the time since it was asked."""
        self.calls += chunk.tool_calls
        self.done = chunk.done or self.done
        if self.first_token_seconds is None and chunk.says_something:
            self.first_token_seconds = seconds
        if chunk.thinking and self.first_token_seconds is not None:
            self.thinking_seconds = seconds - self.first_token_seconds


@dataclass(slots=True)
class Usage:
    """What a turn asked of its model so far: its requests, their tokens, and when the first word came.

    Tokens are those that the server counted: a reply that broke off or was stopped has none. `first_token_seconds`
    counts from the first request, waits for a busy server included; None until something came. `host` is the server that
    answered last, where a balancer names it.
    """

    requests: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    first_token_seconds: float | None = None
    host: str | None = None
    is_waiting: bool = False
    _asked_at: float = 0.0

    def asked(self, now: float) -> None:
        if not self.requests:
            self._asked_at = now
        self.requests += 1
        self.is_waiting = True

    def heard(self, chunk: Chunk, now: float) -> None:
        self.is_waiting = False
        self.host = chunk.host or self.host
        if self.first_token_seconds is None and chunk.says_something:
            self.first_token_seconds = now - self._asked_at
        if chunk.done is not None:
            self.prompt_tokens += chunk.done.prompt_tokens or 0
            self.reply_tokens += chunk.done.reply_tokens or 0


@dataclass(slots=True)
class Turn:
    """The run of one turn. `last_reply` is the newest reply, also after a failure.

    `rounds` and `unfinished` are where a turn that was paused goes on. `begun` is the text of a reply that goes on;
    the first request ends with it.
    """

    model: Model
    journal: Journal
    clock: Callable[[], float]
    rounds: list[Round] = field(default_factory=list)
    unfinished: Unfinished | None = None
    begun: str = ""
    last_reply: Reply = field(default_factory=Reply)
    usage: Usage = field(default_factory=Usage)
    _failed_rounds: int = 0
    _seen: dict[str, int] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Run the turn to its final reply. Raises a CleanroomError when it can't get there."""
        if self.unfinished is not None:
            await self._carry_out(self.unfinished)
        while True:
            reply = await self._ask()
            if not reply.calls:
                await self.journal.end_reply(precedes_calls=False, calls=())
                return
            await self.journal.end_reply(precedes_calls=True, calls=reply.calls)
            if len(self.rounds) == MAX_TOOL_ROUNDS:
                raise ToolFailed(f"The model went on calling tools after {MAX_TOOL_ROUNDS} rounds and was stopped. What was done stays done.")
            await self._carry_out(Unfinished(reply.text, reply.calls[:MAX_CALLS_A_ROUND]))

    async def _ask(self) -> Reply:
        """Get one reply that says or calls something."""
        begun, self.begun = self.begun, ""
        for options in ({},) if begun else ({}, RETRY_OPTIONS):
            self.last_reply = Reply(begun)
            await self._stream_when_free(options)
            if self.last_reply.text[len(begun) :].strip() or self.last_reply.calls:
                return self.last_reply
            await self.journal.drop_reply()
        if begun:
            raise ToolFailed("The model had nothing to add: it takes the reply for finished.")
        raise ToolFailed("The model returned an empty reply twice. Try again, word it differently, or choose another model.")

    async def _stream_when_free(self, options: dict[str, Any]) -> None:
        give_up = self.clock() + BUSY_SECONDS
        while True:
            request = await self.journal.request(self.rounds)  # anew: what it held may be cleared by now
            try:
                return await self._stream(request, options)
            except ModelBusy:
                if self.clock() + BUSY_PAUSE_SECONDS > give_up:
                    raise
                self.journal.waiting("model_busy")
                await asyncio.sleep(BUSY_PAUSE_SECONDS)

    async def _stream(self, request: Request, options: dict[str, Any]) -> None:
        reply, started = self.last_reply, self.clock()
        offered = [tool["function"]["name"] for tool in request.tools]
        openings = call_openings(offered)
        begun, waits = reply.text, ""  # the latter may yet become a call
        said: list[str] = []
        self.usage.asked(started)
        chunks = self.model.stream(request.messages, request.tools, options)
        notice = asyncio.get_running_loop().call_later(NOTICE_SECONDS, self.journal.waiting, None)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(chunks.aclose)
            stack.callback(notice.cancel)
            async for chunk in chunks:
                if reply.first_token_seconds is None or chunk.thinking or chunk.tool_calls or chunk.done:  # nearly all are plain words
                    notice.cancel()
                    now = self.clock()
                    self.usage.heard(chunk, now)
                    reply.heard(chunk, now - started)
                if chunk.thinking:
                    await self.journal.say("thinking", chunk.thinking)
                waits += chunk.text
                if waits.strip() and (begun or said or not may_become_call(waits, openings)):
                    await self.journal.say("content", waits)
                    said.append(waits)
                    waits = ""
        if not (begun or said) and (call := parse_call(waits, offered)):
            reply.calls = reply.calls or (call,)  # some servers send the call and its text
            return
        if waits and (said or waits.strip()):
            await self.journal.say("content", waits)
        reply.text = "".join((begun, *said, waits))

    async def _carry_out(self, unfinished: Unfinished) -> None:
        failures: dict[str, str] = {}
        for call in unfinished.calls[len(unfinished.exchanges) :]:
            result = await self.journal.call(call, unfinished)
            unfinished = replace(unfinished, exchanges=(*unfinished.exchanges, result.exchange))
            key = json.dumps([call.name, call.arguments], sort_keys=True)
            if result.failed:
                failures[key] = result.exchange.for_model
            else:
                self._check_repetition(call.name, key)
        self.rounds.append(Round(unfinished.text, unfinished.exchanges))
        self._check_failures(failures)

    def _check_repetition(self, name: str, key: str) -> None:
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] >= MAX_SAME_CALLS:
            raise ToolFailed(f"The model called {name} with the same arguments {MAX_SAME_CALLS} times and was stopped.")

    def _check_failures(self, failures: dict[str, str]) -> None:
        """Raise when a call fails that has failed before, or when mending has been tried often enough."""
        if not failures:
            return
        self._failed_rounds += 1
        if self._failed & failures.keys() or self._failed_rounds >= MAX_FAILED_ROUNDS:
            last = list(failures.values())[-1]
            raise ToolFailed(f"The model's calls went on failing and the turn was stopped. The last one: {last}")
        self._failed |= failures.keys()
