"""R13: sockets that only listen cost little, stay, and hear of everything, beside a chat that streams."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect

from backend.__main__ import PING_SECONDS
from tests import fake_ollama as script
from tests.fake_ollama import FakeModel, FakeOllama
from tests.faults.kill_points import server
from tests.server import Client

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="a process's memory is read from /proc")]

TOKENS = 200
# An idle socket's share: reader, writer, outbox, protocol and buffers.
MOST_BYTES = 60 * 1024
# Opened before memory is looked at: what the first connections load belongs to no socket.
WARM_UP = 10
AT_ONCE = 25


@pytest.fixture
def files_for() -> Iterator[None]:
    """As many open files as the system allows, for the server too, which inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def open_sockets(stack: AsyncExitStack, address: str, count: int) -> list[ClientConnection]:
    """Sockets that read nothing but the welcome until they are asked."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def open_one() -> ClientConnection:
        async with gate:
            socket = await stack.enter_async_context(connect(f"ws://{address}/ws", max_size=None))
            assert json.loads(await socket.recv())["type"] == "welcome"
            return socket

    return await asyncio.gather(*(open_one() for _ in range(count)))


async def heard(socket: ClientConnection) -> list[str]:
    """What a socket was told all the while, up to the answer to a last question."""
    await socket.send('{"type": "tool.list", "ref": "last"}')
    kinds: list[str] = []
    while (frame := json.loads(await socket.recv())).get("ref") != "last":
        kinds.append(frame["type"])
    return kinds


@pytest.mark.usefixtures("files_for")
@pytest.mark.parametrize(
    ("sockets", "idle_seconds"),
    [(100, 0), pytest.param(1000, 3 * PING_SECONDS, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
    ids=["a hundred", "a thousand over three pings"],
)
async def test_idle_sockets_cost_little_and_hear_everything(tmp_path: Path, sockets: int, idle_seconds: float) -> None:
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(FakeOllama([FakeModel()]))
        process, address = await stack.enter_async_context(server(tmp_path, fake.url))
        await open_sockets(stack, address, WARM_UP)
        before = resident_bytes(process.pid)
        idle = await open_sockets(stack, address, sockets)
        each = (resident_bytes(process.pid) - before) / sockets
        print(f"{sockets} idle sockets: {each / 1024:.1f} KiB of resident memory each")
        await asyncio.sleep(idle_seconds)

        client = await stack.enter_async_context(Client.connect(address))
        chat = await client.new_chat()
        fake.script(script.many_tokens(TOKENS))
        assert (await client.say(chat, "count"))["status"] == "complete"
        assert "".join(delta["text"] for delta in client.of("message.delta")) == "".join(f"{number} " for number in range(TOKENS))
        everything = [event["type"] for event in client.events if "seq" not in event]
        assert "chat.created" in everything
        told = await asyncio.gather(*map(heard, idle))
        assert [kinds[: len(everything)] for kinds in told] == [everything] * sockets
        assert each < MOST_BYTES
