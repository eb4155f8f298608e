"""chat.* commands: made once, changed field by field, deleted to the last byte, the same on every socket."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.replay import Replica, events_of, replayed
from tests.server import PATIENCE_SECONDS, Client, make_settings, rows, running

pytestmark = pytest.mark.anyio

ID = "00000000000000000000000000000000"


# --- create


async def test_a_new_chat_has_what_was_asked_for(client: Client) -> None:
    chat = (await client.ok("chat.create", title="  Plan  ", model="fake:tools"))["chat"]
    assert {name: chat[name] for name in ("title", "pinned", "model", "ttl_messages", "approval", "turn_running")} == {
        "title": "Plan", "pinned": False, "model": "fake:tools", "ttl_messages": 4, "approval": "after", "turn_running": False,
    }  # fmt: skip
    assert chat["created_at"] == chat["updated_at"]
    assert chat["created_at"].endswith("Z")
    empty = (await client.ok("chat.create"))["chat"]
    assert (empty["title"], empty["model"]) == ("", None)
    assert empty["id"] != chat["id"]


async def test_the_same_client_id_makes_one_chat(address: str, client: Client, tmp_path: Path) -> None:
    async with Client.connect(address) as other:
        client_id = uuid.uuid4().hex
        made = await asyncio.gather(*(one.ok("chat.create", title="A", client_id=client_id) for one in (client, other, client, other)))
    again = await client.ok("chat.create", title="B", client_id=client_id)
    assert {reply["chat"]["id"] for reply in [*made, again]} == {again["chat"]["id"]}
    assert again["chat"]["title"] == "A"
    assert len(client.of("chat.created")) == 1
    assert len(rows(tmp_path, "SELECT 1 FROM chats")) == 1


async def test_every_socket_hears_of_a_new_chat(address: str, client: Client) -> None:
    async with Client.connect(address) as other:
        chat = (await client.ok("chat.create", title="A"))["chat"]
        event = await other.event("chat.created")
    assert event["chat"] == chat
    assert "seq" not in event


async def test_a_new_page_gets_all_chats_pinned_ones_first(address: str, client: Client) -> None:
    first, second, third = [await client.new_chat(title=title) for title in "ABC"]
    await client.ok("chat.update", chat_id=first, pinned=True)
    await client.say(second, "newest")
    async with Client.connect(address) as page:
        assert [chat["id"] for chat in page.welcome["chats"]] == [first, second, third]


# --- rename and update


@pytest.mark.parametrize(
    ("field", "value"),
    [("pinned", True), ("pinned", False), ("model", "other:1b"), ("model", None), ("ttl_messages", 3), ("ttl_messages", 5), ("approval", "before")],
)
async def test_an_update_writes_its_own_column_alone(address: str, client: Client, tmp_path: Path, field: str, value: object) -> None:
    chat = await client.new_chat(title="A", model="fake:tools")
    (before,) = rows(tmp_path, "SELECT * FROM chats")
    async with Client.connect(address) as other:
        updated = (await client.ok("chat.update", chat_id=chat, **{field: value}))["chat"]
        assert (await other.event("chat.updated"))["chat"] == updated
    (after,) = rows(tmp_path, "SELECT * FROM chats")
    assert updated[field] == value
    assert {name: after[name] for name in after if name != field} == {name: before[name] for name in before if name != field}


async def test_a_ttl_given_back_is_the_settings(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, ttl_messages=5)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        assert (await client.ok("chat.update", chat_id=chat, ttl_messages=3))["chat"]["ttl_messages"] == 3
        assert (await client.context(chat))["ttl_messages"] == 3
        assert (await client.ok("chat.update", chat_id=chat, ttl_messages=None))["chat"]["ttl_messages"] == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [("pinned", None), ("approval", None), ("ttl_messages", 2), ("ttl_messages", 6), ("approval", "never"), ("pinned", "yes"), ("model", 5)],
)
async def test_a_bad_value_changes_nothing(client: Client, tmp_path: Path, field: str, value: Any) -> None:
    chat = await client.new_chat(title="A")
    before = rows(tmp_path, "SELECT * FROM chats")
    refusal = await client.refused("invalid", "chat.update", chat_id=chat, **{field: value})
    assert list(refusal["fields"]) == [field]
    assert rows(tmp_path, "SELECT * FROM chats") == before
    assert client.of("chat.updated") == []


@pytest.mark.parametrize("title", ["", "  ", "\n", "x" * 10_001, None, 7])
async def test_a_title_needs_words(client: Client, title: object) -> None:
    chat = await client.new_chat(title="A")
    await client.refused("invalid", "chat.rename", chat_id=chat, title=title)
    assert (await client.ok("chat.open", chat_id=chat))["chat"]["title"] == "A"


@pytest.mark.parametrize("title", ["x" * 10_000, '<img src=x onerror="alert(1)">', "مرحبا \u202e 👨‍👩‍👧", "a\x85b\u2028c"])
async def test_a_title_is_kept_as_it_was_written(address: str, client: Client, title: str) -> None:
    chat = await client.new_chat()
    await client.ok("chat.rename", chat_id=chat, title=title)
    async with Client.connect(address) as other:
        assert other.welcome["chats"][0]["title"] == title


async def test_two_renames_at_once_leave_both_tabs_with_the_last(address: str, client: Client) -> None:
    """U08."""
    chat = await client.new_chat()
    async with Client.connect(address) as other:
        await asyncio.gather(client.ok("chat.rename", chat_id=chat, title="one"), other.ok("chat.rename", chat_id=chat, title="two"))
        await asyncio.gather(client.ok("tool.list"), other.ok("tool.list"))  # all events before have come
        stored = (await client.ok("chat.open", chat_id=chat))["chat"]["title"]
        assert {tab.of("chat.updated")[-1]["chat"]["title"] for tab in (client, other)} == {stored}


async def test_a_persons_changes_survive_a_turn_that_streams(address: str, client: Client, fake: FakeOllama) -> None:
    """A10, U09: a rename and a setting from two tabs between the tokens; the automatic title never wins."""
    gates = [asyncio.Event() for _ in range(3)]
    fake.script([[script.text(f"part {number} "), script.hold(gate)] for number, gate in enumerate(gates)] + [script.done()])
    chat = await client.new_chat()
    async with Client.connect(address) as other, replayed(address, chat):
        turn = (await client.ok("message.send", chat_id=chat, client_id="1", text="An automatic title"))["turn_id"]
        await client.event("message.delta")
        await client.ok("chat.rename", chat_id=chat, title="Budget")
        gates[0].set()
        await client.event("message.delta", lambda delta: "part 1" in delta["text"])
        await asyncio.gather(other.ok("chat.update", chat_id=chat, pinned=True), client.ok("chat.update", chat_id=chat, ttl_messages=5))
        for gate in gates:
            gate.set()
        await client.finished(turn)
        await asyncio.gather(client.ok("tool.list"), other.ok("tool.list"))
        for tab in (client, other):
            newest = tab.of("chat.updated")[-1]["chat"]
            assert (newest["title"], newest["pinned"], newest["ttl_messages"], newest["turn_running"]) == ("Budget", True, 5, False)
    assert (await client.ok("chat.open", chat_id=chat))["chat"] == newest


# --- delete


async def test_a_deleted_chat_is_gone_for_everyone(address: str, client: Client) -> None:
    chat, kept = await client.new_chat(), await client.new_chat()
    async with Client.connect(address) as other:
        await client.ok("chat.delete", chat_id=chat)
        assert (await other.event("chat.deleted"))["chat_id"] == chat
    async with Client.connect(address) as page:
        assert [known["id"] for known in page.welcome["chats"]] == [kept]


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("chat.open", {}),
        ("chat.open", {"after_seq": 0}),
        ("chat.rename", {"title": "x"}),
        ("chat.update", {"pinned": True}),
        ("chat.update", {}),
        ("chat.delete", {}),
        ("chat.history", {"before_id": 5}),
        ("chat.search", {"query": "x"}),
        ("chat.export", {"format": "json"}),
        ("chat.export", {"format": "markdown"}),
        ("chat.fork", {"message_id": 1}),
        ("message.send", {"client_id": "1", "text": "x"}),
        ("turn.stop", {}),
        ("turn.regenerate", {}),
        ("turn.continue", {}),
        ("tool.invoke", {"client_id": "1", "tool": "task_add", "arguments": {"title": "x"}}),
        ("transaction.answer", {"transaction_id": "x", "answer": "yes"}),
        ("context.get", {}),
        ("context.inspect", {}),
        ("context.sent", {}),
        ("context.keep", {}),
        ("context.clear", {}),
        ("context.undo", {}),
    ],
)
async def test_no_command_finds_a_chat_that_is_not_there(client: Client, tmp_path: Path, command: str, fields: dict[str, object]) -> None:
    """N08: a deleted chat and one that never was are told apart by nothing."""
    chat = await client.new_chat()
    await client.ok("chat.delete", chat_id=chat)
    if "after_seq" in fields:
        fields = {**fields, "epoch": client.welcome["epoch"]}
    deleted = await client.refused("not_found", command, chat_id=chat, **fields)
    unknown = await client.refused("not_found", command, chat_id=ID, **fields)
    assert deleted["message"] == unknown["message"]
    assert [rows(tmp_path, f"SELECT * FROM {table}") for table in ("chats", "chat_messages", "session_states", "tasks")] == [[]] * 4


async def test_closing_a_chat_that_is_not_there_is_no_error(client: Client) -> None:
    await client.ok("chat.close", chat_id=ID)


async def test_deleting_stops_the_stream_and_spares_the_chat_that_waits(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    """A15, U07: A streams, B waits for its first word; A goes, B gets its answer, and A never comes back."""
    gate = asyncio.Event()
    fake.script(script.hang_mid("text of A"), script.delay_headers(gate, script.reply("text of B")))
    doomed, waiting = await client.new_chat(), await client.new_chat()
    await client.ok("message.send", chat_id=doomed, client_id="1", text="to A")
    await client.event("message.delta")
    turn = (await client.ok("message.send", chat_id=waiting, client_id="2", text="to B"))["turn_id"]
    await fake.wait_for_requests(2)
    await client.ok("chat.delete", chat_id=doomed)
    assert (await fake.wait_ended(0, seconds=1)).closed_early
    mark = len(client.events)
    gate.set()
    assert (await client.finished(turn))["status"] == "complete"
    await client.ok("tool.list")
    assert [event for event in client.events[mark:] if doomed in str(event) and event["type"] != "chat.deleted"] == []
    assert (await client.messages(waiting))[-1]["content"] == "text of B"
    assert [row["id"] for row in rows(tmp_path, "SELECT id FROM chats")] == [waiting]
    assert {row["session_id"] for row in rows(tmp_path, "SELECT session_id FROM chat_messages")} == {waiting}
    async with Client.connect(address) as page:
        assert [chat["id"] for chat in page.welcome["chats"]] == [waiting]


@pytest.mark.parametrize("moment", ["before the first word", "with a question pending", "while a tool runs", "by two tabs at once"])
async def test_deleting_at_odd_moments_leaves_no_orphan(address: str, client: Client, fake: FakeOllama, tmp_path: Path, moment: str) -> None:
    chat = await client.new_chat()
    if moment == "with a question pending":
        await client.press(chat, "system_prompt_draft", content="Be brief.")
        await client.press(chat, "system_prompt_apply")
        await client.ok("chat.delete", chat_id=chat)
    elif moment == "while a tool runs":
        endless = {"sql": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"}
        await client.ok("tool.invoke", chat_id=chat, client_id="1", tool="data_query", arguments=endless)
        await client.event("turn.started")
        await client.ok("chat.delete", chat_id=chat)
    else:
        fake.script(script.hang_before_headers())
        await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
        await fake.wait_for_requests(1)
        async with Client.connect(address) as other:
            tabs = [client, other] if moment == "by two tabs at once" else [client]
            replies = await asyncio.gather(*(tab.command("chat.delete", chat_id=chat) for tab in tabs))
        assert sorted(reply.get("code", "ok") for reply in replies) == ["not_found", "ok"][-len(tabs) :]
        await fake.wait_ended(0, seconds=1)
    for table in ("chats", "chat_messages", "session_states", "system_prompts", "context_events"):
        assert rows(tmp_path, f"SELECT * FROM {table}") == [], table
    assert len(client.of("chat.deleted")) == 1


async def test_tasks_outlive_the_chat_they_came_from(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    await client.ok("chat.delete", chat_id=chat)
    assert rows(tmp_path, "SELECT title, session_id FROM tasks") == [{"title": "milk", "session_id": None}]


async def test_deleting_leaves_no_byte_of_it_in_any_file(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    canaries = {kind: f"canary{kind}{uuid.uuid4().hex}" for kind in ("title", "question", "reply", "thought", "draft", "named")}
    fake.script(
        script.reply("of the other"),
        script.thinking_then_text(canaries["thought"], canaries["reply"]),
        script.call("system_prompt_draft", {"content": canaries["draft"]}, before=canaries["reply"]),
        script.reply("done"),
    )
    chat, other = await client.new_chat(title=canaries["named"]), await client.new_chat()
    await client.say(other, "kept")
    await client.say(chat, canaries["question"])
    await client.say(chat, canaries["question"] * 50)
    await client.press(chat, "system_prompt_apply")
    await client.ok("chat.rename", chat_id=chat, title=canaries["title"])
    await client.ok("context.clear", chat_id=chat)

    def found() -> set[str]:
        files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert {"cleanroom.db", "cleanroom.db-wal"} <= files.keys()
        return {kind for kind, canary in canaries.items() for content in files.values() if canary.encode() in content}

    assert found() == canaries.keys()
    await client.ok("chat.delete", chat_id=chat)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while found():  # a reader may have been in the way for a moment
            await asyncio.sleep(0.05)
    await client.refused("not_found", "context.undo", chat_id=chat)
    assert (await client.messages(other))[0]["content"] == "kept"


# --- history and two sockets


async def test_older_messages_come_page_by_page(client: Client) -> None:
    chat = await client.new_chat()
    for number in range(7):
        await client.say(chat, f"question {number}")
    everything = await client.messages(chat)
    opened = await client.ok("chat.open", chat_id=chat, limit=4)
    pages, has_more = [opened["messages"]], opened["has_more"]
    while has_more:
        page = await client.ok("chat.history", chat_id=chat, before_id=pages[0][0]["id"], limit=4)
        pages.insert(0, page["messages"])
        has_more = page["has_more"]
    assert [len(page) for page in pages] == [2, 4, 4, 4]
    assert [message for page in pages for message in page] == everything
    before_first = await client.ok("chat.history", chat_id=chat, before_id=everything[0]["id"])
    assert (before_first["messages"], before_first["has_more"]) == ([], False)
    assert (await client.ok("chat.history", chat_id=chat, before_id=2**53 - 1))["messages"] == everything


async def test_pages_show_every_kind_of_message_of_this_chat_only(client: Client) -> None:
    chat, other = await client.new_chat(), await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    await client.say(other, "of the other")
    await client.say(chat, "hi")
    page = (await client.ok("chat.history", chat_id=chat, before_id=2**53 - 1))["messages"]
    assert {message["chat_id"] for message in page} == {chat}
    assert {message["is_ephemeral"] for message in page} == {0, 1}
    assert [message["id"] for message in page] == sorted(message["id"] for message in page)


async def test_two_sockets_see_the_same(address: str, client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    fake.script(script.call("task_add", {"title": "milk"}, before="Adding."), script.reply("Added."), script.many_tokens(40))
    async with Client.connect(address) as other:
        replicas = [Replica(await tab.ok("chat.open", chat_id=chat)) for tab in (client, other)]
        await client.say(chat, "add milk")
        await other.say(chat, "count")
        await asyncio.gather(client.ok("tool.list"), other.ok("tool.list"))
        for tab, replica in zip((client, other), replicas, strict=True):
            for event in events_of(tab, chat):
                replica.apply(event)
        assert replicas[0].shown == replicas[1].shown


async def test_a_closed_chat_is_heard_of_no_more(address: str, client: Client) -> None:
    chat = await client.new_chat()
    async with Client.connect(address) as other:
        await other.ok("chat.open", chat_id=chat)
        await other.ok("chat.open", chat_id=chat)
        await client.say(chat, "one")
        await other.ok("tool.list")
        numbers = [event["seq"] for event in other.events if "seq" in event]
        assert numbers == sorted(set(numbers))  # opened twice, heard once
        await other.ok("chat.close", chat_id=chat)
        await other.ok("chat.close", chat_id=chat)
        mark = len(other.events)
        await client.say(chat, "two")
        await other.ok("tool.list")
        assert [event["type"] for event in other.events[mark:] if "seq" in event] == []
        assert "chat.updated" in [event["type"] for event in other.events[mark:]]
