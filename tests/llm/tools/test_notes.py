"""The family `notes`, by its buttons and by a model: what is kept, what is shown, and every way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.llm.tokens import BYTES_PER_TOKEN
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.llm.tools.cards import labels, newest_card, push
from tests.server import Client, make_settings, rows, running

pytestmark = pytest.mark.anyio


def table(folder: Path) -> list[tuple[int, str, str]]:
    return [(row["id"], row["title"], row["content"]) for row in rows(folder, "SELECT id, title, content FROM notes ORDER BY id")]


async def save(client: Client, chat: str, title: str, content: str, **more: object) -> None:
    assert (await client.press(chat, "note_save", title=title, content=content, **more))["status"] == "complete"


def results(fake: FakeOllama, tool: str) -> list[str]:
    """What the newest request tells the model of a tool's calls."""
    return [message["content"] for message in fake.requests[-1].messages if message.get("tool_name") == tool]


@pytest.mark.parametrize(
    ("tool", "arguments", "after"),
    [
        ("note_save", {"title": " Jam\n recipe ", "content": "plums"}, [(1, "Milk", "two\nlitres"), (2, "Tea", "green"), (3, "Jam recipe", "plums")]),
        ("note_save", {"id": 1, "title": "Milk", "content": "three\nlitres"}, [(1, "Milk", "three\nlitres"), (2, "Tea", "green")]),
        ("note_save", {"id": 2, "title": "Coffee", "content": "green"}, [(1, "Milk", "two\nlitres"), (2, "Coffee", "green")]),
        ("note_delete", {"id": 1}, [(2, "Tea", "green")]),
        ("note_delete", {"id": 2}, [(1, "Milk", "two\nlitres")]),
        ("note_restore", {"id": 3}, [(1, "Milk", "two\nlitres"), (2, "Tea", "green"), (3, "Gone", "text")]),
    ],
)
async def test_every_change_can_be_undone(client: Client, tmp_path: Path, tool: str, arguments: dict[str, object], after: list[tuple[int, str, str]]) -> None:
    chat = await client.new_chat()
    await save(client, chat, "Milk", "two\nlitres")
    await save(client, chat, "Tea", "green")
    if tool == "note_restore":
        await save(client, chat, "Gone", "text")
        await client.press(chat, "note_delete", id=3)
    before = table(tmp_path)
    assert (await client.press(chat, tool, **arguments))["status"] == "complete"
    assert table(tmp_path) == after
    card = await newest_card(client, chat)
    undone = await push(client, chat, card, "undo")
    assert table(tmp_path) == before
    await push(client, chat, undone, "undo")
    assert table(tmp_path) == after


