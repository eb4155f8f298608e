"""The family `system_prompt`: drafts, versions, what opens a request, and every way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.llm.core.tool_injector import DEFAULT_PROMPT
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json, rows

pytestmark = pytest.mark.anyio


def versions(folder: Path) -> list[tuple[int, str, str]]:
    return [(row["version"], row["content"], row["status"]) for row in rows(folder, "SELECT version, content, status FROM system_prompts ORDER BY version")]


async def card_of(client: Client, chat: str, tool: str) -> Json:
    """The newest card that a tool made."""
    return dict([message for message in await client.messages(chat) if message.get("tool") == tool][-1]["card"])


async def push(client: Client, chat: str, card: Json, label: str, **changed: object) -> Json:
    (button,) = [action for action in card["actions"] if action["label"] == label]
    return await client.press(chat, button["tool"], **{**button["arguments"], **changed})


async def opening(client: Client, fake: FakeOllama, chat: str) -> str:
    """The system message that the chat's next request begins with."""
    await client.say(chat, "hi")
    first = fake.requests[-1].messages[0]
    assert first["role"] == "system"
    return str(first["content"])


async def test_an_applied_prompt_opens_every_later_request_of_its_chat_and_no_other(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat, other = await client.new_chat(), await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="Speak like a pirate.")
    assert await opening(client, fake, chat) == DEFAULT_PROMPT
    await client.press(chat, "system_prompt_apply", version=1)
    assert versions(tmp_path) == [(1, "Speak like a pirate.", "applied")]
    for _ in range(2):
        assert await opening(client, fake, chat) == "Speak like a pirate."
    assert await opening(client, fake, other) == DEFAULT_PROMPT
    assert "pirate" not in fake.requests[-1].raw.decode()


async def test_a_draft_shows_what_would_change(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="one")
    card = await card_of(client, chat, "system_prompt_draft")
    assert (card["kind"], card["before"], card["after"]) == ("diff", "", "one")
    assert [action["label"] for action in card["actions"]] == ["apply", "edit", "discard"]
    await client.press(chat, "system_prompt_apply", version=1)
    await client.press(chat, "system_prompt_draft", content="two")
    card = await card_of(client, chat, "system_prompt_draft")
    assert (card["before"], card["after"]) == ("one", "two")
    assert versions(tmp_path) == [(1, "one", "applied"), (2, "two", "draft")]


async def test_the_buttons_of_a_draft(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="one")
    card = await card_of(client, chat, "system_prompt_draft")
    await push(client, chat, card, "edit", content="one, edited")
    card = await card_of(client, chat, "system_prompt_draft")
    await push(client, chat, card, "discard")
    assert versions(tmp_path) == [(1, "one", "superseded"), (2, "one, edited", "discarded")]
    card = await card_of(client, chat, "system_prompt_discard")
    await push(client, chat, card, "undo")
    assert versions(tmp_path)[2] == (3, "one, edited", "draft")
    await push(client, chat, await card_of(client, chat, "system_prompt_draft"), "apply")
    assert versions(tmp_path)[2] == (3, "one, edited", "applied")


async def test_undo_of_an_apply_goes_back_to_the_prompt_before(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="one")
    await client.press(chat, "system_prompt_apply", version=1)
    await client.press(chat, "system_prompt_draft", content="two")
    await client.press(chat, "system_prompt_apply", version=2)
    card = await card_of(client, chat, "system_prompt_apply")
    assert (card["before"], card["after"]) == ("one", "two")
    assert (await push(client, chat, card, "undo"))["status"] == "complete"
    assert await opening(client, fake, chat) == "one"
    card = await card_of(client, chat, "system_prompt_rollback")
    assert (await push(client, chat, card, "undo"))["status"] == "complete"
    assert await opening(client, fake, chat) == "two"


