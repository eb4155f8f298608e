"""`context.inspect`: what it shows is what the model then gets, and what it withholds has the right reason."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeModel, FakeOllama
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio

OURS = ("part", "tokens")


async def compare(client: Client, fake: FakeOllama, chat: str, text: str = "the new message") -> Json:
    """Inspect, then send: apart from the placeholder both have to be the same bytes. What inspect showed."""
    shown = await client.ok("context.inspect", chat_id=chat)
    await client.say(chat, text)
    sent = fake.requests[-1]
    messages = [{name: value for name, value in message.items() if name not in OURS} for message in shown["messages"]]
    assert [message["part"] for message in shown["messages"]][-1] == "new"
    messages[-1] = {**messages[-1], "content": text}
    assert json.dumps(messages) == json.dumps(sent.messages)
    assert json.dumps([tool["schema"] for tool in shown["tools"]]) == json.dumps(sent.tools)
    assert (shown["model"], shown["num_ctx"]) == (sent.model, sent.options["num_ctx"])
    assert shown["total_tokens"] == sum(message["tokens"] for message in shown["messages"]) + shown["tools_tokens"]
    return shown


def hide(folder: Path, message_id: int) -> None:
    with closing(sqlite3.connect(folder / "cleanroom.db")) as database, database:
        database.execute("UPDATE chat_messages SET hidden = 1 WHERE id = ?", (message_id,))


def reasons(shown: Json) -> dict[int, str]:
    return {item["message_id"]: item["reason"] for item in shown["withheld"]}


async def test_it_shows_what_is_sent_at_every_step_of_a_conversation(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await compare(client, fake, chat)
    fake.script(script.call("system_prompt_draft", {"content": "Be brief."}, before="Drafting."), script.reply("A draft."))
    await client.say(chat, "draft something")
    shown = await compare(client, fake, chat)
    assert {"system_prompt_apply", "system_prompt_discard"} <= {tool["name"] for tool in shown["tools"]}
    assert [message["part"] for message in shown["messages"]][-3:] == ["state", "state", "new"]
    await client.press(chat, "system_prompt_apply")
    shown = await compare(client, fake, chat)
    assert (shown["messages"][0]["role"], shown["messages"][0]["content"]) == ("system", "Be brief.")
    await client.press(chat, "task_add", title="milk")
    await compare(client, fake, chat)
    await client.ok("context.clear", chat_id=chat)
    await compare(client, fake, chat)


async def test_it_is_right_wherever_the_window_stands(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    for number in range(10):
        shown = await compare(client, fake, chat, f"message {number}")
        history = [message for message in shown["messages"] if message["part"] == "history"]
        assert len(history) + 1 <= 12
        permanent = [message["id"] for message in (await client.messages(chat))[:-2]]
        assert reasons(shown) == dict.fromkeys(permanent[: len(permanent) - len(history)], "beyond_limit")


async def test_inspecting_changes_nothing(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="x")
    seq = client.events[-1]
    before = rows(tmp_path, "SELECT * FROM chat_messages"), rows(tmp_path, "SELECT * FROM session_states")
    first = await client.ok("context.inspect", chat_id=chat)
    second = await client.ok("context.inspect", chat_id=chat)
    assert {**first, "ref": 0} == {**second, "ref": 0}
    assert (rows(tmp_path, "SELECT * FROM chat_messages"), rows(tmp_path, "SELECT * FROM session_states")) == before
    assert (fake.requests, client.events[-1]) == ([], seq)


async def test_temporary_messages_and_thinking_are_withheld(client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("task_add", {"title": "milk"}, before="One moment."), script.thinking_then_text("a long thought", "Done."))
    chat = await client.new_chat()
    await client.say(chat, "buy milk")
    _, before, card, _, reply = await client.messages(chat)
    shown = await client.ok("context.inspect", chat_id=chat)
    assert reasons(shown) == {reply["id"]: "thinking", card["id"]: "temporary", before["id"]: "temporary"}
    assert all(item["tokens"] > 0 for item in shown["withheld"])
    assert [message["part"] for message in shown["messages"]].count("history") == 4  # user, call, result, reply
    sent = json.dumps([message["content"] for message in shown["messages"]])
    assert "One moment." not in sent and "a long thought" not in sent and "Done." in sent


async def test_hidden_messages_are_withheld(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.say(chat, "a secret")
    user, reply = await client.messages(chat)
    hide(tmp_path, user["id"])
    shown = await compare(client, fake, chat)
    assert reasons(shown) == {user["id"]: "hidden"}
    assert "a secret" not in json.dumps(shown["messages"])
    assert reply["content"] in json.dumps(shown["messages"])


async def test_what_the_models_window_has_no_room_for_is_withheld(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, num_ctx=2048)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        for number in range(4):
            await client.say(chat, f"message {number} " + "long " * 300)
        ids = [message["id"] for message in await client.messages(chat)]
        shown = await compare(client, fake, chat)
    left_out = [message_id for message_id, reason in reasons(shown).items() if reason == "beyond_window"]
    assert left_out
    assert sorted(left_out) == ids[: len(left_out)]
    assert len(ids) - len(left_out) == [message["part"] for message in shown["messages"]].count("history")


async def test_no_state_goes_out_when_it_has_no_room(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, working_state_tokens=0)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.press(chat, "system_prompt_draft", content="CANARY")
        shown = await compare(client, fake, chat)
    assert "state" not in [message["part"] for message in shown["messages"]]
    assert "CANARY" not in fake.requests[0].raw.decode()


async def test_it_is_right_for_a_model_without_tools(tmp_path: Path, fake: FakeOllama) -> None:
    fake.models = [FakeModel("plain:1b", ("completion",))]
    async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        assert (await compare(client, fake, chat))["tools"] == []
        await client.press(chat, "system_prompt_draft", content="Be brief.")
        shown = await compare(client, fake, chat)
    assert [(message["role"], message["part"]) for message in shown["messages"]][-2:] == [("system", "state"), ("user", "new")]


async def test_what_is_withheld_is_told_one_by_one(client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("task_add", {"title": "milk"}, before="One moment."), script.thinking_then_text("a long thought", "Done."))
    chat = await client.new_chat()
    await client.say(chat, "buy milk")
    _, before, card, _, reply = await client.messages(chat)
    await client.ok("message.hide", message_id=reply["id"], hidden=True)
    told = {item["message_id"]: item for item in (await client.ok("context.inspect", chat_id=chat))["withheld"]}
    assert [(told[row["id"]]["role"], told[row["id"]]["reason"]) for row in (before, card, reply)] == [
        ("assistant", "temporary"), ("tool", "temporary"), ("assistant", "hidden"),
    ]  # fmt: skip
    assert (told[before["id"]]["head"], told[before["id"]]["family"]) == ("One moment.", "tasks")
    assert (told[card["id"]]["tool"], told[card["id"]]["created_at"]) == ("task_add", card["created_at"])
    (receipt,) = [item for item in told.values() if item["message_id"] not in (before["id"], card["id"], reply["id"])]
    assert (receipt["reason"], receipt["head"]) == ("hidden", "task_add: ok, task 1")


async def test_of_very_much_that_is_withheld_the_newest_is_told_in_words(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    with closing(sqlite3.connect(tmp_path / "cleanroom.db")) as database, database:
        rows_of_chat = [(chat, "x" * 300, number) for number in range(300)]
        database.executemany("INSERT INTO chat_messages (session_id, role, content, status, created_at) VALUES (?, 'user', ?, 'complete', ?)", rows_of_chat)
    withheld = (await client.ok("context.inspect", chat_id=chat))["withheld"]
    assert len(withheld) > 280
    assert [item.get("head") for item in withheld] == ["x" * 80] * 100 + [None] * (len(withheld) - 100)


async def test_whatever_the_newest_message_is_it_can_be_looked_at(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, num_ctx=2048)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        assert (await client.say(chat, "huge " * 4_000))["error"]["code"] == "too_large"
        (huge,) = await client.messages(chat)
        assert reasons(await client.ok("context.inspect", chat_id=chat)) == {huge["id"]: "beyond_window"}
        await client.ok("message.hide", message_id=huge["id"], hidden=True)
        assert reasons(await compare(client, fake, chat)) == {huge["id"]: "hidden"}


async def test_a_prompt_that_is_too_long_by_itself_is_told_with_both_numbers(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, num_ctx=2048)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.press(chat, "system_prompt_draft", content="long " * 3_000)
        await client.press(chat, "system_prompt_apply")
        refused = await client.refused("too_large", "context.inspect", chat_id=chat)
        assert "tokens" in refused["message"] and "1536" in refused["message"]


async def test_what_the_model_is_spared_is_counted_as_long_as_it_is_not_put_back(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    assert (await client.context(chat))["saved_tokens"] == 0
    await client.press(chat, "system_prompt_draft", content="Be brief. " * 50)
    before = await client.context(chat)
    assert before["saved_tokens"] == before["ephemeral_tokens"] > 100
    cleared = (await client.ok("context.clear", chat_id=chat))["context"]
    assert (cleared["ephemeral_tokens"], cleared["saved_tokens"]) == (0, before["saved_tokens"])
    await client.press(chat, "task_add", title="milk")
    more = await client.context(chat)
    assert more["saved_tokens"] == before["saved_tokens"] + more["ephemeral_tokens"]
    await client.ok("context.clear", chat_id=chat)
    restored = (await client.ok("context.undo", chat_id=chat))["context"]
    assert restored["saved_tokens"] == more["saved_tokens"]


async def test_what_is_in_hand_is_named_by_its_cards_subject(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="Be brief.")
    (subject,) = (await client.context(chat))["in_hand"]
    newest = (await client.messages(chat))[-2]
    assert newest["card"]["subject"] == subject
    await client.press(chat, "note_save", title="A", content="The text of the note.")
    (subject,) = (await client.context(chat))["in_hand"]
    assert subject == "notes.1"
    card = next(message["card"] for message in await client.messages(chat) if message.get("tool") == "note_save")
    assert card["subject"] == subject and card["actions"]
    await client.press(chat, "note_save", id=1, title="A", content="Another text.")
    cards = [message["card"] for message in await client.messages(chat) if message.get("tool") == "note_save"]
    assert all(card["actions"] and "superseded" not in card for card in cards)
    await client.press(chat, "note_delete", id=1)
    assert (await client.context(chat))["in_hand"] == []


async def test_nothing_is_in_hand_where_no_state_goes_out(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, working_state_tokens=0)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.press(chat, "system_prompt_draft", content="Be brief.")
        assert (await client.context(chat))["in_hand"] == []


async def test_without_a_model_or_a_chat_the_reason_is_told(tmp_path: Path) -> None:
    async with running(make_settings(tmp_path)) as address, Client.connect(address) as client:
        await client.refused("model_unavailable", "context.inspect", chat_id=await client.new_chat())
        await client.refused("not_found", "context.inspect", chat_id="nowhere")
