"""Servers that share nothing but Redis: who has a chat, who hears of it, and what becomes of it when one of them is gone."""

from __future__ import annotations

import asyncio
import json

import pytest

from backend import event_log
from backend.connection import Connection, Result
from backend.errors import Unreachable
from backend.hub import Outbox
from backend.protocol import ChatDeleted, ChatOpen, Command, MessageDelta, TurnStarted, TurnStop
from backend.replicas import leases, replica
from backend.replicas.line import events_key, owner_key
from backend.replicas.shared_log import STREAM_SECONDS
from tests.engines import Valkey
from tests.replicas.conftest import Server, Start
from tests.server import Json

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("short_leases")]


def started(chat: str = "a") -> TurnStarted:
    return TurnStarted(chat_id=chat, turn_id="t")


def piece(text: str, offset: int = 0) -> MessageDelta:
    return MessageDelta(chat_id="a", message_id=1, channel="content", offset=offset, text=text)


async def taken(outbox: Outbox, count: int) -> list[Json]:
    async with asyncio.timeout(10):
        return [json.loads(await outbox.take() or "null") for _ in range(count)]


async def watch(server: Server, chat: str = "a", epoch: str | None = None, after: int | None = None) -> Outbox | None:
    """A socket that resumes; None when it would need a snapshot."""
    outbox = Outbox()
    server.hub.attach(outbox)
    resumed = await server.hub.resume(chat, epoch or server.hub.epoch, after, outbox, lambda newest: outbox.put_reply(json.dumps({"seq": newest})))
    return outbox if resumed else None


async def until(condition: object) -> None:
    async with asyncio.timeout(15):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


async def test_a_chat_belongs_to_whoever_is_asked_first_and_to_nobody_else(start: Start) -> None:
    one, two = await start(), await start()
    owned = await asyncio.gather(*(server.owns("a") for server in (one, two, one, two)))
    assert sorted(owned) == [False, False, True, True]
    owner = one if owned[0] else two
    assert await owner.owns("a")
    await owner.close()
    other = two if owner is one else one
    assert await other.owns("a")
    assert other.deeds.recovered == []  # it was left in good order


async def test_what_the_owner_publishes_is_heard_at_the_other_server_in_order(start: Start) -> None:
    one, two = await start(), await start()
    assert await one.owns("a")
    assert not await two.owns("a")
    one.hub.publish(started())
    first = one.hub.seq("a")
    there = await watch(two, after=first - 2)
    assert there is None  # nobody may count on a number that this log never had
    await until(lambda: one.unsaid == 0)
    assert await two.redis_says("TTL", events_key("a")) > 0
    there = await watch(two, after=first)
    assert there is not None
    one.hub.publish(piece("при"))
    one.hub.publish(piece("вет", 3))
    one.hub.publish(started())
    frames = await taken(there, 2)
    while frames[-1]["type"] != "turn.started":
        frames += await taken(there, 1)
    assert frames[0] == {"seq": first}
    assert "".join(frame.get("text", "") for frame in frames) == "привет"
    assert (frames[1].get("first_seq", frames[1]["seq"]), frames[-1]["seq"]) == (first + 1, first + 3)


async def test_a_socket_goes_on_at_another_server_without_gap_or_repeat(start: Start) -> None:
    """It is cut off the owner while events flow, which go on flowing while it asks."""
    one, two = await start(), await start()
    await one.owns("a")
    one.hub.publish(started())
    begun = one.hub.seq("a")

    async def flow() -> None:
        for number in range(300):
            one.hub.publish(piece(f"{number} ", number))
            if number % 3 == 0:
                await asyncio.sleep(0.001)

    flowing = asyncio.create_task(flow())
    got: list[Json] = []
    last = begun
    for server in (one, two) * 4:
        outbox = await watch(server, after=last)
        assert outbox is not None or server is two  # its last events may be on their way to Redis: it asks again
        if outbox is None:
            await asyncio.sleep(0.05)
            outbox = await watch(server, after=last)
            assert outbox is not None
        for frame in (await taken(outbox, 12))[1:]:
            assert frame.get("first_seq", frame["seq"]) == last + 1
            last = frame["seq"]
            got.append(frame)
        server.hub.detach(outbox)
    await flowing
    outbox = await watch(one, after=last)
    assert outbox is not None
    while last < one.hub.seq("a"):
        for frame in await taken(outbox, 1):
            if "type" in frame:
                assert frame.get("first_seq", frame["seq"]) == last + 1
                last = frame["seq"]
                got.append(frame)
    assert "".join(frame["text"] for frame in got) == "".join(f"{number} " for number in range(300))