async def test_a_replaced_note_shows_what_changed_and_asks_whether_it_is_right(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await save(client, chat, "Milk", "two litres")
    assert client.of("transaction_completed") == []
    await save(client, chat, "Milk, again", "three litres", id=1)
    completed = await client.event("transaction_completed")
    assert (completed["tool"], completed["summary"]) == ("note_save", "Note 1: Milk, again")
    card = await newest_card(client, chat)
    assert (card["kind"], card["before"], card["after"]) == ("diff", "Milk\n\ntwo litres", "Milk, again\n\nthree litres")
    assert (card["title_key"], card["params"]) == ("card.note.replaced", {"id": 1, "title": "Milk, again"})
    await client.ok("transaction.answer", chat_id=chat, transaction_id=completed["transaction_id"], answer="yes")
    assert [message for message in await client.messages(chat) if message["is_ephemeral"]] == []
    assert table(tmp_path) == [(1, "Milk, again", "three litres")]


async def test_the_buttons_of_a_note(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await save(client, chat, "Milk", "two litres")
    card = await newest_card(client, chat)
    assert (card["kind"], card["body"], card["format"], labels(card)) == ("preview", "two litres", "markdown", ["view", "undo"])
    shown = await push(client, chat, card, "view")
    assert (shown["body"], labels(shown)) == ("two litres", ["edit", "delete"])
    assert shown["actions"][0]["edit"] == "content"
    replaced = await push(client, chat, shown, "edit", content="three litres")
    assert table(tmp_path) == [(1, "Milk", "three litres")]
    deleted = await push(client, chat, await push(client, chat, replaced, "view"), "delete")
    assert table(tmp_path) == []
    assert (deleted["body"], labels(deleted)) == ("Milk", ["undo"])
    restored = await push(client, chat, deleted, "undo")
    assert (restored["body"], labels(restored)) == ("three litres", ["view", "undo"])


async def test_a_card_that_shows_a_text_of_before_loses_its_buttons(client: Client) -> None:
    """Its Edit would begin with what has been replaced meanwhile."""
    chat = await client.new_chat()
    await save(client, chat, "Milk", "two litres")
    await save(client, chat, "Tea", "green")
    await client.press(chat, "note_read", id=1)
    await client.press(chat, "note_read", id=2)
    await save(client, chat, "Milk", "three litres", id=1)
    cards = [message["card"] for message in await client.messages(chat) if message.get("tool") == "note_read"]
    assert [(card.get("superseded", False), labels(card)) for card in cards] == [(True, []), (False, ["edit", "delete"])]


async def test_the_list_and_its_buttons(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "note_list")
    assert (await newest_card(client, chat))["items"] == []
    await save(client, chat, "Milk", "two litres")
    await save(client, chat, "Tea", "green")
    await client.press(chat, "note_list")
    card = await newest_card(client, chat)
    assert (card["kind"], card["params"], [(item["id"], item["text"]) for item in card["items"]]) == ("list", {"count": 2}, [(2, "Tea"), (1, "Milk")])
    assert [labels(item) for item in card["items"]] == [["view", "delete"]] * 2
    assert (await push(client, chat, card["items"][1], "view"))["body"] == "two litres"
    await push(client, chat, card["items"][0], "delete")
    assert table(tmp_path) == [(1, "Milk", "two litres")]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("note_read", {"id": 9}), ("note_delete", {"id": 9}), ("note_restore", {"id": 9}), ("note_save", {"id": 9, "title": "x", "content": "x"}),
        ("note_restore", {"id": 1}), ("note_read", {"id": 1, "offset": 9}), ("note_save", {"id": 1, "title": "One", "content": "some text"}),
        ("note_save", {"title": " \u2028\n", "content": "x"}), ("note_save", {"title": "x", "content": " \n\t"}),
    ],
)  # fmt: skip
async def test_what_can_not_be_done_changes_nothing_and_says_why(client: Client, tmp_path: Path, tool: str, arguments: dict[str, object]) -> None:
    chat = await client.new_chat()
    await save(client, chat, "One", "some text")
    ended = await client.press(chat, tool, **arguments)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")
    assert table(tmp_path) == [(1, "One", "some text")]
    assert (await newest_card(client, chat))["body"] == ended["error"]["message"]


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("note_read", {"id": 10**30}, "id"), ("note_read", {"id": 0}, "id"), ("note_read", {"id": 1, "offset": -1}, "offset"),
        ("note_read", {"id": 1, "offset": 10**30}, "offset"), ("note_read", {"id": 1, "limit": 0}, "limit"),
        ("note_save", {"title": "x" * 201, "content": "x"}, "title"), ("note_save", {"title": "x", "content": "x" * 200_001}, "content"),
        ("note_save", {"title": "x", "content": ""}, "content"), ("note_save", {"title": "x"}, "content"),
    ],
)  # fmt: skip
async def test_bad_arguments_are_refused(client: Client, tool: str, arguments: dict[str, object], field: str) -> None:
    chat = await client.new_chat()
    refusal = await client.refused("invalid", "tool.invoke", chat_id=chat, client_id="x", tool=tool, arguments=arguments)
    assert list(refusal["fields"]) == [field]
    assert await client.messages(chat) == []


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ("a\0b", "a\ufffdb"),
        ("lone \ud800 half", "lone \ufffd half"),
        ("семь 👩‍👩‍👧 \u202edrawkcab\u202c é", "семь 👩‍👩‍👧 \u202edrawkcab\u202c é"),
        ("<script>alert(1)</script>\r\n'; DROP TABLE notes; --", "<script>alert(1)</script>\r\n'; DROP TABLE notes; --"),
    ],
)
async def test_odd_text_is_kept_as_it_is_but_for_what_no_store_holds(client: Client, fake: FakeOllama, tmp_path: Path, content: str, kept: str) -> None:
    chat = await client.new_chat()
    await save(client, chat, "Odd", content)
    fake.script(script.call("note_save", {"title": "Odd too", "content": kept}), script.call("note_read", {"id": 1}), script.reply("done"))
    await client.say(chat, "keep it again")
    assert [row[2] for row in table(tmp_path)] == [kept, kept]
    assert (await newest_card(client, chat))["body"] == kept
    assert results(fake, "note_read") == [f"Note 1, Odd:\n{kept}"]


