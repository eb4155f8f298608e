"""The family `snapshots`: what a slice holds, how two of them differ, and that a restore and its Undo bring all of it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.llm.core.tool_injector import DEFAULT_PROMPT
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.llm.tools.cards import labels, newest_card, push
from tests.server import Client, Json, rows

pytestmark = pytest.mark.anyio


def facts(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything that a snapshot is about, ids and origins included."""
    wanted = {
        "tasks": "SELECT id, title, done, session_id, created_at FROM tasks ORDER BY id",
        "notes": "SELECT id, title, content, session_id, created_at FROM notes ORDER BY id",
        "prompts": "SELECT session_id, content FROM system_prompts WHERE status = 'applied' ORDER BY session_id",
    }
    return {name: [tuple(row.values()) for row in rows(folder, sql)] for name, sql in wanted.items()}


def deleted(folder: Path) -> list[tuple[str, int]]:
    return [(row["kind"], row["fact_id"]) for row in rows(folder, "SELECT kind, fact_id FROM deleted_facts ORDER BY kind, fact_id")]


async def do(client: Client, chat: str, tool: str, **arguments: object) -> Json:
    ended = await client.press(chat, tool, **arguments)
    assert ended["status"] == "complete", ended
    return await newest_card(client, chat)


async def apply_prompt(client: Client, chat: str, content: str) -> None:
    await do(client, chat, "system_prompt_draft", content=content)
    await do(client, chat, "system_prompt_apply")


async def fill(client: Client, chat: str) -> None:
    await do(client, chat, "task_add", title="milk")
    await do(client, chat, "task_add", title="tea")
    await do(client, chat, "task_complete", id=2)
    await do(client, chat, "note_save", title="Plan", content="one\ntwo\nthree")
    await do(client, chat, "note_save", title="Jam", content="plums")
    await apply_prompt(client, chat, "Speak like a pirate.")


async def change_everything(client: Client, chat: str) -> None:
    """One of each: changed, removed and added."""
    await do(client, chat, "task_update", id=1, title="oat milk", done=True)
    await do(client, chat, "task_delete", id=2)
    await do(client, chat, "task_add", title="bread")
    await do(client, chat, "note_save", id=1, title="Plan", content="one\n2\nthree")
    await do(client, chat, "note_delete", id=2)
    await do(client, chat, "note_save", title="New", content="text")
    await apply_prompt(client, chat, "Speak like a poet.")


async def test_a_snapshot_holds_all_facts_and_this_chats_prompt(client: Client, tmp_path: Path) -> None:
    chat, other = await client.new_chat(), await client.new_chat()
    await fill(client, chat)
    await apply_prompt(client, other, "Speak like a robot.")
    card = await do(client, chat, "snapshot_take", label="  before\nthe trip ")
    assert (card["title"], card["body"]) == ("Snapshot 1: before the trip", "2 tasks, 2 notes, the system prompt")
    assert (card["title_key"], card["body_key"]) == ("card.snapshot.taken", "card.snapshot.holds")
    assert (card["params"], labels(card)) == ({"id": 1, "label": "before the trip", "tasks": 2, "notes": 2}, ["compare", "restore"])
    (row,) = rows(tmp_path, "SELECT session_id, label, content FROM snapshots")
    assert (row["session_id"], row["label"]) == (chat, "before the trip")
    assert all(text in row["content"] for text in ("milk", "tea", "plums", "pirate")) and "robot" not in row["content"]
    card = await do(client, await client.new_chat(), "snapshot_take", label="x")
    assert (card["body"], card["body_key"]) == ("2 tasks, 2 notes, no system prompt", "card.snapshot.holds_no_prompt")


