"""Turns from a message to its end: what is stored, what is told, what the model was sent."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from contextlib import AbstractAsyncContextManager, closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from backend.errors import StoreError
from backend.llm import agent
from backend.services import replies
from backend.services.records import Clock, iso
from backend.store import messages
from backend.store.units import WritersTurn
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.replay import Replica, events_of
from tests.server import Client, make_settings, rows, running
from tests.store.test_database import held_by_another_program

pytestmark = pytest.mark.anyio


async def test_a_reply_streams_and_is_stored_whole(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script([script.text("Hel", "lo ", "мир"), script.done(prompt_eval_count=20, eval_count=3)])
    chat = await client.new_chat()
    ended = await client.say(chat, "hi")

    assert ended["status"] == "complete"
    kinds = [event["type"] for event in client.events if event.get("chat_id") == chat]
    assert kinds[:3] == ["message.created", "turn.started", "message.created"]
    assert kinds[-3:] == ["message.completed", "context.state", "turn.finished"]
    deltas = client.of("message.delta")
    assert "".join(delta["text"] for delta in deltas) == "Hello мир"
    assert [delta["offset"] for delta in deltas] == [sum(len(d["text"]) for d in deltas[:index]) for index in range(len(deltas))]
    numbered = [event for event in client.events if "seq" in event]
    expected = [1] + [event["seq"] + 1 for event in numbered[:-1]]  # a delta may be several, merged
    assert [event.get("first_seq", event["seq"]) for event in numbered] == expected
    stored = rows(tmp_path, "SELECT role, content, is_ephemeral, status FROM chat_messages ORDER BY id")
    assert [tuple(row.values()) for row in stored] == [("user", "hi", 0, "complete"), ("assistant", "Hello мир", 0, "complete")]


async def test_every_request_is_honest_about_its_window(client: Client, fake: FakeOllama) -> None:
    await client.say(await client.new_chat(), "hi")
    body = fake.requests[0].body
    assert (body["truncate"], body["think"], body["stream"], body["options"]["num_ctx"]) == (False, False, True, 8192)


async def test_the_same_client_id_starts_nothing_twice(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    async with Client.connect(address) as other:
        send = {"chat_id": chat, "client_id": "once", "text": "hi"}
        first, second = await asyncio.gather(client.ok("message.send", **send), other.ok("message.send", **send))
    await client.finished(first["turn_id"])
    third = await client.ok("message.send", **send)
    assert first["message"] == second["message"] == third["message"]
    assert first["turn_id"] == second["turn_id"] == third["turn_id"]
    assert len(fake.requests) == 1
    assert len(rows(tmp_path, "SELECT 1 FROM chat_messages WHERE role = 'user'")) == 1


async def test_a_second_message_waits_for_the_first(client: Client, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    fake.script([script.text("a"), script.hold(gate), script.done()])
    chat = await client.new_chat()
    reply = await client.ok("message.send", chat_id=chat, client_id="1", text="one")
    await client.event("message.delta")
    await client.refused("turn_running", "message.send", chat_id=chat, client_id="2", text="two")
    gate.set()
    await client.finished(reply["turn_id"])
    await client.say(chat, "two")


async def test_chats_run_side_by_side_and_apart(client: Client, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    fake.script([script.text("slow"), script.hold(gate), script.done()], script.reply("fast"))
    slow, fast = await client.new_chat(), await client.new_chat()
    waiting = await client.ok("message.send", chat_id=slow, client_id="1", text="question of the slow chat")
    await client.event("message.delta")
    await client.say(fast, "question of the fast chat")
    gate.set()
    await client.finished(waiting["turn_id"])
    assert "slow chat" not in json.dumps(fake.requests[1].messages)


async def test_stop_keeps_the_text_and_closes_the_request(client: Client, fake: FakeOllama) -> None:
    fake.script(script.hang_mid("half a thought"))
    chat = await client.new_chat()
    reply = await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
    await client.event("message.delta")
    await client.ok("turn.stop", chat_id=chat)
    assert (await client.finished(reply["turn_id"]))["status"] == "stopped"
    await fake.wait_ended(0, seconds=1)
    assert fake.requests[0].closed_early
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["status"], shown["is_ephemeral"]) == ("half a thought", "stopped", 0)
    await client.ok("turn.stop", chat_id=chat)  # after the end: nothing to do, and no error


async def test_stop_before_the_first_word_leaves_no_reply(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.hang_before_headers())
    chat = await client.new_chat()
    reply = await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
    await fake.wait_for_requests(1)
    await client.ok("turn.stop", chat_id=chat)
    assert (await client.finished(reply["turn_id"]))["status"] == "stopped"
    assert rows(tmp_path, "SELECT role FROM chat_messages") == [{"role": "user"}]


async def test_stop_and_send_in_one_breath(client: Client, fake: FakeOllama) -> None:
    fake.script(script.hang_mid("one"), script.reply("two"))
    chat = await client.new_chat()
    await client.ok("message.send", chat_id=chat, client_id="1", text="first")
    await client.event("message.delta")
    _, sent = await asyncio.gather(client.ok("turn.stop", chat_id=chat), client.ok("message.send", chat_id=chat, client_id="2", text="second"))
    assert (await client.finished(sent["turn_id"]))["status"] == "complete"


@pytest.mark.parametrize("stops", [1, 2])
async def test_stops_and_a_message_in_the_same_tick(client: Client, fake: FakeOllama, stops: int) -> None:
    """On one socket they are taken in their order, and the second reply begins when the first one's request is closed."""
    fake.script(script.hang_mid("one"), script.reply("two"))
    chat = await client.new_chat()
    await client.ok("message.send", chat_id=chat, client_id="1", text="first")
    await client.event("message.delta")
    stopping = [client.ok("turn.stop", chat_id=chat) for _ in range(stops)]
    *_, sent = await asyncio.gather(*stopping, client.ok("message.send", chat_id=chat, client_id="2", text="second"))
    assert (await client.finished(sent["turn_id"]))["status"] == "complete"
    assert [(m["content"], m["status"]) for m in await client.messages(chat)] == [
        ("first", "complete"),
        ("one", "stopped"),
        ("second", "complete"),
        ("two", "complete"),
    ]
    first, second = fake.requests
    assert first.closed_early and not second.closed_early
    assert [event["status"] for event in client.of("turn.finished")] == ["stopped", "complete"]


