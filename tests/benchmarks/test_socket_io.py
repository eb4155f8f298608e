"""The little Socket.IO that peers are driven by, against a server that says it frame by frame."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from benchmarks.socket_io import SocketIO

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def scripted(*frames: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that answers a page's connecting with these frames; its address, and the frames that it got."""
    got: list[str] = []

    async def answer(socket: ServerConnection) -> None:
        assert socket.request is not None and socket.request.path == "/ws/socket.io/?EIO=4&transport=websocket"
        await socket.send('0{"sid":"engine","upgrades":[],"pingInterval":25000,"pingTimeout":20000}')
        got.append(str(await socket.recv()))
        for frame in frames:
            await socket.send(frame)
        got.extend([str(frame) async for frame in socket])

    async with serve(answer, "127.0.0.1", 0) as server:
        host, port = next(iter(server.sockets)).getsockname()
        yield f"http://{host}:{port}/ws/socket.io", got


async def test_a_page_says_who_it_is_and_is_let_in() -> None:
    async with scripted('40{"sid":"abc"}') as (url, got), SocketIO.open(url, {"token": "t"}) as socket:
        assert socket.session_id == "abc"
    assert got == ['40{"token": "t"}']


async def test_a_refusal_is_a_connection_error() -> None:
    async with scripted('44{"message":"not you"}') as (url, _):
        with pytest.raises(ConnectionError, match="not you"):
            async with SocketIO.open(url, {}):
                pass


async def test_events_go_both_ways_and_a_ping_between_is_answered() -> None:
    frames = ('40{"sid":"abc"}', '42["said",{"text":"привет"}]', "2", '42["ended"]')
    async with scripted(*frames) as (url, got), SocketIO.open(url, {}) as socket:
        await socket.emit("ask", {"count": 1})
        assert await socket.event() == ("said", {"text": "привет"})
        assert await socket.event() == ("ended", None)
    assert got == ["40{}", '42["ask", {"count": 1}]', "3"]


async def test_a_session_that_the_server_ends_is_a_connection_error() -> None:
    async with scripted('40{"sid":"abc"}', "41") as (url, _), SocketIO.open(url, {}) as socket:
        with pytest.raises(ConnectionError, match="41"):
            await socket.event()
