"""The family `history`: what was said long ago is found again, by the person and by the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.llm.tools.cards import newest_card
from tests.server import Client, rows
from tests.store.conftest import files_with

pytestmark = pytest.mark.anyio


async def talk(client: Client, chat: str, *texts: str) -> None:
    for text in texts:
        assert (await client.say(chat, text))["status"] == "complete"


async def test_a_model_finds_what_its_window_has_lost(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await talk(client, chat, "Отчёты за март лежат в синей папке", *(f"unrelated {number}" for number in range(8)))
    fake.script(script.call("history_search", {"query": "где отчёт"}), script.reply("In the blue folder."))
    await talk(client, chat, "Где отчёт?")
    first, second = fake.requests[-2:]
    assert "синей" not in str(first.messages)
    (message,) = [message for message in await client.messages(chat) if "синей" in message["content"] and message["role"] == "user"]
    told = f"Message {message['id']}, user, {message['created_at'][:10]}: Отчёты за март лежат в синей папке"
    assert second.messages[-1]["content"] == told


async def test_the_card_lists_the_hits_in_order(client: Client) -> None:
    chat = await client.new_chat()
    await talk(client, chat, *(f"The budget of month {number}, " + "word " * 60 for number in range(30)))
    assert (await client.press(chat, "history_search", query="budgets"))["status"] == "complete"
    card = await newest_card(client, chat)
    assert (card["kind"], card["columns"], card["title_key"]) == ("table", ["id", "role", "created_at", "content"], "card.history.found")
    assert card["params"] == {"count": 20, "query": "budgets"}
    assert len(card["rows"]) == card["total_rows"] == 20
    assert [row[0] for row in card["rows"]] == sorted((row[0] for row in card["rows"]), reverse=True)
    assert card["rows"][0][3].startswith("The budget of month 29") and card["rows"][0][3].endswith("…")


async def test_a_model_is_told_of_five_hits(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await talk(client, chat, *(f"apple {number}" for number in range(9)))
    fake.script(script.call("history_search", {"query": "apples"}), script.reply("many"))
    await talk(client, chat, "what of apples?")
    lines = fake.requests[-1].messages[-1]["content"].splitlines()
    assert [line.partition(": ")[2] for line in lines] == [f"apple {number}" for number in (8, 7, 6, 5, 4)]


async def test_nothing_found_and_nothing_asked(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await talk(client, chat, "hello")
    fake.script(script.call("history_search", {"query": "elephants"}), script.reply("none"))
    await talk(client, chat, "did we speak of elephants?")
    assert fake.requests[-1].messages[-1]["content"] == "No message of this chat has these words."
    ended = await client.press(chat, "history_search", query="?!")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")


async def test_other_chats_hidden_messages_and_working_material_are_not_found(client: Client) -> None:
    other, chat = await client.new_chat(), await client.new_chat()
    await talk(client, other, "needle of another chat")
    await talk(client, chat, "hello")
    await client.press(chat, "task_add", title="needle")
    await client.press(chat, "history_search", query="needle")
    assert (await newest_card(client, chat))["rows"] == []


async def test_as_a_helper_it_is_active_alone_and_switches_nothing(client: Client) -> None:
    alone, beside = await client.new_chat(), await client.new_chat()
    await client.press(alone, "history_search", query="x")
    assert (await client.context(alone))["active_tool"] == "history"
    await client.press(beside, "task_add", title="milk")
    await client.press(beside, "history_search", query="x")
    context = await client.context(beside)
    assert (context["active_tool"], context["ephemeral_messages"]) == ("tasks", 2)
    assert client.of("context.cleared") == []
    await client.press(alone, "data_query", sql="SELECT 1")
    assert (await client.context(alone))["active_tool"] == "history"


async def test_a_deleted_chats_text_is_in_no_file(client: Client, tmp_path: Path) -> None:
    chat, other = await client.new_chat(), await client.new_chat()
    await talk(client, chat, *(f"canary{number} zzyzx" for number in range(5)))
    await talk(client, other, "kept")
    assert files_with("zzyzx", tmp_path) != []
    await client.ok("chat.delete", chat_id=chat)
    assert [files_with(word, tmp_path) for word in ("canary", "zzyzx")] == [[], []]
    assert [row["term"] for row in rows(tmp_path, "SELECT term FROM message_terms WHERE term = 'kept'")] == ["kept"]
