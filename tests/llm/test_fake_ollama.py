"""The fake speaks the real wire: the published client talks to it, and what it records is true."""

from __future__ import annotations

import asyncio
import urllib.request
from contextlib import aclosing

import httpx
import ollama
import pytest

from tests import fake_ollama as wire
from tests.fake_ollama import FakeModel, FakeOllama, FakeOllamaThread

pytestmark = pytest.mark.anyio

USER = {"role": "user", "content": "Hi"}


def client_of(fake: FakeOllama) -> ollama.AsyncClient:
    return ollama.AsyncClient(host=fake.url, trust_env=False)


async def chat(fake: FakeOllama, **more: object) -> list[ollama.ChatResponse]:
    async with client_of(fake) as client:
        stream = await client.chat(**{"model": "fake:tools", "messages": [USER], "stream": True, **more})
        return [part async for part in stream]


async def test_real_client_lists_and_shows_models() -> None:
    models = [FakeModel("fake:tools", context_length=4096), FakeModel("other:latest", ("completion",), parameter_size="1B")]
    async with FakeOllama(models) as fake, client_of(fake) as client:
        listed = await client.list()
        assert [model.model for model in listed.models] == ["fake:tools", "other:latest"]
        shown = await client.show("fake:tools")
        assert shown.capabilities == ["completion", "tools"]
        assert shown.modelinfo is not None
        assert shown.modelinfo["llama.context_length"] == 4096
        assert (await client.show("other")).details.parameter_size == "1B"
        with pytest.raises(ollama.ResponseError, match="model 'foo:latest' not found") as raised:
            await client.show("foo")
        assert raised.value.status_code == 404


async def test_real_client_streams_a_reply() -> None:
    async with FakeOllama() as fake:
        fake.script(wire.reply("Hello <big> wörld", prompt_eval_count=41, eval_count=None))
        parts = await chat(fake)
    assert "".join(part.message.content or "" for part in parts) == "Hello <big> wörld"
    assert [part.done for part in parts] == [False, False, False, True]
    assert (parts[-1].done_reason, parts[-1].prompt_eval_count, parts[-1].eval_count) == ("stop", 41, None)


@pytest.mark.parametrize("on_done_line", [False, True])
async def test_real_client_reads_a_call(on_done_line: bool) -> None:
    async with FakeOllama() as fake:
        fake.script(wire.call("task_add", {"title": "x"}, thought="Hm", before="Sure.", on_done_line=on_done_line))
        parts = await chat(fake)
    calls = [(call.function.name, call.function.arguments, part.done) for part in parts for call in part.message.tool_calls or []]
    assert calls == [("task_add", {"title": "x"}, on_done_line)]
    assert "".join(part.message.thinking or "" for part in parts) == "Hm"


async def test_real_client_reads_a_reply_cut_at_every_byte() -> None:
    async with FakeOllama() as fake:
        fake.script(wire.split_every_byte(wire.reply("Привет 👋🏽 мир")))
        parts = await chat(fake)
    assert "".join(part.message.content or "" for part in parts) == "Привет 👋🏽 мир"


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        (wire.busy_503(), 503, "server busy"),
        (wire.err_first(500, "boom"), 500, "boom"),
        (wire.html_502(), 502, "<html>"),
        (wire.err_mid("late"), -1, "late"),
    ],
)
async def test_real_client_raises_what_the_real_server_makes_it_raise(script: wire.Script, status: int, text: str) -> None:
    async with FakeOllama() as fake:
        fake.script(script)
        with pytest.raises(ollama.ResponseError, match=text) as raised:
            await chat(fake)
    assert raised.value.status_code == status


