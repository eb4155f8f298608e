"""Continuing a reply that was cut short: it goes on in its own message, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import ChatRequest, FakeModel, FakeOllama
from tests.replay import Replica, drop, events_of, replayed
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio


async def cut_by_length(client: Client, fake: FakeOllama, text: str = "The sea is", question: str = "What is the sea?") -> str:
    """A chat whose last reply ended where the model's limit was."""
    fake.script([script.text(text), script.done("length", prompt_eval_count=20, eval_count=3, eval_duration=1_000_000_000)])
    chat = await client.new_chat()
    await client.say(chat, question)
    return chat


async def go_on(client: Client, chat: str) -> Json:
    """Have the last reply go on; the `turn.finished` event."""
    return await client.finished((await client.ok("turn.continue", chat_id=chat))["turn_id"])


def last_messages(request: ChatRequest, count: int) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in request.messages[-count:]]


async def test_the_text_goes_on_in_the_same_message(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await cut_by_length(client, fake)
    before = (await client.messages(chat))[-1]
    fake.script([script.text(" wi", "de."), script.done(prompt_eval_count=25, eval_count=2, eval_duration=1_000_000_000)])
    seen = len(client.events)
    async with replayed(address, chat):
        ended = await go_on(client, chat)
    assert ended["status"] == "complete"
    assert last_messages(fake.requests[-1], 2) == [("user", "What is the sea?"), ("assistant", "The sea is")]
    after = (await client.messages(chat))[-1]
    assert (after["id"], after["content"], after["status"], after["created_at"]) == (before["id"], "The sea is wide.", "complete", before["created_at"])
    events = [event for event in client.events[seen:] if event.get("message", event).get("id", event.get("message_id")) == before["id"]]
    assert events[0]["type"] == "message.updated" and events[0]["message"]["status"] == "streaming"
    assert events[0]["message"]["content"] == "The sea is"
    deltas = [event for event in events if event["type"] == "message.delta"]
    assert deltas[0]["offset"] == len("The sea is") and "".join(delta["text"] for delta in deltas) == " wide."
    assert events[-1]["type"] == "message.completed"
    metrics = after["metrics"]
    assert (metrics["prompt_tokens"], metrics["reply_tokens"], metrics["tokens_per_second"], metrics["done_reason"]) == (25, 5, 2.5, "stop")
    assert metrics["first_token_ms"] == before["metrics"]["first_token_ms"] and metrics["num_ctx"] == 8192
    assert rows(tmp_path, "SELECT rowid FROM message_index WHERE message_index MATCH 'wide'") == [{"rowid": before["id"]}]
    await client.refused("conflict", "turn.continue", chat_id=chat)
    await client.say(chat, "next")
    assert last_messages(fake.requests[-1], 5)[:2] == [("user", "What is the sea?"), ("assistant", "The sea is wide.")]


async def test_a_stopped_reply_goes_on(address: str, client: Client, fake: FakeOllama) -> None:
    fake.script(script.hang_mid("half a"), script.reply(" thought"))
    chat = await client.new_chat()
    await client.ok("message.send", chat_id=chat, client_id="1", text="think")
    await client.event("message.delta")
    await client.ok("turn.stop", chat_id=chat)
    async with replayed(address, chat):
        assert (await go_on(client, chat))["status"] == "complete"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["status"]) == ("half a thought", "complete")
    assert "reply_tokens" not in shown["metrics"]  # nobody counted the first half


async def test_an_interrupted_reply_goes_on_after_a_restart(tmp_path: Path, fake: FakeOllama) -> None:
    settings = make_settings(tmp_path, fake)
    fake.script(script.hang_mid("saved"), script.reply(" words"))
    async with running(settings) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
        await client.event("message.delta")
    async with running(settings) as address, Client.connect(address) as client:
        await client.ok("chat.open", chat_id=chat)
        assert (await go_on(client, chat))["status"] == "complete"
        assert [(m["content"], m["status"]) for m in await client.messages(chat)] == [("hi", "complete"), ("saved words", "complete")]


