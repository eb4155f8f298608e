"""Auto-TTL over real sockets: when working material goes, what is told, and how it comes back."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.services import working
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio


async def draft(client: Client, chat: str, content: str = "CANARY draft") -> None:
    assert (await client.press(chat, "system_prompt_draft", content=content))["status"] == "complete"


def ephemeral(folder: Path) -> list[Json]:
    return rows(folder, "SELECT * FROM chat_messages WHERE is_ephemeral = 1 ORDER BY id")


async def state(client: Client, chat: str) -> tuple[str | None, int]:
    context = await client.context(chat)
    return context["active_tool"], context["unrelated_count"]


def execute(folder: Path, sql: str) -> None:
    with closing(sqlite3.connect(folder / "cleanroom.db")) as database, database:
        database.execute(sql)


def audit(folder: Path) -> list[tuple[str, str, str | None]]:
    return [(row["kind"], row["reason"], row["family"]) for row in rows(folder, "SELECT kind, reason, family FROM context_events ORDER BY id")]


@pytest.mark.parametrize("ttl_messages", [3, 4, 5])
async def test_material_expires_at_the_limit_and_not_before(client: Client, tmp_path: Path, ttl_messages: int) -> None:
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, ttl_messages=ttl_messages)
    await draft(client, chat)
    (card,) = ephemeral(tmp_path)
    for count in range(1, ttl_messages):
        await client.say(chat, f"unrelated {count}")
        assert await state(client, chat) == ("system_prompt", count)
    assert len(ephemeral(tmp_path)) == 1
    assert client.of("context.cleared") == []
    await client.say(chat, "the last one")
    assert await state(client, chat) == (None, 0)
    assert ephemeral(tmp_path) == rows(tmp_path, "SELECT * FROM session_states") == []
    (event,) = client.of("context.cleared")
    assert (event["reason"], event["family"], event["message_ids"], event["messages"]) == ("expired", "system_prompt", [card["id"]], 1)
    assert event["tokens"] > 0
    assert datetime.fromisoformat(event["undo_until"]) > datetime.now(UTC)
    assert audit(tmp_path) == [("cleared", "expired", "system_prompt")]
    assert rows(tmp_path, "SELECT content, status FROM system_prompts") == [{"content": "CANARY draft", "status": "draft"}]  # the fact stays


async def test_deleting_is_physical(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="CANARY-in-a-card")
    await client.press(chat, "task_delete", id=1)
    await client.press(chat, "task_list")
    assert any("CANARY" in row["card"] for row in ephemeral(tmp_path))
    await client.ok("context.clear", chat_id=chat)
    assert rows(tmp_path, "SELECT 1 FROM chat_messages WHERE card IS NOT NULL") == []
    assert rows(tmp_path, "SELECT 1 FROM chat_messages WHERE is_ephemeral = 1") == []


async def test_stopped_and_failed_messages_count(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    fake.script(script.hang_mid("half"), script.reset_before_headers())
    stopped = await client.ok("message.send", chat_id=chat, client_id="1", text="one")
    await client.event("message.delta")
    await client.ok("turn.stop", chat_id=chat)
    await client.finished(stopped["turn_id"])
    assert await state(client, chat) == ("system_prompt", 1)
    assert (await client.say(chat, "two"))["status"] == "failed"
    assert await state(client, chat) == ("system_prompt", 2)
    await client.say(chat, "three")
    assert ephemeral(tmp_path)
    await client.say(chat, "four")
    assert not ephemeral(tmp_path)


async def test_a_regenerated_turn_counts_once(client: Client) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    await client.say(chat, "unrelated")
    for _ in range(4):
        await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    assert await state(client, chat) == ("system_prompt", 1)


async def test_buttons_never_count_as_unrelated(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    await client.say(chat, "unrelated")
    for _ in range(5):
        await client.press(chat, "task_complete", id=99)  # fails: no switch, and another family's
    assert await state(client, chat) == ("system_prompt", 1)
    await client.press(chat, "system_prompt_view")
    assert await state(client, chat) == ("system_prompt", 0)
    assert ephemeral(tmp_path)


async def test_a_related_message_starts_the_counter_again(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    await client.say(chat, "unrelated")
    fake.script(script.call("system_prompt_view", {}), script.reply("Here it is."))
    await client.say(chat, "show it")
    assert await state(client, chat) == ("system_prompt", 0)


async def test_reading_the_state_is_neither_related_nor_a_switch(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    fake.script(script.call("current_state", {}), script.reply("ok"))
    await client.say(chat, "what is there?")
    assert await state(client, chat) == ("system_prompt", 1)


async def test_a_failed_call_of_another_family_switches_nothing(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    fake.script(script.call("task_complete", {"id": 9}), script.reply("no"))
    await client.say(chat, "done with 9")
    assert await state(client, chat) == ("system_prompt", 1)
    assert client.of("context.cleared") == []


async def test_keep_starts_the_counter_again(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    for text in ("one", "two"):
        await client.say(chat, text)
    kept = (await client.ok("context.keep", chat_id=chat))["context"]
    assert (kept["active_tool"], kept["unrelated_count"]) == ("system_prompt", 0)
    assert client.of("context.state")[-1]["context"] == kept
    fake.script(script.hang_mid("text"))
    during = await client.ok("message.send", chat_id=chat, client_id="1", text="three")
    await client.event("message.delta", lambda event: event["text"] == "text")
    await client.ok("context.keep", chat_id=chat)
    await client.ok("turn.stop", chat_id=chat)
    await client.finished(during["turn_id"])
    assert await state(client, chat) == ("system_prompt", 0)  # pressed during a turn, it keeps that turn's count too


async def test_the_limit_can_be_lowered_on_the_way(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, ttl_messages=5)
    await draft(client, chat)
    for text in ("one", "two", "three"):
        await client.say(chat, text)
    await client.ok("chat.update", chat_id=chat, ttl_messages=3)
    assert client.of("context.state")[-1]["context"]["ttl_messages"] == 3
    assert ephemeral(tmp_path)
    await client.say(chat, "four")
    assert not ephemeral(tmp_path)
    for wrong in (2, 6, "4"):
        await client.refused("invalid", "chat.update", chat_id=chat, ttl_messages=wrong)


async def test_another_familys_tool_clears_the_former_ones_material_first(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    old = [row["id"] for row in ephemeral(tmp_path)]
    fake.script(script.call("task_add", {"title": "milk"}, before="I'll add it."), script.reply("Added."))
    await client.say(chat, "buy milk")
    (event,) = client.of("context.cleared")
    assert (event["reason"], event["family"], event["message_ids"]) == ("switched", "system_prompt", old)
    kinds = [e["type"] for e in client.events if e.get("chat_id") == chat]
    card = next(e for e in client.of("message.created") if e["message"].get("tool") == "task_add")
    assert kinds.index("context.cleared") < client.events.index(card)
    assert event["seq"] < card["seq"]
    assert await state(client, chat) == ("tasks", 0)
    assert [(row["family"], row["role"]) for row in ephemeral(tmp_path)] == [("tasks", "assistant"), ("tasks", "tool")]
    assert "CANARY" not in fake.requests[1].raw.decode()


async def test_of_two_families_in_one_turn_the_last_is_active(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(
        script.calls(script.tool_call("system_prompt_draft", {"content": "CANARY"}), script.tool_call("task_add", {"title": "milk"})),
        script.reply("Both."), script.reply("next"),
    )  # fmt: skip
    chat = await client.new_chat()
    await client.say(chat, "both")
    assert await state(client, chat) == ("tasks", 0)
    assert [row["tool"] for row in ephemeral(tmp_path)] == ["task_add"]
    assert [(e["reason"], e["family"], e["messages"]) for e in client.of("context.cleared")] == [("switched", "system_prompt", 1)]
    assert {"system_prompt_apply", "task_complete"} <= set(fake.requests[1].tool_names)  # both are open within the turn
    await client.say(chat, "go on")
    assert "CANARY" not in fake.requests[2].raw.decode()
    assert "system_prompt_apply" not in fake.requests[2].tool_names


async def test_a_failed_card_alone_ages_too(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_complete", id=99)
    assert len(ephemeral(tmp_path)) == 1
    for number in range(4):
        await client.say(chat, f"message {number}")
    assert not ephemeral(tmp_path)
    assert [(e["reason"], e["family"]) for e in client.of("context.cleared")] == [("expired", None)]


async def test_clear_now_and_undo(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    await client.say(chat, "unrelated")
    before, shown = ephemeral(tmp_path), await client.messages(chat)
    async with Client.connect(address) as other:
        await other.messages(chat)
        cleared = (await client.ok("context.clear", chat_id=chat))["context"]
        assert (cleared["active_tool"], cleared["ephemeral_messages"], cleared["unrelated_count"]) == (None, 0, 0)
        event = await other.event("context.cleared")
        assert (event["reason"], event["message_ids"]) == ("manual", [row["id"] for row in before])
        assert cleared["undo_until"] == event["undo_until"]
        back = (await client.ok("context.undo", chat_id=chat))["context"]
        assert (back["active_tool"], back["ephemeral_messages"]) == ("system_prompt", len(before))
        restored = await other.event("context.restored")
        assert [message["id"] for message in restored["messages"]] == [row["id"] for row in before]
    assert ephemeral(tmp_path) == before
    assert await client.messages(chat) == shown
    await client.say(chat, "and the draft?")
    assert "CANARY draft" in fake.requests[-1].messages[-2]["content"]  # what was in hand is in hand again
    await client.refused("conflict", "context.undo", chat_id=chat)
    assert audit(tmp_path) == [("cleared", "manual", "system_prompt"), ("restored", "undo", "system_prompt")]


async def test_undo_of_what_expired_and_of_a_switch(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    before = ephemeral(tmp_path)
    for number in range(4):
        await client.say(chat, f"unrelated {number}")
    assert not ephemeral(tmp_path)
    await client.ok("context.undo", chat_id=chat)
    assert ephemeral(tmp_path) == before
    assert await state(client, chat) == ("system_prompt", 0)
    await client.press(chat, "task_add", title="milk")
    assert await state(client, chat) == ("tasks", 0)
    await client.ok("context.undo", chat_id=chat)
    assert await state(client, chat) == ("system_prompt", 0)
    assert [row for row in ephemeral(tmp_path) if row["family"] == "system_prompt"] == before


async def test_undo_is_for_the_last_clearing_only(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    await client.ok("context.clear", chat_id=chat)
    await client.press(chat, "task_add", title="milk")
    await client.ok("context.clear", chat_id=chat)
    await client.ok("context.undo", chat_id=chat)
    assert [row["family"] for row in ephemeral(tmp_path)] == ["tasks"]
    await client.refused("conflict", "context.undo", chat_id=chat)


async def test_clearing_nothing_is_no_event_and_keeps_the_undo(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.ok("context.clear", chat_id=chat)
    assert client.of("context.cleared") == []
    await client.refused("conflict", "context.undo", chat_id=chat)
    await draft(client, chat)
    for _ in range(2):
        await client.ok("context.clear", chat_id=chat)
    await client.ok("context.undo", chat_id=chat)
    assert len(ephemeral(tmp_path)) == 1


async def test_undo_after_a_yes_is_a_conflict(client: Client) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    await client.press(chat, "system_prompt_apply")
    banner = await client.event("transaction_completed")
    await client.ok("transaction.answer", chat_id=chat, transaction_id=banner["transaction_id"], answer="yes")
    assert client.of("context.cleared")[-1]["undo_until"] is None
    await client.refused("conflict", "context.undo", chat_id=chat)


async def test_undo_from_two_sockets_at_once_happens_once(address: str, client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    async with Client.connect(address) as other:
        await client.ok("context.clear", chat_id=chat)
        replies = await asyncio.gather(*(one.command("context.undo", chat_id=chat) for one in (client, other)))
    assert sorted(reply.get("code", "ok") for reply in replies) == ["conflict", "ok"]
    assert len(ephemeral(tmp_path)) == 1


async def test_after_its_time_nothing_is_held_any_more(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "UNDO_SECONDS", 0.05)
    chat = await client.new_chat()
    await draft(client, chat)
    await client.ok("context.clear", chat_id=chat)
    async with asyncio.timeout(5):
        while "undo_until" in await client.context(chat) and (await client.context(chat))["undo_until"] is not None:
            await asyncio.sleep(0.01)
    await client.refused("conflict", "context.undo", chat_id=chat)
    assert not ephemeral(tmp_path)


async def test_a_deleted_chat_leaves_nothing_to_undo(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await draft(client, chat)
    await client.ok("context.clear", chat_id=chat)
    await client.ok("chat.delete", chat_id=chat)
    for command in ("context.undo", "context.keep", "context.clear", "context.get"):
        await client.refused("not_found", command, chat_id=chat)
    assert rows(tmp_path, "SELECT * FROM session_states") == rows(tmp_path, "SELECT * FROM chat_messages") == []


async def test_a_restart_keeps_the_counter(tmp_path: Path, fake: FakeOllama) -> None:
    settings = make_settings(tmp_path, fake)
    async with running(settings) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await draft(client, chat)
        for text in ("one", "two", "three"):
            await client.say(chat, text)
    async with running(settings) as address, Client.connect(address) as client:
        await client.messages(chat)
        assert await state(client, chat) == ("system_prompt", 3)
        await client.say(chat, "four")
        assert await state(client, chat) == (None, 0)
    assert not ephemeral(tmp_path)


async def test_chats_age_apart(client: Client, tmp_path: Path) -> None:
    one, two = await client.new_chat(), await client.new_chat()
    await draft(client, one)
    await draft(client, two)
    for number in range(4):
        await client.say(one, f"unrelated {number}")
    assert [row["session_id"] for row in ephemeral(tmp_path)] == [two]
    assert await state(client, two) == ("system_prompt", 0)


async def test_a_clearing_that_fails_changes_nothing(client: Client, tmp_path: Path) -> None:
    """Material, state and record go together: a record that can't be written keeps the material."""
    chat = await client.new_chat()
    await draft(client, chat)
    before = ephemeral(tmp_path)
    execute(tmp_path, "CREATE TRIGGER no_records BEFORE INSERT ON context_events BEGIN SELECT RAISE(ABORT, 'no'); END")
    reply = await client.command("context.clear", chat_id=chat)
    assert reply["type"] == "error"
    assert ephemeral(tmp_path) == before
    assert await state(client, chat) == ("system_prompt", 0)
    assert client.of("context.cleared") == []
    execute(tmp_path, "DROP TRIGGER no_records")
    await client.ok("context.clear", chat_id=chat)
