"""R08: what many tabs send over a network that breaks off at random is stored once, and each tab is told all of it once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.fake_ollama import FakeModel, FakeOllama
from tests.faults.cutting_proxy import CuttingProxy
from tests.replay import SNAPSHOT_LIMIT, Replica
from tests.server import Client, make_settings, rows, running
from tests.tab import Tab, quiet

pytestmark = pytest.mark.anyio

# Two tabs share a chat, so that they hear of each other's messages and are refused while the other one's turn runs.
TABS_A_CHAT = 2
# About ten messages' worth: most connections carry some sends, none carries all.
MEAN_BYTES = 12_000


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
        assert not any(tab.gaps for tab in opened)
        assert acknowledged <= stored.keys() <= acknowledged | unknown
        assert set(stored.values()) == {1}
        assert asked == stored, "each stored message was put to the model once"
        assert proxy.cuts > tabs and sum(tab.repeats for tab in opened) > 0, "too few cuts to prove anything"
