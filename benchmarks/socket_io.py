"""Socket.IO as a browser's page speaks it on a WebSocket: one namespace, JSON events, no acknowledgements."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.page_socket import PageSocket

# A frame is a packet of Engine.IO; one of its messages (4) is a packet of Socket.IO.
_PING, _PONG = "2", "3"
_CONNECT, _EVENT = "40", "42"


class SocketIO:
    """A connection that the server has let in; `session_id` is what it calls it.

    A server's ping is answered only while events are waited for: it must wait long enough for the rest of the time.
    """

    def __init__(self, socket: PageSocket, session_id: str) -> None:
        self._socket = socket
        self.session_id = session_id

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, auth: dict[str, Any]) -> AsyncIterator[SocketIO]:
        """Connect to `url`, which begins with http. Raises ConnectionError when the server refuses."""
        async with PageSocket.open(f"{url.rstrip('/')}/?EIO=4&transport=websocket") as socket:
            await socket.receive()  # what the server tells of Engine.IO
            await socket.send(_CONNECT + json.dumps(auth))
            answer = await socket.receive()
            if not answer.startswith(_CONNECT):
                raise ConnectionError(f"expected to be let in, got {answer!r}")
            yield cls(socket, json.loads(answer.removeprefix(_CONNECT))["sid"])

    async def emit(self, event: str, *arguments: Any) -> None:
        await self._socket.send(_EVENT + json.dumps([event, *arguments]))

    async def event(self) -> tuple[str, Any]:
        """The next event's name and its first argument, None without one. Raises ConnectionError when the server ends the session."""
        while True:
            frame = await self._socket.receive()
            if frame == _PING:
                await self._socket.send(_PONG)
            elif frame.startswith(_EVENT):
                name, *arguments = json.loads(frame.removeprefix(_EVENT))
                return name, arguments[0] if arguments else None
            else:
                raise ConnectionError(f"expected an event, got {frame!r}")
