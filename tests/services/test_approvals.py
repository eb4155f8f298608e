"""Approval before: a commit that the model calls waits for the person, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio


async def careful_chat(client: Client) -> str:
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, approval="before")
    return chat


async def ask_for_milk(client: Client, fake: FakeOllama, chat: str) -> tuple[str, str]:
    """Have the model call task_add; the turn's id and the waiting call's."""
    fake.script(script.call("task_add", {"title": "milk"}), script.reply("Done."))
    sent = await client.ok("message.send", chat_id=chat, client_id="milk", text="add milk")
    waiting = await client.event("turn.waiting")
    assert waiting["reason"] == "approval"
    card = await waiting_card(client)
    assert (card["approval"]["tool"], card["approval"]["arguments"]) == ("task_add", {"title": "milk"})
    return sent["turn_id"], card["approval"]["call_id"]


async def waiting_card(client: Client) -> Json:
    event = await client.event("message.created", lambda event: event["message"].get("card", {}).get("approval") is not None)
    return dict(event["message"]["card"])


async def test_an_allowed_call_is_carried_out(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await careful_chat(client)
    turn, call = await ask_for_milk(client, fake, chat)
    assert rows(tmp_path, "SELECT 1 FROM tasks") == []
    await client.refused("turn_running", "message.send", chat_id=chat, client_id="2", text="hello?")
    await client.ok("tool.answer", chat_id=chat, call_id=call, answer="allow")
    assert (await client.finished(turn))["status"] == "complete"
    assert [row["title"] for row in rows(tmp_path, "SELECT title FROM tasks")] == ["milk"]
    assert rows(tmp_path, "SELECT 1 FROM paused_turns") == []
    await client.ok("tool.answer", chat_id=chat, call_id=call, answer="deny")  # too late: nothing changes
    states = [m["card"]["approval"]["state"] for m in await client.messages(chat) if m.get("card", {}).get("approval")]
    assert (states, len(rows(tmp_path, "SELECT 1 FROM tasks"))) == (["allowed"], 1)


async def test_a_denied_call_changes_nothing_and_the_model_is_told(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await careful_chat(client)
    turn, call = await ask_for_milk(client, fake, chat)
    await client.ok("tool.answer", chat_id=chat, call_id=call, answer="deny")
    assert (await client.finished(turn))["status"] == "complete"
    assert rows(tmp_path, "SELECT 1 FROM tasks") == []
    assert "did not allow" in fake.requests[1].messages[-1]["content"]


async def test_reads_drafts_and_buttons_do_not_wait(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await careful_chat(client)
    fake.script(script.calls(script.tool_call("task_list", {}), script.tool_call("system_prompt_draft", {"content": "x"})), script.reply("ok"))
    assert (await client.say(chat, "look"))["status"] == "complete"
    await client.press(chat, "task_add", title="milk")
    assert len(rows(tmp_path, "SELECT 1 FROM tasks")) == 1
    assert client.of("turn.waiting") == []


async def test_the_wait_outlives_a_restart_and_goes_on_where_it_stood(tmp_path: Path, fake: FakeOllama) -> None:
    settings = make_settings(tmp_path, fake)
    async with running(settings) as address, Client.connect(address) as client:
        chat = await careful_chat(client)
        fake.script(script.calls(script.tool_call("task_list", {}), script.tool_call("task_add", {"title": "milk"})), script.reply("Done."))
        sent = await client.ok("message.send", chat_id=chat, client_id="milk", text="add milk")
        await client.event("turn.waiting")
        call = (await waiting_card(client))["approval"]["call_id"]
    await fake.stop()
    async with running(settings) as address, Client.connect(address) as client:
        opened = await client.ok("chat.open", chat_id=chat)
        assert opened["chat"]["turn_running"] is True
        assert opened["messages"][-1]["card"]["approval"]["state"] == "waiting"
        await fake.start()
        await client.ok("tool.answer", chat_id=chat, call_id=call, answer="allow")
        assert (await client.finished(sent["turn_id"]))["status"] == "complete"
        assert (await client.messages(chat))[-1]["content"] == "Done."
    assert [row["title"] for row in rows(tmp_path, "SELECT title FROM tasks")] == ["milk"]
    sent_roles = [m["role"] for m in fake.requests[1].messages if m["role"] != "system"]
    assert sent_roles[-5:] == ["tool", "user", "assistant", "tool", "tool"]  # the state, the question, two calls' round
    assert len(rows(tmp_path, "SELECT 1 FROM chat_messages WHERE role = 'tool' AND is_ephemeral = 0")) == 1


async def test_stop_ends_the_wait_as_a_denial(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await careful_chat(client)
    turn, call = await ask_for_milk(client, fake, chat)
    await client.ok("turn.stop", chat_id=chat)
    assert (await client.finished(turn))["status"] == "stopped"
    await client.ok("tool.answer", chat_id=chat, call_id=call, answer="allow")
    assert rows(tmp_path, "SELECT 1 FROM tasks") == rows(tmp_path, "SELECT 1 FROM paused_turns") == []
    assert (await client.messages(chat))[-1]["card"]["approval"]["state"] == "denied"


async def test_a_waiting_card_outlives_clearing(client: Client, fake: FakeOllama) -> None:
    chat = await careful_chat(client)
    turn, call = await ask_for_milk(client, fake, chat)
    await client.ok("context.clear", chat_id=chat)
    assert (await client.messages(chat))[-1]["card"]["approval"]["state"] == "waiting"
    await client.ok("tool.answer", chat_id=chat, call_id=call, answer="allow")
    assert (await client.finished(turn))["status"] == "complete"


async def test_two_answers_at_once_have_one_effect(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await careful_chat(client)
    turn, call = await ask_for_milk(client, fake, chat)
    async with Client.connect(address) as other:
        answers = [client.ok("tool.answer", chat_id=chat, call_id=call, answer="allow"), other.ok("tool.answer", chat_id=chat, call_id=call, answer="deny")]
        await asyncio.gather(*answers)
    await client.finished(turn)
    (state,) = [m["card"]["approval"]["state"] for m in await client.messages(chat) if m.get("card", {}).get("approval")]
    assert len(rows(tmp_path, "SELECT 1 FROM tasks")) == (state == "allowed")


async def test_forged_ids_and_deleted_chats(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await careful_chat(client)
    _, call = await ask_for_milk(client, fake, chat)
    await client.refused("not_found", "tool.answer", chat_id=chat, call_id="forged", answer="allow")
    other = await client.new_chat()
    await client.refused("not_found", "tool.answer", chat_id=other, call_id=call, answer="allow")
    await client.ok("chat.delete", chat_id=chat)
    await client.refused("not_found", "tool.answer", chat_id=chat, call_id=call, answer="allow")
    assert rows(tmp_path, "SELECT 1 FROM paused_turns") == rows(tmp_path, "SELECT 1 FROM tasks") == []
