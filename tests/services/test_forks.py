"""chat.fork: a chat goes on from any of its messages, in a copy that owes the original nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json, rows

pytestmark = pytest.mark.anyio


async def conversation(client: Client, fake: FakeOllama, **fields: object) -> tuple[str, list[Json]]:
    """A chat with thinking, a receipt, a prompt, working material and a reply that is forked at; its messages."""
    chat = await client.new_chat(title="Plans", model="fake:tools", **fields)
    fake.script(script.thinking_then_text("Let me think", "One."))
    await client.say(chat, "first")
    for content in ("Be brief.", "Be kind."):
        await client.press(chat, "system_prompt_draft", content=content)
        await client.press(chat, "system_prompt_apply")
    fake.script(script.call("task_add", {"title": "Water"}), script.reply("Two."))
    await client.say(chat, "second")
    fake.script(script.reply("Three."))
    await client.say(chat, "third")
    return chat, await client.messages(chat)


async def fork(client: Client, chat: str, message_id: int, **fields: object) -> Json:
    return dict((await client.ok("chat.fork", chat_id=chat, message_id=message_id, **fields))["chat"])


def named(shown: list[Json], content: str) -> Json:
    return next(message for message in shown if message["content"] == content)


def told(shown: list[Json]) -> list[Json]:
    """Messages without what a copy has of its own."""
    own = ("id", "chat_id", "turn_id", "client_id", "transaction_completed")
    return [{name: value for name, value in message.items() if name not in own} for message in shown]


async def test_a_fork_holds_all_that_was_permanent_up_to_its_message(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat, shown = await conversation(client, fake)
    await client.ok("message.hide", message_id=named(shown, "first")["id"], hidden=True)
    await client.ok("chat.update", chat_id=chat, ttl_messages=3, parameters={"think": "on"}, approval="before", families_off=["notes"])
    shown = await client.messages(chat)
    at = named(shown, "Two.")["id"]
    copy = await fork(client, chat, at)
    copied = await client.messages(copy["id"])
    assert told(copied) == told([message for message in shown if message["id"] <= at and not message["is_ephemeral"]])
    assert copied[0]["hidden"] and "tool" in {message["role"] for message in copied}
    kept = ("model", "ttl_messages", "approval", "families_off", "parameters")
    original = next(chat_ for chat_ in rows(tmp_path, "SELECT * FROM chats") if chat_["id"] == chat)
    assert json.loads(original["parameters"]) == copy["parameters"]
    assert {name: copy[name] for name in kept[:4]} == {"model": "fake:tools", "ttl_messages": 3, "approval": "before", "families_off": ["notes"]}
    assert (copy["title"], copy["pinned"], copy["turn_running"]) == ("Plans (2)", False, False)
    prompts = rows(tmp_path, "SELECT version, content, status FROM system_prompts WHERE session_id = ?", copy["id"])
    assert prompts == [{"version": 1, "content": "Be kind.", "status": "applied"}]
    for table in ("session_states", "context_events", "snapshots", "paused_turns"):
        assert rows(tmp_path, f"SELECT 1 FROM {table} WHERE session_id = ?", copy["id"]) == [], table
    context = await client.context(copy["id"])
    assert (context["active_tool"], context["pending_transaction"], context["ephemeral_messages"]) == (None, None, 0)


async def test_both_go_on_apart(client: Client, fake: FakeOllama) -> None:
    chat, shown = await conversation(client, fake)
    copy = (await fork(client, chat, named(shown, "One.")["id"]))["id"]
    await client.ok("chat.open", chat_id=copy)
    fake.script(script.reply("Another way."))
    await client.say(copy, "And then?")
    sent = [message["content"] for message in fake.requests[-1].messages]
    assert sent[-1] == "And then?" and "One." in sent and "Three." not in sent
    assert told(await client.messages(chat)) == told(shown)
    await client.ok("chat.delete", chat_id=chat)
    assert [message["content"] for message in await client.messages(copy)] == ["first", "One.", "And then?", "Another way."]


async def test_a_fork_at_a_question_ends_with_it(client: Client, fake: FakeOllama) -> None:
    chat, shown = await conversation(client, fake)
    copy = (await fork(client, chat, named(shown, "second")["id"]))["id"]
    assert (await client.messages(copy))[-1]["content"] == "second"


async def test_replies_that_are_not_shown_go_along(client: Client, fake: FakeOllama) -> None:
    chat, _ = await conversation(client, fake)
    fake.script(script.reply("Three, again."))
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    copy = (await fork(client, chat, (await client.messages(chat))[-1]["id"]))["id"]
    last = (await client.messages(copy))[-1]
    assert (last["content"], last["variant"]) == ("Three, again.", {"index": 2, "count": 2})
    assert (await client.ok("message.variant", message_id=last["id"], index=1))["message"]["content"] == "Three."
    assert (await client.messages(chat))[-1]["content"] == "Three, again."


async def test_the_same_client_id_makes_one_fork(client: Client, fake: FakeOllama) -> None:
    chat, shown = await conversation(client, fake)
    at = named(shown, "One.")["id"]
    forks = await asyncio.gather(*(fork(client, chat, at, client_id="f") for _ in range(3)))
    assert len({made["id"] for made in forks}) == 1
    assert len([event for event in client.of("chat.created") if event["chat"]["id"] == forks[0]["id"]]) == 1
    assert (await fork(client, chat, at))["id"] != forks[0]["id"]


async def test_forks_are_numbered(client: Client, fake: FakeOllama) -> None:
    chat, shown = await conversation(client, fake)
    at = named(shown, "One.")["id"]
    second = await fork(client, chat, at)
    third = await fork(client, second["id"], (await client.messages(second["id"]))[-1]["id"])
    assert [second["title"], third["title"], (await fork(client, chat, at))["title"]] == ["Plans (2)", "Plans (3)", "Plans (4)"]
    await client.ok("chat.rename", chat_id=chat, title="Budget (2026)")
    assert (await fork(client, chat, at))["title"] == "Budget (2026) (2)"


async def test_who_named_a_chat_is_kept(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.reply("Yes."))
    chat = await client.new_chat()
    await client.say(chat, "An automatic title")
    copy = await fork(client, chat, (await client.messages(chat))[-1]["id"])
    assert copy["title"] == "An automatic title (2)"
    assert rows(tmp_path, "SELECT title_by FROM chats WHERE id = ?", copy["id"]) == [{"title_by": "auto"}]


async def test_a_fork_of_a_temporary_chat_is_one(client: Client, fake: FakeOllama) -> None:
    chat, shown = await conversation(client, fake, temporary=True)
    assert (await fork(client, chat, named(shown, "One.")["id"]))["temporary"] is True


async def test_while_a_reply_streams_what_is_complete_can_be_forked(client: Client, fake: FakeOllama) -> None:
    chat, _ = await conversation(client, fake)
    fake.script(script.hang_mid("half"))
    await client.ok("message.send", chat_id=chat, client_id="s", text="fourth")
    await client.event("message.delta", lambda delta: "half" in delta["text"])
    streaming = (await client.messages(chat))[-1]
    assert streaming["status"] == "streaming"
    assert "still being written" in (await client.refused("conflict", "chat.fork", chat_id=chat, message_id=streaming["id"]))["message"]
    copy = await fork(client, chat, named(await client.messages(chat), "fourth")["id"])
    assert [message["content"] for message in await client.messages(copy["id"])][-2:] == ["Three.", "fourth"]
    assert copy["turn_running"] is False


async def test_what_cannot_be_forked_is_named(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat, shown = await conversation(client, fake)
    other = await client.new_chat()
    card = next(message for message in shown if message["is_ephemeral"])
    before = len(rows(tmp_path, "SELECT 1 FROM chats"))
    assert "working material" in (await client.refused("conflict", "chat.fork", chat_id=chat, message_id=card["id"]))["message"]
    await client.refused("not_found", "chat.fork", chat_id=other, message_id=shown[0]["id"])
    await client.refused("not_found", "chat.fork", chat_id=chat, message_id=10**9)
    await client.refused("not_found", "chat.fork", chat_id="0" * 32, message_id=shown[0]["id"])
    assert len(rows(tmp_path, "SELECT 1 FROM chats")) == before