async def test_a_message_and_its_stop_in_the_same_tick(client: Client, fake: FakeOllama) -> None:
    fake.default = lambda _: script.hang_mid("one")
    chat = await client.new_chat()
    sent, _ = await asyncio.gather(client.ok("message.send", chat_id=chat, client_id="1", text="first"), client.ok("turn.stop", chat_id=chat))
    assert (await client.finished(sent["turn_id"]))["status"] == "stopped"
    assert (await client.ok("chat.open", chat_id=chat))["chat"]["turn_running"] is False


async def test_stops_from_two_tabs_end_one_turn_once(address: str, client: Client, fake: FakeOllama) -> None:
    fake.script(script.hang_mid("one"))
    chat = await client.new_chat()
    sent = await client.ok("message.send", chat_id=chat, client_id="1", text="first")
    await client.event("message.delta")
    async with Client.connect(address) as other:
        await asyncio.gather(client.ok("turn.stop", chat_id=chat), other.ok("turn.stop", chat_id=chat))
    await client.finished(sent["turn_id"])
    await client.ok("turn.stop", chat_id=chat)
    await client.ok("tool.list")  # frames keep their order: nothing more has come
    assert len(client.of("turn.finished")) == 1


async def test_stop_without_a_turn_is_no_error(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.ok("turn.stop", chat_id=chat)
    await client.say(chat, "hi")
    await client.ok("turn.stop", chat_id=chat)
    assert (await client.messages(chat))[-1]["status"] == "complete"
    await client.refused("not_found", "turn.stop", chat_id="nowhere")


async def test_what_a_reply_cost_stands_under_it(client: Client, fake: FakeOllama) -> None:
    fake.script([script.text("one", " two"), script.done(prompt_eval_count=20, eval_count=4, eval_duration=2_000_000_000)])
    chat = await client.new_chat()
    await client.say(chat, "hi")
    reply = (await client.messages(chat))[-1]
    told = {name: reply["metrics"][name] for name in ("prompt_tokens", "reply_tokens", "tokens_per_second", "num_ctx", "done_reason")}
    assert told == {"prompt_tokens": 20, "reply_tokens": 4, "tokens_per_second": 2.0, "num_ctx": 8192, "done_reason": "stop"}
    assert reply["metrics"]["first_token_ms"] >= 0 and reply["model"] == "fake:tools"


async def test_a_reply_that_breaks_off_is_interrupted(client: Client, fake: FakeOllama) -> None:
    fake.script(script.reset_mid("Hel", "lo"))
    chat = await client.new_chat()
    ended = await client.say(chat, "hi")
    assert (ended["status"], ended["error"]["code"]) == ("interrupted", "model_unavailable")
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["status"]) == ("Hello", "interrupted")
    assert (await client.say(chat, "again"))["status"] == "complete"


