"""Which model answers: Ollama when it is there, the embedded one when not, and how a change is noticed; its window."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

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
    assert model["kv_bytes_per_token"] == 131_072
    assert welcome["pulls"] == []


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


async def test_many_who_ask_at_once_share_a_look(client: Client, fake: FakeOllama) -> None:
    before = fake.paths.count("GET /api/tags")
    await asyncio.gather(*(client.ok("models.refresh") for _ in range(20)))
    assert fake.paths.count("GET /api/tags") - before < 10


async def test_a_server_that_stays_away_is_logged_once(client: Client, fake: FakeOllama, caplog: pytest.LogCaptureFixture) -> None:
    await fake.stop()
    with caplog.at_level("INFO", "backend.llm.backend"):
        for _ in range(3):
            await client.ok("models.refresh")
    assert caplog.text.count("no model server answers") == 1


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
            # What it can't do is not asked of it, and what it does not know it passes over.
            await client.ok("chat.update", chat_id=chat, parameters={"temperature": 0.0, "think": "on", "keep_alive": "5m"})
            ended = await client.say(chat, "What is the capital of France?")
            assert ended["status"] == "complete"
            reply = (await client.messages(chat))[-1]
            assert "Paris" in reply["content"]
            assert reply["metrics"]["prompt_tokens"] > 0 and reply["metrics"]["reply_tokens"] > 0

            await fake.start()
            await client.say(chat, "And now?")
            assert (await client.messages(chat))[-1]["model"] == "fake:tools"
            assert client.of("models.updated")[-1]["model_backend"] == "ollama"


# ---- What changes by itself ----


@pytest.fixture
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that are otherwise seconds apart come at once."""
    monkeypatch.setattr("backend.llm.backend.WATCH_SECONDS", 0.05)
    monkeypatch.setattr("backend.llm.backend.LOOK_SECONDS", 0.1)


@pytest.mark.usefixtures("attentive")
async def test_the_page_sees_ollama_come_its_first_model_and_it_go(tmp_path: Path) -> None:
    async with FakeOllama([]) as fake:
        await fake.stop()
        async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
            assert (client.welcome["model_backend"], client.welcome["models"]) == ("none", [])
            await fake.start()
            await client.event("models.updated", lambda event: event["model_backend"] == "ollama" and event["models"] == [])
            fake.models.append(FakeModel("one"))
            await client.event("models.updated", lambda event: names(event) == ["one"])
            fake.models.append(FakeModel("two"))
            await client.event("models.updated", lambda event: names(event) == ["one", "two"])
            del fake.models[0]
            await client.event("models.updated", lambda event: names(event) == ["two"])
            await fake.stop()
            assert names(await client.event("models.updated", lambda event: event["model_backend"] == "none")) == []


@pytest.mark.usefixtures("attentive")
async def test_a_moment_away_is_not_gone(client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.llm.backend.MISSES_UNTIL_GONE", 1_000)
    await fake.stop()
    await fake.start()
    fake.models.append(FakeModel("new"))
    await client.event("models.updated", lambda event: "new" in names(event))
    assert {event["model_backend"] for event in client.of("models.updated")} == {"ollama"}


async def test_nothing_is_asked_while_no_page_is_there(address: str, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.llm.backend.WATCH_SECONDS", 0.05)
    async with Client.connect(address):
        pass
    asked = len(fake.paths)
    await asyncio.sleep(0.3)  # nothing happens: there is no event to wait for
    assert len(fake.paths) <= asked + 1


async def test_a_page_that_connects_hears_of_a_changed_list(address: str, client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.models.append(FakeModel("new"))
    monkeypatch.setattr("backend.llm.backend.WATCH_SECONDS", 0)
    async with Client.connect(address) as page:
        # The look may be quicker than the welcome, which then knows already.
        await page.until(lambda: any("new" in names(frame) for frame in (page.welcome, *page.of("models.updated"))))


def names(event: dict[str, Any]) -> list[str]:
    return [model["name"] for model in event["models"]]


# ---- A model's window ----


async def test_a_models_window_holds_for_every_chat_and_after_a_restart(tmp_path: Path) -> None:
    async with FakeOllama([FakeModel("one"), FakeModel("two")]) as fake:
        settings = make_settings(tmp_path, fake)
        async with running(settings) as address, Client.connect(address) as client, Client.connect(address) as other:
            first = await client.new_chat()
            await client.say(first, "hi")
            reply = await client.ok("model.update", name="one", num_ctx=4096)
            assert windows(reply) == {"one": 4096, "two": 8192}
            assert windows(await other.event("models.updated", lambda event: windows(event)["one"] == 4096)) == windows(reply)
            for chat in (first, await client.new_chat()):
                await client.say(chat, "again")
            assert [request.options["num_ctx"] for request in fake.requests] == [8192, 4096, 4096]
            assert (await client.ok("context.inspect", chat_id=first))["num_ctx"] == 4096
        async with running(settings) as address, Client.connect(address) as client:
            assert windows(client.welcome) == {"one": 4096, "two": 8192}
            await client.say(await client.new_chat(), "hi")
            assert fake.requests[-1].options["num_ctx"] == 4096
            assert windows(await client.ok("model.update", name="one", num_ctx=None)) == {"one": 8192, "two": 8192}
            await client.ok("model.update", name="one", num_ctx=None)


async def test_a_window_has_bounds(client: Client) -> None:
    assert "num_ctx" in (await client.refused("invalid", "model.update", name="fake:tools", num_ctx=255))["fields"]
    refused = await client.refused("invalid", "model.update", name="fake:tools", num_ctx=8193)
    assert "8192" in refused["fields"]["num_ctx"]
    await client.refused("not_found", "model.update", name="nobody", num_ctx=4096)
    assert windows(await client.ok("model.update", name="fake:tools", num_ctx=256)) == {"fake:tools": 256}
    assert windows(await client.ok("model.update", name="fake:tools", num_ctx=8192)) == {"fake:tools": 8192}


async def test_a_persons_window_may_be_longer_than_the_settings(tmp_path: Path) -> None:
    models = [FakeModel("big:latest", context_length=131_072), FakeModel("other", context_length=131_072)]
    async with FakeOllama(models) as fake, running(make_settings(tmp_path, fake, num_ctx=2048)) as address, Client.connect(address) as client:
        assert windows(client.welcome) == {"big:latest": 2048, "other": 2048}
        assert windows(await client.ok("model.update", name="big", num_ctx=100_000)) == {"big:latest": 100_000, "other": 2048}
        fake.models[0] = FakeModel("big:latest", context_length=4096)
        assert windows(await client.ok("models.refresh"))["big:latest"] == 4096


def windows(described: dict[str, Any]) -> dict[str, int]:
    return {model["name"]: model["num_ctx"] for model in described["models"]}
