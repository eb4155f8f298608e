"""A page's end of a socket that only notes when bytes come, and reads them when that disturbs nobody.

A hundred of them share a core with the model server: what they did for each frame would be measured as its delay.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from benchmarks.cleanroom_page import CleanroomPage, Json
from benchmarks.subjects import Heard


class Watcher(asyncio.Protocol, CleanroomPage):
    """Answers the server's pings only when it reads: one that doesn't for 40 seconds is closed by the server."""

    def __init__(self, url: str) -> None:
        self._wire = ClientProtocol(parse_uri(f"ws{url.removeprefix('http')}/ws"), max_size=None)
        self._pieces: list[tuple[int, bytes]] = []
        self._frames: deque[tuple[int, Json]] = deque()
        self._news = asyncio.Event()
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Watcher]:
        """Connect to the server at `url`, which begins with http."""
        watcher = cls(url)
        address = watcher._wire.uri
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: watcher, address.host, address.port)
        try:
            while watcher._wire.state is State.CONNECTING:
                await watcher._read()
            yield watcher
        finally:
            transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._wire.send_request(self._wire.connect())
        self._write()

    def data_received(self, data: bytes) -> None:
        self._pieces.append((time.monotonic_ns(), data))
        self._news.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._news.set()

    async def send_text(self, text: str) -> None:
        self._wire.send_text(text.encode())
        self._write()

    async def next_frame(self) -> Json:
        return (await self._next())[1]

    async def hear(self, asked_at: int) -> Heard:
        """The reply to what was asked at that moment, in nanoseconds, to its end. Raises ConnectionError when the server closed the socket."""
        heard = Heard(asked_at)
        while True:
            came_at, frame = await self._next()
            if frame["type"] == "message.delta":
                heard.take(frame["text"], came_at)
            elif frame["type"] == "turn.finished":
                return heard

    async def event(self, kind: str) -> Json:
        """The next event of this type. Raises ConnectionError when the server closed the socket."""
        while (frame := await self.next_frame())["type"] != kind:
            pass
        return frame

    def _write(self) -> None:
        self._transport.writelines(self._wire.data_to_send())

    async def _next(self) -> tuple[int, Json]:
        """The next frame and when it came."""
        while not self._frames:
            await self._read()
        return self._frames.popleft()

    async def _read(self) -> None:
        """Wait for bytes, then read all that came."""
        await self._news.wait()
        pieces, self._pieces = self._pieces, []
        if not self._is_closed:
            self._news.clear()
        elif not pieces:
            raise ConnectionError("the server ended the socket")
        for came_at, data in pieces:
            self._wire.receive_data(data)
            events = self._wire.events_received()
            self._frames += [(came_at, json.loads(bytes(event.data))) for event in events if isinstance(event, Frame) and event.opcode is Opcode.TEXT]
        self._write()
