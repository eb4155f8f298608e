"""Units of work mean the same on each engine."""

from __future__ import annotations

import asyncio

import pytest

from backend.store import messages
from backend.store.connection import Connection
from backend.store.units import Units
from tests.store.conftest import add_message

pytestmark = pytest.mark.anyio


async def test_an_urgent_writer_comes_before_all_that_wait(either: Units) -> None:
    order: list[str] = []
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def under_way(_: Connection) -> None:
        has_begun.set()
        await may_end.wait()

    async def write(name: str, *, is_urgent: bool = False) -> None:
        await either.write(lambda tx: add_message(tx, name), lambda _: order.append(name), is_urgent=is_urgent)

    async with asyncio.TaskGroup() as writers:
        writers.create_task(either.write(under_way, lambda _: order.append("under way")))
        await has_begun.wait()
        for name in ("first", "second", "third"):
            writers.create_task(write(name))
        await asyncio.sleep(0.05)  # they wait by now
        for name in ("urgent", "urgent too"):
            writers.create_task(write(name, is_urgent=True))
        await asyncio.sleep(0.05)
        may_end.set()
    assert order == ["under way", "urgent", "urgent too", "first", "second", "third"]


async def test_texts_are_saved_together_but_those_of_ended_replies(either: Units) -> None:
    async def insert(tx: Connection) -> list[int]:
        statuses = ("streaming", "complete", "streaming")
        rows = [await messages.insert(tx, session_id="c", role="assistant", content="old", is_ephemeral=0, status=status, created_at="") for status in statuses]
        return [row["id"] for row in rows]

    ids = await either.write(insert)
    texts = [{"id": number, "content": f"new {number}", "thinking": None if number == ids[0] else "hm"} for number in [*ids, ids[-1] + 1]]
    await either.write(lambda tx: messages.save_texts(tx, texts))
    stored = await either.read(lambda tx: messages.list_after(tx, "c", 0))
    assert [(row["content"], row["thinking"]) for row in stored] == [(f"new {ids[0]}", None), ("old", None), (f"new {ids[2]}", "hm")]