async def test_a_long_note_is_read_in_parts_that_join_to_the_whole(client: Client, fake: FakeOllama) -> None:
    """The model goes where each part sends it, and the card has the whole every time."""
    content = "\n".join(f"Строка {number}: всё, что стоит запомнить." for number in range(400))
    chat = await client.new_chat()
    await save(client, chat, "Long", content)
    offset, parts = 0, []
    while True:
        fake.script(script.call("note_read", {"id": 1, "offset": offset}), script.reply("read"))
        await client.say(chat, "go on")
        text = fake.requests[-1].messages[-1]["content"].removeprefix("Note 1, Long:\n")
        assert len(text.encode()) < 2 * BYTES_PER_TOKEN * 1500  # the estimate learns from what the server counts
        part, cut, notice = text.partition("\n[Cut: ")
        parts.append(part)
        assert (await newest_card(client, chat))["body"] == content
        if not cut:
            break
        assert int(notice.split()[0]) == len(content) - offset - len(part)
        offset = int(notice.partition("note_read with offset ")[2].split()[0])
    assert "".join(parts) == content
    assert len(parts) > 2


async def test_the_longest_note_is_saved_replaced_and_brought_back(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    first, second = "ж" * 200_000, "x" * 200_000
    await save(client, chat, "Long", first)
    await save(client, chat, "Long", second, id=1)
    await push(client, chat, await newest_card(client, chat), "undo")
    assert table(tmp_path) == [(1, "Long", first)]


async def test_a_part_ends_where_the_model_wants_it(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await save(client, chat, "Digits", "0123456789")
    fake.script(script.call("note_read", {"id": 1, "offset": 2, "limit": 3}), script.reply("read"))
    await client.say(chat, "read a part")
    assert fake.requests[-1].messages[-1]["content"] == "Note 1, Digits:\n234\n[5 more characters: note_read with offset 5 reads on.]"


async def test_the_note_in_hand_is_in_the_working_state_within_its_budget(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, working_state_tokens=200)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await save(client, chat, "Short", "green tea")
        await save(client, chat, "Long", "word " * 2000)
        await client.say(chat, "and?")
        state = results(fake, "current_state")[-1]
        assert "Note 2 in hand, Long (the first " in state and "of 10000 characters; note_read reads the rest)" in state
        assert len(state.encode()) <= 2 * BYTES_PER_TOKEN * 200
        await client.press(chat, "note_read", id=1)
        await client.say(chat, "and now?")
        state = results(fake, "current_state")[-1]
        assert state.endswith("Note 1 in hand, Short:\ngreen tea")
        assert "2 Long (10000 characters)" in state and "word word" not in state
        await client.press(chat, "note_delete", id=1)
        await client.say(chat, "gone?")
        assert "in hand" not in results(fake, "current_state")[-1]


async def test_a_note_is_the_workspaces_and_outlives_its_chat_even_deleted(client: Client, tmp_path: Path) -> None:
    first, second = await client.new_chat(), await client.new_chat()
    await save(client, first, "Shared", "text")
    await client.press(first, "note_delete", id=1)
    await client.ok("chat.delete", chat_id=first)
    assert (await client.press(second, "note_restore", id=1))["status"] == "complete"
    assert rows(tmp_path, "SELECT title, content, session_id FROM notes") == [{"title": "Shared", "content": "text", "session_id": None}]
    assert rows(tmp_path, "SELECT * FROM deleted_facts") == []


async def test_a_model_saves_replaces_and_can_not_restore(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(
        script.call("note_save", {"title": "Plan", "content": "one"}),
        script.call("note_save", {"title": "Plan", "content": "two", "id": 1}),
        script.call("note_restore", {"id": 1}),
        script.reply("Kept."),
    )
    chat = await client.new_chat()
    assert (await client.say(chat, "keep my plan"))["status"] == "complete"
    assert table(tmp_path) == [(1, "Plan", "two")]
    assert {"note_save", "note_list"} <= set(fake.requests[0].tool_names)
    assert "note_read" not in fake.requests[0].tool_names and "note_read" in fake.requests[1].tool_names
    assert all("note_restore" not in request.tool_names for request in fake.requests)
    assert results(fake, "note_restore")[0].startswith("Error: There is no tool 'note_restore'.")
    assert (await client.context(chat))["pending_transaction"]["summary"] == "Note 1: Plan"
