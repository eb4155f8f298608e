"""Two whole servers behind a balancer, and something goes away: nothing acknowledged is lost, nothing is doubled, and all goes on."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from backend.replicas import leases, line, replica
from backend.replicas.leases import Leases
from tests import fake_ollama as script
from tests.balancer import Balancer
from tests.engines import Postgres, Valkey, column
from tests.fake_ollama import FakeOllama
from tests.faults.cutting_proxy import CuttingProxy
from tests.replay import SNAPSHOT_LIMIT, Replica, events_of
from tests.replicas.conftest import REPLY, WORDS, Pair, allow, send, slowly, text_of, two_servers
from tests.server import Client, make_settings, running
from tests.tab import Tab, quiet
from tests.test_process import started

pytestmark = pytest.mark.anyio

# About four messages' worth.
MEAN_BYTES = 6_000


def reply_of(replica: Replica) -> tuple[str, str]:
    """The newest message's text and status."""
    newest = replica.messages[max(replica.messages)]
    return newest["content"], newest["status"]


def page(address: str, chat: str, seed: int = 0) -> Tab:
    return Tab(address, chat, random.Random(seed))


async def test_redis_restarted_in_mid_reply_costs_nothing(
    pair: Pair, balancer: Balancer, fake: FakeOllama, redis: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.2)
    chat = await pair[0].new_chat()
    may_end = asyncio.Event()
    fake.script(slowly(0.005, may_end), script.reply("Still here."))
    await send(pair[0], chat)
    await pair[0].event("message.delta")
    redis.kill()
    redis.start()
    await asyncio.gather(*(client.ended() for client in pair))
    pages = [page(balancer.address, chat, seed) for seed in range(2)]
    await asyncio.gather(*(tab.until(lambda replica: reply_of(replica) == (REPLY, "streaming")) for tab in pages))
    may_end.set()
    await asyncio.gather(*(tab.until(lambda replica: reply_of(replica) == (REPLY, "complete")) for tab in pages))
    await pages[1].send_all(1)
    one, two = await asyncio.gather(*(tab.until(lambda replica: reply_of(replica) == ("Still here.", "complete")) for tab in pages))
    assert one["messages"] == two["messages"]
    for tab in pages:
        await tab.close()


