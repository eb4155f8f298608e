"""The family `data`: a model's SQL, its table for the person and the slice for the model, and its place as a helper."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backend.llm.tools.data import SLICE_CHARACTERS, data_query
from backend.store.facts_query import MAX_ROWS, SCHEMA
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.llm.tools.cards import newest_card
from tests.server import Client, Json, rows

pytestmark = pytest.mark.anyio

MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT i, 'text ' || i AS text FROM n"


async def query(client: Client, chat: str, sql: str) -> Json:
    """Press the button; the card."""
    ended = await client.press(chat, "data_query", sql=sql)
    assert ended["status"] == "complete", ended
    return await newest_card(client, chat)


async def asked(client: Client, fake: FakeOllama, chat: str, sql: str) -> str:
    """Have the model query; what it is told."""
    fake.script(script.call("data_query", {"sql": sql}), script.reply("so it is"))
    assert (await client.say(chat, "look it up"))["status"] == "complete"
    return str(fake.requests[-1].messages[-1]["content"])


def test_the_description_names_every_view_with_its_columns() -> None:
    told = " ".join(str(data_query.__doc__).split())
    assert all(view in told for view in SCHEMA.replace("), ", ");").split(";"))


async def test_a_result_is_a_table_for_the_person(client: Client) -> None:
    chat = await client.new_chat()
    for title in ("milk", "хлеб"):
        await client.press(chat, "task_add", title=title)
    card = await query(client, chat, "SELECT id, title FROM tasks ORDER BY id")
    assert (card["kind"], card["columns"], card["rows"]) == ("table", ["id", "title"], [[1, "milk"], [2, "хлеб"]])
    assert (card["total_rows"], card["truncated"], card["title"]) == (2, False, "2 rows")
    assert (card["title_key"], card["params"], card["sql"]) == ("card.data.result", {"count": 2}, "SELECT id, title FROM tasks ORDER BY id")


async def test_of_many_rows_the_person_has_a_thousand_and_the_model_the_first(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    told = await asked(client, fake, chat, MANY.format(5000))
    card = await newest_card(client, chat)
    assert (len(card["rows"]), card["total_rows"], card["truncated"]) == (MAX_ROWS, MAX_ROWS + 1, True)
    head, columns, first, *_ = told.splitlines()
    assert (head, columns, first) == ("the first 1000 rows", '"i"\t"text"', '1\t"text 1"')
    last = int(told.splitlines()[-2].partition("\t")[0])
    assert 40 < last < 100 and len(told) < SLICE_CHARACTERS + 300
    assert told.splitlines()[-1].startswith(f"[rows 1 to {last} are above") and f"LIMIT {last} OFFSET {last}]" in told
    following = await asked(client, fake, chat, f"{MANY.format(5000)} LIMIT 1 OFFSET {last}")
    assert following.splitlines() == ["1 row", '"i"\t"text"', f'{last + 1}\t"text {last + 1}"']


async def test_values_are_one_line_each_and_long_ones_are_cut(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "note_save", title="long", content="line\tone\nline two " + "я" * 5000)
    told = await asked(client, fake, chat, "SELECT content, NULL, x'00', 1e999 FROM notes")
    assert told.count("\n") == 2
    assert told.splitlines()[2].startswith('"line\\tone\\nline two яяя')
    assert '(5018 characters; substr() reads parts)\tnull\t"(binary, 1 bytes)"\t"Infinity"' in told
    assert len(told) < 400


async def test_an_empty_result_and_a_row_without_end(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    assert await asked(client, fake, chat, "SELECT title FROM tasks") == '0 rows\n"title"'
    await client.press(chat, "note_save", title="long", content="x" * 10_000)
    wide = "SELECT " + ", ".join(["content"] * 30) + " FROM notes"
    assert "select fewer columns" in await asked(client, fake, chat, wide)
    card = await newest_card(client, chat)
    assert (card["rows"], card["truncated"]) == ([], True)


async def test_a_mistake_goes_back_to_the_model_which_mends_it(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    fake.script(
        script.call("data_query", {"sql": "SELECT colour FROM tasks"}), script.call("data_query", {"sql": "SELECT title FROM tasks"}), script.reply("ok")
    )
    assert (await client.say(chat, "which colours?"))["status"] == "complete"
    told = fake.requests[1].messages[-1]["content"]
    assert told == f"Error: no such column: colour. One SELECT over these is possible: {SCHEMA}."
    receipts = [message for message in await client.messages(chat) if message["role"] == "tool" and not message["is_ephemeral"]]
    outcomes = [entry["outcome"] for entry in json.loads(receipts[0]["content"])]
    assert outcomes[0].startswith("failed: no such column") and outcomes[1] == "ok, 0 rows"


@pytest.mark.parametrize("sql", ["DELETE FROM tasks", "SELECT * FROM chats", "SELECT content FROM main.chat_messages", "PRAGMA table_info(tasks)"])
async def test_what_is_not_allowed_changes_nothing_and_tells_no_more(client: Client, tmp_path: Path, sql: str) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    ended = await client.press(chat, "data_query", sql=sql)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")
    assert SCHEMA in ended["error"]["message"] and str(tmp_path) not in ended["error"]["message"]
    assert len(rows(tmp_path, "SELECT * FROM tasks")) == 1


async def test_hidden_messages_working_material_and_other_chats_are_not_in_the_views(client: Client, tmp_path: Path) -> None:
    """Q12, over the wire."""
    other, chat = await client.new_chat(), await client.new_chat()
    await client.say(other, "CANARY of another chat")
    await client.press(other, "system_prompt_draft", content="CANARY prompt")
    await client.say(chat, "hello")
    await client.say(chat, "CANARY to be hidden")
    with closing(sqlite3.connect(tmp_path / "cleanroom.db")) as database, database:
        database.execute("UPDATE chat_messages SET hidden = 1 WHERE content = 'CANARY to be hidden'")
    await client.press(chat, "task_add", title="CANARY card")
    assert (await query(client, chat, "SELECT * FROM prompts"))["rows"] == []
    shown = await query(client, chat, "SELECT content FROM messages WHERE role = 'user'")
    assert shown["rows"] == [["hello"]]
    everything = await query(client, chat, "SELECT role, content FROM messages")
    assert "Task 1" not in str(everything["rows"]) and "hidden" not in str(everything["rows"])


async def test_alone_it_is_active_like_any_other(client: Client) -> None:
    chat = await client.new_chat()
    await query(client, chat, "SELECT 1")
    context = await client.context(chat)
    assert (context["active_tool"], context["ephemeral_messages"]) == ("data", 1)
    await client.press(chat, "task_add", title="milk")
    assert (await client.context(chat))["active_tool"] == "tasks"
    assert [event["reason"] for event in client.of("context.cleared")] == ["switched"]


async def test_beside_an_active_family_nothing_switches(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    await asked(client, fake, chat, "SELECT title FROM tasks")
    assert (await client.context(chat))["active_tool"] == "tasks"
    assert client.of("context.cleared") == []
    cards = [message for message in await client.messages(chat) if message.get("card")]
    assert [(message["tool"], message["family"]) for message in cards] == [("task_add", "tasks"), ("data_query", "tasks")]


async def test_a_query_that_takes_its_time_holds_up_no_other_tab(address: str, client: Client) -> None:
    """Q07: two of them run, and turns elsewhere go on with all their reads and writes."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
    chat = await client.new_chat()
    async with Client.connect(address) as one, Client.connect(address) as two:
        running = [asyncio.create_task(tab.press(await tab.new_chat(), "data_query", sql=endless)) for tab in (one, two)]
        await two.event("turn.started")
        said = 0
        while not all(task.done() for task in running):
            await client.say(chat, "hello")
            said += 1
        assert said > 2
        for task in running:
            assert "time limit" in task.result()["error"]["message"]
