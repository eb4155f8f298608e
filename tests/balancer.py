"""A TCP balancer on a loopback port, for tests: clients know its address alone, as pages do (docs/haproxy.cfg)."""

from __future__ import annotations

import asyncio
from itertools import count
from types import TracebackType
from typing import Self, cast

from tests.listening import stop_listening
from tests.server import Client

CHUNK_BYTES = 65_536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Balancer:
    """Connections go round the servers; whoever finds none behind its turn gets the next one that is there."""

    def __init__(self, *servers: str) -> None:
        self.servers = list(servers)
        self.address = ""
        self._turns = count()
        self._cut_off: set[str] = set()
        self._links: dict[tuple[str, int], tuple[str, asyncio.Task[None]]] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._listening.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        await stop_listening(self._listening)
        await self._end([task for _, task in self._links.values()])

    def server_of(self, client: Client) -> str:
        """The address of the server that a client was brought to."""
        server, _ = self._links[client.local_address]
        return server

    async def cut_off(self, server: str) -> None:
        """Break the connections to a server off and send nobody there, as when its cable is pulled; it knows nothing of it."""
        self._cut_off.add(server)
        await self._end([task for linked, task in self._links.values() if linked == server])

    def bring_back(self, server: str) -> None:
        self._cut_off.discard(server)

    def pause(self) -> None:
        """Let nothing through, with all connections open, as a partition of the network does."""
        self._flowing.clear()

    def go_on(self) -> None:
        self._flowing.set()

    async def _end(self, links: list[asyncio.Task[None]]) -> None:
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = writer.get_extra_info("peername")
        for server in self._next_servers():
            try:
                there = await asyncio.open_connection(*server.split(":"))
            except OSError:
                continue
            self._links[client] = server, cast("asyncio.Task[None]", asyncio.current_task())
            try:
                await self._join((reader, writer), there)
            finally:
                del self._links[client]
            return
        writer.transport.abort()

    def _next_servers(self) -> list[str]:
        first = next(self._turns) % len(self.servers)
        return [server for server in self.servers[first:] + self.servers[:first] if server not in self._cut_off]

    async def _join(self, client: Streams, server: Streams) -> None:
        """Bring bytes both ways until one side is gone, then let the other go too."""
        ways = [asyncio.create_task(self._pass_on(client[0], server[1])), asyncio.create_task(self._pass_on(server[0], client[1]))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # cut off: what was on its way is lost
            client[1].transport.abort()
            server[1].transport.abort()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            client[1].close()
            server[1].close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