async def test_a_server_that_cannot_reach_redis_gives_its_chats_up_and_comes_back(
    tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition between one server and Redis; both reach the database, and the balancer both."""
    for module, name, seconds in ((leases, "HEARTBEAT", 0.2), (leases, "FENCE", 0.8), (leases, "LEASE", 1.6), (line, "ANSWER", 0.4)):
        monkeypatch.setattr(module, f"{name}_SECONDS", seconds)
    async with AsyncExitStack() as stack:
        way = await stack.enter_async_context(Balancer(f"127.0.0.1:{redis.port}"))
        balancer = await stack.enter_async_context(two_servers(tmp_path, fake, postgres_url, f"redis://{way.address}/0", redis.url))
        one, two = [await stack.enter_async_context(Client.connect(balancer.address)) for _ in range(2)]
        cut_off = balancer.server_of(one)
        chat = await one.new_chat()
        await two.ok("chat.open", chat_id=chat)
        asking = await one.new_chat()
        await two.ok("chat.open", chat_id=asking)
        await one.ok("chat.update", chat_id=asking, approval="before")
        fake.script(script.call("task_add", {"title": "Buy milk"}), [script.text(*WORDS), script.hang()], script.reply("Again."), script.reply("Noted."))
        asked = await send(one, asking)
        await one.event("turn.waiting")
        turn = await send(one, chat)
        await one.until(lambda: "".join(delta["text"] for delta in one.of("message.delta")) == REPLY)
        way.pause()
        assert (await one.finished(turn))["status"] == "interrupted"
        await one.ended()  # to come back at the other
        here = page(balancer.address, chat)
        await here.until(lambda replica: reply_of(replica) == (REPLY, "interrupted"))
        await two.say(chat, "and now?")
        await here.until(lambda replica: reply_of(replica) == ("Again.", "complete"))
        async with Client.connect(balancer.server_of(two)) as newcomer:
            assert [listed["id"] for listed in newcomer.welcome["chats"] if listed["turn_running"]] == [asking]
        await allow(two, asking)
        assert (await two.finished(asked))["status"] == "complete"  # what waits for a person goes on
        way.go_on()
        there = page(cut_off, chat)
        await there.until(lambda replica: reply_of(replica) == ("Again.", "complete"))
        fake.script(script.reply("Here too."))
        await there.send_all(1)
        shown = [await tab.until(lambda replica: reply_of(replica) == ("Here too.", "complete")) for tab in (here, there)]
        assert shown[0]["messages"] == shown[1]["messages"]
        for tab in (here, there):
            await tab.close()


@pytest.mark.usefixtures("short_leases")
async def test_what_a_server_that_stood_still_writes_late_is_refused(pair: Pair, fake: FakeOllama, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heart stops until another one has ended its turn; then its model calls a tool."""
    one, two = pair
    chat = await one.new_chat()
    renew, goes_on, called = Leases._renew, asyncio.Event(), asyncio.Event()
    (owner,) = await column(postgres_url, "SELECT server FROM chats")

    async def stand_still(leases: Leases) -> None:
        if leases._line.replica == owner:
            await goes_on.wait()
        await renew(leases)

    await two.ok("chat.open", chat_id=chat)
    await one.press(chat, "system_prompt_draft", content="Be brief.")
    await two.ok("context.clear", chat_id=chat)
    fake.script([script.text("Noted: "), script.hold(called), script.call("task_add", {"title": "Buy milk"})])
    turn = await send(one, chat)
    await two.event("message.delta")
    monkeypatch.setattr(Leases, "_renew", stand_still)
    assert (await two.finished(turn))["status"] == "interrupted"
    called.set()
    assert (await one.finished(turn))["status"] == "interrupted"  # it lets go of the chat, and tells what became of it
    assert await column(postgres_url, "SELECT title FROM tasks") == []
    assert len(fake.requests) == 1
    goes_on.set()
    for client in pair:  # what the first one held in memory only is told and put back by nobody
        async with asyncio.timeout(10):
            while (reply := await client.command("context.sent", chat_id=chat))["type"] == "error":
                await asyncio.sleep(0.01)  # it has to hear from Redis again
        assert reply["sent"] is None
        assert (await client.context(chat))["undo_until"] is None
        await client.refused("conflict", "context.undo", chat_id=chat)


async def test_a_server_that_leaves_takes_its_undo_back(tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey) -> None:
    settings = make_settings(tmp_path, fake, database_url=postgres_url, redis_url=redis.url)
    async with running(settings) as stays, Client.connect(stays) as watcher:
        async with running(settings) as leaves, Client.connect(leaves) as client:
            chat = await client.new_chat()
            await watcher.ok("chat.open", chat_id=chat)
            await client.press(chat, "system_prompt_draft", content="Be brief.")
            await client.ok("context.clear", chat_id=chat)
            await watcher.event("context.state", lambda event: event["context"]["undo_until"])
        await watcher.until(lambda: watcher.of("context.state")[-1]["context"]["undo_until"] is None)
        await watcher.refused("conflict", "context.undo", chat_id=chat)


async def test_a_server_that_is_told_to_end_lets_its_reply_end(
    tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages go on at the other one at once, in the chat that streams and in one that was idle."""
    monkeypatch.setattr(replica, "DRAIN_SECONDS", 60)
    settings, may_end = make_settings(tmp_path, fake, database_url=postgres_url, redis_url=redis.url), asyncio.Event()
    async with running(settings) as stays, Client.connect(stays) as watcher, AsyncExitStack() as leaving:
        client = await leaving.enter_async_context(Client.connect(await leaving.enter_async_context(running(settings))))
        idle, chat = await client.new_chat(), await client.new_chat()
        await watcher.ok("chat.open", chat_id=idle)
        await watcher.ok("chat.open", chat_id=chat)
        fake.script(slowly(0.001, may_end), script.reply("Here."))
        turn = await send(client, chat)
        await client.event("message.delta")
        ending = asyncio.create_task(leaving.aclose())
        await watcher.say(idle, "and you?")
        await watcher.refused("turn_running", "message.send", chat_id=chat, client_id="1", text="too early")
        assert not ending.done()
        may_end.set()
        assert (await watcher.finished(turn))["status"] == "complete"
        assert text_of(await watcher.messages(chat)) == REPLY
        await ending
        await watcher.say(chat, "and now?")


async def test_postgresql_restarted_in_mid_reply_costs_nothing(pair: Pair, fake: FakeOllama, postgres_server: Postgres, postgres_url: str) -> None:
    one, two = pair
    chat = await one.new_chat()
    await two.ok("chat.open", chat_id=chat)
    may_go_on = asyncio.Event()
    fake.script([script.text(*WORDS[:20]), script.hold(may_go_on), script.text(*WORDS[20:]), script.done()])
    turn = await send(one, chat)
    await two.event("message.delta")
    postgres_server.kill()
    may_go_on.set()
    await two.until(lambda: "".join(delta["text"] for delta in two.of("message.delta")) == REPLY)  # without a database
    postgres_server.start()
    assert (await two.finished(turn))["status"] == "complete"
    assert await column(postgres_url, "SELECT content FROM chat_messages WHERE role = 'assistant'") == [REPLY]


async def test_a_server_is_killed_that_streams_while_pages_send(tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey) -> None:
    """`kill -9` as a second reply is made, and a start anew; the pages' network breaks off all the time."""

    never = asyncio.Event()
    fake.default = lambda request: slowly(0.05, never) if request.messages[-1]["content"] == "go" else script.reply("ok", pause_seconds=0.01)
    variables = {"CLEANROOM_DATABASE_URL": postgres_url, "CLEANROOM_REDIS_URL": redis.url}
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(started(tmp_path, fake, **variables)) for _ in range(2)]
        balancer = await stack.enter_async_context(Balancer(*await asyncio.gather(*(server.ready() for server in servers))))
        one, two = [await stack.enter_async_context(Client.connect(balancer.address)) for _ in range(2)]
        streaming = await one.new_chat()
        chats = [await client.new_chat() for client in (one, two, one)]
        await two.ok("chat.open", chat_id=streaming)
        at_one = Replica(await one.ok("chat.open", chat_id=streaming))
        fake.script_pull([script.progress("pulling manifest"), script.hang()])
        await one.ok("model.pull", name="qwen3:4b")
        fake.script(script.reply("First."))
        await one.say(streaming, "go")
        turn = (await one.ok("turn.regenerate", chat_id=streaming))["turn_id"]
        await two.until(lambda: len(two.of("message.delta")) > 30)

        network = await stack.enter_async_context(CuttingProxy(balancer.address, seed=7, mean_bytes=MEAN_BYTES))
        pages = [page(network.address, chat, seed) for seed, chat in enumerate(chats * 2)]
        sending = asyncio.gather(*(tab.send_all(6) for tab in pages))
        while sum(len(tab.acknowledged) for tab in pages) < 6:
            await asyncio.sleep(0.02)
        place = balancer.servers.index(balancer.server_of(one))
        servers[place].tell(signal.SIGKILL)
        await one.ended()
        # Its successor may as well run here.
        balancer.servers[place] = await stack.enter_async_context(running(make_settings(tmp_path, fake, database_url=postgres_url, redis_url=redis.url)))

        assert (await two.finished(turn))["status"] == "interrupted"
        await two.event("model.pull", lambda event: event["pull"]["status"] == "complete")  # the one that is left went on with it
        await sending
        await quiet(two, [streaming, *chats])

        for event in events_of(one, streaming):
            at_one.apply(event)
        pages.append(Tab(balancer.address, streaming, random.Random(0), replica=at_one))  # where the killed server's page comes back
        for tab in pages:
            fresh = Replica(await two.ok("chat.open", chat_id=tab.chat_id, limit=SNAPSHOT_LIMIT)).shown
            assert await tab.follow_to(fresh["seq"]) == {part: value for part, value in fresh.items() if part != "chat"}
            await tab.close()
        left = (await two.messages(streaming))[-1]
        assert REPLY.startswith(left["content"])
        assert left["variant"] == {"index": 2, "count": 2}
        assert (left["status"], len(left["content"]) >= len(REPLY) // 4) == ("interrupted", True)  # at most a second of it is lost
        await two.say(streaming, "and now?")
        assert text_of(await two.messages(streaming)) == "ok"

    stored = Counter(await column(postgres_url, "SELECT client_id FROM chat_messages WHERE role = 'user' AND content NOT IN ('go', 'and now?')"))
    asked = Counter(request.messages[-1]["content"] for request in fake.requests)
    acknowledged, unknown = set.union(*(tab.acknowledged for tab in pages)), set.union(*(tab.unknown for tab in pages))
    assert len(acknowledged) + len(unknown) == 36
    assert acknowledged <= stored.keys() <= acknowledged | unknown
    assert set(stored.values()) == {1}
    assert {asked[client_id] for client_id in stored} <= {0, 1}
    doubled = "SELECT COUNT(*) FROM chat_messages WHERE role = 'assistant' GROUP BY turn_id HAVING COUNT(*) > 1"
    assert await column(postgres_url, doubled) == []
    assert await column(postgres_url, "SELECT COUNT(*) FROM chats") == [4]
