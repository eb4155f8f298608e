"""Two whole servers on one PostgreSQL and one Valkey: what a person sees when each of their tabs is at another one."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException

from backend.replicas.leases import Leases
from tests import fake_ollama as script
from tests.engines import Postgres, Valkey, column
from tests.fake_ollama import FakeOllama
from tests.replay import Replica, drop, events_of, replayed
from tests.server import Client, Json, make_settings, running
from tests.services.test_transactions import apply
from tests.test_process import Process, started

pytestmark = pytest.mark.anyio

Pair = tuple[Client, Client]

WORDS = [f"word{number} " for number in range(40)]
REPLY = "".join(WORDS)


def slowly(seconds: float = 0.05) -> script.Script:
    """A reply of forty words."""
    return [*[[script.text(word), script.pause(seconds)] for word in WORDS], script.done()]


@pytest.fixture
async def pair(tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey) -> AsyncIterator[Pair]:
    """A socket at each of two servers."""
    settings = make_settings(tmp_path, fake, database_url=postgres_url, redis_url=redis.url)
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(running(settings)) for _ in range(2)]
        yield await stack.enter_async_context(Client.connect(one)), await stack.enter_async_context(Client.connect(two))


async def send(client: Client, chat: str, text: str = "go", client_id: str | None = None) -> str:
    reply = await client.ok("message.send", chat_id=chat, client_id=client_id or uuid.uuid4().hex, text=text)
    return str(reply["turn_id"])


def where(client: Client) -> str:
    """The address of a socket's server."""
    host, port = client._socket.remote_address
    return f"{host}:{port}"


def text_of(messages: list[Json]) -> str:
    return str(messages[-1]["content"])


