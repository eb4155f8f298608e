"""`context.sent`: the request that really went out, the server's own count beside the estimate, and whether it cut the prompt."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backend.llm.core.tool_injector import DEFAULT_PROMPT
from backend.services.sent import KEPT_CHATS, SentRequest
from tests import fake_ollama as script
from tests.fake_ollama import FakeModel, FakeOllama
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio

OURS = ("part", "tokens")


@pytest.fixture
def fake_with_long_context() -> FakeOllama:
    return FakeOllama([FakeModel(context_length=32_768)])


@pytest.fixture
async def wide(tmp_path: Path, fake_with_long_context: FakeOllama) -> AsyncIterator[Client]:
    """A client of a server whose model has a window of 16,384 tokens."""
    async with fake_with_long_context as fake, running(make_settings(tmp_path, fake, num_ctx=16_384)) as where, Client.connect(where) as connected:
        yield connected


async def sent_in(client: Client, chat: str) -> Json:
    return dict((await client.ok("context.sent", chat_id=chat))["sent"])


async def newest_reply(client: Client, chat: str) -> Json:
    return [message for message in await client.messages(chat) if message["role"] == "assistant"][-1]


def turns_in_memory() -> set[str]:
    """The turns whose requests this process holds: the server runs in it."""
    return {held.turn_id for held in gc.get_objects() if type(held) is SentRequest}


async def test_before_anything_was_sent_there_is_nothing_to_show(client: Client) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_list")
    assert (await client.ok("context.sent", chat_id=chat))["sent"] is None
    await client.refused("not_found", "context.sent", chat_id="nowhere")


async def test_it_is_what_the_server_received_with_its_own_count(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    fake.script(script.reply("Hi", prompt_eval_count=1_234))
    ended = await client.say(chat, "hello")
    shown, received = await sent_in(client, chat), fake.requests[-1]
    assert [{name: value for name, value in message.items() if name not in OURS} for message in shown["messages"]] == received.messages
    assert json.dumps([tool["schema"] for tool in shown["tools"]]) == json.dumps(received.tools)
    assert (shown["model"], shown["num_ctx"], shown["turn_id"]) == (received.model, received.options["num_ctx"], ended["turn_id"])
    assert shown["total_tokens"] == sum(message["tokens"] for message in shown["messages"]) + shown["tools_tokens"]
    assert (shown["prompt_tokens"], shown["prompt_cut"], shown["left_out_messages"]) == (1_234, False, 0)
    question = next(message for message in await client.messages(chat) if message["role"] == "user")
    assert shown["at"] > question["created_at"]


async def test_of_a_turn_with_tools_it_is_the_newest_request(client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("task_list", {}), script.reply("None.", prompt_eval_count=None))
    chat = await client.new_chat()
    await client.say(chat, "my list?")
    shown = await sent_in(client, chat)
    assert [message["part"] for message in shown["messages"]][-2:] == ["turn", "turn"]
    assert (shown["prompt_tokens"], shown["prompt_cut"]) == (None, False)


async def test_it_is_gone_with_its_chat_and_never_stored(client: Client, tmp_path: Path) -> None:
    chat = await client.new_chat()
    await client.say(chat, "hello")
    stored = {
        table["name"]: rows(tmp_path, f"SELECT * FROM {table['name']}") for table in rows(tmp_path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert "hello" in str(stored) and DEFAULT_PROMPT not in str(stored)
    turn_id = (await sent_in(client, chat))["turn_id"]
    assert turn_id in turns_in_memory()
    await client.ok("chat.delete", chat_id=chat)
    await client.refused("not_found", "context.sent", chat_id=chat)
    assert turn_id not in turns_in_memory()


async def test_only_the_chats_used_last_are_kept(client: Client) -> None:
    first, *others = [await client.new_chat() for _ in range(KEPT_CHATS + 1)]
    for chat in (first, *others[:-1], first, others[-1]):
        await client.say(chat, "hello")
    assert (await sent_in(client, first))["messages"][-1]["content"] == "hello"
    assert (await client.ok("context.sent", chat_id=others[0]))["sent"] is None


async def test_a_count_far_below_the_estimate_is_told_as_a_cut_and_taught_nothing(wide: Client, fake_with_long_context: FakeOllama) -> None:
    chat = await wide.new_chat()
    before = (await wide.ok("context.inspect", chat_id=chat))["total_tokens"]
    fake_with_long_context.script(script.prompt_eval_count(2_050))
    await wide.say(chat, "word " * 5_000)
    metrics = (await newest_reply(wide, chat))["metrics"]
    shown = await sent_in(wide, chat)
    assert metrics["estimated_prompt_tokens"] == shown["total_tokens"] > 7_000
    assert (metrics["prompt_cut"], metrics["prompt_tokens"]) == (True, 2_050)
    assert (shown["prompt_cut"], shown["prompt_tokens"]) == (True, 2_050)
    assert (await wide.ok("context.inspect", chat_id=await wide.new_chat()))["total_tokens"] == before


async def test_a_cut_of_a_long_conversation_is_told(wide: Client, fake_with_long_context: FakeOllama) -> None:
    """Also where the count is about what is new since the request before: this server has shown that it counts all."""
    chat = await wide.new_chat()
    for number in range(5):
        await wide.say(chat, f"{number} " + "word " * 800)
        assert "prompt_cut" not in (await newest_reply(wide, chat))["metrics"]
    fake_with_long_context.script(script.prompt_eval_count(2_050))
    await wide.say(chat, "word " * 800)
    assert (await newest_reply(wide, chat))["metrics"]["prompt_cut"] is True


async def test_a_server_that_leaves_out_what_it_has_cached_raises_no_alarm(wide: Client, fake_with_long_context: FakeOllama) -> None:
    chat = await wide.new_chat()
    await wide.say(chat, "word " * 5_000)
    for words, counted in ((10, 130), (2_000, 2_700), (10, 2_600), (10, 140)):
        fake_with_long_context.script(script.prompt_eval_count(counted))
        await wide.say(chat, "word " * words)
        assert "prompt_cut" not in (await newest_reply(wide, chat))["metrics"]
        assert (await sent_in(wide, chat))["prompt_cut"] is False


async def test_without_a_count_nothing_is_told(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    fake.script(script.reply("Hi", prompt_eval_count=None))
    await client.say(chat, "hello " * 3_000)
    metrics = (await newest_reply(client, chat))["metrics"]
    assert "prompt_cut" not in metrics and "prompt_tokens" not in metrics
