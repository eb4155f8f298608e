"""A real server on a free loopback port, and a client that speaks the wire to it."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import uvicorn
from websockets.asyncio.client import ClientConnection, connect

from backend.__main__ import configure, listen
from backend.app import create_app
from backend.settings import Settings
from backend.store.migrate import migrate
from tests.fake_ollama import FakeOllama
from tests.listening import stop_listening

Json = dict[str, Any]

# Longer than anything here takes; a test that reaches it has failed.
PATIENCE_SECONDS = 60


def make_settings(folder: Path, fake: FakeOllama | None = None, **values: object) -> Settings:
    """Settings for a server of its own in `folder`; without a fake model server there is none.

    Its database is a copy of one that was migrated once, since most tests are about what comes after that.
    """
    database = folder / "cleanroom.db"
    if not database.exists():
        folder.mkdir(parents=True, exist_ok=True)
        database.write_bytes(migrated_database())
    ollama = fake.url if fake else "http://127.0.0.1:9"
    defaults = {"port": 0, "database_url": f"sqlite:///{database}", "embedded": "never", "ollama_url": ollama}
    return Settings.model_validate({**defaults, **values})


@cache
def migrated_database() -> bytes:
    """The file of an empty database of the newest schema."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cleanroom.db"
        migrate(path)
        return path.read_bytes()


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[str]:
    """Run a server until the block ends; its address, such as `127.0.0.1:43211`."""
    app = create_app(settings)
    listener = listen(settings)
    config = configure(app, settings)
    config.timeout_graceful_shutdown = 1
    server = _QuietServer(config)
    async with app.router.lifespan_context(app):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        host, port = listener.getsockname()[:2]
        try:
            yield f"{host}:{port}"
        finally:
            server.end()
            await serving
            server.abort_connections()
            await asyncio.sleep(0)  # a transport closes its socket in the loop's next round


class _QuietServer(uvicorn.Server):
    """Leaves the signal handlers of the test run alone, and ends when it is told to and done, not at its next tick of a tenth of a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._told.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's own, which waits a tenth of a second for its connections even when there are none."""
        await stop_listening(*self.servers)
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(0.005)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()

    def abort_connections(self) -> None:
        """Close what outlasted the time for a graceful end: on a busy machine a browser says goodbye late."""
        for connection in self.server_state.connections:
            connection.transport.abort()

    async def main_loop(self) -> None:
        await self._told.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Client:
    """One WebSocket: commands with their replies, and every event in the order in which it came."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._replies: dict[str, asyncio.Future[Json]] = {}
        self._news = asyncio.Condition()
        self._is_over = False
        self.welcome: Json = {}
        self.events: list[Json] = []
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def connect(cls, address: str, **options: Any) -> AsyncIterator[Self]:
        async with connect(f"ws://{address}/ws", max_size=None, **options) as socket:
            client = cls(socket)
            try:
                await client.until(lambda: client.welcome != {})
                yield client
            finally:
                client._reader.cancel()
                await asyncio.gather(client._reader, return_exceptions=True)

    async def command(self, kind: str, **fields: object) -> Json:
        """Send a command and return its reply, whichever it is."""
        ref = uuid.uuid4().hex
        self._replies[ref] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"type": kind, "ref": ref, **fields}))
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._replies[ref]

    async def ok(self, kind: str, **fields: object) -> Json:
        """Send a command that has to succeed."""
        reply = await self.command(kind, **fields)
        assert reply["type"] == "ok", reply
        return reply

    async def refused(self, code: str, kind: str, **fields: object) -> Json:
        """Send a command that has to be refused with `code`."""
        reply = await self.command(kind, **fields)
        assert (reply["type"], reply.get("code")) == ("error", code), reply
        return reply

    async def send_raw(self, frame: str | bytes) -> None:
        await self._socket.send(frame)

    async def new_chat(self, **fields: object) -> str:
        """Create a chat and open it."""
        chat_id = str((await self.ok("chat.create", **fields))["chat"]["id"])
        await self.ok("chat.open", chat_id=chat_id)
        return chat_id

    async def say(self, chat_id: str, text: str) -> Json:
        """Send a message and wait for its turn's end; the `turn.finished` event."""
        reply = await self.ok("message.send", chat_id=chat_id, client_id=uuid.uuid4().hex, text=text)
        return await self.finished(reply["turn_id"])

    async def press(self, chat_id: str, tool: str, **arguments: object) -> Json:
        """Use a tool as a button does; the `turn.finished` event."""
        reply = await self.ok("tool.invoke", chat_id=chat_id, client_id=uuid.uuid4().hex, tool=tool, arguments=arguments)
        return await self.finished(reply["turn_id"])

    async def finished(self, turn_id: str) -> Json:
        return await self.event("turn.finished", lambda event: event["turn_id"] == turn_id)

    async def event(self, kind: str, matches: Callable[[Json], bool] = lambda _: True) -> Json:
        """Wait for the first event of a kind that matches; those that came before count."""
        await self.until(lambda: any(event["type"] == kind and matches(event) for event in self.events))
        return next(event for event in self.events if event["type"] == kind and matches(event))

    def of(self, *kinds: str) -> list[Json]:
        """The events of some kinds so far."""
        return [event for event in self.events if event["type"] in kinds]

    async def context(self, chat_id: str) -> Json:
        return dict((await self.ok("context.get", chat_id=chat_id))["context"])

    async def messages(self, chat_id: str) -> list[Json]:
        """The UI channel as a newly opened page sees it."""
        return list((await self.ok("chat.open", chat_id=chat_id))["messages"])

    @property
    def local_address(self) -> tuple[str, int]:
        """This end of the connection."""
        host, port = self._socket.local_address
        return host, port

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the server is to tell. Raises ConnectionError when the socket ends before that."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._news:
            await self._news.wait_for(lambda: condition() or self._is_over)
        if not condition():
            raise ConnectionError("the server closed the socket")

    async def ended(self) -> None:
        """Wait for the socket's end, at whichever side."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._news:
            await self._news.wait_for(lambda: self._is_over)

    async def _read(self) -> None:
        try:
            async for text in self._socket:
                async with self._news:
                    self._take(json.loads(text))
                    self._news.notify_all()
        finally:
            await self._end()

    def _take(self, frame: Json) -> None:
        if frame["type"] == "welcome":
            self.welcome = frame
        elif frame["type"] in ("ok", "error") and frame["ref"] in self._replies:
            self._replies.pop(frame["ref"]).set_result(frame)
        else:
            self.events.append(frame)

    async def _end(self) -> None:
        """The socket is closed: whoever waits for something of it waits in vain."""
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(ConnectionError("the server closed the socket"))
        async with self._news:
            self._is_over = True
            self._news.notify_all()


def rows(folder: Path, sql: str, *values: object) -> list[Json]:
    """Look into a server's database beside it."""
    with closing(sqlite3.connect(folder / "cleanroom.db")) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(sql, values)]
