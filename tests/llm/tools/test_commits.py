"""Every commit of every family: its card says what changed and carries an Undo that really puts it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.llm import tools
from backend.llm.core.registry import Registry
from tests.llm.tools.cards import labels, newest_card, push
from tests.server import Client, rows

pytestmark = pytest.mark.anyio

# A call of each, made on the facts that `prepare` leaves, and a text of the change that its card has to show.
COMMITS: dict[str, tuple[dict[str, Any], str]] = {
    "note_delete": ({"id": 1}, "Plan"),
    "note_restore": ({"id": 2}, "to be restored"),
    "note_save": ({"id": 1, "title": "Plan", "content": "another text"}, "another text"),
    "snapshot_restore": ({"id": 1}, "Plan"),
    "system_prompt_apply": ({}, "the open draft"),
    "system_prompt_rollback": ({"version": 1}, "the first prompt"),
    "task_add": ({"title": "bread"}, "bread"),
    "task_complete": ({"id": 1}, "milk"),
    "task_delete": ({"id": 1}, "milk"),
    "task_restore": ({"id": 2}, "tea"),
    "task_update": ({"id": 1, "title": "oat milk"}, "oat milk"),
}


async def prepare(client: Client) -> str:
    """A chat with a prompt, another one before it, a draft, a task and a note, and one of each that was deleted."""
    chat = await client.new_chat()
    steps: list[tuple[str, dict[str, Any]]] = [
        ("snapshot_take", {"label": "empty"}),
        ("task_add", {"title": "milk"}),
        ("task_add", {"title": "tea"}),
        ("task_delete", {"id": 2}),
        ("note_save", {"title": "Plan", "content": "text"}),
        ("note_save", {"title": "Gone", "content": "to be restored"}),
        ("note_delete", {"id": 2}),
        ("system_prompt_draft", {"content": "the first prompt"}),
        ("system_prompt_apply", {}),
        ("system_prompt_draft", {"content": "the second prompt"}),
        ("system_prompt_apply", {}),
        ("system_prompt_draft", {"content": "the open draft"}),
    ]
    for tool, arguments in steps:
        assert (await client.press(chat, tool, **arguments))["status"] == "complete"
    return chat


def facts(folder: Path) -> list[list[tuple[object, ...]]]:
    """What a commit can change, without its times."""
    statements = (
        "SELECT id, title, done, session_id FROM tasks ORDER BY id",
        "SELECT id, title, content, session_id FROM notes ORDER BY id",
        "SELECT content FROM system_prompts WHERE status = 'applied'",
    )
    return [[tuple(row.values()) for row in rows(folder, sql)] for sql in statements]


def test_every_commit_is_tried() -> None:
    assert sorted(tool.name for tool in Registry.discover(tools) if tool.effect == "commit") == sorted(COMMITS)


@pytest.mark.parametrize("tool", COMMITS)
async def test_a_commit_can_be_undone_and_done_again(client: Client, tmp_path: Path, tool: str) -> None:
    arguments, change = COMMITS[tool]
    chat = await prepare(client)
    before = facts(tmp_path)
    assert (await client.press(chat, tool, **arguments))["status"] == "complete"
    after = facts(tmp_path)
    assert after != before
    card = await newest_card(client, chat)
    assert card["title_key"].startswith("card.") and change in str([card.get(part) for part in ("body", "before", "after")])
    assert labels(card).count("undo") == 1
    undone = await push(client, chat, card, "undo")
    assert facts(tmp_path) == before
    await push(client, chat, undone, "undo")
    assert facts(tmp_path) == after
