"""One WebSocket: a reader task, an outbox between the hub and the wire, and a writer task for what can't go out at once.

Knows frames, not what a command does: that is `dispatch`'s part.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from backend.errors import CleanroomError, Invalid, StoreError, Unreachable
from backend.frame_socket import FRAMES
from backend.hub import Hub, Outbox, Write, takes_none
from backend.protocol import BadFrame, ChatOpen, Command, UnknownCommand, decode_command, encode_error, encode_ok, ref_of
from backend.rate_limit import RateLimit

logger = logging.getLogger(__name__)

# The page comes back at once for a snapshot when it sees this code.
CLOSE_SLOW = 4001
# It tries again a little later, maybe at another server.
CLOSE_RESTART = 1012
# It waits longer when it sees this one.
CLOSE_ABUSE = 1008

Result = dict[str, object]
Dispatch = Callable[["Connection", Command], Awaitable[Result | None]]


class Connection:
    """What a command may do with the socket that it came from, and whose that is."""

    def __init__(self, hub: Hub, user: str, write: Write = takes_none) -> None:
        self.hub = hub
        self.user = user
        self.outbox = Outbox(user, write)

    def reply(self, command: Command, result: Result) -> None:
        """Answer a command now, before what the caller queues next."""
        self.outbox.put_reply(encode_ok(command.ref, result))

    async def resume(self, command: ChatOpen) -> bool:
        """Go on in a chat where the socket left off, and answer so; False when that takes a snapshot. Raises Unreachable."""

        def resumed(newest: int) -> None:
            self.reply(command, {"epoch": self.hub.epoch, "seq": newest, "resumed": True})

        return await self.hub.resume(command.chat_id, command.epoch, command.after_seq, self.outbox, resumed)


async def serve(websocket: WebSocket, hub: Hub, welcome: Callable[[Connection], Awaitable[None]], dispatch: Dispatch) -> None:
    """Accept the socket and serve it until either side ends it.

    `welcome` sends the first frame and attaches it to the hub, or raises StoreError or Unreachable.
    """
    await websocket.accept()
    connection = Connection(hub, websocket.scope["user"], websocket.scope["extensions"][FRAMES]["write"])
    try:
        try:
            await welcome(connection)
        except (StoreError, Unreachable):
            await websocket.close(CLOSE_RESTART, "not reachable now")
            return
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(_write(websocket, connection.outbox))
            await _read(websocket, connection, dispatch, tasks)
            writer.cancel()
    finally:
        hub.detach(connection.outbox)


async def _read(websocket: WebSocket, connection: Connection, dispatch: Dispatch, tasks: asyncio.TaskGroup) -> None:
    limit = RateLimit()
    while not limit.is_abused:
        try:
            frame = await websocket.receive()
        except (WebSocketDisconnect, RuntimeError):
            return  # the writer closed it: Starlette then refuses to receive with a RuntimeError
        if frame["type"] == "websocket.disconnect":
            return
        await connection.outbox.wait_for_room()
        await _take(connection, frame.get("text"), limit, dispatch, tasks)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):  # the client may be gone
        await websocket.close(CLOSE_ABUSE, "too many commands")


async def _take(connection: Connection, text: str | None, limit: RateLimit, dispatch: Dispatch, tasks: asyncio.TaskGroup) -> None:
    if not limit.allows():
        message = "Too many commands at once; this one was not carried out. Wait a second, then send it again."
        connection.outbox.put_reply(encode_error(ref_of(text or ""), "rate_limited", message))
    elif text is None:
        message = "A text frame with a JSON object is expected, not a binary one."
        connection.outbox.put_reply(encode_error(None, "bad_frame", message))
    else:
        await _answer(connection, text, dispatch, tasks)


async def _answer(connection: Connection, frame: str, dispatch: Dispatch, tasks: asyncio.TaskGroup) -> None:
    """Carry out one frame's command and queue exactly one reply."""
    outbox = connection.outbox
    try:
        command = decode_command(frame)
    except BadFrame as error:
        outbox.put_reply(encode_error(ref_of(frame), "bad_frame", str(error)))
    except UnknownCommand as error:
        message = f"There is no command '{str(error)[:100]}' in this version of the protocol."
        outbox.put_reply(encode_error(ref_of(frame), "unknown_command", message))
    except Invalid as error:
        outbox.put_reply(encode_error(ref_of(frame), error.code, error.message, error.fields))
    else:
        if command.is_slow:
            tasks.create_task(carry_out(connection, command, dispatch))
        else:
            await carry_out(connection, command, dispatch)


async def carry_out(connection: Connection, command: Command, dispatch: Dispatch) -> None:
    """Dispatch a command and queue exactly one reply, whatever becomes of it."""
    outbox = connection.outbox
    try:
        result = await dispatch(connection, command)
    except CleanroomError as error:
        fields = error.fields if isinstance(error, Invalid) else None
        outbox.put_reply(encode_error(command.ref, error.code, error.message, fields))
    except Exception:
        logger.exception("command failed")
        message = "Something went wrong in the server; nothing was changed. Please try again."
        outbox.put_reply(encode_error(command.ref, "internal", message))
    else:
        if result is not None:
            connection.reply(command, result)


async def _write(websocket: WebSocket, outbox: Outbox) -> None:
    """Write frames until the client is gone, or too far behind to be served."""
    try:
        while (frame := await outbox.take()) is not None:
            await websocket.send_text(frame)
        if websocket.application_state is WebSocketState.CONNECTED:
            await websocket.close(CLOSE_SLOW, "slow")
    except (WebSocketDisconnect, RuntimeError, OSError):
        pass  # the client is gone
    finally:
        outbox.close()  # or the reader would wait for room that nobody makes
