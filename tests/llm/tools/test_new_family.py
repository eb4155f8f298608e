"""A family is one file: the module of `docs/adding-a-family.md` in a copy of the project, used over the wire."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.llm.tools.cards import labels, newest_card, push
from tests.server import Client, rows
from tests.test_process import PROJECT, started

pytestmark = pytest.mark.anyio

PAGE = PROJECT / "docs" / "adding-a-family.md"
MODULE = Path("backend") / "llm" / "tools" / "outlines.py"


def module_of_the_page() -> str:
    _, _, rest = PAGE.read_text().partition("```python\n")
    code, end, _ = rest.partition("```\n")
    assert end and "family = Family(" in code
    return code


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project with the page's module in it; what a server only reads is linked."""
    copy = tmp_path / "copy"
    shutil.copytree(PROJECT / "backend", copy / "backend", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("frontend", "migrations", "node_modules"):
        (copy / name).symlink_to(PROJECT / name)
    (copy / MODULE).write_text(module_of_the_page())
    return copy


@pytest.fixture
async def client(copy: Path, fake: FakeOllama, tmp_path: Path) -> AsyncIterator[Client]:
    """The copy's server: -P keeps the folder that it is started in, which is the project's, off the path."""
    variables = {"PYTHONPATH": str(copy), "CLEANROOM_TTL_MESSAGES": "3"}
    async with started(tmp_path, fake, "-P", **variables) as process, Client.connect(await process.ready()) as connected:
        yield connected


async def draft(client: Client, *points: str) -> str:
    chat = await client.new_chat()
    ended = await client.press(chat, "outline_draft", title="Trip", points=list(points))
    assert ended["status"] == "complete", ended
    return chat


async def test_it_is_listed_with_its_schema(client: Client) -> None:
    assert not (PROJECT / MODULE).exists()  # it comes from the one file that was put in
    listed = {tool["name"]: tool for tool in (await client.ok("tool.list"))["tools"] if tool["family"] == "outlines"}
    assert {name: tool["effect"] for name, tool in listed.items()} == {"outline_draft": "draft", "outline_show": "read", "outline_keep": "commit"}
    parameters = listed["outline_draft"]["parameters"]
    assert parameters["required"] == ["title", "points"]
    assert (parameters["properties"]["points"]["type"], parameters["properties"]["points"]["items"]["type"]) == ("array", "string")


async def test_its_buttons_work(client: Client, tmp_path: Path) -> None:
    chat = await draft(client, "pack", "go")
    card = await newest_card(client, chat)
    assert (card["kind"], [item["text"] for item in card["items"]]) == ("list", ["pack", "go"])
    kept = await push(client, chat, card, "Keep as a note")
    assert rows(tmp_path, "SELECT title, content FROM notes") == [{"title": "Trip", "content": "- pack\n- go"}]
    assert (await client.event("transaction_completed"))["summary"] == "Outline: Trip"
    assert labels(kept) == ["undo"]
    await push(client, chat, kept, "undo")
    assert rows(tmp_path, "SELECT * FROM notes") == []
    ended = await client.press(chat, "outline_keep")
    assert ended["error"] == {"code": "tool_failed", "message": "There is no outline in hand; make one with outline_draft first."}
    await client.refused("invalid", "tool.invoke", chat_id=chat, client_id="x", tool="outline_draft", arguments={"title": "Trip", "points": []})


async def test_a_model_is_offered_it_and_uses_it(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.call("outline_draft", {"title": "Trip", "points": ["go"]}), script.call("outline_keep", {}), script.reply("Kept."))
    chat = await client.new_chat()
    assert (await client.say(chat, "plan a trip and keep it"))["status"] == "complete"
    first, second, _ = fake.requests
    assert "outline_draft" in first.tool_names and "outline_keep" not in first.tool_names
    assert {"outline_keep", "outline_show"} <= set(second.tool_names)
    state = [message["content"] for message in second.messages if message.get("tool_name") == "current_state"][-1]
    assert state.endswith("Outline in hand, Trip:\n- go")
    assert rows(tmp_path, "SELECT title FROM notes") == [{"title": "Trip"}]


async def test_its_material_ages(client: Client, fake: FakeOllama) -> None:
    chat = await draft(client, "canary")
    assert (await client.context(chat))["active_tool"] == "outlines"
    for number in range(3):
        assert (await client.context(chat))["unrelated_count"] == number
        await client.say(chat, "something else")
    cleared = await client.event("context.cleared")
    assert (cleared["reason"], cleared["family"]) == ("expired", "outlines")
    assert (await client.context(chat))["active_tool"] is None
    assert [message for message in await client.messages(chat) if message.get("card")] == []
    await client.say(chat, "and now?")
    assert "canary" in fake.requests[-2].raw.decode() and "canary" not in fake.requests[-1].raw.decode()


def test_the_page_keeps_the_projects_own_rules(copy: Path) -> None:
    shutil.copy(PROJECT / "pyproject.toml", copy)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, MODULE], cwd=copy, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