async def test_a_stream_without_its_last_line_is_no_success(client: Client, fake: FakeOllama) -> None:
    fake.script(script.no_done("A", "B"))
    chat = await client.new_chat()
    assert (await client.say(chat, "hi"))["status"] == "interrupted"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["status"]) == ("AB", "interrupted")
    assert "prompt_tokens" not in shown["metrics"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (script.reset_before_headers(), "model_unavailable"),
        (script.html_502(), "model_unavailable"),
        (script.not_found_404("fake:tools"), "model_not_found"),
        (script.not_found_404("fake:tools", double_quotes=True), "model_not_found"),
        (script.context_exceeded(), "too_large"),
    ],
    ids=["reset", "502", "404", "404 double quotes", "too long"],
)
async def test_a_reply_that_never_began_fails_and_keeps_the_message(client: Client, fake: FakeOllama, tmp_path: Path, fault: script.Script, code: str) -> None:
    fake.script(fault)
    chat = await client.new_chat()
    ended = await client.say(chat, "precious words")
    assert (ended["status"], ended["error"]["code"]) == ("failed", code)
    assert "<" not in ended["error"]["message"]
    (message,) = await client.messages(chat)
    assert (message["content"], message["status"], message["metrics"]["error"]) == ("precious words", "failed", ended["error"])
    assert rows(tmp_path, "SELECT 1 FROM chat_messages WHERE role = 'assistant'") == []


async def test_a_failed_turn_can_be_tried_again(client: Client, fake: FakeOllama) -> None:
    fake.script(script.err_first(), script.err_first(), script.reply("at last"))
    chat = await client.new_chat()
    assert (await client.say(chat, "hi"))["status"] == "failed"
    for status in ("failed", "complete"):
        turn = (await client.ok("turn.regenerate", chat_id=chat))["turn_id"]
        assert (await client.finished(turn))["status"] == status
    assert [(m["role"], m["content"], m["status"]) for m in await client.messages(chat)] == [
        ("user", "hi", "complete"),
        ("assistant", "at last", "complete"),
    ]


async def test_a_busy_server_is_asked_again_and_the_person_told(client: Client, fake: FakeOllama) -> None:
    fake.script(script.busy_503(), script.reply("now"))
    chat = await client.new_chat()
    assert (await client.say(chat, "hi"))["status"] == "complete"
    assert [event["reason"] for event in client.of("turn.waiting")] == ["model_busy"]


async def test_a_balancer_without_a_free_host_is_asked_again(client: Client, fake: FakeOllama) -> None:
    fake.script(script.status(503, b"<html>No server is available</html>", "text/html"), script.reply("now"))
    assert (await client.say(await client.new_chat(), "hi"))["status"] == "complete"
    assert [event["reason"] for event in client.of("turn.waiting")] == ["model_busy"]


async def test_a_balancer_is_told_the_chat_and_tells_the_host(client: Client, fake: FakeOllama) -> None:
    served_by = script.header("X-Served-By", "gpu-2")
    fake.script([served_by, script.text("hello"), script.done()], [served_by, script.text("half"), script.reset()])
    first, second = await client.new_chat(), await client.new_chat()
    await client.say(first, "hi")
    ended = await client.say(second, "hi")
    assert [request.headers["x-cleanroom-chat"] for request in fake.requests] == [first, second]
    assert [(await client.messages(chat))[-1]["metrics"]["host"] for chat in (first, second)] == ["gpu-2", "gpu-2"]
    assert ended["status"] == "interrupted"
    assert "gpu-2 broke off" in ended["error"]["message"]


