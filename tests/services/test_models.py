"""Which model answers: Ollama when it is there, the embedded one when not, and how a change is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeModel, FakeOllama
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio


async def test_welcome_names_the_models_and_what_they_can(client: Client) -> None:
    welcome = client.welcome
    assert (welcome["model_backend"], welcome["default_model"]) == ("ollama", "fake:tools")
    (model,) = welcome["models"]
    assert model["capabilities"] == ["completion", "tools"]
    assert (model["context_length"], model["num_ctx"]) == (8192, 8192)


async def test_a_chat_asks_the_model_that_it_chose(tmp_path: Path) -> None:
    models = [FakeModel("one"), FakeModel("two:latest", context_length=2048)]
    async with FakeOllama(models) as fake, running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        chosen, default = await client.new_chat(model="two"), await client.new_chat()
        await client.say(chosen, "hi")
        await client.say(default, "hi")
        assert [(r.model, r.options["num_ctx"]) for r in fake.requests] == [("two:latest", 2048), ("one", 8192)]
        await client.ok("chat.update", chat_id=chosen, model=None)
        await client.say(chosen, "again")
        assert fake.requests[-1].model == "one"


async def test_a_missing_model_says_how_to_get_it(client: Client, fake: FakeOllama) -> None:
    ended = await client.say(await client.new_chat(model="qwen9:1t"), "hi")
    assert ended["error"]["code"] == "model_not_found"
    assert "ollama pull qwen9:1t" in ended["error"]["message"]
    assert fake.requests == []


async def test_the_setting_names_the_default_model(tmp_path: Path) -> None:
    models = [FakeModel("one"), FakeModel("two")]
    async with FakeOllama(models) as fake, running(make_settings(tmp_path, fake, model="two")) as address, Client.connect(address) as client:
        assert client.welcome["default_model"] == "two"


async def test_ollama_gone_and_back_is_noticed_without_a_restart(client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    await fake.stop()
    ended = await client.say(chat, "is anybody there?")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "model_unavailable")
    assert fake.url in ended["error"]["message"]
    assert (await client.event("models.updated"))["model_backend"] == "none"
    await fake.start()
    turn = (await client.ok("turn.regenerate", chat_id=chat))["turn_id"]
    assert (await client.finished(turn))["status"] == "complete"
    assert client.of("models.updated")[-1]["model_backend"] == "ollama"


async def test_models_can_be_asked_for_again(client: Client, fake: FakeOllama) -> None:
    await fake.stop()
    assert (await client.ok("models.refresh"))["model_backend"] == "none"
    await fake.start()
    described = await client.ok("models.refresh")
    assert (described["model_backend"], described["default_model"]) == ("ollama", "fake:tools")


async def test_a_model_that_thinks_is_asked_to(tmp_path: Path) -> None:
    async with FakeOllama([FakeModel("thinker", capabilities=("completion", "thinking"))]) as fake:
        fake.script(script.thinking_then_text("hm", "Yes"))
        async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
            await client.say(await client.new_chat(), "hi")
        assert fake.requests[0].body["think"] is True


async def test_the_embedded_model_answers_for_real_until_ollama_comes(tmp_path: Path) -> None:
    async with FakeOllama() as fake:
        await fake.stop()
        async with running(make_settings(tmp_path, fake, embedded="auto")) as address, Client.connect(address) as client:
            assert client.welcome["model_backend"] == "embedded"
            chat = await client.new_chat()
            ended = await client.say(chat, "What is the capital of France?")
            assert ended["status"] == "complete"
            reply = (await client.messages(chat))[-1]
            assert "Paris" in reply["content"]
            assert reply["metrics"]["prompt_tokens"] > 0 and reply["metrics"]["reply_tokens"] > 0

            await fake.start()
            await client.say(chat, "And now?")
            assert (await client.messages(chat))[-1]["model"] == "fake:tools"
            assert client.of("models.updated")[-1]["model_backend"] == "ollama"