async def test_it_can_be_stopped_and_go_on_again(client: Client, fake: FakeOllama) -> None:
    chat = await cut_by_length(client, fake, "one")
    fake.script([script.text(" two"), script.hang()], [script.text(" three"), script.reset()], script.reply(" four"))
    turn = (await client.ok("turn.continue", chat_id=chat))["turn_id"]
    await client.event("message.delta", lambda event: event["text"] == " two")
    await client.ok("turn.stop", chat_id=chat)
    assert (await client.finished(turn))["status"] == "stopped"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["status"]) == ("one two", "stopped")
    assert "done_reason" not in shown["metrics"]
    broken = await go_on(client, chat)
    assert broken["status"] == "interrupted"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["status"], shown["metrics"]["error"]) == ("one two three", "interrupted", broken["error"])
    assert (await go_on(client, chat))["status"] == "complete"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], "error" in shown["metrics"]) == ("one two three four", False)
    assert last_messages(fake.requests[-1], 1) == [("assistant", "one two three")]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (script.err_first(), "model_unavailable"),
        (script.reset_before_headers(), "model_unavailable"),
        (script.done(), "tool_failed"),
        ([script.text(" \n"), script.done()], "tool_failed"),
        ([script.thinking("hm"), script.done()], "tool_failed"),
        ([script.thinking("hm"), script.reset()], "model_unavailable"),
    ],
    ids=["500", "reset", "empty", "blank", "only thinking", "thinking, then reset"],
)
async def test_when_nothing_is_added_the_reply_is_as_it_was(address: str, client: Client, fake: FakeOllama, fault: script.Script, code: str) -> None:
    chat = await cut_by_length(client, fake)
    before = (await client.messages(chat))[-1]
    fake.script(fault)
    async with replayed(address, chat):
        ended = await go_on(client, chat)
    assert (ended["status"], ended["error"]["code"]) == ("failed", code)
    question, after = await client.messages(chat)
    assert question["status"] == "complete"
    assert after == {**before, "turn_id": ended["turn_id"], "metrics": {**before["metrics"], "error": ended["error"]}}
    assert len(fake.requests) == 2  # asked once, not over and over
    assert (await go_on(client, chat))["status"] == "complete"
    assert (await client.messages(chat))[-1]["content"].startswith("The sea isHello")


async def test_stop_before_anything_is_added_leaves_it_as_it_was(client: Client, fake: FakeOllama) -> None:
    chat = await cut_by_length(client, fake)
    before = (await client.messages(chat))[-1]
    fake.script(script.hang_before_headers())
    turn = (await client.ok("turn.continue", chat_id=chat))["turn_id"]
    await fake.wait_for_requests(2)
    await client.ok("turn.stop", chat_id=chat)
    assert (await client.finished(turn))["status"] == "stopped"
    assert (await client.messages(chat))[-1] == {**before, "turn_id": turn}


@pytest.mark.parametrize(
    ("text", "sent", "more", "whole"),
    [
        ("The sea ", "The sea", [" is wide."], "The sea is wide."),
        ("The sea ", "The sea", ["is wide."], "The sea is wide."),
        ("The sea  ", "The sea", [" ", "is wide."], "The sea  is wide."),
        ("The sea:\n\n", "The sea:\n\n", ["- is wide"], "The sea:\n\n- is wide"),
        ("The sea:\n\n", "The sea:\n\n", [" \n- is wide"], "The sea:\n\n \n- is wide"),
        ("if sea:\n    ", "if sea:\n", ["    swim()"], "if sea:\n    swim()"),
        ("море ", "море", [" 🌊"], "море 🌊"),
        ("The", "The", ["  sea"], "The  sea"),
    ],
)
async def test_white_space_at_the_seam_stands_once(address: str, client: Client, fake: FakeOllama, text: str, sent: str, more: list[str], whole: str) -> None:
    chat = await cut_by_length(client, fake, text)
    fake.script([script.text(*more), script.done()])
    async with replayed(address, chat):
        await go_on(client, chat)
    assert fake.requests[-1].messages[-1]["content"] == sent
    assert (await client.messages(chat))[-1]["content"] == whole