async def test_the_host_is_known_while_the_reply_comes_also_when_another_one_goes_on_with_it(client: Client, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    half = [script.header("X-Served-By", "gpu-1"), script.text("one "), script.reset()]
    fake.script(half, [script.header("X-Served-By", "gpu-2"), script.text("two "), script.hold(gate), script.done()])
    chat = await client.new_chat()
    replica = Replica(await client.ok("chat.open", chat_id=chat))
    await client.say(chat, "hi")
    turn = (await client.ok("turn.continue", chat_id=chat))["turn_id"]
    await client.event("message.delta", lambda event: event["text"] == "two ")
    updated = [event["message"] for event in client.of("message.updated") if event["message"]["status"] == "streaming"]
    assert [message.get("metrics") for message in updated] == [{"host": "gpu-1"}, None, {"host": "gpu-2"}]
    for event in events_of(client, chat):
        replica.apply(event)
    assert replica.shown == Replica(await client.ok("chat.open", chat_id=chat)).shown
    gate.set()
    await client.finished(turn)
    assert (await client.messages(chat))[-1]["metrics"]["host"] == "gpu-2"


async def test_a_slow_first_word_is_announced(client: Client, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    fake.script(script.delay_headers(gate, script.reply("late")))
    chat = await client.new_chat()
    reply = await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
    assert (await client.event("turn.waiting"))["reason"] == "model_loading"
    gate.set()
    assert (await client.finished(reply["turn_id"]))["status"] == "complete"


async def test_thinking_is_shown_and_never_sent_again(client: Client, fake: FakeOllama) -> None:
    fake.script(script.thinking_then_text("secret thought", "Answer"))
    chat = await client.new_chat()
    await client.say(chat, "one")
    await client.say(chat, "two")
    assert (await client.messages(chat))[1]["thinking"] == "secret thought"
    assert "secret thought" not in fake.requests[1].raw.decode()


async def test_an_empty_reply_is_asked_for_once_more(client: Client, fake: FakeOllama) -> None:
    fake.script(script.thinking_only(), script.reply("words"))
    chat = await client.new_chat()
    assert (await client.say(chat, "hi"))["status"] == "complete"
    first, second = fake.requests
    assert first.messages == second.messages
    assert second.options["seed"] != first.options.get("seed")
    assert [(m["role"], m["content"]) for m in await client.messages(chat)] == [("user", "hi"), ("assistant", "words")]


async def test_two_empty_replies_fail_the_turn_and_leave_nothing_empty(client: Client, fake: FakeOllama) -> None:
    fake.script(script.thinking_only(), script.thinking_only())
    chat = await client.new_chat()
    assert (await client.say(chat, "hi"))["status"] == "failed"
    assert [m["role"] for m in await client.messages(chat)] == ["user"]


async def test_bad_input_is_refused_with_its_reason(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.refused("invalid", "message.send", chat_id=chat, client_id="1", text=" \n ")
    refusal = await client.refused("too_large", "message.send", chat_id=chat, client_id="2", text="x" * 1_048_577)
    assert "1048577" in refusal["message"] and "1048576" in refusal["message"]
    await client.refused("not_found", "message.send", chat_id="nowhere", client_id="3", text="hi")
    assert (await client.messages(chat), fake.requests) == ([], [])


async def test_a_message_longer_than_the_window_is_refused_before_anything_is_sent(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    ended = await client.say(chat, "слово " * 9000)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "too_large")
    assert sum(part.strip(".").isdigit() for part in ended["error"]["message"].split()) == 2
    assert fake.requests == []
    assert (await client.messages(chat))[0]["status"] == "failed"


async def test_old_messages_that_do_not_fit_are_left_out_and_counted(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, num_ctx=4096)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        for number in range(4):
            await client.say(chat, f"message {number} " + "long " * 1000)
        newest = (await client.messages(chat))[-1]
    sent = [m["content"] for m in fake.requests[-1].messages if m["role"] == "user"]
    assert sent[-1].startswith("message 3") and not any(text.startswith("message 0") for text in sent)
    assert newest["metrics"]["left_out_messages"] > 0


async def test_a_turn_outlives_its_socket(address: str, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    fake.script([script.text("one "), script.hold(gate), script.text("two"), script.done()])
    async with Client.connect(address) as first:
        chat = await first.new_chat()
        await first.ok("message.send", chat_id=chat, client_id="1", text="hi")
        await first.event("message.delta")
    async with Client.connect(address) as second:
        opened = await second.ok("chat.open", chat_id=chat)
        assert (opened["messages"][-1]["content"], opened["messages"][-1]["status"]) == ("one ", "streaming")
        gate.set()
        await second.event("turn.finished")
        deltas = second.of("message.delta")
        assert (deltas[0]["offset"], "".join(delta["text"] for delta in deltas)) == (4, "two")


async def test_a_reply_that_a_dead_process_left_is_interrupted(tmp_path: Path, fake: FakeOllama) -> None:
    settings = make_settings(tmp_path, fake)
    fake.script(script.hang_mid("saved words"))
    async with running(settings) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
        await client.event("message.delta")
    async with running(settings) as address, Client.connect(address) as client:
        shown = (await client.messages(chat))[-1]
        assert (shown["content"], shown["status"]) == ("saved words", "interrupted")
        assert client.welcome["chats"][0]["turn_running"] is False


async def test_without_any_model_the_person_is_told_what_to_do(tmp_path: Path) -> None:
    async with running(make_settings(tmp_path)) as address, Client.connect(address) as client:
        assert (client.welcome["model_backend"], client.welcome["models"]) == ("none", [])
        ended = await client.say(await client.new_chat(), "hi")
    assert ended["error"]["code"] == "model_unavailable"
    assert "127.0.0.1:9" in ended["error"]["message"] and "ollama serve" in ended["error"]["message"]


async def test_a_title_comes_from_the_first_message_and_never_replaces_a_persons(client: Client) -> None:
    chat = await client.new_chat()
    await client.say(chat, "Plan the\tparty\nsecond line")
    assert (await client.ok("chat.open", chat_id=chat))["chat"]["title"] == "Plan the party"
    named = await client.new_chat(title="Mine")
    await client.say(named, "something else")
    assert (await client.ok("chat.open", chat_id=named))["chat"]["title"] == "Mine"


async def test_buttons_are_turns_and_repeat_nothing(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    press = {"chat_id": chat, "client_id": uuid.uuid4().hex, "tool": "task_add", "arguments": {"title": "milk"}}
    first, second = await asyncio.gather(client.ok("tool.invoke", **press), client.ok("tool.invoke", **press))
    await client.ok("context.clear", chat_id=chat)
    third = await client.ok("tool.invoke", **press)
    assert first["turn_id"] == second["turn_id"] == third["turn_id"]
    assert len(rows(tmp_path, "SELECT 1 FROM tasks")) == 1
    assert fake.requests == []
    await client.refused("not_found", "tool.invoke", chat_id=chat, client_id="a", tool="no_such", arguments={})
    await client.refused("invalid", "tool.invoke", chat_id=chat, client_id="b", tool="task_add", arguments={"titel": "x"})
    failed = await client.press(chat, "task_complete", id=99)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "tool_failed")


async def test_a_reply_made_anew_knows_what_was_done_for_good(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(
        script.calls(script.tool_call("task_list", {}), script.tool_call("task_add", {"title": "milk"})),
        script.reply("first"),
        script.reply("second"),
    )
    chat = await client.new_chat()
    await client.say(chat, "add milk")
    turn = (await client.ok("turn.regenerate", chat_id=chat))["turn_id"]
    assert (await client.finished(turn))["status"] == "complete"
    assert len(rows(tmp_path, "SELECT 1 FROM tasks")) == 1
    after = [m for m in fake.requests[-1].messages if m["role"] != "system"][-3:]
    assert [m["role"] for m in after] == ["user", "assistant", "tool"]
    assert [call["function"]["name"] for call in after[1]["tool_calls"]] == ["task_add"]
    shown = await client.messages(chat)
    assert [(m["role"], m["is_ephemeral"]) for m in shown] == [("user", 0), ("tool", 0), ("assistant", 0)]
    assert shown[-1]["content"] == "second"


async def test_only_the_last_turn_of_a_person_can_be_made_anew(client: Client) -> None:
    chat = await client.new_chat()
    await client.refused("conflict", "turn.regenerate", chat_id=chat)
    await client.say(chat, "hi")
    await client.press(chat, "task_add", title="milk")
    await client.refused("conflict", "turn.regenerate", chat_id=chat)


# --- what goes wrong around a turn


async def test_a_message_is_refused_while_another_program_locks_the_file_and_goes_out_afterwards(
    tmp_path: Path, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S03: the page keeps a refused message, and sends it again under the same client_id."""
    monkeypatch.setattr("backend.store.database.BUSY_MS", 50)
    async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        send = {"chat_id": chat, "client_id": "1", "text": "precious words"}
        with held_by_another_program(tmp_path / "cleanroom.db"):
            refusal = await client.refused("internal", "message.send", **send)
            assert "locked by another program; close that program, then try again" in refusal["message"]
        turn = (await client.ok("message.send", **send))["turn_id"]
        assert (await client.finished(turn))["status"] == "complete"
        assert [m["content"] for m in await client.messages(chat) if m["role"] == "user"] == ["precious words"]


async def test_failed_tries_leave_a_chat_that_opens_and_goes_on(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    """A1: four refusals in a row, then a page that opens the chat anew."""
    fake.script(*[script.err_first(503, "server busy")] * 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "BUSY_SECONDS", 0)
        chat = await client.new_chat()
        assert (await client.say(chat, "hi"))["status"] == "failed"
        for _ in range(3):
            assert (await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"]))["status"] == "failed"
    assert len(fake.requests) == 4
    async with Client.connect(address) as page:
        opened = await page.ok("chat.open", chat_id=chat)
        assert opened["chat"]["turn_running"] is False
        assert [(m["role"], m["content"], m["status"]) for m in opened["messages"]] == [("user", "hi", "failed")]
        assert rows(tmp_path, "SELECT 1 FROM chat_messages WHERE role = 'assistant' OR status = 'streaming'") == []
        assert (await page.say(chat, "again"))["status"] == "complete"


async def test_a_server_that_stays_busy_is_asked_a_few_times_with_pauses(client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    """O04."""
    monkeypatch.setattr(agent, "BUSY_SECONDS", 0.25)
    monkeypatch.setattr(agent, "BUSY_PAUSE_SECONDS", 0.1)
    fake.default = lambda _: script.busy_503()
    ended = await client.say(await client.new_chat(), "hi")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "model_unavailable")
    asked = [request.received_at for request in fake.requests]
    assert 2 <= len(asked) <= 3
    assert min(second - first for first, second in pairwise(asked)) >= 0.1


async def test_with_one_place_at_the_server_a_second_chat_waits_and_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O17."""
    monkeypatch.setattr(agent, "NOTICE_SECONDS", 0.02)
    gate = asyncio.Event()
    async with FakeOllama(parallel=1) as fake, running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        fake.script([script.text("first"), script.hold(gate), script.done()], script.reply("never"), script.reply("third"))
        busy, queued = await client.new_chat(), await client.new_chat()
        first = (await client.ok("message.send", chat_id=busy, client_id="1", text="one"))["turn_id"]
        await client.event("message.delta")
        second = (await client.ok("message.send", chat_id=queued, client_id="2", text="two"))["turn_id"]
        assert (await client.event("turn.waiting", lambda event: event["chat_id"] == queued))["reason"] == "model_busy"
        await client.ok("turn.stop", chat_id=queued)
        assert (await client.finished(second))["status"] == "stopped"
        assert (await fake.wait_ended(1, seconds=1)).closed_early
        gate.set()
        assert (await client.finished(first))["status"] == "complete"
        assert [m["role"] for m in await client.messages(queued)] == ["user"]
        assert (await client.say(queued, "three"))["status"] == "complete"
        assert (await client.messages(queued))[-1]["content"] == "third"


async def test_a_clock_that_jumps_back_changes_neither_order_nor_durations(client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    """O16: the system's clock goes back two hours in the middle of a turn, and so does the model server's."""
    gate = asyncio.Event()
    fake.script(
        [script.hold(gate), script.thinking("hm"), script.text("one"), script.done()],
        script.clock_backwards(),
        script.call("task_add", {"title": "milk"}),
        script.reply("four"),
    )
    chat = await client.new_chat()
    turn = (await client.ok("message.send", chat_id=chat, client_id="1", text="first"))["turn_id"]
    await fake.wait_for_requests(1)
    monkeypatch.setattr(Clock, "now", lambda _: iso(datetime.now(UTC) - timedelta(hours=2)))
    gate.set()
    await client.finished(turn)
    await client.say(chat, "second")
    await client.say(chat, "third")
    shown = await client.messages(chat)
    assert shown[0]["created_at"] > shown[-1]["created_at"]
    assert [m["content"] for m in shown if m["role"] != "tool"] == ["first", "one", "second", "Hello world", "third", "four"]
    assert [m["content"] for m in fake.requests[-1].messages if m["role"] == "user"] == ["first", "second", "third"]
    assert all(value >= 0 for m in shown for name, value in (m.get("metrics") or {}).items() if name.endswith("_ms"))
    await client.ok("context.clear", chat_id=chat)
    await client.ok("context.undo", chat_id=chat)
    assert any(m.get("tool") == "task_add" and m["is_ephemeral"] for m in await client.messages(chat))


async def test_streaming_into_a_long_chat_does_not_write_it_again(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    """S10: what a token costs in the log of the database is far less than a page of it, however long the chat is."""
    chat = await client.new_chat()
    with closing(sqlite3.connect(tmp_path / "cleanroom.db")) as database:
        said = [(chat, role, "x" * 2000) for role in ("user", "assistant")] * 250
        database.executemany("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES (?, ?, ?, '')", said)
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fake.script(script.many_tokens(500, seconds=0.001))
    assert (await client.say(chat, "count"))["status"] == "complete"
    written = (tmp_path / "cleanroom.db-wal").stat().st_size
    print(f"{written / 500:.0f} bytes for each of 500 tokens")
    assert 0 < written < 500 * 2048


async def test_a_replys_first_words_do_not_wait_for_the_chats_that_begin_after_it(client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks, is_saving, may_end, is_urgent_queued = (asyncio.Event() for _ in range(4))

    async def save_slowly(*_: object) -> None:
        is_saving.set()
        await may_end.wait()

    def taken(writers: WritersTurn, *, is_urgent: bool = False) -> AbstractAsyncContextManager[None]:
        if is_urgent and is_saving.is_set():
            is_urgent_queued.set()
        return really_taken(writers, is_urgent=is_urgent)

    really_taken = WritersTurn.taken
    first, second, third = [await client.new_chat() for _ in range(3)]
    monkeypatch.setattr(WritersTurn, "taken", taken)
    fake.script([script.text("one"), script.hold(may_end), script.done()], [script.hold(speaks), script.text("two"), script.done()])
    replying = await client.ok("message.send", chat_id=first, client_id="1", text="hi")
    await client.event("message.delta")
    answered = await client.ok("message.send", chat_id=second, client_id="2", text="hi")
    while len(fake.requests) < 2:
        await asyncio.sleep(0.01)
    monkeypatch.setattr(messages, "save_texts", save_slowly)
    await is_saving.wait()
    beginning = asyncio.create_task(client.say(third, "hi"))
    await asyncio.sleep(0.05)  # its message waits to be written by now
    speaks.set()
    await is_urgent_queued.wait()
    may_end.set()
    for turn in (replying, answered):
        await client.finished(turn["turn_id"])
    await beginning
    created = [(event["chat_id"], event["message"]["role"]) for event in client.of("message.created")]
    assert created[-3:] == [(second, "assistant"), (third, "user"), (third, "assistant")]


async def test_a_reply_that_can_not_be_saved_for_a_while_is_logged_once(
    client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts, gate = 0, asyncio.Event()

    async def refuse(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            gate.set()
        raise StoreError("The disk is full.")

    monkeypatch.setattr(replies, "SAVE_SECONDS", 0.01)
    monkeypatch.setattr(messages, "save_texts", refuse)
    fake.script([script.text("one "), script.hold(gate), script.text("two"), script.done()])
    assert (await client.say(await client.new_chat(), "count"))["status"] == "complete"
    assert [record.message for record in caplog.records] == ["replies could not be saved"]
