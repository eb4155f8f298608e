"""A TCP proxy that cuts its connections at random: in the midst of a frame, in either direction, with no close frame."""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import Self

from tests.listening import stop_listening

READ_BYTES = 65_536


class CuttingProxy:
    """Passes bytes on to `target` (`127.0.0.1:port`) until a connection has had its share, then breaks it off on both sides.

    The shares are drawn from `seed`, `mean_bytes` on average, in the order in which the connections come.
    """

    def __init__(self, target: str, seed: int, mean_bytes: int) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._chance = random.Random(seed)
        self._mean_bytes = mean_bytes
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await stop_listening(self._server)
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            onward_reader, onward_writer = await asyncio.open_connection(self._host, int(self._port))
        except BaseException:
            writer.transport.abort()
            raise
        share = _Share(int(self._chance.expovariate(1 / self._mean_bytes)))
        ways = [asyncio.create_task(_pass_on(*way, share)) for way in ((reader, onward_writer), (onward_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            self.cuts += share.left == 0
        finally:
            for end in (writer, onward_writer):
                end.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


class _Share:
    """The bytes that a connection may still carry, both directions together."""

    def __init__(self, size: int) -> None:
        self.left = size


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, share: _Share) -> None:
    """Until one side is gone or the share is used up."""
    while share.left > 0 and (data := await reader.read(READ_BYTES)):
        data = data[: share.left]
        share.left -= len(data)
        writer.write(data)
        await writer.drain()