async def test_a_call_that_is_written_as_text_is_text_here(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await cut_by_length(client, fake, "This is how a call looks: ")
    fake.script(script.call_as_text("task_add", {"title": "milk"}))
    await go_on(client, chat)
    assert json.loads((await client.messages(chat))[-1]["content"].removeprefix("This is how a call looks: "))["name"] == "task_add"
    assert rows(tmp_path, "SELECT 1 FROM tasks") == []


async def test_tools_may_be_called_on_the_way_and_the_text_so_far_stays(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await cut_by_length(client, fake, "I add")
    fake.script(script.call("task_add", {"title": "milk"}, before=" the milk."), script.reply("It is added."))
    async with replayed(address, chat):
        assert (await go_on(client, chat))["status"] == "complete"
    replies = [m for m in await client.messages(chat) if m["role"] == "assistant"]
    assert [(m["content"], m["is_ephemeral"], m["status"]) for m in replies] == [("I add the milk.\n\nIt is added.", 0, "complete")]
    assert replies[0]["metrics"]["changes"] == 1
    second = fake.requests[-1].messages[-3:]
    assert [(m["role"], m["content"]) for m in second[:2]] == [("user", "What is the sea?"), ("assistant", "I add the milk.")]
    assert second[1]["tool_calls"][0]["function"]["name"] == "task_add"
    await client.say(chat, "next")
    sent = [m for m in fake.requests[-1].messages if m["role"] in ("user", "assistant") and m["content"]]
    assert [m["content"] for m in sent] == ["What is the sea?", "I add the milk.\n\nIt is added.", "next"]


async def test_a_reply_that_called_tools_can_go_on_and_be_cut_again(client: Client, fake: FakeOllama) -> None:
    chat = await cut_by_length(client, fake, "one")
    fake.script(script.call("task_list", {}), [script.text("two"), script.done("length")], script.reply(" three"))
    await go_on(client, chat)
    assert (await go_on(client, chat))["status"] == "complete"
    assert (await client.messages(chat))[1]["content"] == "one\n\ntwo three"
    assert [m["role"] for m in fake.requests[-1].messages][-4:] == ["user", "assistant", "tool", "assistant"]
    assert fake.requests[-1].messages[-1]["content"] == "one\n\ntwo"


async def test_a_turn_that_fails_after_a_call_keeps_the_text_and_what_was_done(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await cut_by_length(client, fake, "one")
    fake.script(script.call("task_add", {"title": "milk"}), script.err_first())
    assert (await go_on(client, chat))["status"] == "failed"
    shown = next(m for m in await client.messages(chat) if m["role"] == "assistant")
    assert (shown["content"], shown["status"], shown["metrics"]["done_reason"], shown["metrics"]["changes"]) == ("one", "complete", "length", 1)
    assert len(rows(tmp_path, "SELECT 1 FROM tasks")) == 1


async def test_an_approval_on_the_way_outlives_a_restart(tmp_path: Path, fake: FakeOllama) -> None:
    settings = make_settings(tmp_path, fake)
    async with running(settings) as address, Client.connect(address) as client:
        chat = await cut_by_length(client, fake, "I add")
        await client.ok("chat.update", chat_id=chat, approval="before")
        fake.script(script.call("task_add", {"title": "milk"}, before=" the milk."), script.reply("It is added."))
        turn = (await client.ok("turn.continue", chat_id=chat))["turn_id"]
        await client.event("turn.waiting")
    async with running(settings) as address, Client.connect(address) as client:
        opened = await client.ok("chat.open", chat_id=chat)
        assert [(m["content"], m["status"]) for m in opened["messages"] if m["role"] == "assistant"] == [("I add the milk.", "streaming")]
        call = next(m["card"]["approval"]["call_id"] for m in opened["messages"] if m.get("card"))
        await client.ok("tool.answer", chat_id=chat, call_id=call, answer="allow")
        assert (await client.finished(turn))["status"] == "complete"
        replies = [m for m in await client.messages(chat) if m["role"] == "assistant"]
        assert [(m["content"], m["status"]) for m in replies] == [("I add the milk.\n\nIt is added.", "complete")]


async def test_whoever_was_away_gets_the_rest(address: str, fake: FakeOllama) -> None:
    """The connection breaks off in the middle of a continuation and comes back: each piece once, in order."""
    gate = asyncio.Event()
    async with Client.connect(address) as client:
        chat = await cut_by_length(client, fake, "0 ")
        fake.script([script.text("1 ", "2 "), script.hold(gate), script.text("3 ", "4 "), script.done()])
        opened = await client.ok("chat.open", chat_id=chat)
        replica = Replica(opened)
        turn = (await client.ok("turn.continue", chat_id=chat))["turn_id"]
        await client.until(lambda: "2 " in "".join(delta["text"] for delta in client.of("message.delta")))
        for event in events_of(client, chat):
            replica.apply(event)
        drop(client)
    gate.set()
    async with Client.connect(address) as client:
        resumed = await client.ok("chat.open", chat_id=chat, epoch=replica.epoch, after_seq=replica.seq)
        assert resumed["resumed"]
        await client.finished(turn)
        for event in events_of(client, chat):
            replica.apply(event)
        whole = (await client.messages(chat))[-1]
        assert (whole["content"], replica.text(whole["id"])) == ("0 1 2 3 4 ", "0 1 2 3 4 ")


async def test_a_page_that_opens_in_the_middle_sees_the_text_so_far(address: str, client: Client, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    chat = await cut_by_length(client, fake, "one")
    fake.script([script.text(" two"), script.hold(gate), script.text(" three"), script.done()])
    turn = (await client.ok("turn.continue", chat_id=chat))["turn_id"]
    await client.event("message.delta", lambda event: event["text"] == " two")
    async with Client.connect(address) as other:
        shown = (await other.messages(chat))[-1]
        assert (shown["content"], shown["status"]) == ("one two", "streaming")
    gate.set()
    await client.finished(turn)


async def test_a_variant_goes_on_as_the_variant_that_it_is(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await cut_by_length(client, fake, "one")
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    reply = (await client.messages(chat))[-1]["id"]
    await client.ok("message.variant", message_id=reply, index=1)
    fake.script(script.reply(" and more"), script.err_first())
    async with replayed(address, chat):
        assert (await go_on(client, chat))["status"] == "complete"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["variant"]) == ("one and more", {"index": 1, "count": 2})
    other = (await client.ok("message.variant", message_id=reply, index=2))["message"]
    assert other["content"] == "Hello from the fake model."
    assert [row["content"] for row in rows(tmp_path, "SELECT content FROM reply_variants")] == ["one and more"]


async def test_the_reply_that_a_failed_run_gave_back_goes_on(address: str, client: Client, fake: FakeOllama) -> None:
    chat = await cut_by_length(client, fake, "one")
    fake.script(script.err_first(), script.reply(" two"))
    assert (await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"]))["status"] == "failed"
    async with replayed(address, chat):
        assert (await go_on(client, chat))["status"] == "complete"
    assert [(m["content"], m["status"]) for m in await client.messages(chat)] == [("What is the sea?", "complete"), ("one two", "complete")]


async def test_a_reply_that_went_on_can_be_made_anew(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await cut_by_length(client, fake, "one")
    fake.script(script.call("task_list", {}), script.reply("two"), script.reply("anew"))
    await go_on(client, chat)
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    assert [(m["role"], m["content"]) for m in await client.messages(chat)] == [("user", "What is the sea?"), ("assistant", "anew")]
    (kept,) = rows(tmp_path, "SELECT content, receipts FROM reply_variants")
    assert kept["content"] == "one\n\ntwo" and "task_list" in kept["receipts"]


async def test_what_has_nothing_to_go_on_is_refused(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.refused("not_found", "turn.continue", chat_id="nowhere")
    await client.refused("conflict", "turn.continue", chat_id=chat)
    await client.say(chat, "hi")
    await client.refused("conflict", "turn.continue", chat_id=chat)
    fake.script(script.err_first(), [script.text("half"), script.hang()])
    await client.say(chat, "fails")
    await client.refused("conflict", "turn.continue", chat_id=chat)
    turn = (await client.ok("message.send", chat_id=chat, client_id="1", text="next"))["turn_id"]
    await client.event("message.delta", lambda event: event["text"] == "half")
    await client.refused("turn_running", "turn.continue", chat_id=chat)
    await client.ok("turn.stop", chat_id=chat)
    await client.finished(turn)
    reply = (await client.messages(chat))[-1]["id"]
    await client.ok("message.hide", message_id=reply, hidden=True)
    await client.refused("conflict", "turn.continue", chat_id=chat)
    await client.ok("message.hide", message_id=reply, hidden=False)
    await client.press(chat, "task_add", title="milk")
    await client.refused("conflict", "turn.continue", chat_id=chat)
    assert len(fake.requests) == 3


async def test_a_model_without_tools_goes_on_too(tmp_path: Path) -> None:
    async with FakeOllama([FakeModel("plain", ("completion",))]) as fake, running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        chat = await cut_by_length(client, fake)
        await client.press(chat, "task_add", title="milk")
        await client.refused("conflict", "turn.continue", chat_id=chat)
        fake.script([script.text("half a"), script.done("length")], script.reply(" thought"))
        await client.say(chat, "think")
        assert (await go_on(client, chat))["status"] == "complete"
        assert last_messages(fake.requests[-1], 1) == [("assistant", "half a")]
        assert (await client.messages(chat))[-1]["content"] == "half a thought"


async def test_the_text_so_far_is_counted(client: Client, fake: FakeOllama) -> None:
    chat = await cut_by_length(client, fake, "word " * 2000)
    await go_on(client, chat)
    metrics = (await client.messages(chat))[-1]["metrics"]
    assert metrics["estimated_prompt_tokens"] > 1500
    fake.script([script.text(" слово" * 9000), script.done("length")])
    await client.say(chat, "more")
    sent = len(fake.requests)
    ended = await go_on(client, chat)
    assert (ended["status"], ended["error"]["code"], len(fake.requests)) == ("failed", "too_large", sent)
    assert (await client.messages(chat))[-1]["content"] == " слово" * 9000


@pytest.mark.parametrize(("limit", "step"), [(12, 6), (12, 12), (3, 12), (2, 1), (2, 12)])
async def test_the_question_is_in_every_window_that_goes_on(tmp_path: Path, fake: FakeOllama, limit: int, step: int) -> None:
    settings = make_settings(tmp_path, fake, history_limit=limit, history_step=step)
    async with running(settings) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        for number in range(7):
            fake.script([script.text(f"reply {number}"), script.done("length")])
            await client.say(chat, f"question {number}")
            fake.script(script.reply(" and on"))
            assert (await go_on(client, chat))["status"] == "complete"
            assert last_messages(fake.requests[-1], 2) == [("user", f"question {number}"), ("assistant", f"reply {number}")]


async def test_going_on_counts_once_for_the_ttl(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    fake.script([script.text("one"), script.done("length")], [script.text(" two"), script.done("length")], script.reply(" three"))
    await client.say(chat, "count")
    await go_on(client, chat)
    await go_on(client, chat)
    assert (await client.context(chat))["unrelated_count"] == 1
