"""One Valkey for all tests here, emptied for each, and servers' ends of it without a database behind them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from backend.connection import Connection, Result
from backend.protocol import Command
from backend.replicas import leases, replica
from backend.replicas.line import EPOCH
from backend.replicas.replica import Replica
from tests import fake_ollama as script
from tests.balancer import Balancer
from tests.engines import Valkey, valkey
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json, make_settings, running

Pair = tuple[Client, Client]

WORDS = [f"word{number} " for number in range(40)]
REPLY = "".join(WORDS)


@pytest.fixture(autouse=True, scope="session")
def no_drain() -> Iterator[None]:
    """A server that ends with a test waits for no reply, unless a test is about that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "DRAIN_SECONDS", 0)
        yield


@pytest.fixture(scope="session")
def shared_valkey() -> Iterator[Valkey]:
    with valkey() as server:
        yield server


@pytest.fixture
async def redis(shared_valkey: Valkey) -> Valkey:
    """Valkey, running and empty."""
    await empty(shared_valkey)
    return shared_valkey


async def empty(valkey: Valkey) -> None:
    async with Redis.from_url(valkey.url) as client:
        await client.flushall()
        await client.set(EPOCH, "an epoch")  # or the first server would wait for the owners of before


@pytest.fixture
async def balancer(tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey) -> AsyncIterator[Balancer]:
    """A balancer before two whole servers."""
    async with two_servers(tmp_path, fake, postgres_url, redis.url, redis.url) as balancer:
        yield balancer


@asynccontextmanager
async def two_servers(folder: Path, fake: FakeOllama, postgres_url: str, *redis_urls: str) -> AsyncIterator[Balancer]:
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(running(make_settings(folder, fake, database_url=postgres_url, redis_url=redis_url))) for redis_url in redis_urls
        ]
        yield await stack.enter_async_context(Balancer(*servers))


@pytest.fixture
async def pair(balancer: Balancer) -> AsyncIterator[Pair]:
    """Two sockets, which the balancer brought to one server each."""
    async with Client.connect(balancer.address) as one, Client.connect(balancer.address) as two:
        assert balancer.server_of(one) != balancer.server_of(two)
        yield one, two


class Deeds:
    """An owner of chats that notes what is asked of it, and a dispatch that answers with the server's name."""

    def __init__(self) -> None:
        self.recovered: list[tuple[str, str | None]] = []
        self.forgotten: list[str] = []
        self.busy: set[str] = set()
        self.left: list[str] = []
        self.interrupted = 0
        self.commands: list[Command] = []
        self.answer: Callable[[Connection, Command], Awaitable[Result | None]] | None = None

    async def recover_all(self) -> None:
        raise AssertionError("others may run")

    async def hold(self, chat_id: str, server: str) -> None:
        """There is no database."""

    async def recover(self, chat_id: str, turn_id: str | None) -> None:
        self.recovered.append((chat_id, turn_id))

    async def unfinished(self) -> list[str]:
        return self.left

    def running_turn(self, chat_id: str) -> str | None:
        return "turn 1" if chat_id in self.busy else None

    def is_replying(self, chat_id: str) -> bool:
        return chat_id in self.busy

    def forget(self, chat_id: str) -> None:
        self.forgotten.append(chat_id)

    async def interrupt(self) -> None:
        self.interrupted += 1

    async def dispatch(self, connection: Connection, command: Command) -> Result | None:
        self.commands.append(command)
        return await self.answer(connection, command) if self.answer else {}


class Server(Replica):
    """A replica with nothing behind it; `deeds` is what it did."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.deeds = Deeds()
        self.dispatch = self.route(self.deeds, self.deeds.dispatch, self._chat_of)

    @property
    def unsaid(self) -> int:
        return len(self._line._unsaid)

    def using(self, chat_id: str) -> AbstractContextManager[None]:
        return self._leases.using(chat_id)

    async def redis_says(self, *command: str) -> Any:
        """What Redis answers to a command."""
        return await self._line.ask(*command)

    def die(self) -> None:
        """End as by `kill -9`: nothing more is said, no lease is let go."""
        for task in [*self._leases._tasks, *self._line._tasks, *self._router._serving]:
            task.cancel()
        self._line.forget_unsaid()
        self._leases._owned.clear()

    async def _chat_of(self, _: str, command: Command) -> str | None:
        return getattr(command, "chat_id", None)


Start = Callable[[], Awaitable[Server]]


@pytest.fixture
async def start(redis: Valkey) -> AsyncIterator[Start]:
    """Starts servers, each of which leaves in good order at the end."""
    async with AsyncExitStack() as stack:

        async def start() -> Server:
            server = Server(redis.url)
            await server.begin()
            stack.push_async_callback(server.close)
            return server

        yield start


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of a fifth, so that a test can wait for a lease's end."""
    for name in ("LEASE_SECONDS", "FENCE_SECONDS", "HEARTBEAT_SECONDS", "SETTLING_SECONDS"):
        monkeypatch.setattr(leases, name, getattr(leases, name) / 5)


def slowly(seconds: float, may_end: asyncio.Event | None = None) -> script.Script:
    """A reply of forty words, which ends when it may."""
    words = [[script.text(word), script.pause(seconds)] for word in WORDS]
    return [words, script.hold(may_end) if may_end else [], script.done()]


async def send(client: Client, chat: str, text: str = "go") -> str:
    """Send a message; the id of its turn."""
    return str((await client.ok("message.send", chat_id=chat, client_id=uuid.uuid4().hex, text=text))["turn_id"])


async def allow(client: Client, chat: str) -> None:
    """Allow the call that waits for it."""
    card = next(message["card"] for message in await client.messages(chat) if message.get("card", {}).get("approval"))
    await client.ok("tool.answer", chat_id=chat, call_id=card["approval"]["call_id"], answer="allow")


def text_of(messages: list[Json]) -> str:
    return str(messages[-1]["content"])
