"""Editing a message: it is asked anew as if it had always read so, and only what was done for good stays of what followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.replay import replayed
from tests.server import Client, Json, rows

pytestmark = pytest.mark.anyio


async def edit(client: Client, message_id: int, text: str) -> Json:
    """Edit a message and wait for its turn's end; the `turn.finished` event."""
    return await client.finished((await client.ok("message.edit", message_id=message_id, text=text))["turn_id"])


async def questions(client: Client, chat: str) -> list[Json]:
    return [m for m in await client.messages(chat) if m["role"] == "user"]


async def test_what_follows_goes_and_the_turn_runs_again(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(*(script.reply(text) for text in ("one", "two", "three", "anew")))
    chat = await client.new_chat()
    for text in ("first", "second", "third"):
        await client.say(chat, text)
    before = (await questions(client, chat))[1]
    async with replayed(address, chat):
        reply = await client.ok("message.edit", message_id=before["id"], text="  another second\n")
        assert reply["message"] == {**before, "content": "  another second\n", "turn_id": reply["turn_id"]}
        assert (await client.finished(reply["turn_id"]))["status"] == "complete"
    assert [m["content"] for m in await client.messages(chat)] == ["first", "one", "  another second\n", "anew"]
    assert [m["content"] for m in fake.requests[-1].messages if m["content"] and m["role"] in ("user", "assistant")] == ["first", "one", "  another second\n"]
    kinds = [event["type"] for event in client.events if event.get("chat_id") == chat]
    assert kinds[kinds.index("message.deleted") :][:4] == ["message.deleted", "message.updated", "context.state", "turn.started"]
    assert "second" not in [row["content"] for row in rows(tmp_path, "SELECT content FROM chat_messages")]
    assert rows(tmp_path, "SELECT 1 FROM message_index WHERE message_index MATCH 'three'") == []


async def test_commits_of_all_turns_stay_made_and_known(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(
        script.calls(script.tool_call("task_list", {}), script.tool_call("task_add", {"title": "milk"})),
        script.reply("added"),
        script.call("task_add", {"title": "bread"}),
        script.reply("added too"),
        script.reply("anew"),
    )
    chat = await client.new_chat()
    await client.say(chat, "milk")
    await client.say(chat, "bread")
    await client.press(chat, "task_add", title="salt")
    async with replayed(address, chat):
        await edit(client, (await questions(client, chat))[0]["id"], "milk and bread")
    assert len(rows(tmp_path, "SELECT 1 FROM tasks")) == 3
    assert [(m["role"], m["is_ephemeral"]) for m in await client.messages(chat)] == [("user", 0), ("tool", 0), ("assistant", 0)]
    calls = [call["function"] for m in fake.requests[-1].messages for call in m.get("tool_calls", ()) if call["function"]["name"] != "current_state"]
    assert [(call["name"], call["arguments"]["title"]) for call in calls] == [("task_add", "milk"), ("task_add", "bread"), ("task_add", "salt")]
    assert [m["role"] for m in fake.requests[-1].messages][-5:] == ["user", "assistant", "tool", "tool", "tool"]


async def test_more_commits_than_a_receipt_tells_are_counted(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.say(chat, "shopping")
    for number in range(6):
        await client.press(chat, "task_add", title=f"thing {number}")
    await edit(client, (await questions(client, chat))[0]["id"], "no shopping")
    (receipt,) = rows(tmp_path, "SELECT content FROM chat_messages WHERE role = 'tool' AND is_ephemeral = 0")
    assert receipt["content"].count("outcome") == 4 and '{"more":2}' in receipt["content"]


async def test_the_cards_go_and_nothing_is_in_hand_any_more(client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("system_prompt_draft", {"content": "The anemone draft."}), script.reply("made"), script.reply("anew"))
    chat = await client.new_chat()
    await client.say(chat, "draft")
    assert (await client.context(chat))["active_tool"] == "system_prompt"
    await edit(client, (await questions(client, chat))[0]["id"], "something else")
    assert "anemone" not in fake.requests[-1].raw.decode()
    context = await client.context(chat)
    assert (context["active_tool"], context["ephemeral_messages"], context["unrelated_count"]) == (None, 0, 0)


async def test_a_pending_question_of_a_later_turn_ends(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.say(chat, "hello")
    await client.press(chat, "system_prompt_draft", content="Speak like a pirate.")
    await client.press(chat, "system_prompt_apply")
    asked = await client.event("transaction_completed")
    await edit(client, (await questions(client, chat))[0]["id"], "hi")
    closed = await client.event("transaction.closed")
    assert (closed["transaction_id"], closed["answer"]) == (asked["transaction_id"], "expired")
    await client.ok("transaction.answer", chat_id=chat, transaction_id=asked["transaction_id"], answer="yes")  # too late: no effect
    assert (await client.context(chat))["pending_transaction"] is None


async def test_a_pending_question_of_an_earlier_turn_stays(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="Speak like a pirate.")
    await client.press(chat, "system_prompt_apply")
    await client.say(chat, "hello")
    await edit(client, (await questions(client, chat))[0]["id"], "hi")
    context = await client.context(chat)
    assert (context["pending_transaction"]["tool"], context["active_tool"]) == ("system_prompt_apply", "system_prompt")


async def test_its_variants_go_for_they_answered_another_question(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.say(chat, "question")
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    assert len(rows(tmp_path, "SELECT 1 FROM reply_variants")) == 1
    await edit(client, (await questions(client, chat))[0]["id"], "another question")
    assert rows(tmp_path, "SELECT 1 FROM reply_variants") == []
    assert "variant" not in (await client.messages(chat))[-1]


async def test_later_questions_take_their_variants_along(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.say(chat, "one")
    await client.say(chat, "two")
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    await edit(client, (await questions(client, chat))[0]["id"], "uno")
    assert rows(tmp_path, "SELECT 1 FROM reply_variants") == []


async def test_a_failed_message_can_be_edited_and_is_whole_again(client: Client, fake: FakeOllama) -> None:
    fake.script(script.err_first(), script.reply("fine"))
    chat = await client.new_chat()
    assert (await client.say(chat, "hi"))["status"] == "failed"
    assert (await edit(client, (await questions(client, chat))[0]["id"], "hi there"))["status"] == "complete"
    (question, reply) = await client.messages(chat)
    assert (question["status"], "metrics" in question, reply["content"]) == ("complete", False, "fine")


async def test_a_hidden_message_that_is_asked_is_seen(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.say(chat, "secret")
    question = (await questions(client, chat))[0]
    await client.ok("message.hide", message_id=question["id"], hidden=True)
    await edit(client, question["id"], "no secret")
    assert (await questions(client, chat))[0]["hidden"] is False
    assert fake.requests[-1].messages[-1]["content"] == "no secret"
    await client.ok("message.hide", message_id=question["id"], hidden=True)
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    assert fake.requests[-1].messages[-1]["content"] == "no secret"


async def test_a_title_follows_the_message_that_it_was_made_from(client: Client) -> None:
    async def title(chat: str) -> str:
        return str((await client.ok("chat.open", chat_id=chat))["chat"]["title"])

    chat = await client.new_chat()
    await client.say(chat, "Plan the party")
    await client.say(chat, "Plan the party")
    first, second = [m["id"] for m in await questions(client, chat)]
    await edit(client, second, "Plan the holidays")
    assert await title(chat) == "Plan the party"
    await edit(client, first, "Plan the wedding\nand more")
    assert await title(chat) == "Plan the wedding"
    await client.ok("chat.rename", chat_id=chat, title="Plan the wedding")
    await edit(client, first, "Plan the divorce")
    assert await title(chat) == "Plan the wedding"  # it is the person's own now


async def test_what_undo_held_is_of_the_turns_that_go(client: Client) -> None:
    chat = await client.new_chat()
    await client.say(chat, "hello")
    await client.press(chat, "task_list")
    await client.ok("context.clear", chat_id=chat)
    await edit(client, (await questions(client, chat))[0]["id"], "hi")
    await client.refused("conflict", "context.undo", chat_id=chat)


async def test_what_can_not_be_edited_is_refused(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.say(chat, "hello")
    question, reply = [m["id"] for m in await client.messages(chat)]
    await client.refused("not_found", "message.edit", message_id=reply + 99, text="hi")
    await client.refused("conflict", "message.edit", message_id=reply, text="hi")
    await client.refused("invalid", "message.edit", message_id=question, text=" \n ")
    await client.refused("too_large", "message.edit", message_id=question, text="x" * 1_048_577)
    fake.script(script.hang_mid("half"))
    await client.ok("message.send", chat_id=chat, client_id="1", text="next")
    await client.event("message.delta", lambda event: event["text"] == "half")
    await client.refused("turn_running", "message.edit", message_id=question, text="hi")
    await client.ok("turn.stop", chat_id=chat)
    assert [m["content"] for m in await client.messages(chat)] == ["hello", "Hello from the fake model.", "next", "half"]


async def test_an_edited_message_counts_once_for_the_ttl(client: Client) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    await client.say(chat, "one")
    for text in ("two", "three", "four"):
        await edit(client, (await questions(client, chat))[0]["id"], text)
    assert (await client.context(chat))["unrelated_count"] == 1


async def test_the_same_client_id_gives_the_edited_message(client: Client) -> None:
    chat = await client.new_chat()
    sent = await client.ok("message.send", chat_id=chat, client_id="once", text="hello")
    await client.finished(sent["turn_id"])
    await edit(client, sent["message"]["id"], "hi")
    again = await client.ok("message.send", chat_id=chat, client_id="once", text="hello")
    assert again["message"]["content"] == "hi"
