"""Two whole servers on one PostgreSQL and one Valkey: what a person sees when each of their tabs is at another one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest

from tests import fake_ollama as script
from tests.balancer import Balancer
from tests.conftest import empty_database
from tests.engines import Postgres, Valkey, column
from tests.fake_ollama import FakeOllama
from tests.replay import Replica, events_of, replayed
from tests.replicas.conftest import REPLY, Pair, allow, empty, send, slowly, text_of, two_servers
from tests.server import Client
from tests.services.test_transactions import apply

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def fake() -> AsyncIterator[FakeOllama]:
    async with FakeOllama() as server:
        yield server


@pytest.fixture(scope="module")
def postgres_url(postgres_template: Postgres) -> Iterator[str]:
    with empty_database(postgres_template) as url:
        yield url


@pytest.fixture(scope="module")
async def balancer(tmp_path_factory: pytest.TempPathFactory, fake: FakeOllama, postgres_url: str, shared_valkey: Valkey) -> AsyncIterator[Balancer]:
    """One pair of servers for all tests here: each has chats of its own, and nothing goes away."""
    await empty(shared_valkey)
    async with two_servers(tmp_path_factory.mktemp("two"), fake, postgres_url, shared_valkey.url, shared_valkey.url) as balancer:
        yield balancer


async def test_a_tab_at_each_server_shows_the_same(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    await two.event("chat.created", lambda event: event["chat"]["id"] == chat)
    there = Replica(await two.ok("chat.open", chat_id=chat))
    fake.script(script.call("task_add", {"title": "Buy milk"}), slowly(0.001), script.reply("And again."))
    await one.say(chat, "note that")
    await two.say(chat, "and now from here")  # carried out at the other server, which has the chat
    await one.finished(two.of("turn.finished")[-1]["turn_id"])
    for event in events_of(two, chat):
        there.apply(event)
    here = Replica(await one.ok("chat.open", chat_id=chat))
    assert there.shown == here.shown
    assert (await two.messages(chat))[-1]["content"] == "And again."


async def test_a_tab_that_is_cut_off_goes_on_at_the_other_server_in_mid_reply(pair: Pair, balancer: Balancer, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    page, other = Replica(await one.ok("chat.open", chat_id=chat)), Replica(await two.ok("chat.open", chat_id=chat))
    may_end = asyncio.Event()
    fake.script(slowly(0.01, may_end))
    turn = await send(one, chat)
    await one.until(lambda: len(one.of("message.delta")) > 5)
    address = balancer.server_of(one)
    await balancer.cut_off(address)
    await one.ended()
    for event in events_of(one, chat):
        page.apply(event)
    had = page.seq
    await two.until(lambda: events_of(two, chat)[-1].get("seq", 0) >= had)  # its last event is on its way
    async with Client.connect(balancer.address) as back:
        assert balancer.server_of(back) == balancer.server_of(two)
        assert (await back.ok("chat.open", chat_id=chat, epoch=page.epoch, after_seq=had))["resumed"]
        may_end.set()
        await asyncio.gather(back.finished(turn), two.finished(turn))
        missed = [event for event in events_of(back, chat) if "seq" in event]
    balancer.bring_back(address)
    for event in missed:
        assert event.get("first_seq", event["seq"]) == page.seq + 1  # neither gap nor repeat
        page.apply(event)
    for event in events_of(two, chat):
        other.apply(event)
    assert page.messages == other.messages
    assert text_of([*page.messages.values()]) == REPLY


async def test_a_snapshot_taken_at_the_other_server_in_mid_reply_has_the_text_so_far(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    may_end = asyncio.Event()
    fake.script(slowly(0.01, may_end))
    turn = await send(one, chat)
    await one.until(lambda: len(one.of("message.delta")) > 5)
    replica = Replica(await two.ok("chat.open", chat_id=chat))
    assert replica.messages[max(replica.messages)]["content"].startswith("word0 word1 ")
    assert replica.chat is not None
    assert replica.chat["turn_running"]
    may_end.set()
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
    assert await column(postgres_url, f"SELECT COUNT(*) FROM context_events WHERE kind = 'transaction' AND session_id = '{chat}'") == [1]


async def test_a_new_chat_that_both_servers_are_asked_for_is_made_once(pair: Pair, postgres_url: str) -> None:
    (before,) = await column(postgres_url, "SELECT COUNT(*) FROM chats")
    made = await asyncio.gather(*(client.ok("chat.create", client_id="one") for client in pair * 3))
    assert len({reply["chat"]["id"] for reply in made}) == 1
    assert await column(postgres_url, "SELECT COUNT(*) FROM chats") == [before + 1]


async def test_a_deleted_chat_is_gone_at_both(pair: Pair, postgres_url: str) -> None:
    one, two = pair
    chat = await one.new_chat()
    await two.ok("chat.open", chat_id=chat)
    await two.ok("chat.delete", chat_id=chat)
    await one.event("chat.deleted")
    for client in pair:
        await client.refused("not_found", "chat.open", chat_id=chat)
    assert await column(postgres_url, f"SELECT COUNT(*) FROM chats WHERE id = '{chat}'") == [0]


async def test_a_call_is_allowed_at_the_other_server(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    await one.ok("chat.update", chat_id=chat, approval="before")
    fake.script(script.call("task_add", {"title": "Buy milk"}), script.reply("Noted."))
    turn = await send(one, chat)
    await one.event("turn.waiting", lambda event: event["reason"] == "approval")
    await allow(two, chat)
    assert (await two.finished(turn))["status"] == "complete"
    assert text_of(await one.messages(chat)) == "Noted."


async def test_a_welcome_knows_the_turns_of_the_other_server(pair: Pair, balancer: Balancer, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    fake.script([script.text("x"), script.hang()])
    turn = await send(one, chat)
    await one.event("message.delta")
    async with Client.connect(balancer.server_of(two)) as newcomer:
        assert [listed["id"] for listed in newcomer.welcome["chats"] if listed["turn_running"]] == [chat]
    await two.ok("turn.stop", chat_id=chat)
    await one.finished(turn)


async def test_a_window_that_was_chosen_at_the_other_server_counts(pair: Pair, fake: FakeOllama) -> None:
    one, two = pair
    model = one.welcome["default_model"]
    await one.ok("model.update", name=model, num_ctx=2048)
    chat = await two.new_chat()
    assert (await two.say(chat, "hi")).get("error") is None
    assert fake.requests[-1].options["num_ctx"] == 2048


async def test_a_pull_is_seen_and_ended_at_the_other_server(pair: Pair, balancer: Balancer, fake: FakeOllama) -> None:
    one, two = pair
    fake.script_pull([script.progress("pulling manifest"), script.hang()])
    await one.ok("model.pull", name="qwen3:4b")
    await two.event("model.pull", lambda event: event["pull"]["step"] == "pulling manifest")
    async with Client.connect(balancer.server_of(two)) as newcomer:
        assert newcomer.welcome["pulls"] == [one.of("model.pull")[-1]["pull"]]
    await two.ok("model.pull_cancel", name="qwen3:4b")
    await one.event("model.pull", lambda event: event["pull"]["status"] == "cancelled")
    async with Client.connect(balancer.server_of(two)) as newcomer:
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


async def test_snapshots_and_events_agree_at_the_other_server(pair: Pair, balancer: Balancer, fake: FakeOllama) -> None:
    one, two = pair
    chat = await one.new_chat()
    async with replayed(balancer.server_of(two), chat):
        fake.script(script.call("system_prompt_draft", {"content": "Be brief."}), script.reply("Drafted."))
        await one.say(chat, "draft a prompt")
        sent = [(await client.ok("context.sent", chat_id=chat))["sent"] for client in pair]
        assert sent[0] == sent[1] is not None
        await two.ok("context.clear", chat_id=chat)
        await two.ok("context.undo", chat_id=chat)