async def test_undo_of_the_first_apply_leaves_no_prompt_and_can_itself_be_undone(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="one")
    await client.press(chat, "system_prompt_apply")
    await push(client, chat, await card_of(client, chat, "system_prompt_apply"), "undo")
    assert await opening(client, fake, chat) == DEFAULT_PROMPT
    await push(client, chat, await card_of(client, chat, "system_prompt_rollback"), "undo")
    assert await opening(client, fake, chat) == "one"


async def test_a_rollback_is_a_new_version_with_the_old_text(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await client.new_chat()
    for number, content in enumerate(("one", "two"), start=1):
        await client.press(chat, "system_prompt_draft", content=content)
        await client.press(chat, "system_prompt_apply", version=number)
    await client.press(chat, "system_prompt_rollback", version=1)
    assert versions(tmp_path) == [(1, "one", "superseded"), (2, "two", "superseded"), (3, "one", "applied")]
    assert await opening(client, fake, chat) == "one"
    await client.press(chat, "system_prompt_versions")
    card = await card_of(client, chat, "system_prompt_versions")
    assert ([row[:2] for row in card["rows"]], card["total_rows"]) == ([[3, "applied"], [2, "superseded"], [1, "superseded"]], 3)
    await push(client, chat, card, "roll_back")
    assert versions(tmp_path)[3] == (4, "two", "applied")
    await client.press(chat, "system_prompt_rollback", version=0)
    assert await opening(client, fake, chat) == DEFAULT_PROMPT
    assert not [row for row in versions(tmp_path) if row[2] == "applied"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("system_prompt_apply", {}), ("system_prompt_apply", {"version": 1}), ("system_prompt_discard", {}), ("system_prompt_rollback", {"version": 5}),
        ("system_prompt_rollback", {"version": 1}), ("system_prompt_view", {"version": 5}), ("system_prompt_draft", {"content": " \n"}),
    ],
)  # fmt: skip
async def test_what_can_not_be_done_changes_nothing(client: Client, tmp_path: Path, tool: str, arguments: dict[str, object]) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="one")
    await client.press(chat, "system_prompt_apply")
    ended = await client.press(chat, tool, **arguments)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")
    assert versions(tmp_path) == [(1, "one", "applied")]


async def test_a_draft_that_changed_meanwhile_is_a_conflict_that_shows_the_new_one(address: str, client: Client, tmp_path: Path) -> None:
    """U03 and P03: what a card shows is what its Apply puts in force, or nothing is."""
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="A")
    card = await card_of(client, chat, "system_prompt_draft")
    async with Client.connect(address) as other:
        await other.messages(chat)
        await other.press(chat, "system_prompt_draft", content="B")
    ended = await push(client, chat, card, "apply")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "conflict")
    assert "2" in ended["error"]["message"]
    assert versions(tmp_path) == [(1, "A", "superseded"), (2, "B", "draft")]
    card = await card_of(client, chat, "system_prompt_apply")
    assert (card["after"], card["actions"][0]) == ("B", {"label": "apply", "tool": "system_prompt_apply", "arguments": {"version": 2}, "style": "primary"})
    assert (await push(client, chat, card, "apply"))["status"] == "complete"
    assert versions(tmp_path)[1] == (2, "B", "applied")


async def test_a_commits_undo_outlives_the_next_draft(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="one")
    await client.press(chat, "system_prompt_apply")
    await client.press(chat, "system_prompt_draft", content="two")
    assert (await push(client, chat, await card_of(client, chat, "system_prompt_apply"), "undo"))["status"] == "complete"
    assert await opening(client, fake, chat) == DEFAULT_PROMPT