async def test_a_stream_is_as_short_as_its_owners_log_and_outlives_its_use_by_an_hour(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "LOG_EVENTS", 10)
    one = await start()
    await one.owns("a")
    for number in range(400):
        one.hub.publish(piece("x", number))
    await until(lambda: one.unsaid == 0)
    assert 10 <= await one.redis_says("XLEN", events_key("a")) < 200  # Redis drops a hundred at a time
    assert 0 < await one.redis_says("TTL", events_key("a")) <= STREAM_SECONDS


async def test_what_breaks_off_on_its_way_to_redis_is_said_again(start: Start) -> None:
    one, two = await start(), await start()
    await one.owns("a")
    one.hub.publish(started())
    first = one.hub.seq("a")
    await until(lambda: one.unsaid == 0)
    await two.redis_says("CLIENT", "KILL", "TYPE", "normal")
    for number in range(5):
        one.hub.publish(piece("x", number))
    await until(lambda: one.unsaid == 0)
    missed = await two.hub.log.since("a", two.hub.epoch, first)
    assert missed is not None
    assert [event.seq for event in missed] == list(range(first + 1, first + 6))


async def test_numbers_go_on_after_a_handover_and_leave_a_gap_after_a_death(start: Start) -> None:
    one, two, three = await start(), await start(), await start()
    await one.owns("a")
    one.hub.publish(started())
    last = one.hub.seq("a")
    await one.close()
    assert await two.owns("a")
    two.hub.publish(started())
    assert two.hub.seq("a") == last + 1
    await until(lambda: two.unsaid == 0)
    two.die()
    await until_owned(three)
    three.hub.publish(started())
    assert three.hub.seq("a") > last + 2  # numbers that the dead one may have used are nobody's
    assert await three.hub.log.since("a", three.hub.epoch, last + 1) is None


async def test_a_turn_whose_server_is_gone_is_taken_up_by_another(start: Start) -> None:
    one, two, three = await start(), await start(), await start()
    await two.owns("kept")
    await one.owns("a")
    one.turn_began("a", "turn 1")
    await one.owns("b")
    one.turn_began("b", "turn 2")
    one.turn_ended("b")
    await until(lambda: one.unsaid == 0)
    assert await two.running() == {"a"}
    one.die()
    async with asyncio.timeout(15):
        while not any(("a", "turn 1") in server.deeds.recovered for server in (two, three)):
            assert not await three.owns("kept")  # the lease of a living server does not run out meanwhile
            await asyncio.sleep(0.02)
    assert sorted([await two.owns("a"), await three.owns("a")]) == [False, True]
    async with asyncio.timeout(15):
        while await two.running():
            await asyncio.sleep(0.01)


async def test_what_was_left_before_all_servers_ended_is_seen_to_at_the_start(redis: Valkey, start: Start) -> None:
    server = Server(redis.url)
    server.deeds.left = ["a"]
    await server.begin()
    assert server.deeds.recovered == [("a", None)]
    await server.close()


