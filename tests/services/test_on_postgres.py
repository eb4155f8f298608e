"""The main journeys of a person with everything kept in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backend.store.postgres import facts_rows
from tests import fake_ollama as script
from tests.engines import column
from tests.fake_ollama import FakeOllama
from tests.llm.tools.cards import newest_card
from tests.server import Client, make_settings, running
from tests.services.test_forks import conversation, fork, named
from tests.services.test_transactions import answer, apply

pytestmark = pytest.mark.anyio


@pytest.fixture
async def address(tmp_path: Path, fake: FakeOllama, postgres_url: str) -> AsyncIterator[str]:
    async with running(make_settings(tmp_path, fake, database_url=postgres_url)) as where:
        yield where


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


async def asked(client: Client, fake: FakeOllama, chat: str, sql: str) -> str:
    """Have the model query; what it is told."""
    fake.script(script.call("data_query", {"sql": sql}), script.reply("So it is."))
    await client.say(chat, "Look it up.")
    return str(fake.requests[-1].messages[-1]["content"])


async def test_a_models_sql_reads_the_facts_and_nothing_else(client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = await client.new_chat()
    for title in ("Water", "Земля"):
        await client.press(chat, "task_add", title=title)
    assert await asked(client, fake, chat, "SELECT id, title FROM tasks ORDER BY id") == '2 rows\n"id"\t"title"\n1\t"Water"\n2\t"Земля"'
    assert "no such function: pg_sleep" in await asked(client, fake, chat, "SELECT pg_sleep(100)")
    monkeypatch.setattr(facts_rows, "MAX_VIEW_BYTES", 1)
    told = await asked(client, fake, chat, "SELECT title FROM tasks")
    assert "Земля" in told and "Water" not in told and "the oldest 1 of 2 rows of tasks" in told
    assert {"view": "tasks", "rows": 1, "total_rows": 2} in (await newest_card(client, chat))["unread"]


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
