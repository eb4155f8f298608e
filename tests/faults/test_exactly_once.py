"""R08: what many tabs send over a network that breaks off at random is stored once, and each tab is told all of it once."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.fake_ollama import FakeModel, FakeOllama
from tests.faults.cutting_proxy import CuttingProxy
from tests.replay import SNAPSHOT_LIMIT, Replica
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio

Work = Callable[[], Awaitable[Json]]

# Of the sends whose reply was lost, so many are given up: whether they were stored is not known then.
GIVEN_UP = 0.1
# Two tabs share a chat, so that they hear of each other's messages and are refused while the other one's turn runs.
TABS_A_CHAT = 2
# About ten messages' worth: most connections carry some sends, none carries all.
MEAN_BYTES = 12_000


@dataclass
class Tab:
    """A page behind a bad network: it sends until it is answered, and follows its chat over all its connections."""

    address: str
    chat_id: str
    chance: random.Random
    acknowledged: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    repeats: int = 0
    resumed: int = 0
    replica: Replica | None = None
    socket: ClientConnection | None = None

    async def send_all(self, count: int) -> None:
        for _ in range(count):
            await self._send(uuid.uuid4().hex)

    async def follow_to(self, seq: int) -> Json:
        """What the tab shows once it has that event."""
        while self.replica is None or self.replica.seq < seq:
            await self._within_connection(self._hear)
        return {part: value for part, value in self.replica.shown.items() if part != "chat"}

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.close()

    async def _send(self, client_id: str) -> None:
        command = {"type": "message.send", "chat_id": self.chat_id, "client_id": client_id, "text": client_id}
        while True:
            reply = await self._within_connection(lambda: self._ask(command))
            if reply is None and self.chance.random() < GIVEN_UP:
                self.unknown.add(client_id)
                return
            if reply is None:
                self.repeats += 1
            elif reply["type"] == "ok":
                assert reply["message"]["client_id"] == client_id
                self.acknowledged.add(client_id)
                return
            else:
                assert reply["code"] == "turn_running", reply
                await self._within_connection(self._hear)

    async def _within_connection(self, work: Work) -> Json | None:
        """The work's result; None when the connection broke off before it was there."""
        try:
            if self.socket is None:
                await self._connect()
            return await work()
        except (ConnectionClosed, InvalidHandshake, OSError, EOFError):
            self.socket = None
            return None

    async def _connect(self) -> None:
        self.socket = await connect(f"ws://{self.address}/ws", max_size=None)
        position = {"epoch": self.replica.epoch, "after_seq": self.replica.seq} if self.replica else {}
        opened = await self._ask({"type": "chat.open", "chat_id": self.chat_id, "limit": SNAPSHOT_LIMIT, **position})
        if opened["resumed"]:
            self.resumed += 1
        else:
            self.replica = Replica(opened)

    async def _ask(self, command: Json) -> Json:
        assert self.socket is not None
        ref = uuid.uuid4().hex
        await self.socket.send(json.dumps({**command, "ref": ref}))
        while (frame := await self._hear()).get("ref") != ref:
            pass
        return frame

    async def _hear(self) -> Json:
        """The next frame, taken in if it is an event of the chat. The replica fails on a gap."""
        assert self.socket is not None
        frame: Json = json.loads(await self.socket.recv())
        if self.replica is not None and frame["type"] not in ("ok", "error", "welcome") and frame.get("chat_id") == self.chat_id:
            self.replica.apply(frame)
        return frame


async def test_a_network_that_breaks_off_loses_and_doubles_nothing(tmp_path: Path) -> None:
    await exactly_once(tmp_path, tabs=4, sends=15, seed=8)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_ten_tabs_send_a_hundred_messages_each(tmp_path: Path, seed: int) -> None:
    await exactly_once(tmp_path, tabs=10, sends=100, seed=seed)


async def exactly_once(folder: Path, *, tabs: int, sends: int, seed: int) -> None:
    async with FakeOllama([FakeModel()], default="Yes, да.") as fake, running(make_settings(folder, fake)) as address, Client.connect(address) as client:
        chats = [await client.new_chat() for _ in range(tabs // TABS_A_CHAT)]
        async with CuttingProxy(address, seed, MEAN_BYTES) as proxy:
            opened = [Tab(proxy.address, chats[number // TABS_A_CHAT], random.Random(seed * 1000 + number)) for number in range(tabs)]
            await asyncio.gather(*(tab.send_all(sends) for tab in opened))
            await quiet(client, chats)
            for tab in opened:
                fresh = Replica(await client.ok("chat.open", chat_id=tab.chat_id, limit=SNAPSHOT_LIMIT)).shown
                assert await tab.follow_to(fresh["seq"]) == {part: value for part, value in fresh.items() if part != "chat"}
                await tab.close()
        acknowledged, unknown = set.union(*(tab.acknowledged for tab in opened)), set.union(*(tab.unknown for tab in opened))
        stored = Counter(row["client_id"] for row in rows(folder, "SELECT client_id FROM chat_messages WHERE role = 'user'"))
        asked = Counter(request.messages[-1]["content"] for request in fake.requests)
        print(
            f"{tabs} tabs x {sends} sends: {len(acknowledged)} acknowledged, {len(unknown)} unknown of which {len(unknown & stored.keys())} stored; "
            f"{proxy.cuts} cuts, {sum(tab.repeats for tab in opened)} sends repeated, {sum(tab.resumed for tab in opened)} connections resumed"
        )
        assert len(acknowledged) + len(unknown) == tabs * sends
        assert acknowledged <= stored.keys() <= acknowledged | unknown
        assert set(stored.values()) == {1}
        assert asked == stored, "each stored message was put to the model once"
        assert proxy.cuts > tabs and sum(tab.repeats for tab in opened) > 0, "too few cuts to prove anything"


async def quiet(client: Client, chats: list[str]) -> None:
    """Wait until no turn runs any more."""
    await client.until(lambda: not any(running_in(client, chat_id) for chat_id in chats))


def running_in(client: Client, chat_id: str) -> bool:
    told = [event["chat"] for event in client.of("chat.updated") if event["chat"]["id"] == chat_id]
    return bool(told) and bool(told[-1]["turn_running"])
