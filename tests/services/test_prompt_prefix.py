"""A request begins with the bytes of the one before it, as far as it can: what a model server has read, it need not read again.

Each step of a conversation names the part at which its first request leaves the former one. `state` is as far as it
can: the working state is read anew each time, and stands before the new message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import ChatRequest, FakeOllama
from tests.server import Client
from tests.sterile_machine import placed

pytestmark = pytest.mark.anyio


def in_order(request: ChatRequest) -> Iterator[tuple[str, str]]:
    """The parts of a request in the order in which templates write them: what each is, and its JSON as it came."""
    (_, prompt), *messages = placed(request.messages)
    yield "prompt", json.dumps(prompt)
    yield from (("tools", json.dumps(tool)) for tool in request.tools)
    yield "tools", "end"
    yield from ((place, json.dumps(message)) for place, message in messages)


def parting(former: ChatRequest, latter: ChatRequest) -> str:
    """The part of the former request that the latter doesn't have at the same place; `end` when it has all of it."""
    pairs = zip(in_order(former), [text for _, text in in_order(latter)], strict=False)
    return next((place for (place, text), other in pairs if text != other), "end")


class Conversation:
    """A chat, and where each request in it leaves the one before."""

    def __init__(self, client: Client, fake: FakeOllama, chat_id: str) -> None:
        self._client = client
        self._fake = fake
        self._chat_id = chat_id

    async def say(self, text: str, *scripts: script.Script) -> list[str]:
        """Send a message; where each of its requests parts from the one before."""
        known = len(self._fake.requests)
        self._fake.script(*(scripts or [script.reply(f"A reply to: {text}")]))
        assert (await self._client.say(self._chat_id, text))["status"] == "complete"
        return [parting(former, latter) for former, latter in pairwise(self._fake.requests[max(0, known - 1) :])]


@pytest.fixture
async def chat_id(client: Client) -> str:
    return await client.new_chat()


@pytest.fixture
def conversation(client: Client, fake: FakeOllama, chat_id: str) -> Conversation:
    return Conversation(client, fake, chat_id)


async def test_only_a_step_of_the_window_ends_it_before_the_state(conversation: Conversation, fake: FakeOllama) -> None:
    partings = [found for number in range(16) for found in await conversation.say(f"question {number}")]
    assert partings == ["state"] * 5 + ["history", "state", "state"] * 3 + ["history"]
    assert len({json.dumps(request.tools) for request in fake.requests}) == 1


async def test_receipts_and_cards_of_the_open_family_change_nothing_before_the_state(conversation: Conversation) -> None:
    draft, redraft = (script.call("system_prompt_draft", {"content": text}) for text in ("Be brief.", "Be kind."))
    await conversation.say("draft", draft, script.reply("Drafted."))
    assert await conversation.say("thanks") == ["state"]
    assert await conversation.say("again", redraft, script.reply("Drafted.")) == ["state", "state"]
    assert await conversation.say("find it", script.call("history_search", {"query": "draft"}), script.reply("Found.")) == ["state", "end"]


async def test_a_family_that_opens_or_ends_changes_the_tools(conversation: Conversation, client: Client, chat_id: str) -> None:
    await conversation.say("hello")
    draft = script.call("system_prompt_draft", {"content": "Be brief."})
    assert await conversation.say("draft", draft, script.reply("Drafted.")) == ["state", "tools"]
    await client.ok("context.clear", chat_id=chat_id)
    assert await conversation.say("thanks") == ["tools"]
    assert await conversation.say("and now?") == ["state"]


async def test_another_prompt_ends_it_at_once(conversation: Conversation, client: Client, chat_id: str) -> None:
    await conversation.say("hello")
    await client.press(chat_id, "system_prompt_draft", content="Be brief.")
    await client.press(chat_id, "system_prompt_apply")
    assert await conversation.say("thanks") == ["prompt"]
