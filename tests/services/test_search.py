"""chat.search: what a person looks for in all chats, as it is typed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from backend.store import chat_search
from backend.store.chat_search import ChatHit
from backend.store.connection import Connection
from backend.store.database import Database
from backend.store.engines import database_at
from backend.store.migrate import migrate
from backend.store.postgres import search as postgres_search
from backend.store.units import Units
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json

pytestmark = pytest.mark.anyio


async def tell(client: Client, fake: FakeOllama, question: str, answer: str = "Noted.", **fields: object) -> str:
    """A chat with one question and its answer."""
    chat = await client.new_chat(**fields)
    fake.script(script.reply(answer))
    await client.say(chat, question)
    return chat


async def search(client: Client, query: str, **fields: object) -> list[Json]:
    return list((await client.ok("chat.search", query=query, **fields))["hits"])


async def contents(client: Client, query: str, **fields: object) -> list[str]:
    return [hit["snippet"] for hit in await search(client, query, **fields)]


async def test_a_hit_says_where_it_is(client: Client, fake: FakeOllama) -> None:
    chat = await tell(client, fake, "Where do ferns grow?", "In the shade of old trees.", title="Plants")
    await tell(client, fake, "Something else")
    (hit,) = await search(client, "shades")
    message = (await client.messages(chat))[-1]
    assert hit == {
        "chat_id": chat, "message_id": message["id"], "snippet": "In the shade of old trees.", "role": "assistant",
        "created_at": message["created_at"], "title": "Plants",
    }  # fmt: skip


async def test_all_chats_or_one_are_searched(client: Client, fake: FakeOllama) -> None:
    first, second = await tell(client, fake, "A needle here"), await tell(client, fake, "Another needle")
    assert {hit["chat_id"] for hit in await search(client, "needle")} == {first, second}
    for chat in (first, second):
        assert [hit["chat_id"] for hit in await search(client, "needle", chat_id=chat)] == [chat]
    assert len(await search(client, "needle", limit=1)) == 1
    await client.refused("not_found", "chat.search", query="needle", chat_id="0" * 32)


async def test_messages_with_all_words_come_before_those_with_some(client: Client, fake: FakeOllama) -> None:
    await tell(client, fake, "the budget for March")
    await tell(client, fake, "a report about weather, weather, weather")
    await tell(client, fake, "a long text about many things in which reports stand somewhere and, much later, the budgets of all years")
    found = await contents(client, "budget report ")
    assert "budgets of all years" in found[0]
    assert len(found) == 3


FOUND = ["shipm", "shipment", "Shipments", "ship", "отч", "отчеты", "ОТЧЁТ", '"late shipm', '"late shipments"', '"SHIPMENTS - ОТЧЕТЫ"', "SHIPMENT отчёта"]
NOT_FOUND = ["shipm ", '"shipments late"', '"late shipm"', '"ate shipments"', "s", "xyz", "отч."]


@pytest.mark.parametrize("query", FOUND)
async def test_words_are_found_in_any_form_and_while_they_are_typed(client: Client, fake: FakeOllama, query: str) -> None:
    await tell(client, fake, "The late shipments: отчёты")
    assert len(await search(client, query)) == 1


@pytest.mark.parametrize("query", NOT_FOUND)
async def test_what_was_not_said_is_not_found(client: Client, fake: FakeOllama, query: str) -> None:
    await tell(client, fake, "The late shipments: отчёты")
    assert await search(client, query) == []


@pytest.mark.parametrize(
    "query", ["", "  ", "!!!", '"', '""', '"" ""', "NEAR(", "AND OR NOT", "^*", "a:b", "'; --", "{content}", "-", "ь", "İ", "中文", "e" * 900, "w " * 400]
)
async def test_odd_queries_break_nothing(client: Client, fake: FakeOllama, query: str) -> None:
    await tell(client, fake, "plain text")
    await search(client, query)


async def test_a_query_that_is_too_long_is_refused(client: Client) -> None:
    await client.refused("invalid", "chat.search", query="x" * 1001)


async def test_a_person_finds_what_the_model_does_not_see(client: Client, fake: FakeOllama) -> None:
    """A hidden message, the newest question without an answer, a temporary chat; never working material."""
    chat = await tell(client, fake, "a needle that is hidden", temporary=True)
    question = (await client.messages(chat))[0]
    await client.ok("message.hide", message_id=question["id"], hidden=True)
    await client.press(chat, "system_prompt_draft", content="a needle in a draft")
    fake.script(script.hang_before_headers())
    await client.ok("message.send", chat_id=chat, client_id="x", text="a needle without an answer")
    assert await contents(client, "needle") == ["a needle without an answer", "a needle that is hidden"]


async def test_a_deleted_chat_is_found_no_more(client: Client, fake: FakeOllama) -> None:
    chat = await tell(client, fake, "a needle")
    await client.ok("chat.delete", chat_id=chat)
    assert await search(client, "needle") == []


# --- the queries themselves


@pytest.fixture
async def either(database_url: str) -> AsyncIterator[Units]:
    """The same on each engine."""
    database = database_at(database_url)
    await database.connect()
    yield database
    await database.disconnect()


async def fill(database: Units, *contents: str, chat: str = "c") -> None:
    async def add(tx: Connection) -> None:
        await tx.execute("INSERT INTO chats (id, title, created_at, updated_at) VALUES (:chat, '', '', '') ON CONFLICT DO NOTHING", {"chat": chat})
        for content in contents:
            await tx.execute(
                "INSERT INTO chat_messages (session_id, role, content, created_at) VALUES (:chat, 'user', :content, '')",
                {"chat": chat, "content": content},
            )

    await database.write(add)


async def look(database: Units, query: str, chat: str | None = None, limit: int = 30) -> list[ChatHit]:
    return await database.read(lambda tx: chat_search.search(tx, "", query, chat, limit))


async def test_short_texts_with_the_word_come_first_and_of_common_words_the_newest(either: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    """A common word: on SQLite one that stands in many places, on PostgreSQL one with more messages than are weighed."""
    await fill(either, "fern", "a fern among " + "very many words " * 30, "fern fern", "moss")
    found = [hit.message_id for hit in await look(either, "fern ")]
    assert (sorted(found[:2]), found[2:]) == ([1, 3], [2])
    monkeypatch.setattr(chat_search, "MAX_PLACES", 2)
    monkeypatch.setattr(postgres_search, "MAX_WEIGHED", 2)
    assert [hit.message_id for hit in await look(either, "fern ")][:2] == [3, 2]
    assert (await look(either, "fern moss "))[0].message_id == 4  # the telling word


async def test_one_chats_hits_are_not_crowded_out_by_the_others(either: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_search, "MAX_WEIGHED", 5)
    monkeypatch.setattr(postgres_search, "MAX_WEIGHED", 5)
    await fill(either, "fern", chat="old")
    await fill(either, *["fern"] * 20, chat="new")
    assert [hit.chat_id for hit in await look(either, "fern", "old")] == ["old"]
    for recent in (0, 3, 10):  # fewer and more than are weighed
        monkeypatch.setattr(postgres_search, "RECENT_MESSAGES", recent)
        assert [hit.message_id for hit in await look(either, "fern")] == [21, 20, 19, 18, 17]


async def test_a_query_means_the_same_on_each_engine(either: Units) -> None:
    await fill(either, "The late shipments: отчёты")
    assert [query for query in FOUND if len(await look(either, query)) != 1] == []
    assert [query for query in NOT_FOUND if await look(either, query)] == []
    await fill(either, "shipments came late", "late. Shipments", "a report", 'a "late\nshipments" report')
    assert {hit.message_id for hit in await look(either, '"late shipments"')} == {1, 3, 5}
    hits = [hit.message_id for hit in await look(either, '"late shipments" report ')]
    assert hits[0] == 5 and 4 in hits


@given(queries=some.lists(some.text(alphabet=some.sampled_from('ab "*^():-+Яё\n\u0301中_'), max_size=30), min_size=20, max_size=20))
@settings(max_examples=5, deadline=None)
def test_no_query_is_an_error_of_syntax(queries: list[str]) -> None:
    async def ask() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "cleanroom.db"
            migrate(path)
            database = Database(f"sqlite:///{path}")
            await database.connect()
            try:
                await fill(database, "ab ба")
                for query in queries:
                    await look(database, query)
            finally:
                await database.disconnect()

    asyncio.run(ask())
