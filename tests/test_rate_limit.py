"""A socket that asks without end is refused, then closed; one that asks much at once is served, and so are the others."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from backend.rate_limit import BURST, PER_SECOND, REFUSALS, RateLimit
from tests.server import Client

pytestmark = pytest.mark.anyio


def taken(limit: RateLimit, tries: int) -> int:
    return sum(limit.allows() for _ in range(tries))


def test_a_bucket_fills_again_and_never_runs_over() -> None:
    now = 0.0
    limit = RateLimit(lambda: now)
    assert taken(limit, BURST + 5) == BURST
    now += 0.5
    assert taken(limit, BURST) == PER_SECOND / 2
    now += 3_600
    assert taken(limit, BURST + 5) == BURST


def test_only_refusals_in_a_row_are_abuse() -> None:
    now = 0.0
    limit = RateLimit(lambda: now)
    taken(limit, BURST + REFUSALS - 1)
    assert not limit.is_abused
    now += 0.01
    assert limit.allows()
    taken(limit, REFUSALS)
    assert not limit.is_abused  # the hundredth of a second allowed one more
    limit.allows()
    assert limit.is_abused


async def flood(socket: ClientConnection, frame: str | bytes, count: int) -> None:
    try:
        for number in range(count):
            await socket.send(frame.replace("?", str(number)) if isinstance(frame, str) else frame)
    except ConnectionClosed:
        pass


@pytest.mark.parametrize("frame", ['{"type": "tool.list", "ref": "?"}', b"binary", "no JSON"])
async def test_a_flood_is_closed_and_another_socket_is_served(address: str, client: Client, monkeypatch: pytest.MonkeyPatch, frame: str | bytes) -> None:
    monkeypatch.setattr("backend.rate_limit.BURST", 20)
    monkeypatch.setattr("backend.rate_limit.PER_SECOND", 0.001)
    codes: list[str | None] = []
    async with connect(f"ws://{address}/ws", max_size=None) as socket:
        sending = asyncio.create_task(flood(socket, frame, 20 + 2 * REFUSALS))
        try:
            async for answer in socket:
                codes.append(json.loads(answer).get("code"))
        except ConnectionClosed:
            pass
        assert (socket.close_code, socket.close_reason) == (1008, "too many commands")
        await sending
    assert codes.count("rate_limited") >= REFUSALS - 10  # the last ones may still wait when it closes
    assert codes[:21].count("rate_limited") == 0
    assert (await client.ok("tool.list"))["tools"]


async def test_a_refusal_names_its_command_and_the_next_second_serves_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.rate_limit.BURST", 1)
    monkeypatch.setattr("backend.rate_limit.PER_SECOND", 1.0)
    async with Client.connect(address) as client:
        answers = await asyncio.gather(*(client.command("tool.list") for _ in range(3)))
        assert [answer.get("code") for answer in answers] == [None, "rate_limited", "rate_limited"]
        await asyncio.sleep(1.1)
        await client.ok("tool.list")
