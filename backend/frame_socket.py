"""uvicorn's WebSocket with what an application can't do through ASGI: write a frame at once, and never hold up the server's end."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

# The ASGI extension of a connection whose `write` is `FrameSocket.write`.
FRAMES = "cleanroom.frames"


class FrameSocket(WebSocketsSansIOProtocol):
    """A WebSocket that tells the application how to write to it at once, that can't hold up the server's end, and whose
    refusal is no error of the server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ready: list[bytes] = []

    async def run_asgi(self) -> None:
        self.scope["extensions"][FRAMES] = {"write": self.write}
        await super().run_asgi()

    def write(self, frame: str) -> bool:
        """Write a text frame; False, with nothing written, when the socket takes none at this moment.

        One that is awaited in `send` passes three layers and wakes a task, for each token and each socket. Frames of the
        same moment, such as a commit's events, go to the system together.
        """
        if not self.writable.is_set() or self.conn.state is not State.OPEN:
            return False
        if not self._ready:
            self.loop.call_soon(self._flush)
        self._ready.append(_bytes_of(frame))
        return True

    def _flush(self) -> None:
        ready, self._ready = self._ready, []
        if ready and self.conn.state is State.OPEN and not self.transport.is_closing():
            self.transport.write(b"".join(ready))

    async def send(self, message: ASGISendEvent) -> None:
        self._flush()
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # or uvicorn would log each stranger's try as a fault of ours

    def shutdown(self) -> None:
        self._flush()
        # Who doesn't read would be waited for, and for one that has said goodbye before uvicorn raises.
        if self.transport.is_closing() or not self.writable.is_set():
            self.transport.abort()
        else:
            super().shutdown()


@lru_cache(maxsize=1)
def _bytes_of(frame: str) -> bytes:
    """A text frame on the wire. Without compression it is the same for every socket, and all that watch get it one after the other."""
    return Frame(Opcode.TEXT, frame.encode()).serialize(mask=False)