@pytest.mark.parametrize(
    ("model", "more", "status", "text"),
    [
        ("nobody", {}, 404, "model 'nobody' not found"),
        ("plain", {"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "does not support tools"),
        ("plain", {"think": True}, 400, "does not support thinking"),
        ("vectors", {}, 400, "does not support chat"),
    ],
)
async def test_refuses_what_the_real_server_refuses(model: str, more: dict[str, object], status: int, text: str) -> None:
    async with FakeOllama([FakeModel("plain", ("completion",)), FakeModel("vectors", ("embedding",))]) as fake:
        with pytest.raises(ollama.ResponseError, match=text) as raised:
            await chat(fake, model=model, **more)
    assert raised.value.status_code == status


async def test_unknown_paths_are_plain_404() -> None:
    with FakeOllamaThread() as fake:
        for path, status in (("/", 200), ("/api/version", 200), ("/api/ps", 200), ("/api/nothing", 404), ("/api/show", 405)):
            assert await asyncio.to_thread(_status, fake.url + path) == status


def _status(url: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return int(response.status)
    except urllib.request.HTTPError as error:
        with error:
            return error.code


async def test_records_requests_and_the_prefix_they_share() -> None:
    async with FakeOllama() as fake:
        await chat(fake)
        await chat(fake, messages=[USER, {"role": "assistant", "content": "Hello"}, USER])
        await chat(fake, messages=[{"role": "system", "content": "new"}, USER])
        assert [request.shared_messages for request in fake.requests] == [0, 1, 0]
        assert [len(request.messages) for request in fake.requests] == [1, 3, 2]
        assert b'"Hello"' in fake.requests[1].raw
        assert not any(request.closed_early for request in fake.requests)


async def test_notices_a_client_that_leaves() -> None:
    async with FakeOllama() as fake, client_of(fake) as client:
        fake.script(wire.hang_mid("Hel"))
        stream = await client.chat("fake:tools", [USER], stream=True)
        async with aclosing(stream):
            async for _ in stream:
                break
        request = await fake.wait_ended(seconds=1)
        assert request.closed_early
        assert request.seconds is not None


async def test_holds_back_the_status_line() -> None:
    release = asyncio.Event()
    async with FakeOllama() as fake:
        fake.script(wire.delay_headers(release))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(fake.url.rsplit(":", 1)[1]))
        body = b'{"model":"fake:tools","messages":[{"role":"user","content":"Hi"}]}'
        writer.write(b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await fake.wait_for_requests(1)
        first = asyncio.create_task(reader.readline())
        assert not (await asyncio.wait([first], timeout=0.05))[0]
        release.set()
        assert await first == b"HTTP/1.1 200 Fake\r\n"
        writer.close()
        await writer.wait_closed()


async def test_one_slot_serves_one_at_a_time() -> None:
    release = asyncio.Event()
    async with FakeOllama(parallel=1) as fake:
        fake.script([wire.text("first"), wire.hold(release), wire.done()], wire.reply("second"))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(chat(fake))
            await fake.wait_for_requests(1)
            second = group.create_task(chat(fake))
            await fake.wait_for_requests(2)
            assert not (await asyncio.wait([second], timeout=0.05))[0]
            release.set()
        assert [result.result()[0].message.content for result in (first, second)] == ["first", "second"]


async def test_goes_and_comes_back_on_the_same_port() -> None:
    async with FakeOllama() as fake, client_of(fake) as client:
        url = fake.url
        await client.list()
        await fake.stop()
        with pytest.raises(ConnectionError):
            await client.list()
        await fake.start()
        assert fake.url == url
        assert (await client.list()).models[0].model == "fake:tools"


async def test_a_mistake_in_a_script_fails_the_test() -> None:
    def mistaken(_: wire.ChatRequest) -> wire.Script:
        raise LookupError("no such case")

    async def use() -> None:
        async with FakeOllama(default=mistaken) as fake:
            with pytest.raises(httpx.RemoteProtocolError):
                await chat(fake)

    with pytest.raises(LookupError, match="no such case"):
        await use()


async def test_demonstration_calls_tools() -> None:
    async with FakeOllama(default=wire.demonstration("Hello", 0)) as fake:
        said = {}
        for text in ("draft Be brief", "add task Buy milk", "hi"):
            parts = await chat(fake, messages=[{"role": "user", "content": text}])
            said[text] = [call.function.arguments for part in parts for call in part.message.tool_calls or []]
        assert said == {"draft Be brief": [{"content": "Be brief"}], "add task Buy milk": [{"title": "Buy milk"}], "hi": []}
        parts = await chat(fake, messages=[USER, {"role": "tool", "content": "ok", "tool_name": "task_add"}])
        assert "".join(part.message.content or "" for part in parts).startswith("Done.")


def test_serves_a_test_without_a_loop() -> None:
    release = asyncio.Event()
    with FakeOllamaThread([FakeModel("fake:tools")]) as fake:
        fake.script([wire.text("a"), wire.hold(release), wire.text("b"), wire.done()])
        client = ollama.Client(host=fake.url, trust_env=False)
        stream = client.chat("fake:tools", [USER], stream=True)
        assert next(stream).message.content == "a"
        fake.call(release.set)
        assert [part.message.content for part in stream] == ["b", ""]
        assert fake.wait_ended(0).model == "fake:tools"
        client.close()  # type: ignore[no-untyped-call]