async def test_a_server_without_redis_ends_its_turns_and_owns_nothing(redis: Valkey, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.replicas.line.ANSWER_SECONDS", 0.1)
    one = await start()
    await one.owns("a")
    assert one.is_ready
    redis.pause()
    try:
        await until(lambda: one.deeds.forgotten == ["a"])
        assert (one.deeds.interrupted, one.is_ready) == (1, False)
        with pytest.raises(Unreachable):
            await one.owns("a")
    finally:
        redis.go_on()
    await until(lambda: one.is_ready)
    await until_owned(one)


async def test_redis_may_lose_everything_and_an_owner_keeps_its_chats(redis: Valkey, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "FENCE_SECONDS", 15.0)  # for a busy machine, on which Redis starts slowly
    monkeypatch.setattr(leases, "LEASE_SECONDS", 20.0)
    one, two = await start(), await start()
    await one.owns("a")
    one.deeds.busy.add("a")
    one.turn_began("a", "turn 1")
    await until(lambda: one.unsaid == 0)
    epoch, watcher = one.hub.epoch, Outbox()
    one.hub.attach(watcher)
    redis.kill()
    redis.start()
    assert await watcher.take() is None  # sent away, to come back for a snapshot
    await until(lambda: one.is_ready and two.is_ready and one.hub.epoch == two.hub.epoch != epoch)
    assert not await two.owns("a")
    assert one.deeds.forgotten == []
    one.hub.publish(started())
    await until(lambda: one.unsaid == 0)
    assert await watch(two, after=one.hub.seq("a")) is not None
    assert await two.running() == {"a"}  # which says so in a welcome, and goes on with it when the owner dies
    one.turn_ended("a")
    await until(lambda: one.unsaid == 0)
    assert await two.running() == set()


async def test_a_chat_that_another_server_has_by_now_is_let_go_and_watched_there(start: Start) -> None:
    one, two = await start(), await start()
    await one.owns("a")
    one.hub.publish(started())
    here = await watch(one, after=one.hub.seq("a"))
    assert here is not None
    await until(lambda: one.unsaid == 0)
    await two.redis_says("SET", owner_key("a"), two.id)
    assert await two.owns("a")
    two.hub.publish(started())
    await until(lambda: one.deeds.forgotten == ["a"])
    assert [frame["seq"] for frame in await taken(here, 2)][1:] == [two.hub.seq("a")]
    assert not await one.owns("a")


async def test_a_command_is_carried_out_where_its_chat_is(start: Start) -> None:
    one, two = await start(), await start()
    await one.owns("a")
    here = Connection(two.hub, "")
    assert await two.dispatch(here, TurnStop(chat_id="a", ref="1", type="turn.stop")) is None
    assert await taken(here.outbox, 1) == [{"type": "ok", "ref": "1"}]
    assert ([command.ref for command in one.deeds.commands], two.deeds.commands) == (["1"], [])
    assert await one.dispatch(Connection(one.hub, ""), TurnStop(chat_id="a", ref="2", type="turn.stop")) == {}


async def test_a_command_whose_server_dies_is_carried_out_by_the_one_that_asked(start: Start) -> None:
    one, two = await start(), await start()
    await one.owns("a")
    never = asyncio.Event()

    async def hang(_: Connection, __: Command) -> Result:
        await never.wait()
        return {}

    one.deeds.answer = hang
    asked = asyncio.ensure_future(two.dispatch(Connection(two.hub, ""), TurnStop(chat_id="a", type="turn.stop")))
    await until(lambda: bool(one.deeds.commands))
    one.die()
    async with asyncio.timeout(10):
        assert await asked == {}
    assert len(two.deeds.commands) == 1
    assert await two.owns("a")


async def test_a_chat_leaves_a_server_that_drains_with_the_first_command_after_its_reply(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "DRAIN_SECONDS", 60)
    monkeypatch.setattr(replica, "DRAIN_LOOK_SECONDS", 20)
    one, two = await start(), await start()
    one.deeds.busy.add("a")
    await one.owns("a")
    leaving = asyncio.create_task(one.leave())
    try:
        await two.dispatch(Connection(two.hub, ""), TurnStop(chat_id="a", type="turn.stop"))
        one.deeds.busy.clear()
        await two.dispatch(Connection(two.hub, ""), TurnStop(chat_id="a", type="turn.stop"))
        assert (len(one.deeds.commands), len(two.deeds.commands)) == (1, 1)
        assert one.deeds.forgotten == ["a"]
    finally:
        leaving.cancel()


async def test_what_was_asked_of_a_server_before_it_leaves_is_answered_first(start: Start) -> None:
    one, two = await start(), await start()
    await one.owns("a")
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(*_: object) -> Result:
        is_asked.set()
        await may_answer.wait()
        return {}

    one.deeds.answer = answer
    asked = asyncio.ensure_future(two.dispatch(Connection(two.hub, ""), TurnStop(chat_id="a", type="turn.stop")))
    await is_asked.wait()
    leaving = asyncio.ensure_future(one.leave())
    await asyncio.sleep(0.1)
    assert not leaving.done()  # what comes after it ends every turn
    may_answer.set()
    await leaving
    await asked
    assert (len(one.deeds.commands), len(two.deeds.commands)) == (1, 0)


async def test_commands_wait_for_a_server_that_leaves_and_go_to_its_successor(start: Start) -> None:
    one, two = await start(), await start()
    one.deeds.busy.add("a")  # its turn has to be ended first
    await one.owns("a")
    await one.leave()
    asked = asyncio.ensure_future(two.dispatch(Connection(two.hub, ""), TurnStop(chat_id="a", type="turn.stop")))
    done, _ = await asyncio.wait({asked}, timeout=0.3)
    assert not done
    await one.close()
    async with asyncio.timeout(10):
        assert await asked == {}
    assert (one.deeds.commands, len(two.deeds.commands)) == ([], 1)


async def test_a_command_that_the_owner_does_not_know_is_refused_in_words(start: Start) -> None:
    """As while an older server runs beside a newer one."""
    one, two = await start(), await start()
    await one.owns("a")
    command = TurnStop(chat_id="a", ref="1", type="turn.stop")
    here = Connection(two.hub, "")
    await two.dispatch(here, command.model_copy(update={"type": "turn.new"}))
    (refusal,) = await taken(here.outbox, 1)
    assert (refusal["ref"], refusal["code"]) == ("1", "internal")
    assert "another version" in refusal["message"]


async def test_a_snapshot_of_another_servers_chat_is_followed_by_what_comes_after_it(start: Start) -> None:
    one, two = await start(), await start()
    await one.owns("a")
    one.hub.publish(started())

    async def snapshot(connection: Connection, command: Command) -> Result | None:
        connection.reply(command, {"epoch": one.hub.epoch, "seq": one.hub.seq("a"), "resumed": False, "messages": ["so far"]})
        one.hub.subscribe("a", connection.outbox)
        one.hub.publish(piece("later"))  # before the other server can follow
        return None

    one.deeds.answer = snapshot
    here = Connection(two.hub, "")
    await two.dispatch(here, ChatOpen(type="chat.open", chat_id="a"))
    opened, later = await taken(here.outbox, 2)
    assert (opened["messages"], later["text"], later["seq"]) == (["so far"], "later", opened["seq"] + 1)
    one.hub.publish(piece("live", 5))
    assert (await taken(here.outbox, 1))[0]["text"] == "live"


async def test_every_socket_hears_of_chats_and_a_deleted_one_is_watched_by_nobody(start: Start) -> None:
    one, two = await start(), await start()
    await one.owns("a")
    one.hub.publish(started())
    await until(lambda: one.unsaid == 0)
    there = await watch(two, after=one.hub.seq("a"))
    assert there is not None
    assert await one.hub.is_watched("a")
    assert not one.hub.is_watched_here("a")
    here = Outbox()
    one.hub.attach(here)
    one.hub.broadcast(ChatDeleted(user="", chat_id="a"))
    one.hub.forget("a")
    assert [frame.get("type") for frame in await taken(there, 2)] == [None, "chat.deleted"]
    assert not two.hub.is_watched_here("a")
    await until(lambda: one.unsaid == 0)
    assert await one.redis_says("EXISTS", events_key("a")) == 0
    two.hub.broadcast(ChatDeleted(user="", chat_id="b"))  # comes after whatever is still on its way
    assert [frame["chat_id"] for frame in await taken(here, 2)] == ["a", "b"]


async def test_a_chat_that_nobody_uses_is_let_go(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = await start(), await start()
    one.deeds.busy.add("busy")
    assert await one.owns("busy")
    assert await one.owns("used")
    assert await one.owns("idle")
    monkeypatch.setattr(leases, "IDLE_SECONDS", 0.1)
    with one.using("used"):
        await until(lambda: "idle" in one.deeds.forgotten)
        await until(lambda: one.unsaid == 0)  # Redis knows it too
        assert await two.owns("idle")
        assert not await two.owns("busy")
        assert not await two.owns("used")


async def until_owned(server: Server) -> None:
    async with asyncio.timeout(15):
        while not await server.owns("a"):
            await asyncio.sleep(0.05)
