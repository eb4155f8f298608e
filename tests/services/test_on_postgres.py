"""The main journeys of a person with everything kept in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, make_settings, running
from tests.services.test_forks import conversation, fork, named
from tests.services.test_transactions import answer, apply

pytestmark = pytest.mark.anyio


@pytest.fixture
async def address(tmp_path: Path, fake: FakeOllama, postgres_url: str) -> AsyncIterator[str]:
    async with running(make_settings(tmp_path, fake, database_url=postgres_url)) as where:
        yield where


async def column(url: str, sql: str) -> list[object]:
    """Look into the server's database beside it."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(sql)
    await connection.close()
    return [row[0] for row in rows]


async def test_a_question_is_answered_found_and_gone_with_its_chat(client: Client, fake: FakeOllama, postgres_url: str) -> None:
    chat = await client.new_chat(title="Plants")
    fake.script(script.reply("In the shade of old trees."))
    await client.say(chat, "Где растут папоротники?")
    for query in ("shades", "папоротник", '"old tree', "ferns папоротники"):
        assert (await client.ok("chat.search", query=query))["hits"][0]["chat_id"] == chat, query
    assert await column(postgres_url, "SELECT role FROM chat_messages ORDER BY id") == ["user", "assistant"]
    await client.ok("chat.delete", chat_id=chat)
    for table in ("chats", "chat_messages", "session_states", "context_events"):
        assert await column(postgres_url, f"SELECT COUNT(*) FROM {table}") == [0], table


async def test_a_models_sql_is_refused_in_words(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    fake.script(script.calls(script.tool_call("data_query", {"sql": "SELECT pg_sleep(100)"})), script.reply("I can't."))
    await client.say(chat, "How many tasks?")
    assert any("can't be read by SQL" in str(message["content"]) for message in fake.requests[-1].messages if message["role"] == "tool")


async def test_a_yes_clears_what_was_worked_on(client: Client, postgres_url: str) -> None:
    chat = await client.new_chat()
    transaction = await apply(client, chat)
    assert await column(postgres_url, "SELECT COUNT(*) FROM chat_messages WHERE is_ephemeral = 1") != [0]
    await answer(client, chat, transaction, "yes")
    assert await column(postgres_url, "SELECT COUNT(*) FROM chat_messages WHERE is_ephemeral = 1") == [0]
    assert await column(postgres_url, "SELECT reason FROM context_events WHERE kind = 'transaction'") == ["yes"]


async def test_a_chat_is_answered_anew_forked_and_taken_in_again(client: Client, fake: FakeOllama, postgres_url: str) -> None:
    chat, shown = await conversation(client, fake)
    fake.script(script.reply("Three, said otherwise."))
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    assert await column(postgres_url, "SELECT content FROM reply_variants") == ["Three."]
    assert await column(postgres_url, "SELECT title FROM tasks") == ["Water"]
    copy = await fork(client, chat, named(shown, "Two.")["id"])
    assert [message["content"] for message in await client.messages(copy["id"])][-1] == "Two."
    archive = (await client.ok("chat.export", chat_id=chat, format="json"))["content"]
    await client.ok("chat.delete", chat_id=chat)
    taken = (await client.ok("chat.import", content=archive))["chat"]
    assert [message["content"] for message in await client.messages(taken["id"])][-1] == "Three, said otherwise."
    assert await column(postgres_url, "SELECT content FROM reply_variants") == ["Three."]
