"""`message.hide`: a message leaves the LLM channel and comes back, a reply with its receipt, whatever else goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json, rows

pytestmark = pytest.mark.anyio


async def hide(client: Client, message: Json, hidden: bool = True) -> Json:
    return dict((await client.ok("message.hide", message_id=message["id"], hidden=hidden))["message"])


async def add_task(client: Client, fake: FakeOllama) -> tuple[str, list[Json]]:
    """A chat in which a model added a task: question, card, receipt, reply."""
    fake.script(script.call("task_add", {"title": "milk"}), script.reply("Done, it is on the list."))
    chat = await client.new_chat()
    await client.say(chat, "buy milk")
    return chat, await client.messages(chat)


async def test_a_hidden_message_is_not_sent_until_it_is_shown_again(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.say(chat, "a secret")
    question, _ = await client.messages(chat)
    shown = await hide(client, question)
    assert (shown["id"], shown["hidden"]) == (question["id"], True)
    await client.say(chat, "second")
    assert "a secret" not in fake.requests[-1].raw.decode()
    assert (await client.messages(chat))[0]["hidden"] is True
    await hide(client, question, hidden=False)
    await client.say(chat, "third")
    assert "a secret" in fake.requests[-1].raw.decode()


async def test_it_is_told_with_the_new_context_and_a_second_time_changes_nothing(client: Client) -> None:
    chat = await client.new_chat()
    await client.say(chat, "hello")
    question, _ = await client.messages(chat)
    known = len(client.events)
    await hide(client, question)
    updated, state = client.events[known:]
    assert (updated["type"], updated["message"]["id"], updated["message"]["hidden"]) == ("message.updated", question["id"], True)
    assert (state["type"], state["context"]["history_messages"]) == ("context.state", 1)
    assert (await hide(client, question))["hidden"] is True
    assert [event["type"] for event in client.events[known + 2 :]] == ["context.state"]


async def test_a_reply_takes_its_receipt_along_and_brings_it_back(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat, (_, _, receipt, reply) = await add_task(client, fake)
    await hide(client, reply)
    updated = [event["message"]["id"] for event in client.of("message.updated") if event["message"]["hidden"]]
    assert sorted(updated) == [receipt["id"], reply["id"]]
    await client.say(chat, "what next?")
    sent = fake.requests[-1].messages
    assert not any("task_add" in str(message.get("tool_calls")) for message in sent)
    assert [message["content"] for message in sent if message["role"] == "user"] == ["buy milk", "what next?"]
    await hide(client, reply, hidden=False)
    assert rows(tmp_path, "SELECT id FROM chat_messages WHERE hidden = 1") == []
    await client.say(chat, "and then?")
    assert any("task_add" in str(message.get("tool_calls")) for message in fake.requests[-1].messages)


async def test_a_question_goes_alone(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    _, (question, *_) = await add_task(client, fake)
    await hide(client, question)
    assert [row["id"] for row in rows(tmp_path, "SELECT id FROM chat_messages WHERE hidden = 1")] == [question["id"]]


async def test_what_is_not_a_message_of_its_own_is_refused(client: Client, fake: FakeOllama) -> None:
    _, (_, card, receipt, _) = await add_task(client, fake)
    refused = await client.refused("conflict", "message.hide", message_id=card["id"], hidden=True)
    assert "temporary" in refused["message"]
    refused = await client.refused("conflict", "message.hide", message_id=receipt["id"], hidden=True)
    assert "receipt" in refused["message"]
    await client.refused("not_found", "message.hide", message_id=9_999, hidden=True)


async def test_while_a_turn_runs_it_keeps_the_history_that_it_began_with(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.say(chat, "an old secret")
    old, _ = await client.messages(chat)
    gate = asyncio.Event()
    fake.script([script.text("Thinking aloud."), script.hold(gate), script.call("task_list", {})], script.reply("Nothing to do."))
    reply = await client.ok("message.send", chat_id=chat, client_id="a", text="my list?")
    streaming = (await client.event("message.created", lambda event: event["message"]["status"] == "streaming" and event["message"]["id"] > old["id"] + 1))[
        "message"
    ]
    refused = await client.refused("conflict", "message.hide", message_id=streaming["id"], hidden=True)
    assert "under way" in refused["message"]
    await hide(client, old)
    await hide(client, reply["message"])
    gate.set()
    assert (await client.finished(reply["turn_id"]))["status"] == "complete"
    sent = fake.requests[-1].raw.decode()
    assert "an old secret" in sent and "my list?" in sent
    await client.say(chat, "next")
    sent = fake.requests[-1].raw.decode()
    assert "an old secret" not in sent and "my list?" not in sent


async def test_a_question_that_is_hidden_before_the_model_was_asked_is_answered(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    with closing(sqlite3.connect(tmp_path / "cleanroom.db")) as database, database:  # sooner than any person could
        database.execute("CREATE TRIGGER hide AFTER INSERT ON chat_messages BEGIN UPDATE chat_messages SET hidden = 1 WHERE id = NEW.id; END")
    assert (await client.say(chat, "now you see me"))["status"] == "complete"
    assert [message["content"] for message in fake.requests[-1].messages if message["role"] == "user"] == ["now you see me"]
