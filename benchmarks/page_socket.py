"""A page's end of a WebSocket, on a client that takes little of the processor: it shares a core with the scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp


class PageSocket:
    """Text frames, one by one."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[PageSocket]:
        """Connect to `url`, which begins with http."""
        async with aiohttp.ClientSession() as session, session.ws_connect(url, compress=0, max_msg_size=0) as socket:
            yield cls(socket)

    async def send(self, text: str) -> None:
        await self._socket.send_str(text)

    async def receive(self) -> str:
        """The next frame. Raises ConnectionError when the server ends the socket."""
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError(f"the server ended the socket: {message.data}")
        return str(message.data)
