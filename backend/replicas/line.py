"""This replica's connections to Redis: what it says goes out in order, what it hears is handed on.

The only module that imports `redis`, and the one place for the keys. Redis and Valkey are the same to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from backend.errors import Unreachable

logger = logging.getLogger(__name__)

# What is asked of Redis is answered within a few milliseconds, or by nobody.
ANSWER_SECONDS = 1.0
TRY_AGAIN_SECONDS = 0.1
# Commands that go out in one piece.
BATCH = 256

PREFIX = "cleanroom:"
EVERYONE = f"{PREFIX}everyone"
EPOCH = f"{PREFIX}epoch"
SETTLING = f"{PREFIX}settling"
TURNS = f"{PREFIX}turns"
PULLS_UNDER_WAY = f"{PREFIX}pulls"

UNREACHABLE = "The server can't reach the others at the moment. Please try again."

_FAILURES = (RedisError, OSError, TimeoutError)

Command = tuple[str | int, ...]


def owner_key(chat_id: str) -> str:
    return f"{PREFIX}owner:{chat_id}"


def events_key(chat_id: str) -> str:
    """Both the stream of a chat's events and the channel on which they are told."""
    return f"{PREFIX}events:{chat_id}"


def replica_channel(replica: str) -> str:
    return f"{PREFIX}replica:{replica}"


class Line:
    """`heard` is called with each message's channel and text; `cut` when some may have been missed."""

    def __init__(self, url: str, replica: str, heard: Callable[[str, str], None], cut: Callable[[], None]) -> None:
        self.replica = replica
        self._heard = heard
        self._cut = cut
        self._redis = Redis.from_url(
            url, decode_responses=True, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        self._unsaid: deque[Command] = deque()
        self._filled = asyncio.Event()
        self._channels = {EVERYONE, replica_channel(replica)}
        self._confirmed: dict[str, asyncio.Future[None]] = {}
        self._pubsub: PubSub | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect and listen. Raises Unreachable."""
        await self.ask("PING")
        self._tasks = [asyncio.create_task(self._speak()), asyncio.create_task(self._listen())]
        await self._until_confirmed(replica_channel(self.replica))

    async def close(self) -> None:
        """Say what is left to say, if it can be, and hang up."""
        with contextlib.suppress(*_FAILURES):
            await asyncio.wait_for(self._say_rest(), ANSWER_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._redis.aclose()

    def say(self, *command: str | int) -> None:
        """Send a command behind those before it; nobody waits for its answer. It may be sent twice when the connection breaks."""
        self._unsaid.append(command)
        self._filled.set()

    def tell(self, channel: str, message: Any) -> None:
        """Publish a JSON value in the same way."""
        self.say("PUBLISH", channel, json.dumps(message, ensure_ascii=False))

    def forget_unsaid(self) -> None:
        """Drop what could not be said in time."""
        self._unsaid.clear()

    async def ask(self, *command: str | int) -> Any:
        """Send a command and return Redis' answer. Raises Unreachable."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except _FAILURES as error:
            raise Unreachable(UNREACHABLE) from error
        _go_on_being_cancelled()
        return answer

    def is_subscribed(self, channel: str) -> bool:
        return channel in self._channels

    async def subscribe(self, channel: str) -> None:
        """Hear a channel from now on. Raises Unreachable."""
        if channel not in self._channels:
            self._channels.add(channel)
            if self._pubsub is not None:
                with contextlib.suppress(*_FAILURES):  # then it is subscribed with the next connection
                    await self._pubsub.subscribe(channel)
        await self._until_confirmed(channel)

    def unsubscribe(self, channel: str) -> None:
        """Hear a channel no more; what is on its way may still come."""
        self._channels.discard(channel)
        self._confirmed.pop(channel, None)
        if self._pubsub is not None:
            task = asyncio.ensure_future(self._leave(self._pubsub, channel))
            self._tasks.append(task)
            task.add_done_callback(self._tasks.remove)

    async def _leave(self, pubsub: PubSub, channel: str) -> None:
        with contextlib.suppress(*_FAILURES):
            if channel not in self._channels:
                await pubsub.unsubscribe(channel)

    async def _until_confirmed(self, channel: str) -> None:
        confirmed = self._confirmed.setdefault(channel, asyncio.get_running_loop().create_future())
        done, _ = await asyncio.wait({confirmed}, timeout=ANSWER_SECONDS)
        if not done:
            raise Unreachable(UNREACHABLE)

    async def _speak(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            try:
                await self._say_rest()
            except _FAILURES:
                self._filled.set()
                await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def _say_rest(self) -> None:
        while self._unsaid:
            batch = [self._unsaid[index] for index in range(min(BATCH, len(self._unsaid)))]
            pipeline = self._redis.pipeline(transaction=False)
            for command in batch:
                pipeline.execute_command(*command)
            # A refused command is one that was sent twice, or of a chat that another replica has by now.
            await pipeline.execute(raise_on_error=False)
            _go_on_being_cancelled()
            for command in batch:
                if self._unsaid and self._unsaid[0] is command:  # unless all was forgotten meanwhile
                    self._unsaid.popleft()

    async def _listen(self) -> None:
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    subscribed: set[str] = set()
                    while missing := self._channels - subscribed:  # more may be wanted while these are asked for
                        await pubsub.subscribe(*missing)
                        subscribed |= missing
                    self._pubsub = pubsub
                    while True:
                        message = await pubsub.get_message(timeout=None)
                        _go_on_being_cancelled()
                        self._take(message)
            except _FAILURES:
                logger.warning("the line to Redis was cut")
            self._pubsub = None
            self._confirmed = {channel: confirmed for channel, confirmed in self._confirmed.items() if not confirmed.done()}
            self._cut()
            await asyncio.sleep(TRY_AGAIN_SECONDS)

    def _take(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        if message["type"] == "message":
            self._heard(message["channel"], message["data"])
        elif message["type"] == "subscribe":
            confirmed = self._confirmed.setdefault(message["channel"], asyncio.get_running_loop().create_future())
            if not confirmed.done():
                confirmed.set_result(None)


def _go_on_being_cancelled() -> None:
    """The client at times returns an answer to a task that was cancelled while it waited for it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
