"""Temporary chats leave nothing behind, however they end, and can be kept."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backend.services import temporary
from backend.store import chats
from backend.store.connection import Connection
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, make_settings, rows, running
from tests.store.conftest import files_with

pytestmark = pytest.mark.anyio

SECRET = "xylophoneqq"
TABLES = ("chats", "chat_messages", "session_states", "system_prompts", "snapshots", "context_events", "reply_variants", "paused_turns")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the server starts; longer than a chat that was just made needs to be opened."""
    monkeypatch.setattr(temporary, "GRACE_SECONDS", 1.0)


def nothing_is_left(folder: Path) -> bool:
    return all(rows(folder, f"SELECT 1 FROM {table}") == [] for table in TABLES)


async def filled(client: Client, fake: FakeOllama) -> str:
    """A temporary chat with a message, working material and a prompt."""
    fake.script(script.reply(f"about {SECRET}"))
    chat = await client.new_chat(temporary=True)
    await client.say(chat, f"a question on {SECRET}")
    await client.press(chat, "system_prompt_draft", content=f"Mind {SECRET}.")
    return chat


async def test_a_temporary_chat_says_so_and_can_be_kept(address: str, client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat(temporary=True)
    assert (await client.event("chat.created"))["chat"]["temporary"] is True
    kept = (await client.ok("chat.update", chat_id=chat, temporary=False))["chat"]
    assert kept["temporary"] is False
    await client.refused("invalid", "chat.update", chat_id=chat, temporary=True)
    async with Client.connect(address) as other:
        assert other.welcome["chats"][0]["temporary"] is False


async def test_other_chats_are_not_temporary(client: Client) -> None:
    assert (await client.ok("chat.create"))["chat"]["temporary"] is False


async def test_what_nobody_watches_goes_and_every_page_hears_of_it(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    async with Client.connect(address) as other:
        watched = await client.new_chat(temporary=True)
        chat = await filled(other, fake)
        kept = await other.new_chat(title="kept")
        await client.ok("tool.list")
        assert client.of("chat.deleted") == []
    await client.event("chat.deleted", lambda event: event["chat_id"] == chat)
    assert {row["id"] for row in rows(tmp_path, "SELECT id FROM chats")} == {watched, kept}
    assert [event["chat_id"] for event in client.of("chat.deleted")] == [chat]


async def test_one_that_was_never_opened_goes_too(client: Client, tmp_path: Path) -> None:
    chat = (await client.ok("chat.create", temporary=True))["chat"]["id"]
    await client.event("chat.deleted", lambda event: event["chat_id"] == chat)
    assert nothing_is_left(tmp_path)


async def test_one_that_is_watched_again_in_time_stays(address: str, client: Client, tmp_path: Path) -> None:
    """A page that is loaded again: the time begins anew each time."""
    chat = await client.new_chat(temporary=True)
    for _ in range(3):
        await client.ok("chat.close", chat_id=chat)
        await client.ok("chat.open", chat_id=chat)
    other = (await client.ok("chat.create", temporary=True))["chat"]["id"]
    await client.event("chat.deleted", lambda event: event["chat_id"] == other)
    assert [row["id"] for row in rows(tmp_path, "SELECT id FROM chats")] == [chat]


async def test_one_that_was_kept_stays_unwatched(client: Client, tmp_path: Path) -> None:
    kept = (await client.ok("chat.create", temporary=True))["chat"]["id"]
    await client.ok("chat.update", chat_id=kept, temporary=False)
    gone = (await client.ok("chat.create", temporary=True))["chat"]["id"]
    await client.event("chat.deleted", lambda event: event["chat_id"] == gone)
    assert [row["id"] for row in rows(tmp_path, "SELECT id FROM chats")] == [kept]


async def test_one_that_is_kept_at_the_last_moment_stays(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was still temporary when it was looked for."""
    kept = (await client.ok("chat.create"))["chat"]["id"]
    gone = (await client.ok("chat.create", temporary=True))["chat"]["id"]

    async def both(tx: Connection) -> list[str]:
        return [row["id"] for row in await tx.fetch_all("SELECT id FROM chats")]

    monkeypatch.setattr(chats, "list_temporary", both)
    await client.event("chat.deleted")
    await client.ok("chat.create")
    assert kept in {row["id"] for row in rows(tmp_path, "SELECT id FROM chats")}
    assert [event["chat_id"] for event in client.of("chat.deleted")] == [gone]


async def test_a_running_turn_is_stopped_first(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.hang_mid("text without end"))
    chat = await client.new_chat(temporary=True)
    await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
    await client.event("message.delta")
    await client.ok("chat.close", chat_id=chat)
    await client.event("chat.deleted")
    assert (await fake.wait_ended(0, seconds=1)).closed_early
    assert nothing_is_left(tmp_path)


async def test_a_clean_stop_leaves_no_byte(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        await filled(client, fake)
        assert files_with(SECRET, tmp_path) != []
    assert nothing_is_left(tmp_path)
    assert files_with(SECRET, tmp_path) == []


async def test_a_stop_in_the_middle_of_a_reply_leaves_nothing(tmp_path: Path, fake: FakeOllama) -> None:
    fake.script(script.hang_mid(f"much about {SECRET}"))
    async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat(temporary=True)
        await client.ok("message.send", chat_id=chat, client_id="1", text=SECRET)
        await client.event("message.delta")
    assert nothing_is_left(tmp_path)
    assert files_with(SECRET, tmp_path) == []


async def test_the_start_after_a_crash_deletes_before_anything_is_served(tmp_path: Path, fake: FakeOllama) -> None:
    settings = make_settings(tmp_path, fake)
    async with running(settings) as address, Client.connect(address) as client:
        kept = await client.new_chat(title="kept")
        lost = await client.new_chat()
        await client.say(lost, f"about {SECRET}")
        # As a process that ended without its clean stop leaves it.
        rows_before = rows(tmp_path, "SELECT id FROM chats")
    assert len(rows_before) == 2
    _write(tmp_path, f"UPDATE chats SET temporary = 1 WHERE id = '{lost}'")
    async with running(settings) as address, Client.connect(address) as client:
        assert [chat["id"] for chat in client.welcome["chats"]] == [kept]
        assert files_with(SECRET, tmp_path) == []


async def test_facts_made_in_one_stay(client: Client, tmp_path: Path) -> None:
    """They are the workspace's, not the chat's."""
    chat = await client.new_chat(temporary=True)
    await client.press(chat, "task_add", title="Water the plants")
    await client.ok("chat.delete", chat_id=chat)
    assert rows(tmp_path, "SELECT title, session_id FROM tasks") == [{"title": "Water the plants", "session_id": None}]


async def test_closing_its_tab_deletes_it_to_the_last_byte(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await filled(client, fake)
    await client.ok("chat.delete", chat_id=chat)
    assert nothing_is_left(tmp_path)
    async with asyncio.timeout(10):
        while files_with(SECRET, tmp_path):
            await asyncio.sleep(0.1)


def _write(folder: Path, sql: str) -> None:
    with closing(sqlite3.connect(folder / "cleanroom.db")) as database, database:
        database.execute(sql)
