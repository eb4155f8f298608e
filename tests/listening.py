"""How a server of asyncio stops to listen without losing whom it has just accepted."""

from __future__ import annotations

import asyncio

# Who was accepted just now is connected, and heard of by its server, after so many of the loop's rounds.
ACCEPTING_ROUNDS = 4


async def stop_listening(*servers: asyncio.Server) -> None:
    """Close the servers' sockets once whoever was accepted is connected.

    A server that is closed before that leaves the accepted socket open and forgotten (asyncio asserts that it is still
    attached), which some later test is then blamed for.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for listener in server.sockets:
            loop.remove_reader(listener)
    for _ in range(ACCEPTING_ROUNDS):
        await asyncio.sleep(0)
    for server in servers:
        server.close()
