"""The cap on tool results in a turn: what the model is sent, and that the person's card has the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.llm.tokens import BYTES_PER_TOKEN
from tests import fake_ollama as script
from tests.fake_ollama import FakeModel, FakeOllama
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

LONG = "А long prompt, line by line.\n" * 500


async def read_long_draft(client: Client, fake: FakeOllama) -> str:
    """Have the model view a draft that is no longer in hand; what it is given."""
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content=LONG)
    await client.ok("context.clear", chat_id=chat)
    fake.script(script.call("system_prompt_view", {"version": 1}), script.reply("read"))
    assert (await client.say(chat, "read it"))["status"] == "complete"
    (card,) = [message["card"] for message in await client.messages(chat) if message.get("card")]
    assert card["after"] == LONG
    return str(fake.requests[1].messages[-1]["content"])


async def test_the_setting_is_kept_and_the_card_has_the_whole(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, tool_result_tokens=100)) as address, Client.connect(address) as client:
        given = await read_long_draft(client, fake)
    part, cut, notice = given.partition("\n[Cut: ")
    assert len(part.encode()) <= 2 * BYTES_PER_TOKEN * 100 and part.endswith(".\n")
    assert cut and notice.endswith("characters are left out. The person sees the whole.]")


async def test_in_a_small_window_a_result_leaves_room_for_the_rest(tmp_path: Path) -> None:
    async with FakeOllama([FakeModel(context_length=4096)]) as fake, running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        given = await read_long_draft(client, fake)
    assert len(given.partition("\n[Cut: ")[0].encode()) <= BYTES_PER_TOKEN * 4096 / 4
