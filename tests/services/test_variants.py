"""Variants of a reply: the shown one alone is in the LLM channel, and none of them is ever lost."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backend.llm import agent
from backend.store.erase import compact, erase, rows_to_erase
from tests import fake_ollama as script
from tests.fake_ollama import ChatRequest, FakeOllama
from tests.replay import replayed
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio

VARIANTS = "SELECT position, content, status, receipts FROM reply_variants ORDER BY position"


async def again(client: Client, chat: str) -> Json:
    """Have the last reply made anew; the `turn.finished` event."""
    return await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])


async def replied(client: Client, fake: FakeOllama, *texts: str) -> str:
    """A chat with one question and as many replies to it as there are texts."""
    fake.script(*(script.reply(text) for text in texts))
    chat = await client.new_chat()
    await client.say(chat, "question")
    for _ in texts[1:]:
        assert (await again(client, chat))["status"] == "complete"
    return chat


def said(request: ChatRequest) -> list[str]:
    """What the request's user and assistant messages say; calls have no text."""
    return [m["content"] for m in request.messages if m["role"] in ("user", "assistant") and m["content"]]


def called(request: ChatRequest) -> list[str]:
    return [call["function"]["name"] for m in request.messages for call in m.get("tool_calls", ()) if call["function"]["name"] != "current_state"]


async def test_a_reply_made_anew_keeps_the_earlier_ones(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.thinking_then_text("a thought", "first"), script.reply("second"), script.reply("third"))
    chat = await client.new_chat()
    await client.say(chat, "question")
    first = (await client.messages(chat))[-1]
    async with replayed(address, chat):
        assert "variant" not in first
        await again(client, chat)
        assert (await client.messages(chat))[-1]["variant"] == {"index": 2, "count": 2}
        await again(client, chat)
    shown = await client.messages(chat)
    assert [(m["role"], m["content"]) for m in shown] == [("user", "question"), ("assistant", "third")]
    assert shown[-1]["variant"] == {"index": 3, "count": 3}
    assert [(row["position"], row["content"]) for row in rows(tmp_path, VARIANTS)] == [(1, "first"), (2, "second")]
    assert [said(request) for request in fake.requests] == [["question"]] * 3  # no reply is shown to the one in its place

    async with replayed(address, chat):
        back = (await client.ok("message.variant", message_id=shown[-1]["id"], index=1))["message"]
    assert (back["id"], back["content"], back["thinking"]) == (shown[-1]["id"], "first", "a thought")
    assert (back["created_at"], back["model"], back["metrics"]) == (first["created_at"], first["model"], first["metrics"])
    assert back["variant"] == {"index": 1, "count": 3}
    assert (await client.messages(chat))[-1] == back
    assert [row["position"] for row in rows(tmp_path, VARIANTS)] == [2, 3]