async def test_a_tab_at_each_server_shows_the_same(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    await two.event("chat.created", lambda event: event["chat"]["id"] == chat)
    there = Replica(await two.ok("chat.open", chat_id=chat))
    fake.script(script.call("task_add", {"title": "Buy milk"}), slowly(0.005), script.reply("And again."))
    await one.say(chat, "note that")
    await two.say(chat, "and now from here")  # carried out at the other server, which has the chat
    await one.finished(two.of("turn.finished")[-1]["turn_id"])
    for event in events_of(two, chat):
        there.apply(event)
    here = Replica(await one.ok("chat.open", chat_id=chat))
    assert there.shown == here.shown
    assert (await two.messages(chat))[-1]["content"] == "And again."


async def test_a_tab_that_is_cut_off_goes_on_at_the_other_server_in_mid_reply(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    replica = Replica(await one.ok("chat.open", chat_id=chat))
    fake.script(slowly(0.03))
    turn = await send(one, chat)
    await one.until(lambda: len(one.of("message.delta")) > 5)
    drop(one)
    for event in events_of(one, chat):
        replica.apply(event)
    opened = await two.ok("chat.open", chat_id=chat, epoch=replica.epoch, after_seq=replica.seq)
    while not opened["resumed"]:  # its last event is on its way
        opened = await two.ok("chat.open", chat_id=chat, epoch=replica.epoch, after_seq=replica.seq)
    await two.finished(turn)
    for event in events_of(two, chat):
        replica.apply(event)  # asserts that nothing is missing
    (reply,) = [message for message in replica.messages.values() if message["role"] == "assistant"]
    assert (reply["content"], reply["status"]) == (REPLY, "complete")


async def test_a_snapshot_taken_at_the_other_server_in_mid_reply_has_the_text_so_far(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    fake.script(slowly(0.03))
    turn = await send(one, chat)
    await one.until(lambda: len(one.of("message.delta")) > 5)
    replica = Replica(await two.ok("chat.open", chat_id=chat))
    assert replica.messages[max(replica.messages)]["content"].startswith("word0 word1 ")
    assert replica.chat is not None
    assert replica.chat["turn_running"]
    await two.finished(turn)
    for event in events_of(two, chat):
        replica.apply(event)
    assert replica.text(max(replica.messages)) == REPLY


async def test_stop_at_the_other_server_ends_the_turn(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    fake.script([script.text("so far"), script.hang()])
    turn = await send(one, chat)
    await one.event("message.delta")
    await two.refused("turn_running", "message.send", chat_id=chat, client_id="x", text="too early")
    await two.ok("turn.stop", chat_id=chat)
    assert (await one.finished(turn))["status"] == "stopped"
    assert text_of(await two.messages(chat)) == "so far"


async def test_yes_at_both_servers_at_once_has_one_effect(pair: Pair, postgres_url: str) -> None:
    one, two = pair
    chat = await one.new_chat()
    transaction = await apply(one, chat)
    answered = await asyncio.gather(
        *(client.ok("transaction.answer", chat_id=chat, transaction_id=transaction, answer=word) for client, word in ((one, "yes"), (two, "yes"), (two, "no")))
    )
    assert [reply["context"]["pending_transaction"] for reply in answered] == [None, None, None]
    assert len(one.of("transaction.closed")) == 1
    assert await column(postgres_url, "SELECT COUNT(*) FROM context_events WHERE kind = 'transaction'") == [1]


async def test_a_new_chat_that_both_servers_are_asked_for_is_made_once(pair: Pair, postgres_url: str) -> None:
    made = await asyncio.gather(*(client.ok("chat.create", client_id="one") for client in pair * 3))
    assert len({reply["chat"]["id"] for reply in made}) == 1
    assert await column(postgres_url, "SELECT COUNT(*) FROM chats") == [1]


async def test_a_deleted_chat_is_gone_at_both(pair: Pair, postgres_url: str) -> None:
    one, two = pair
    chat = await one.new_chat()
    await two.ok("chat.open", chat_id=chat)
    await two.ok("chat.delete", chat_id=chat)
    await one.event("chat.deleted")
    for client in pair:
        await client.refused("not_found", "chat.open", chat_id=chat)
    assert await column(postgres_url, "SELECT COUNT(*) FROM chats") == [0]


async def test_a_call_is_allowed_at_the_other_server(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    await one.ok("chat.update", chat_id=chat, approval="before")
    fake.script(script.call("task_add", {"title": "Buy milk"}), script.reply("Noted."))
    turn = await send(one, chat)
    await one.event("turn.waiting", lambda event: event["reason"] == "approval")
    card = next(message["card"] for message in await two.messages(chat) if message.get("card", {}).get("approval"))
    await two.ok("tool.answer", chat_id=chat, call_id=card["approval"]["call_id"], answer="allow")
    assert (await two.finished(turn))["status"] == "complete"
    assert text_of(await one.messages(chat)) == "Noted."


async def test_a_welcome_knows_the_turns_of_the_other_server(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    fake.script([script.text("x"), script.hang()])
    turn = await send(one, chat)
    await one.event("message.delta")
    async with Client.connect(where(two)) as newcomer:
        assert [listed["turn_running"] for listed in newcomer.welcome["chats"]] == [True]
    await two.ok("turn.stop", chat_id=chat)
    await one.finished(turn)


async def test_a_window_that_was_chosen_at_the_other_server_counts(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    model = one.welcome["default_model"]
    await one.ok("model.update", name=model, num_ctx=2048)
    chat = await two.new_chat()
    assert (await two.say(chat, "hi")).get("error") is None
    assert fake.requests[-1].options["num_ctx"] == 2048


async def test_a_pull_is_seen_and_ended_at_the_other_server(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    fake.script_pull([script.progress("pulling manifest"), script.hang()])
    await one.ok("model.pull", name="qwen3:4b")
    await two.event("model.pull", lambda event: event["pull"]["step"] == "pulling manifest")
    async with Client.connect(where(two)) as newcomer:
        assert newcomer.welcome["pulls"] == [one.of("model.pull")[-1]["pull"]]
    await two.ok("model.pull_cancel", name="qwen3:4b")
    await one.event("model.pull", lambda event: event["pull"]["status"] == "cancelled")
    async with Client.connect(where(two)) as newcomer:
        assert newcomer.welcome["pulls"] == []


async def test_an_import_grows_a_chat_of_the_other_server(pair: Pair) -> None:
    """It is carried out there, where the chat's events are numbered."""
    one, two = pair
    chat = await one.new_chat(title="Grown")
    await one.say(chat, "hi")
    exported = json.loads((await one.ok("chat.export", chat_id=chat, format="json"))["content"])
    taken = (await one.ok("chat.import", content=json.dumps(exported)))["chat"]["id"]
    exported["messages"].append({**exported["messages"][0], "content": "and more"})
    shown = Replica(await one.ok("chat.open", chat_id=taken))
    other = {**exported, "chat": {**exported["chat"], "id": "another", "title": "Other"}}
    grown = await two.ok("chat.import", content=json.dumps([exported, other]))
    assert ([chat["title"] for chat in grown["chats"]], grown["skipped"], grown["failed"]) == (["Grown", "Other"], 0, [])
    assert (await two.ok("chat.import", content=json.dumps(exported)))["skipped"] == 1
    await one.event("message.created", lambda event: event["chat_id"] == taken)
    for event in events_of(one, taken):
        shown.apply(event)
    assert shown.text(max(shown.messages)) == "and more"


# --- when something goes away


async def test_redis_restarted_in_mid_reply_costs_nothing(pair: Pair, fake: FakeOllama, redis: Valkey) -> None:
    one, two = pair
    chat = await one.new_chat()
    fake.script(slowly())
    await send(one, chat)
    await one.event("message.delta")
    redis.kill()
    redis.start()
    address = where(two)
    async with asyncio.timeout(30):
        while not await is_whole(address, chat):
            await asyncio.sleep(0.2)
    async with Client.connect(address) as back:
        await back.ok("chat.open", chat_id=chat)
        fake.script(script.reply("Still here."))
        await back.say(chat, "and now?")
        assert text_of(await back.messages(chat)) == "Still here."


async def is_whole(address: str, chat: str) -> bool:
    """Whether the chat's last reply is complete, as a new socket sees it."""
    try:
        async with asyncio.timeout(3), Client.connect(address) as back:  # a welcome that is refused is waited for in vain
            reply = await back.command("chat.open", chat_id=chat)
    except (TimeoutError, OSError):
        return False
    return reply["type"] == "ok" and (reply["messages"][-1]["content"], reply["messages"][-1]["status"]) == (REPLY, "complete")


async def test_a_server_that_redis_does_not_answer_keeps_the_text_and_goes_on_later(pair: Pair, fake: FakeOllama, redis: Valkey, postgres_url: str) -> None:
    one, _ = pair
    chat = await one.new_chat()
    fake.script([script.text(*WORDS), script.hang()])
    await send(one, chat)
    await one.until(lambda: "".join(delta["text"] for delta in one.of("message.delta")) == REPLY)
    address = where(one)
    redis.pause()
    try:
        ended = "SELECT content FROM chat_messages WHERE role = 'assistant' AND status = 'interrupted'"
        async with asyncio.timeout(20):
            while await column(postgres_url, ended) != [REPLY]:
                await asyncio.sleep(0.1)
    finally:
        redis.go_on()
    fake.script(script.reply("Again."))
    async with asyncio.timeout(30):
        while True:
            try:
                async with asyncio.timeout(3), Client.connect(address) as back:
                    await back.ok("chat.open", chat_id=chat)
                    await back.say(chat, "and now?")
                    assert text_of(await back.messages(chat)) == "Again."
                    return
            except (AssertionError, OSError, TimeoutError):
                await asyncio.sleep(0.2)


async def test_postgresql_restarted_in_mid_reply_costs_nothing(pair: Pair, fake: FakeOllama, postgres_server: Postgres, postgres_url: str) -> None:
    one, two = pair
    chat = await one.new_chat()
    await two.ok("chat.open", chat_id=chat)
    fake.script(slowly())
    turn = await send(one, chat)
    await one.event("message.delta")
    postgres_server.kill()
    await asyncio.sleep(0.5)
    postgres_server.start()
    assert (await two.finished(turn))["status"] == "complete"
    assert await column(postgres_url, "SELECT content FROM chat_messages WHERE role = 'assistant'") == [REPLY]


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


@asynccontextmanager
async def processes(folder: Path, fake: FakeOllama, postgres_url: str, redis: Valkey, count: int = 2) -> AsyncIterator[list[Process]]:
    variables = {"CLEANROOM_DATABASE_URL": postgres_url, "CLEANROOM_REDIS_URL": redis.url}
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(started(folder, fake, **variables)) for _ in range(count)]
        await asyncio.gather(*(server.ready() for server in servers))
        yield servers


async def test_the_turn_of_a_killed_server_is_interrupted_within_seconds(tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey) -> None:
    async with processes(tmp_path, fake, postgres_url, redis) as (one, two), Client.connect(two.address) as watcher:
        async with Client.connect(one.address) as client:
            chat = await client.new_chat()
            await watcher.ok("chat.open", chat_id=chat)
            fake.script_pull([script.progress("pulling manifest"), script.hang()])
            await client.ok("model.pull", name="qwen3:4b")
            fake.script(slowly(0.1))
            turn = await send(client, chat)
            await watcher.until(lambda: len(watcher.of("message.delta")) > 20)
            one.tell(signal.SIGKILL)
            await one.ended()
        assert (await watcher.finished(turn))["status"] == "interrupted"
        await watcher.event("model.pull", lambda event: event["pull"]["status"] == "complete")  # the one that is left went on with it
        async with Client.connect(two.address) as newcomer:
            assert [listed["turn_running"] for listed in newcomer.welcome["chats"]] == [False]
        left = (await watcher.messages(chat))[-1]
        assert left["status"] == "interrupted"
        assert left["content"] == REPLY[: len(left["content"])]
        assert len(left["content"]) >= len(REPLY) // 4  # at most a second of it is lost
        fake.script(script.reply("Here I am."))
        await watcher.say(chat, "and now?")
        assert text_of(await watcher.messages(chat)) == "Here I am."


async def test_nothing_acknowledged_is_lost_and_nothing_doubled_while_servers_die(tmp_path: Path, fake: FakeOllama, postgres_url: str, redis: Valkey) -> None:
    """Each message is sent until some server acknowledges it, as a page does; a server is killed and started again in between."""
    variables = {"CLEANROOM_DATABASE_URL": postgres_url, "CLEANROOM_REDIS_URL": redis.url}
    acknowledged: dict[str, str] = {}
    addresses: dict[int, str] = {}

    async def chatter(number: int) -> None:
        chat = ""
        for turn in range(6):
            client_id, attempt = f"{number}-{turn}", number
            async with asyncio.timeout(60):
                while client_id not in acknowledged:
                    attempt += 1
                    try:
                        async with asyncio.timeout(10), Client.connect(addresses[attempt % 2]) as client:
                            chat = chat or str((await client.ok("chat.create", client_id=f"chat {number}"))["chat"]["id"])
                            reply = await client.command("message.send", chat_id=chat, client_id=client_id, text=f"message {client_id}")
                            if reply["type"] == "ok":
                                acknowledged[client_id] = chat
                            else:
                                await asyncio.sleep(0.1)
                    except (OSError, TimeoutError, AssertionError, WebSocketException):  # killed in a handshake, say
                        await asyncio.sleep(0.1)

    async with AsyncExitStack() as stack:
        fake.default = lambda _: script.reply("ok", pause_seconds=0.01)
        servers = [await stack.enter_async_context(started(tmp_path, fake, **variables)) for _ in range(2)]
        for place, server in enumerate(servers):
            addresses[place] = await server.ready()
        chatting = asyncio.gather(*(chatter(number) for number in range(6)))
        await asyncio.sleep(0.3)
        servers[0].tell(signal.SIGKILL)
        await servers[0].ended()
        again = await stack.enter_async_context(started(tmp_path, fake, **variables))
        addresses[0] = await again.ready()
        await chatting
    stored = await column(postgres_url, "SELECT client_id FROM chat_messages WHERE role = 'user' ORDER BY client_id")
    assert stored == sorted(f"{number}-{turn}" for number in range(6) for turn in range(6))
    assert await column(postgres_url, "SELECT COUNT(*) FROM chats") == [6]
    assert set(acknowledged) == set(stored)
    doubled = "SELECT COUNT(*) FROM chat_messages WHERE role = 'assistant' GROUP BY turn_id HAVING COUNT(*) > 1"
    assert await column(postgres_url, doubled) == []


async def test_snapshots_and_events_agree_at_the_other_server(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    address = where(two)
    async with replayed(address, chat):
        fake.script(script.call("system_prompt_draft", {"content": "Be brief."}), script.reply("Drafted."))
        await one.say(chat, "draft a prompt")
        sent = [(await client.ok("context.sent", chat_id=chat))["sent"] for client in pair]
        assert sent[0] == sent[1] is not None
        await two.ok("context.clear", chat_id=chat)
        await two.ok("context.undo", chat_id=chat)
