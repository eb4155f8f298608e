"""Ways from the scripted model to a page, each driven as its own page drives it: one socket a chat."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median, quantiles
from typing import Protocol

import ollama
import psutil

from benchmarks.cleanroom_page import CleanroomPage, Json
from benchmarks.page_socket import PageSocket
from benchmarks.processes import Running
from benchmarks.report import Report
from benchmarks.scripted_model import MODEL, ask, stamps


@dataclass(slots=True)
class Heard:
    """A reply as a page got it: when it was asked for, and for each token when it was written and when it came, in nanoseconds."""

    asked_at: int = field(default_factory=time.monotonic_ns)
    written: list[int] = field(default_factory=list)
    came: list[int] = field(default_factory=list)

    def take(self, text: str, came_at: int | None = None) -> None:
        """Note the tokens of one frame, which came now unless it is told when."""
        moment = time.monotonic_ns() if came_at is None else came_at
        found = stamps(text)
        self.written += found
        self.came += [moment] * len(found)

    @property
    def first_token_ms(self) -> float:
        return (self.came[0] - self.asked_at) / 1e6

    @property
    def added_ms(self) -> list[float]:
        """What each token took from the model's writing to here."""
        return [(came - written) / 1e6 for written, came in zip(self.written, self.came, strict=True)]

    @property
    def tokens_per_second(self) -> float:
        return len(self.came) / (self.came[-1] - self.asked_at) * 1e9


class Chat(Protocol):
    """A chat that can be asked again and again."""

    async def ask(self, count: int, rate: float) -> Heard:
        """Ask for a reply and hear it to its end."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A way that is measured. `process` is the one between model and page: this one for a client that has none."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Chat]]
    process: psutil.Process

    @classmethod
    def behind(cls, name: str, server: Running, open_at: Callable[[str], AbstractAsyncContextManager[Chat]]) -> Subject:
        """Chats of a server; `open_at` is given its address."""
        return cls(name, partial(open_at, server.url), psutil.Process(server.process.pid))

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


class OllamaChat:
    """The floor: the client that the others are built on, and nothing after it."""

    def __init__(self, client: ollama.AsyncClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[OllamaChat]:
        client = ollama.AsyncClient(host=url)
        try:
            yield cls(client)
        finally:
            await client.close()  # type: ignore[no-untyped-call]

    async def ask(self, count: int, rate: float) -> Heard:
        heard = Heard()
        async for part in await self._client.chat(MODEL, [{"role": "user", "content": ask(count, rate)}], stream=True):
            heard.take(part.message.content or "")
        return heard


class RelayChat:
    """The yardstick, `relay.py`."""

    def __init__(self, socket: PageSocket) -> None:
        self._socket = socket

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[RelayChat]:
        async with PageSocket.open(f"{url}/ws") as socket:
            yield cls(socket)

    async def ask(self, count: int, rate: float) -> Heard:
        heard = Heard()
        await self._socket.send(json.dumps({"text": ask(count, rate)}))
        while not (frame := json.loads(await self._socket.receive()))["done"]:
            heard.take(frame["text"])
        return heard


class CleanroomChat(CleanroomPage):
    """A chat of ours, with everything saved."""

    def __init__(self, socket: PageSocket) -> None:
        self._socket = socket
        self.chat_id = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[CleanroomChat]:
        """A new chat on a socket of its own."""
        async with PageSocket.open(f"{url}/ws") as socket:
            chat = cls(socket)
            chat.chat_id = await chat.new_chat()
            yield chat

    async def send_text(self, text: str) -> None:
        await self._socket.send(text)

    async def next_frame(self) -> Json:
        frame: Json = json.loads(await self._socket.receive())
        return frame

    async def ask(self, count: int, rate: float) -> Heard:
        heard = Heard()
        client_id = uuid.uuid4().hex
        await self.send("message.send", chat_id=self.chat_id, client_id=client_id, text=ask(count, rate))
        while True:
            frame = await self.next_frame()
            if frame["type"] == "message.delta":
                heard.take(frame["text"])
            elif frame["type"] == "turn.finished":
                if frame["status"] != "complete":
                    raise ConnectionError(f"the turn ended as {frame['status']}")
                return heard
            elif frame["type"] == "error":
                raise ConnectionError(frame["message"])


def case_of(count: int, what: str) -> str:
    """How a report calls so many of something."""
    return f"{count} {what}s" if count > 1 else f"1 {what}"


def report_delays(report: Report, case: str, subject: str, heard: Sequence[Heard]) -> None:
    """What each token took, over all that was heard."""
    added = [delay for reply in heard for delay in reply.added_ms]
    report.add("added delay per token, p50", "ms", case, subject, median(added))
    report.add("added delay per token, p99", "ms", case, subject, quantiles(added, n=100)[98])
