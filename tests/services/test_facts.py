"""The facts beside a chat, the news of their changes, and families that a chat turns off."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.services.records import iso
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, make_settings, rows, running
from tests.store.conftest import files_with

pytestmark = pytest.mark.anyio


async def test_facts_are_this_chats_prompts_and_the_workspaces_tasks_and_notes(client: Client) -> None:
    chat, other = await client.new_chat(), await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="Be kind.")
    await client.press(chat, "task_add", title="milk")
    await client.press(chat, "task_add", title="tea")
    await client.press(chat, "task_delete", id=2)
    facts = await client.ok("facts.get", chat_id=chat)
    assert [(row["version"], row["status"], row["content"]) for row in facts["prompts"]] == [(1, "draft", "Be kind.")]
    assert [(row["id"], row["title"], row["done"]) for row in facts["tasks"]] == [(1, "milk", False)]
    assert [(row["kind"], row["fact_id"], row["title"]) for row in facts["deleted"]] == [("task", 2, "tea")]
    elsewhere = await client.ok("facts.get", chat_id=other)
    assert (elsewhere["prompts"], elsewhere["tasks"]) == ([], facts["tasks"])
    await client.refused("not_found", "facts.get", chat_id="nowhere")


async def test_every_socket_hears_of_changes_and_of_nothing_else(address: str, client: Client) -> None:
    chat = await client.new_chat()
    async with Client.connect(address) as other:
        await client.press(chat, "task_list")
        await client.press(chat, "task_add", title="milk")
        news = await other.event("facts.changed")
        assert (news["families"], len(other.of("facts.changed"))) == (["tasks"], 1)


async def test_a_family_that_is_off_is_not_offered_and_not_carried_out(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    updated = await client.ok("chat.update", chat_id=chat, families_off=["tasks"])
    assert updated["chat"]["families_off"] == ["tasks"]
    fake.script(script.call("task_add", {"title": "milk"}), script.reply("I can't."))
    await client.say(chat, "add milk")
    assert not any(name.startswith("task_") for name in fake.requests[0].tool_names)
    assert "no tool 'task_add'" in fake.requests[1].messages[-1]["content"]
    assert (await client.press(chat, "task_add", title="milk"))["status"] == "complete"  # the person may still

    families = {family["name"]: family for family in (await client.ok("context.inspect", chat_id=chat))["families"]}
    assert (families["tasks"]["on"], families["tasks"]["tokens"], families["tasks"]["open"]) == (False, 0, True)
    assert families["system_prompt"]["on"] and families["system_prompt"]["tokens"] > 0


@pytest.mark.parametrize(("days", "is_kept"), [(0, True), (2, False)])
async def test_a_deleted_fact_is_kept_for_a_day_and_then_is_in_no_file(tmp_path: Path, fake: FakeOllama, days: int, is_kept: bool) -> None:
    settings, canary = make_settings(tmp_path, fake), "canary" * 200
    async with running(settings) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.press(chat, "note_save", title="Plan", content=canary)
        await client.press(chat, "note_delete", id=1)
        await client.ok("chat.delete", chat_id=chat)  # the card of it had the text too
    with closing(sqlite3.connect(tmp_path / "cleanroom.db")) as database, database:
        ago = iso(datetime.now(UTC) - timedelta(days=days))
        assert database.execute("UPDATE deleted_facts SET deleted_at = ?", (ago,)).rowcount == 1
    async with running(settings):
        assert bool(rows(tmp_path, "SELECT 1 FROM deleted_facts")) == is_kept
    assert bool(files_with("canary", tmp_path)) == is_kept