async def test_views(client: Client) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_view")
    assert (await card_of(client, chat, "system_prompt_view"))["kind"] == "notice"
    await client.press(chat, "system_prompt_draft", content="one")
    await client.press(chat, "system_prompt_view")
    assert (await card_of(client, chat, "system_prompt_view"))["after"] == "one"
    await client.press(chat, "system_prompt_apply")
    await client.press(chat, "system_prompt_view")
    card = await card_of(client, chat, "system_prompt_view")
    assert (card["kind"], card["body"], card["format"]) == ("preview", "one", "plain")
    await push(client, chat, card, "edit", content="two")
    await client.press(chat, "system_prompt_apply")
    await client.press(chat, "system_prompt_view", version=1)
    await push(client, chat, await card_of(client, chat, "system_prompt_view"), "roll_back")
    await client.press(chat, "system_prompt_view")
    assert (await card_of(client, chat, "system_prompt_view"))["body"] == "one"


async def test_what_is_over_reaches_no_model_however_it_asks(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content="CANARY-superseded")
    await client.press(chat, "system_prompt_draft", content="CANARY-discarded")
    await client.press(chat, "system_prompt_discard")
    await client.press(chat, "system_prompt_draft", content="in hand")
    calls = [("system_prompt_view", {"version": 1}), ("system_prompt_view", {"version": 2}), ("system_prompt_versions", {}), ("system_prompt_view", {})]
    fake.script(script.calls(*(script.tool_call(name, arguments) for name, arguments in calls)), script.reply("hm"))
    assert (await client.say(chat, "show me all"))["status"] == "complete"
    sent = b"".join(request.raw for request in fake.requests).decode()
    assert "CANARY" not in sent
    assert "in hand" in sent
    shown = [message["card"] for message in await client.messages(chat) if message.get("tool") == "system_prompt_view"]
    assert [card.get("body") for card in shown[:2]] == ["CANARY-superseded", "CANARY-discarded"]


async def test_the_open_draft_is_read_for_the_model_and_one_in_hand_no_more_is_not(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="buy milk")
    await client.press(chat, "system_prompt_draft", content="CANARY in hand")
    await client.say(chat, "what do you think?")
    call, state, new = fake.requests[0].messages[-3:]
    assert call["tool_calls"] == [{"function": {"name": "current_state", "arguments": {}}}]
    assert (state["role"], state["tool_name"], new) == ("tool", "current_state", {"role": "user", "content": "what do you think?"})
    assert state["content"] == ("Tasks, 1 open of 1:\n1 [ ] buy milk\n\nOpen draft of the system prompt, version 1, not in force:\nCANARY in hand")
    await client.ok("context.clear", chat_id=chat)
    await client.say(chat, "and now?")
    assert "CANARY" not in fake.requests[1].raw.decode()
    counts = fake.requests[1].messages[-2]["content"]
    assert counts.startswith("In the database: ") and counts.endswith("system prompt: none applied; tasks: 1 open of 1. Nothing is in hand.")
    await client.press(chat, "system_prompt_view")
    await client.say(chat, "now?")
    assert "CANARY" not in fake.requests[2].raw.decode()  # a view says that there is a draft; its number takes it up
    await client.press(chat, "system_prompt_view", version=1)
    await client.say(chat, "now?")
    assert fake.requests[3].messages[-2]["content"].endswith("CANARY in hand")


async def test_the_prompt_in_force_is_told_by_its_head(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content=" ".join(f"word{number}" for number in range(50)))
    await client.press(chat, "system_prompt_apply")
    await client.say(chat, "hi")
    state = fake.requests[0].messages[-2]["content"]
    assert state.startswith("System prompt in force, version 1:\nword0 word1")
    assert "word39 …" in state and "word40" not in state


async def test_apply_without_a_draft_is_an_error_for_the_model(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    """U06: a model's word applies nothing."""
    fake.script(script.call("system_prompt_apply", {}), script.reply("Yes. Applied!"))
    chat = await client.new_chat()
    await client.say(chat, "apply it")
    assert fake.requests[1].messages[-1]["content"] == "Error: There is no draft to apply; make one with system_prompt_draft first."
    assert versions(tmp_path) == []
    assert (await client.messages(chat))[-1]["metrics"]["nothing_changed"] is True