async def test_a_restore_brings_all_of_it_back_and_so_does_its_undo_and_the_undo_of_that(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await fill(client, chat)
    before = facts(tmp_path)
    await do(client, chat, "snapshot_take", label="before")
    await change_everything(client, chat)
    after = facts(tmp_path)
    assert not any(before[name] == after[name] for name in before)
    card = await do(client, chat, "snapshot_restore", id=1)
    assert facts(tmp_path) == before
    assert deleted(tmp_path) == [("note", 3), ("task", 3)]
    await client.say(chat, "who are you?")
    assert fake.requests[-1].messages[0]["content"] == "Speak like a pirate."
    undone = await push(client, chat, card, "undo")
    assert facts(tmp_path) == after
    assert deleted(tmp_path) == [("note", 2), ("task", 2)]
    await push(client, chat, undone, "undo")
    assert facts(tmp_path) == before
    assert rows(tmp_path, "SELECT label FROM snapshots ORDER BY id") == [{"label": "before"}, {"label": "Before restoring: before"}]


async def test_a_restore_says_what_changed_and_completes(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await fill(client, chat)
    await do(client, chat, "snapshot_take", label="before")
    await change_everything(client, chat)
    card = await do(client, chat, "snapshot_restore", id=1)
    assert (card["kind"], card["title_key"], card["params"]) == ("diff", "card.snapshot.restored", {"id": 1, "label": "before"})
    assert card["before"] == "[x] 1 oat milk\n[ ] 3 bread\n# 1 Plan\n\none\n2\nthree\n\n# 3 New\n\ntext\n\n# System prompt\n\nSpeak like a poet.\n"
    assert card["after"] == "[ ] 1 milk\n[x] 2 tea\n# 1 Plan\n\none\ntwo\nthree\n\n# 2 Jam\n\nplums\n\n# System prompt\n\nSpeak like a pirate.\n"
    completed = await client.event("transaction_completed", lambda event: event["tool"] == "snapshot_restore")
    assert completed["summary"] == "Snapshot 1: before"
    versions = rows(tmp_path, "SELECT version, status, content FROM system_prompts ORDER BY version")
    assert [(row["version"], row["status"]) for row in versions] == [(1, "superseded"), (2, "superseded"), (3, "applied")]


@pytest.mark.parametrize("was_there", [True, False])
async def test_a_prompt_that_was_or_was_not_there(client: Client, fake: FakeOllama, was_there: bool) -> None:
    chat = await client.new_chat()
    if was_there:
        await apply_prompt(client, chat, "Speak like a pirate.")
    await do(client, chat, "snapshot_take", label="x")
    await (do(client, chat, "system_prompt_rollback", version=0) if was_there else apply_prompt(client, chat, "Speak like a pirate."))
    card = await do(client, chat, "snapshot_restore", id=1)
    expected = ["Speak like a pirate.", DEFAULT_PROMPT] if was_there else [DEFAULT_PROMPT, "Speak like a pirate."]
    for content in expected:
        await client.say(chat, "hi")
        assert fake.requests[-1].messages[0]["content"] == content
        card = await push(client, chat, card, "undo")


async def test_an_open_draft_and_other_chats_prompts_are_left_alone(client: Client, tmp_path: Path) -> None:
    chat, other = await client.new_chat(), await client.new_chat()
    await do(client, chat, "snapshot_take", label="empty")
    await apply_prompt(client, other, "Speak like a robot.")
    await apply_prompt(client, chat, "Speak like a pirate.")
    await do(client, chat, "system_prompt_draft", content="a draft")
    await do(client, chat, "snapshot_restore", id=1)
    found = rows(tmp_path, "SELECT content, status FROM system_prompts ORDER BY id")
    assert [(row["content"], row["status"]) for row in found] == [
        ("Speak like a robot.", "applied"), ("Speak like a pirate.", "superseded"), ("a draft", "draft"),
    ]  # fmt: skip


async def test_a_fact_of_a_deleted_chat_comes_back_without_its_chat(client: Client, tmp_path: Path) -> None:
    chat, other = await client.new_chat(), await client.new_chat()
    await do(client, other, "note_save", title="Theirs", content="text")
    await do(client, chat, "snapshot_take", label="x")
    await client.ok("chat.delete", chat_id=other)
    card = await do(client, chat, "snapshot_diff", a=1)
    assert card["body_key"] == "card.snapshot.same"  # where a fact came from is no change of it
    await do(client, chat, "note_delete", id=1)
    await do(client, chat, "snapshot_restore", id=1)
    assert rows(tmp_path, "SELECT id, title, session_id FROM notes") == [{"id": 1, "title": "Theirs", "session_id": None}]
    assert deleted(tmp_path) == []


async def test_a_restore_that_fails_changes_nothing(client: Client, tmp_path: Path) -> None:
    """The last step breaks: nothing of the steps before it stays."""
    chat = await client.new_chat()
    await fill(client, chat)
    await do(client, chat, "snapshot_take", label="x")
    await change_everything(client, chat)
    rows(tmp_path, "CREATE TRIGGER refuse BEFORE INSERT ON system_prompts BEGIN SELECT RAISE(ABORT, 'no'); END")
    before, kept = facts(tmp_path), deleted(tmp_path)
    assert (await client.press(chat, "snapshot_restore", id=1))["status"] == "failed"
    assert (facts(tmp_path), deleted(tmp_path)) == (before, kept)
    assert len(rows(tmp_path, "SELECT id FROM snapshots")) == 1


async def test_what_differs_from_one_snapshot_to_another_and_to_now(client: Client) -> None:
    chat = await client.new_chat()
    await fill(client, chat)
    await do(client, chat, "snapshot_take", label="one")
    await do(client, chat, "task_add", title="bread")
    await do(client, chat, "snapshot_take", label="two")
    await do(client, chat, "note_save", title="Long", content="x" * 1000)
    card = await do(client, chat, "snapshot_diff", a=1, b=2)
    assert (card["kind"], card["before"], card["after"], card["actions"]) == ("diff", "", "[ ] 3 bread", [])
    assert (card["title_key"], card["params"]) == ("card.snapshot.diff", {"a": 1, "b": 2})
    card = await do(client, chat, "snapshot_diff", a=2, b=1)
    assert (card["before"], card["after"]) == ("[ ] 3 bread", "")
    card = await do(client, chat, "snapshot_diff", a=2)
    assert (card["title_key"], card["before"], card["after"]) == ("card.snapshot.diff_now", "", f"# 3 Long\n\n{'x' * 400} … (1000)\n")
    card = await do(client, chat, "snapshot_diff", a=2, b=2)
    assert (card["kind"], card["body_key"], card["actions"]) == ("notice", "card.snapshot.same", [])


async def test_every_button_works(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await fill(client, chat)
    taken = await do(client, chat, "snapshot_take", label="one")
    before = facts(tmp_path)
    assert (await push(client, chat, taken, "compare"))["body_key"] == "card.snapshot.same"
    await do(client, chat, "task_delete", id=1)
    compared = await push(client, chat, taken, "compare")
    assert labels(compared) == ["restore"]
    restored = await push(client, chat, compared, "restore")
    assert (facts(tmp_path), labels(restored)) == (before, ["undo"])
    await push(client, chat, restored, "undo")
    listed = await do(client, chat, "snapshot_list")
    assert (listed["kind"], listed["title_key"], listed["params"]) == ("list", "card.snapshot.list", {"count": 2})
    assert [item["id"] for item in listed["items"]] == [2, 1]
    assert listed["items"][1]["text"].startswith("1 one (20") and [labels(item) for item in listed["items"]] == [["compare", "restore"]] * 2
    await push(client, chat, listed["items"][1], "compare")
    await push(client, chat, listed["items"][1], "restore")
    assert facts(tmp_path) == before


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("snapshot_take", {"label": " \n "}), ("snapshot_diff", {"a": 9}), ("snapshot_diff", {"a": 1, "b": 9}), ("snapshot_restore", {"id": 9}),
        ("snapshot_restore", {"id": 1}), ("snapshot_restore", {"id": 2}), ("snapshot_diff", {"a": 1, "b": 2}),
    ],
)  # fmt: skip
async def test_what_can_not_be_done_changes_nothing_and_says_why(client: Client, tmp_path: Path, tool: str, arguments: dict[str, object]) -> None:
    """Snapshot 2 is another chat's; snapshot 1 is as everything is now."""
    chat, other = await client.new_chat(), await client.new_chat()
    await fill(client, chat)
    await do(client, chat, "snapshot_take", label="one")
    await do(client, other, "snapshot_take", label="another chat's")
    before = facts(tmp_path)
    ended = await client.press(chat, tool, **arguments)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")
    assert facts(tmp_path) == before and len(rows(tmp_path, "SELECT id FROM snapshots")) == 2
    assert (await newest_card(client, chat))["body"] == ended["error"]["message"]


async def test_snapshots_go_with_their_chat(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await do(client, chat, "snapshot_take", label="x")
    await client.ok("chat.delete", chat_id=chat)
    assert rows(tmp_path, "SELECT * FROM snapshots") == []


async def test_a_model_takes_compares_and_restores(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await fill(client, chat)
    before = facts(tmp_path)
    fake.script(
        script.call("snapshot_take", {"label": "before"}),
        script.call("task_delete", {"id": 2}),
        script.call("note_save", {"id": 1, "title": "Plan", "content": "other"}),
        script.call("snapshot_diff", {"a": 1}),
        script.call("snapshot_restore", {"id": 1}),
        script.reply("All is as it was."),
    )
    assert (await client.say(chat, "try it and go back"))["status"] == "complete"
    assert facts(tmp_path) == before
    first, last = fake.requests[0], fake.requests[-1]
    assert "snapshot_take" in first.tool_names and "snapshot_restore" not in first.tool_names
    assert {"snapshot_list", "snapshot_diff", "snapshot_restore"} <= set(fake.requests[1].tool_names)
    told = [message["content"] for message in last.messages if message.get("tool_name") in ("snapshot_diff", "snapshot_restore")]
    assert told == [
        "From snapshot 1 to now:\nremoved task 2 [x] tea\nchanged note 1 Plan (13 characters) → note 1 Plan (5 characters)",
        "Snapshot 1 is restored; the state before is snapshot 2.\nadded task 2 [x] tea\nchanged note 1 Plan (5 characters) → note 1 Plan (13 characters)",
    ]
    state = [message["content"] for message in last.messages if message.get("tool_name") == "current_state"][-1]
    assert "Snapshots of this chat, 2:\n2 Before restoring: before (20" in state


async def test_the_working_state_lists_the_newest_few(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    for number in range(1, 8):
        await do(client, chat, "snapshot_take", label=f"label {number}")
    await client.say(chat, "which are there?")
    (state,) = [message["content"] for message in fake.requests[-1].messages if message.get("tool_name") == "current_state"]
    assert "Snapshots of this chat, 7" in state and "label 3" in state and "label 2" not in state