async def test_only_the_shown_variant_is_sent_and_found(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await replied(client, fake, "wombats", "capybaras")
    reply = (await client.messages(chat))[-1]["id"]
    for index, shown in ((1, "wombats"), (2, "capybaras"), (1, "wombats")):
        await client.ok("message.variant", message_id=reply, index=index)
        inspected = await client.ok("context.inspect", chat_id=chat)
        assert [m["content"] for m in inspected["messages"] if m["part"] == "history"] == ["question", shown]
        assert inspected["withheld"] == []
        found = [rows(tmp_path, "SELECT rowid FROM message_index WHERE message_index MATCH ?", word) for word in ("wombats", "capybaras")]
        assert [bool(hits) for hits in found] == [shown == "wombats", shown == "capybaras"]
    await client.say(chat, "next")
    assert said(fake.requests[-1]) == ["question", "wombats", "next"]


async def test_a_variant_can_be_chosen_long_afterwards(client: Client, fake: FakeOllama) -> None:
    chat = await replied(client, fake, "one", "two")
    reply = (await client.messages(chat))[-1]["id"]
    await client.say(chat, "next")
    await client.ok("message.variant", message_id=reply, index=1)
    await client.say(chat, "after that")
    assert said(fake.requests[-1])[:3] == ["question", "one", "next"]
    assert (await again(client, chat))["status"] == "complete"
    assert [m.get("variant", {}).get("index") for m in await client.messages(chat) if m["role"] == "assistant"] == [1, None, 2]


async def test_what_a_variant_read_travels_with_it_and_what_any_did_stays(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(
        script.calls(script.tool_call("task_list", {}), script.tool_call("task_add", {"title": "milk"})),
        script.reply("listed and added"),
        script.reply("from memory"),
        script.call("note_list", {}),
        script.reply("noted"),
    )
    chat = await client.new_chat()
    await client.say(chat, "question")
    async with replayed(address, chat):
        await again(client, chat)
        assert called(fake.requests[2]) == ["task_add"]
        await again(client, chat)
        reply = (await client.messages(chat))[-1]["id"]
        assert [row["receipts"].count("outcome") for row in rows(tmp_path, VARIANTS)] == [1, 0]
        for index, calls in ((1, ["task_list", "task_add"]), (2, ["task_add"]), (3, ["note_list", "task_add"]), (1, ["task_list", "task_add"])):
            await client.ok("message.variant", message_id=reply, index=index)
            await client.say(chat, f"and variant {index}?")
            assert called(fake.requests[-1]) == calls
    assert len(rows(tmp_path, "SELECT 1 FROM tasks")) == 1
    receipt = rows(tmp_path, "SELECT id FROM chat_messages WHERE role = 'tool' AND is_ephemeral = 0")
    assert len(receipt) == 1 and receipt[0]["id"] < reply


async def test_a_receipt_comes_and_goes_with_the_variant_that_has_one(address: str, client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("task_list", {}), script.reply("listed"), script.reply("from memory"))
    chat = await client.new_chat()
    await client.say(chat, "question")
    await again(client, chat)
    reply = (await client.messages(chat))[-1]["id"]
    async with replayed(address, chat):
        for index, calls in ((1, ["task_list"]), (2, []), (1, ["task_list"])):
            await client.ok("message.variant", message_id=reply, index=index)
            await client.say(chat, "next")
            assert called(fake.requests[-1]) == calls
    roles = [m["role"] for m in await client.messages(chat)][:3]
    assert roles == ["user", "tool", "assistant"]


@pytest.mark.parametrize(
    "fault", [script.err_first(), script.reset_before_headers(), script.thinking_then_text("only a thought", "")], ids=["500", "reset", "empty"]
)
async def test_a_run_that_comes_to_nothing_gives_the_reply_back(address: str, client: Client, fake: FakeOllama, tmp_path: Path, fault: script.Script) -> None:
    fake.script(script.call("task_list", {}), script.reply("kept"), fault, fault)
    chat = await client.new_chat()
    await client.say(chat, "question")
    before = (await client.messages(chat))[-1]
    async with replayed(address, chat):
        ended = await again(client, chat)
    assert ended["status"] == "failed"
    question, _, back = await client.messages(chat)
    assert (question["status"], question["metrics"]["error"]) == ("failed", ended["error"])
    assert {**back, "id": 0, "turn_id": ""} == {**before, "id": 0, "turn_id": ""}
    assert rows(tmp_path, VARIANTS) == []
    await client.say(chat, "next")
    assert said(fake.requests[-1]) == ["question", "kept", "next"] and called(fake.requests[-1]) == ["task_list"]


async def test_a_run_that_comes_to_nothing_gives_the_newest_variant_back(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await replied(client, fake, "one", "two")
    await client.ok("message.variant", message_id=(await client.messages(chat))[-1]["id"], index=1)
    fake.script(script.err_first(), script.reply("three"))
    assert (await again(client, chat))["status"] == "failed"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["variant"]) == ("two", {"index": 2, "count": 2})
    assert (await again(client, chat))["status"] == "complete"
    question, shown = await client.messages(chat)
    assert (question["status"], shown["content"], shown["variant"]) == ("complete", "three", {"index": 3, "count": 3})
    assert [row["content"] for row in rows(tmp_path, VARIANTS)] == ["one", "two"]


@pytest.mark.parametrize("hanging", [script.hang_before_headers(), [script.thinking("hm"), script.hang()]], ids=["silent", "thinking"])
async def test_stop_before_the_first_word_gives_the_reply_back(address: str, client: Client, fake: FakeOllama, hanging: script.Script) -> None:
    chat = await replied(client, fake, "kept")
    fake.script(hanging)
    async with replayed(address, chat):
        turn = (await client.ok("turn.regenerate", chat_id=chat))["turn_id"]
        await fake.wait_for_requests(2)
        await client.ok("turn.stop", chat_id=chat)
        assert (await client.finished(turn))["status"] == "stopped"
    assert [(m["content"], m["status"]) for m in await client.messages(chat)] == [("question", "complete"), ("kept", "complete")]


async def test_text_before_the_stop_or_the_break_is_a_variant_of_its_own(client: Client, fake: FakeOllama) -> None:
    chat = await replied(client, fake, "whole")
    fake.script(script.hang_mid("half"), script.reset_mid("brok", "en"))
    turn = (await client.ok("turn.regenerate", chat_id=chat))["turn_id"]
    await client.event("message.delta", lambda event: event["text"] == "half")
    await client.ok("turn.stop", chat_id=chat)
    await client.finished(turn)
    assert (await again(client, chat))["status"] == "interrupted"
    shown = (await client.messages(chat))[-1]
    assert (shown["content"], shown["status"], shown["variant"]) == ("broken", "interrupted", {"index": 3, "count": 3})
    half = (await client.ok("message.variant", message_id=shown["id"], index=2))["message"]
    assert (half["content"], half["status"]) == ("half", "stopped")


async def test_failed_tries_without_any_reply_leave_nothing_behind(
    address: str, client: Client, fake: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "BUSY_SECONDS", 0.0)
    fake.script(*[script.busy_503()] * 4)
    chat = await client.new_chat()
    async with replayed(address, chat):
        assert (await client.say(chat, "m1"))["status"] == "failed"
        for _ in range(3):
            assert (await again(client, chat))["status"] == "failed"
    (message,) = await client.messages(chat)
    assert (message["content"], message["status"]) == ("m1", "failed")
    assert rows(tmp_path, "SELECT 1 FROM chat_messages WHERE role = 'assistant' UNION ALL SELECT 1 FROM reply_variants") == []
    assert (await client.say(chat, "m2"))["status"] == "complete"


async def test_what_can_not_be_shown_is_refused(client: Client, fake: FakeOllama) -> None:
    chat = await replied(client, fake, "one", "two")
    question, reply = [m["id"] for m in await client.messages(chat)]
    await client.refused("not_found", "message.variant", message_id=reply + 99, index=1)
    await client.refused("invalid", "message.variant", message_id=reply, index=3)
    await client.refused("invalid", "message.variant", message_id=reply, index=0)
    await client.refused("conflict", "message.variant", message_id=question, index=1)
    assert (await client.ok("message.variant", message_id=reply, index=2))["message"]["content"] == "two"  # it is shown already
    fake.script(script.hang_mid("three"))
    await client.ok("message.send", chat_id=chat, client_id="1", text="next")
    await client.event("message.delta", lambda event: event["text"] == "three")
    await client.refused("turn_running", "message.variant", message_id=reply, index=1)
    await client.ok("turn.stop", chat_id=chat)
    single = (await client.messages(chat))[-1]["id"]
    await client.refused("conflict", "message.variant", message_id=single, index=1)


@pytest.mark.parametrize("text", ["half a ", ""], ids=["with text", "before the first word"])
async def test_a_crash_while_another_reply_is_made_loses_none(tmp_path: Path, fake: FakeOllama, text: str) -> None:
    settings = make_settings(tmp_path / "before", fake)
    after = make_settings(tmp_path / "after", fake)
    async with running(settings) as address, Client.connect(address) as client:
        chat = await replied(client, fake, "one", "two")
        fake.script(script.hang_mid(text) if text else [script.thinking("hm"), script.hang()])
        await client.ok("turn.regenerate", chat_id=chat)
        await client.event("message.delta", lambda event: event["text"] in (text, "hm"))
        if text:  # what a second's save would write
            saved = f"UPDATE chat_messages SET content = '{text}' WHERE status = 'streaming'"
        with closing(sqlite3.connect(tmp_path / "before" / "cleanroom.db")) as old, closing(sqlite3.connect(tmp_path / "after" / "cleanroom.db")) as new:
            old.backup(new)
            if text:
                new.execute(saved)
                new.commit()
    async with running(after) as address, Client.connect(address) as client:
        shown = (await client.messages(chat))[-1]
        expected = (text, {"index": 3, "count": 3}) if text else ("two", {"index": 2, "count": 2})
        assert (shown["content"], shown["variant"]) == expected
        await client.ok("message.variant", message_id=shown["id"], index=1)
        assert (await again(client, chat))["status"] == "complete"


async def test_a_deleted_chat_takes_its_variants_along(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await replied(client, fake, "an unmistakable armadillo", "two")
    await client.ok("chat.delete", chat_id=chat)
    assert rows(tmp_path, "SELECT 1 FROM reply_variants") == []
    files = b"".join(path.read_bytes() for path in tmp_path.glob("cleanroom.db*"))
    assert b"armadillo" not in files


async def test_an_emptied_history_holds_no_variants(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        await replied(client, fake, "an unmistakable armadillo", "two")
    path = tmp_path / "cleanroom.db"
    counts = rows_to_erase(path, everything=False)
    assert counts["reply_variants"] == 1
    erase(path, list(counts))
    compact(path)
    assert b"armadillo" not in path.read_bytes()


async def test_a_question_about_a_turn_that_goes_is_closed(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    """The banner of an applied draft, the card and the draft in hand are of the run that goes; what was applied stays."""
    fake.script(
        script.call("system_prompt_draft", {"content": "Speak like a pirate."}),
        script.call("system_prompt_apply", {}),
        script.reply("applied"),
        script.reply("as I said"),
    )
    chat = await client.new_chat()
    await client.say(chat, "apply it")
    asked = await client.event("transaction_completed")
    async with replayed(address, chat):
        await again(client, chat)
        closed = await client.event("transaction.closed")
    assert (closed["transaction_id"], closed["answer"]) == (asked["transaction_id"], "expired")
    context = await client.context(chat)
    assert (context["active_tool"], context["pending_transaction"], context["ephemeral_messages"]) == (None, None, 0)
    assert rows(tmp_path, "SELECT status FROM system_prompts") == [{"status": "applied"}]
    assert called(fake.requests[-1]) == ["system_prompt_apply"]


async def test_a_draft_whose_card_goes_is_put_down_and_an_earlier_one_stays(client: Client, fake: FakeOllama) -> None:
    draft = script.call("system_prompt_draft", {"content": "The anemone draft."})
    fake.script(draft, script.reply("made"), script.call("system_prompt_versions", {}), script.reply("listed"), script.reply("told"))
    chat = await client.new_chat()
    await client.say(chat, "draft")
    await client.say(chat, "list the versions")
    await again(client, chat)
    assert "anemone" in fake.requests[-1].raw.decode()  # the list showed no draft: it is in hand still
    fake.script(draft, script.reply("made anew"), script.reply("other words"))
    await client.say(chat, "draft again")
    await again(client, chat)
    assert "anemone" not in fake.requests[-1].raw.decode()
    assert (await client.context(chat))["active_tool"] == "system_prompt"  # the first turn's card is there


async def test_made_anew_counts_once_for_the_ttl(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    await client.say(chat, "one")
    for _ in range(3):
        await again(client, chat)
    assert (await client.context(chat))["unrelated_count"] == 1


async def test_two_tabs_choose_at_once(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await replied(client, fake, "one", "two", "three")
    reply = (await client.messages(chat))[-1]["id"]
    async with replayed(address, chat), Client.connect(address) as other:
        choices = [tab.ok("message.variant", message_id=reply, index=index) for tab, index in ((client, 1), (other, 2), (client, 3), (other, 1))]
        await asyncio.gather(*choices)
    shown = (await client.messages(chat))[-1]
    others = {row["position"]: row["content"] for row in rows(tmp_path, VARIANTS)}
    assert others | {shown["variant"]["index"]: shown["content"]} == {1: "one", 2: "two", 3: "three"}
