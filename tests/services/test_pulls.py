"""A model is pulled from the page: how far it is, how it ends, and that it can be ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from backend.embedded.process import EmbeddedProcess
from backend.errors import ModelUnavailable
from backend.llm.backend import ModelBackend
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
BIG, SMALL = "a" * 64, "b" * 64


def pulls_of(client: Client, name: str) -> list[Json]:
    return [event["pull"] for event in client.of("model.pull") if event["pull"]["name"] == name]


async def ended(client: Client, name: str) -> Json:
    event = await client.event("model.pull", lambda event: event["pull"]["name"] == name and event["pull"]["status"] != "running")
    return dict(event["pull"])


async def test_a_pulled_model_is_there_when_its_pull_is_complete(client: Client, fake: FakeOllama) -> None:
    reply = await client.ok("model.pull", name="new:1b")
    assert reply["pull"] == {"name": "new:1b", "status": "running", "step": "waiting", "completed": None, "total": None, "error": None}
    pull = await ended(client, "new:1b")
    assert (pull["status"], pull["error"]) == ("complete", None)
    assert pull["completed"] == pull["total"] == 4_000_001_500
    assert (fake.pulls[0].model, fake.pulls[0].body["stream"]) == ("new:1b", True)
    kinds = [event["type"] for event in client.events]
    assert kinds.index("models.updated") < len(kinds) - 1 - kinds[::-1].index("model.pull")
    assert "new:1b" in [model["name"] for model in client.of("models.updated")[-1]["models"]]
    assert [pull["status"] for pull in pulls_of(client, "new:1b")].count("complete") == 1


async def test_progress_counts_all_files_and_is_told_sparingly(client: Client, fake: FakeOllama) -> None:
    more = asyncio.Event()
    fake.script_pull(
        [
            script.progress("pulling manifest"),
            script.layer(BIG, 1000, *range(1001)),
            script.layer(SMALL, 10, 0, 5),
            script.hold(more),
            script.progress("verifying sha256 digest"),
            script.progress("success"),
        ]
    )
    await client.ok("model.pull", name="x")
    # The newest state is told, though nothing follows it for now.
    await client.event("model.pull", lambda event: event["pull"]["completed"] == 1005)
    told = pulls_of(client, "x")
    assert (told[-1]["total"], told[-1]["step"]) == (1010, f"pulling {SMALL[:12]}")
    assert len(told) < 100, "a thousand lines are told in a few events"
    more.set()
    assert (await ended(client, "x"))["step"] == "success"


async def test_a_second_pull_joins_the_first(client: Client, fake: FakeOllama) -> None:
    more = asyncio.Event()
    fake.script_pull([script.progress("pulling manifest"), script.hold(more), fake.arrives("new"), script.progress("success")])
    await client.ok("model.pull", name="new")
    await client.event("model.pull", lambda event: event["pull"]["step"] == "pulling manifest")
    joined = (await client.ok("model.pull", name="new:latest"))["pull"]
    assert (joined["name"], joined["step"]) == ("new", "pulling manifest")
    more.set()
    await ended(client, "new")
    assert len(fake.pulls) == 1
    assert (await client.ok("model.pull", name="new"))["pull"]["step"] == "waiting", "one that has ended is begun anew"
    await fake.wait_for_pulls(2)


async def test_cancelling_ends_the_pull_at_its_source(client: Client, fake: FakeOllama) -> None:
    fake.script_pull([script.layer(BIG, 1000, 500), script.hang()])
    await client.ok("model.pull", name="new:1b")
    await client.event("model.pull", lambda event: event["pull"]["completed"] == 500)
    await client.ok("model.pull_cancel", name="new:1b")
    pull = await ended(client, "new:1b")
    assert (pull["status"], pull["error"]) == ("cancelled", None)
    async with asyncio.timeout(5):
        await fake.pulls[0].ended.wait()
    assert fake.pulls[0].closed_early
    await client.ok("model.pull_cancel", name="new:1b")
    await client.refused("not_found", "model.pull_cancel", name="other")
    assert [pull["status"] for pull in pulls_of(client, "new:1b")].count("cancelled") == 1


MANIFEST = script.progress("pulling manifest")


@pytest.mark.parametrize(
    ("pulled", "code", "words"),
    [
        pytest.param(script.unknown_model(), "model_not_found", ["no model 'x:1b'", "spelling"], id="unknown"),
        pytest.param(script.err_first(500, "pull model manifest: file does not exist"), "model_not_found", ["spelling"], id="unknown, as a status"),
        pytest.param(script.error_line("write /models/blobs/sha256-1: no space left on device"), "model_unavailable", ["disk", "full"], id="disk full"),
        pytest.param(
            script.error_line('max retries exceeded: Get "https://x/y": dial tcp: lookup x: no such host'), "model_unavailable", ["network"], id="no network"
        ),
        pytest.param(
            script.error_line('pull model manifest: 412: {"message":"this requires a newer version of Ollama."}'), "model_unavailable", ["newer"], id="newer"
        ),
        pytest.param(script.error_line("digest mismatch"), "model_unavailable", ["digest mismatch"], id="in its own words"),
        pytest.param(script.err_first(400, "invalid model name"), "model_unavailable", ["invalid model name"], id="refused"),
        pytest.param(script.html_502(), "model_unavailable", ["no reason"], id="HTML"),
        pytest.param([MANIFEST, script.reset()], "model_unavailable", ["broke off"], id="reset"),
        pytest.param([MANIFEST, script.raw(b'{"status":"pul'), script.close()], "model_unavailable", ["broke off"], id="half a line"),
        pytest.param([MANIFEST, script.raw(b"[1]\n")], "model_unavailable", ["broke off"], id="no object"),
        pytest.param([MANIFEST, script.progress("x", total="much")], "model_unavailable", ["broke off"], id="wrong type"),
        pytest.param(MANIFEST, "model_unavailable", ["broke off"], id="no success"),
    ],
)
async def test_a_failed_pull_says_why(client: Client, fake: FakeOllama, pulled: script.Script, code: str, words: list[str]) -> None:
    fake.script_pull(pulled)
    await client.ok("model.pull", name="x:1b")
    pull = await ended(client, "x:1b")
    assert (pull["status"], pull["error"]["code"]) == ("failed", code)
    for word in words:
        assert word in pull["error"]["message"]
    for stray in ("/models", "https:", "{", "<"):
        assert stray not in pull["error"]["message"]


async def test_any_text_and_any_cut_of_the_lines_is_read(client: Client, fake: FakeOllama) -> None:
    separators = script.raw(b'{"status":"a\xc2\x85b \xe2\x80\xa8 \xd1\x8f"}\n')
    fake.script_pull(script.split_every_byte([MANIFEST, separators, script.layer(BIG, 10, 0, 10), script.progress("success")]))
    await client.ok("model.pull", name="x")
    assert (await ended(client, "x"))["status"] == "complete"


async def test_a_silence_is_no_failure(client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.llm.model.LIST_SECONDS", 0.05)
    fake.script_pull([script.pause(0.3), MANIFEST, script.pause(0.3), script.progress("success")])
    await client.ok("model.pull", name="x")
    assert (await ended(client, "x"))["status"] == "complete"


async def test_ollama_gone_in_the_middle(client: Client, fake: FakeOllama) -> None:
    fake.script_pull([script.layer(BIG, 1000, 500), script.hang()])
    await client.ok("model.pull", name="x")
    await client.event("model.pull", lambda event: event["pull"]["completed"] == 500)
    await fake.stop()
    assert "broke off" in (await ended(client, "x"))["error"]["message"]
    await client.ok("model.pull", name="y")
    assert "ollama serve" in (await ended(client, "y"))["error"]["message"]


@pytest.mark.parametrize("name", ["", "  ", "two words", "line\nbreak", "tab\there", "nul\x00", "-flag", "/root", "имя", "a?b"])
async def test_a_name_that_cannot_be_one_is_refused(client: Client, fake: FakeOllama, name: str) -> None:
    assert "name" in (await client.refused("invalid", "model.pull", name=name))["fields"]
    assert fake.pulls == []


async def test_names_with_a_host_or_a_tag_are_passed_on(client: Client, fake: FakeOllama) -> None:
    name = "example.org/someone/Some-Model_1.5-GGUF:Q4_K_M"
    await client.ok("model.pull", name=f" {name} ")
    assert (await ended(client, name))["status"] == "complete"
    assert fake.pulls[0].model == name


async def test_two_pull_at_once_and_the_others_wait_in_order(address: str, client: Client, fake: FakeOllama) -> None:
    more = [asyncio.Event() for _ in range(4)]
    fake.script_pull(*([MANIFEST, script.hold(event), script.progress("success")] for event in more))
    names = ["a", "b", "c", "d"]
    for name in names:
        assert (await client.ok("model.pull", name=name))["pull"]["status"] == "running"
    await fake.wait_for_pulls(2)
    async with Client.connect(address) as page:
        assert [pull["name"] for pull in page.welcome["pulls"]] == names
        assert [pull["step"] for pull in page.welcome["pulls"]][2:] == ["waiting", "waiting"]
    assert [request.model for request in fake.pulls] == ["a", "b"]
    await client.ok("model.pull_cancel", name="c")
    assert (await ended(client, "c"))["status"] == "cancelled"
    more[0].set()
    await fake.wait_for_pulls(3)
    assert [request.model for request in fake.pulls] == ["a", "b", "d"]


async def test_a_page_that_reloads_learns_how_a_pull_ended(address: str, client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.script_pull(script.unknown_model())
    await client.ok("model.pull", name="x")
    told = await ended(client, "x")
    async with Client.connect(address) as page:
        assert page.welcome["pulls"] == [told]
    monkeypatch.setattr("backend.services.pulls.KEEP_ENDED_SECONDS", 0)
    async with Client.connect(address) as page:
        assert page.welcome["pulls"] == []


async def test_the_servers_end_ends_its_pulls(tmp_path: Path) -> None:
    async with FakeOllama() as fake:
        fake.script_pull([MANIFEST, script.hang()], [MANIFEST, script.hang()])
        async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
            for name in ("a", "b", "c"):
                await client.ok("model.pull", name=name)
            await fake.wait_for_pulls(2)
        async with asyncio.timeout(5):
            for request in fake.pulls:
                await request.ended.wait()
        assert [request.closed_early for request in fake.pulls] == [True, True]


async def test_without_ollama_the_person_is_told_what_to_do(tmp_path: Path) -> None:
    async with running(make_settings(tmp_path)) as address, Client.connect(address) as client:
        assert "ollama serve" in (await client.refused("model_unavailable", "model.pull", name="x"))["message"]


async def test_the_embedded_model_alone_pulls_nothing(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, embedded="always")
    with pytest.raises(ModelUnavailable, match="CLEANROOM_EMBEDDED=auto"):
        await ModelBackend(settings, EmbeddedProcess(None)).puller()


async def test_ollama_that_has_just_come_is_asked(tmp_path: Path) -> None:
    async with FakeOllama([]) as fake:
        await fake.stop()
        async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
            assert client.welcome["model_backend"] == "none"
            await fake.start()
            await client.ok("model.pull", name="first:1b")
            assert (await ended(client, "first:1b"))["status"] == "complete"
            assert client.of("models.updated")[-1]["default_model"] == "first:1b"
            assert (await client.say(await client.new_chat(), "hi"))["status"] == "complete"
