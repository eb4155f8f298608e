"""What `/metrics` counts, read over HTTP from a running server as Prometheus does."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backend.services.settlement import Settlement
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.raw_http import ask
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

TOKEN = "a token with 24 letters."

Figures = dict[str, float]


async def read(address: str) -> Figures:
    """The figures by name and label values, in the order of the labels' names. Those at 0 are left out."""
    answer = await ask(address, "/metrics")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain; version=")
    samples = [sample for family in text_string_to_metric_families(answer.content.decode()) for sample in family.samples]
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples if sample.value}


def named(figures: Figures, name: str) -> Figures:
    """The figures of one name, by their labels."""
    return {key.removeprefix(name).strip(): value for key, value in figures.items() if key.split()[0] == name}


async def test_a_turn_is_counted_with_its_tokens_times_and_tools(address: str, client: Client, fake: FakeOllama) -> None:
    task = script.tool_call("task_add", {"title": "milk"})
    fake.script([script.tool_calls(task), script.done(prompt_eval_count=100, eval_count=7)], script.reply("Added.", prompt_eval_count=130, eval_count=3))
    assert (await client.say(await client.new_chat(), "add milk"))["status"] == "complete"
    figures = await read(address)
    assert named(figures, "cleanroom_turns_total") == {"complete": 1}
    assert named(figures, "cleanroom_tokens_total") == {"prompt": 230, "reply": 10}
    assert named(figures, "cleanroom_tool_calls_total") == {"ok task_add": 1}
    assert figures["cleanroom_turn_duration_seconds_count"] == figures["cleanroom_first_token_seconds_count"] == 1
    assert figures["cleanroom_turn_duration_seconds_sum"] >= figures["cleanroom_first_token_seconds_sum"] > 0
    assert named(figures, "cleanroom_model_errors_total") == {}


async def test_calls_are_counted_by_how_they_ended_and_no_name_is_made_up(address: str, client: Client, fake: FakeOllama) -> None:
    bad = [("task_add", {}), ("task_complete", {"id": 99}), ("a_name_of_the_models_own", {})]
    fake.script(script.calls(*(script.tool_call(*call) for call in bad)), script.reply("Sorry."))
    chat = await client.new_chat()
    await client.say(chat, "try")
    await client.press(chat, "task_complete", id=98)
    figures = await read(address)
    assert named(figures, "cleanroom_tool_calls_total") == {"invalid task_add": 1, "tool_failed task_complete": 2, "not_found unknown": 1}
    assert named(figures, "cleanroom_turns_total") == {"complete": 1, "failed": 1}
    assert b"models_own" not in (await ask(address, "/metrics")).content


async def test_a_call_that_was_not_allowed_is_told_apart(address: str, client: Client, fake: FakeOllama) -> None:
    """While it waits, so does a turn; neither is waited for by the model."""
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, approval="before")
    fake.script(script.call("task_add", {"title": "milk"}), script.reply("Well then."))
    sent = await client.ok("message.send", chat_id=chat, client_id="1", text="add milk")
    card = (await client.event("message.created", lambda event: "approval" in event["message"].get("card", {})))["message"]["card"]
    await client.event("turn.waiting")
    figures = await read(address)
    assert (named(figures, "cleanroom_turns_running"), named(figures, "cleanroom_turns_waiting")) == ({"": 1}, {"person": 1})
    await client.ok("tool.answer", chat_id=chat, call_id=card["approval"]["call_id"], answer="deny")
    await client.finished(sent["turn_id"])
    figures = await read(address)
    assert named(figures, "cleanroom_tool_calls_total") == {"denied task_add": 1}
    assert named(figures, "cleanroom_turns_waiting") == {}


