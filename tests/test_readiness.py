"""Whether a server is ready, asked by many at once."""

from __future__ import annotations

import asyncio

import pytest

from backend.readiness import LOOK_SECONDS, Readiness

pytestmark = pytest.mark.anyio


async def test_one_look_answers_all_who_ask_meanwhile_and_for_a_second() -> None:
    moment, looks, found = 0.0, 0, asyncio.Event()

    async def look() -> bool:
        nonlocal looks
        looks += 1
        await found.wait()
        return True

    readiness = Readiness(look, lambda: moment)
    asking = [asyncio.create_task(readiness.ask()) for _ in range(5)]
    await asyncio.sleep(0)
    asking.pop(0).cancel()  # who goes away leaves the others their answer
    found.set()
    assert await asyncio.gather(*asking) == [True] * 4
    assert looks == 2
    moment = LOOK_SECONDS / 2
    assert await readiness.ask()
    assert looks == 2
    moment = LOOK_SECONDS
    assert await readiness.ask()
    assert looks == 3
