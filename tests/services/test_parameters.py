"""A chat's parameters reach the model as its server wants them, and no others do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeModel, FakeOllama
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

THINKER = FakeModel("thinker", capabilities=("completion", "thinking"))
LEVELS = FakeModel("levels", capabilities=("completion", "thinking"), architecture="gptoss")
PLAIN = FakeModel("plain", capabilities=("completion",))


async def ask(folder: Path, fake: FakeOllama, parameters: dict[str, object] | None) -> None:
    async with running(make_settings(folder, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        if parameters is not None:
            await client.ok("chat.update", chat_id=chat, parameters=parameters)
        assert (await client.say(chat, "hi"))["status"] == "complete"


async def test_a_chat_without_parameters_leaves_them_to_the_model(client: Client, fake: FakeOllama) -> None:
    await client.say(await client.new_chat(), "hi")
    assert fake.requests[0].options == {"num_ctx": 8192}
    assert "keep_alive" not in fake.requests[0].body


async def test_parameters_are_a_chats_own(client: Client, fake: FakeOllama) -> None:
    warm, plain = await client.new_chat(), await client.new_chat()
    updated = await client.ok("chat.update", chat_id=warm, parameters={"temperature": 1.25, "keep_alive": "30m"})
    assert updated["chat"]["parameters"] == {"temperature": 1.25, "keep_alive": "30m"}
    for chat in (warm, plain):
        await client.say(chat, "hi")
    assert [request.options.get("temperature") for request in fake.requests] == [1.25, None]
    assert [request.keep_alive for request in fake.requests] == ["30m", None]
    await client.ok("chat.update", chat_id=warm, parameters={})
    await client.say(warm, "again")
    assert fake.requests[-1].options == {"num_ctx": 8192}


@pytest.mark.parametrize(("chosen", "sent"), [("0", 0), ("-1", -1), ("5m", "5m"), ("2h", "2h")])
async def test_keep_alive_is_a_duration_or_a_number(client: Client, fake: FakeOllama, chosen: str, sent: int | str) -> None:
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, parameters={"keep_alive": chosen})
    await client.say(chat, "hi")
    assert fake.requests[0].keep_alive == sent


@pytest.mark.parametrize(
    ("model", "chosen", "sent"),
    [
        (THINKER, None, True),
        (THINKER, "on", True),
        (THINKER, "off", False),
        (THINKER, "high", "high"),
        (LEVELS, None, True),
        (LEVELS, "low", "low"),
        (LEVELS, "off", "low"),
        (PLAIN, None, False),
        (PLAIN, "on", False),
        (PLAIN, "high", False),
    ],
)
async def test_thinking_is_asked_for_as_the_model_knows_it(tmp_path: Path, model: FakeModel, chosen: str | None, sent: bool | str) -> None:
    async with FakeOllama([model]) as fake:
        await ask(tmp_path, fake, {"think": chosen} if chosen else None)
        assert fake.requests[0].think == sent


@pytest.mark.parametrize(
    ("chosen", "refusals", "asked"),
    [
        ("on", ['"thinker" does not support thinking'], [True, False]),
        ("high", ["json: cannot unmarshal string into Go struct field ChatRequest.think of type bool"], ["high", True]),
        ("high", ["cannot unmarshal string into ChatRequest.think", '"thinker" does not support thinking'], ["high", True, False]),
    ],
)
async def test_thinking_that_is_refused_costs_no_reply(tmp_path: Path, chosen: str, refusals: list[str], asked: list[object]) -> None:
    async with FakeOllama([THINKER]) as fake:
        fake.script(*(script.err_first(400, refusal) for refusal in refusals))
        await ask(tmp_path, fake, {"think": chosen})
        assert [request.think for request in fake.requests] == asked


async def test_an_empty_reply_is_asked_for_again_away_from_the_chats_temperature(tmp_path: Path) -> None:
    async with FakeOllama() as fake:
        fake.script(script.done(), script.reply("Here I am"))
        await ask(tmp_path, fake, {"temperature": 0.0})
        first, second = fake.requests
        assert first.options == {"num_ctx": 8192, "temperature": 0.0}
        assert second.options == {"num_ctx": 8192, "temperature": 0.8, "seed": 1}


@pytest.mark.parametrize("parameters", [{"temperature": 2.1}, {"temperature": -1}, {"think": "max"}, {"keep_alive": "1h"}])
async def test_values_out_of_range_are_refused(client: Client, parameters: dict[str, object]) -> None:
    await client.refused("invalid", "chat.update", chat_id=await client.new_chat(), parameters=parameters)