async def test_sockets_and_turns_are_counted_while_they_are_there(address: str, client: Client, fake: FakeOllama) -> None:
    word, end = asyncio.Event(), asyncio.Event()
    fake.script([script.hold(word), script.text("a"), script.hold(end), script.done()])
    chat = await client.new_chat()
    sent = await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
    await fake.wait_for_requests(1)
    async with Client.connect(address):
        figures = await read(address)
        assert (figures["cleanroom_sockets"], figures["cleanroom_turns_running"], named(figures, "cleanroom_turns_waiting")) == (2, 1, {"model": 1})
    word.set()
    await client.event("message.delta")
    figures = await read(address)
    assert (figures["cleanroom_turns_running"], named(figures, "cleanroom_turns_waiting")) == (1, {})
    end.set()
    await client.finished(sent["turn_id"])
    assert named(await read(address), "cleanroom_turns_running") == {}


async def test_model_errors_are_counted_by_kind(address: str, client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    for fault in (script.err_mid(), script.err_first(), script.err_first()):
        fake.script(fault)
        await client.say(chat, "hi")
    fake.script(script.not_found_404("fake:tools"))
    await client.say(chat, "hi")
    figures = await read(address)
    assert named(figures, "cleanroom_model_errors_total") == {"BrokenStream": 1, "ModelUnavailable": 2, "ModelNotFound": 1}
    assert named(figures, "cleanroom_turns_total") == {"interrupted": 1, "failed": 3}


async def test_a_stopped_turn_is_no_error(address: str, client: Client, fake: FakeOllama) -> None:
    fake.script(script.hang_mid("half"))
    chat = await client.new_chat()
    sent = await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
    await client.event("message.delta")
    await client.ok("turn.stop", chat_id=chat)
    await client.finished(sent["turn_id"])
    figures = await read(address)
    assert named(figures, "cleanroom_turns_total") == {"stopped": 1}
    assert named(figures, "cleanroom_model_errors_total") == named(figures, "cleanroom_tokens_total") == {}


async def test_clears_are_counted_by_reason(address: str, client: Client, fake: FakeOllama) -> None:
    fake.default = lambda _: script.reply("Well.")
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, ttl_messages=3)
    await client.press(chat, "task_add", title="milk")
    await client.press(chat, "note_save", title="a", content="b")  # switched
    await client.ok("context.clear", chat_id=chat)
    await client.ok("context.clear", chat_id=chat)  # nothing is there to clear
    await client.press(chat, "task_add", title="milk")
    for _ in range(3):
        await client.say(chat, "something else")  # expired
    await client.press(chat, "system_prompt_draft", content="Be brief.")
    await client.press(chat, "system_prompt_apply")
    pending = (await client.context(chat))["pending_transaction"]
    await client.ok("transaction.answer", chat_id=chat, transaction_id=pending["transaction_id"], answer="yes")
    assert named(await read(address), "cleanroom_clears_total") == {"switched": 1, "manual": 1, "expired": 1, "confirmed": 1}


async def test_a_turn_that_can_not_be_settled_is_counted_once(address: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def settle(*_: object) -> None:
        raise sqlite3.InterfaceError("odd")

    monkeypatch.setattr(Settlement, "settle", settle)
    assert (await client.say(await client.new_chat(), "hi"))["status"] == "failed"
    assert named(await read(address), "cleanroom_turns_total") == {"failed": 1}


async def test_counters_begin_at_zero_and_each_server_has_its_own(address: str, client: Client, tmp_path: Path, fake: FakeOllama) -> None:
    await client.say(await client.new_chat(), "hi")
    async with running(make_settings(tmp_path / "other", fake)) as other:
        assert named(await read(other), "cleanroom_turns_total") == {}
        page = (await ask(other, "/metrics")).content.decode()
    for line in ('turns_total{outcome="failed"} 0.0', 'clears_total{reason="expired"} 0.0', 'tokens_total{kind="reply"} 0.0'):
        assert f"cleanroom_{line}\n" in page


async def test_figures_are_for_those_who_may_come_in(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, access_token=TOKEN)) as address:
        assert (await ask(address, "/metrics")).status == 401
        assert (await ask(address, "/metrics", f"Authorization: Bearer {TOKEN}")).status == 200
        assert (await ask(address, "/metrics", f"Authorization: Bearer {TOKEN}", host="evil.example")).status == 403
