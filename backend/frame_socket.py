"""uvicorn's WebSocket with what an application can't do through ASGI: write a frame at once, and never hold up the server's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

# The ASGI extension of a connection whose `write` is `FrameSocket.write`.
FRAMES = "cleanroom.frames"


class FrameSocket(WebSocketsSansIOProtocol):
    """A WebSocket that tells the application how to write to it at once, that can't hold up the server's end, and whose
    refusal is no error of the server."""

    _is_flushing = False

    async def run_asgi(self) -> None:
        self.scope["extensions"][FRAMES] = {"write": self.write}
        await super().run_asgi()

    def write(self, frame: str) -> bool:
        """Write a text frame; False, with nothing written, when the socket takes none at this moment.

        One that is awaited in `send` passes three layers and wakes a task, for each token and each socket. Frames of the
        same moment, such as a commit's events, go to the system together.
        """
        if not self.writable.is_set():
            return False
        try:
            self.conn.send_text(frame.encode())
        except InvalidState:  # either side has said goodbye
            return False
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)
        return True

    def _flush(self) -> None:
        self._is_flushing = False
        if not self.transport.is_closing():
            self.transport.write(b"".join(self.conn.data_to_send()))

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # or uvicorn would log each stranger's try as a fault of ours

    def shutdown(self) -> None:
        # Who doesn't read would be waited for, and for one that has said goodbye before uvicorn raises.
        if self.transport.is_closing() or not self.writable.is_set():
            self.transport.abort()
        else:
            super().shutdown()
