"""The stream of chunks over real sockets: every fault of the wire, and that leaving ends the generation."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing

import pytest

from backend.errors import BrokenStream, CleanroomError, ContextExceeded, ModelBusy, ModelNotFound, ModelUnavailable
from backend.llm.model import ModelServer, is_loopback
from backend.llm.wire import Chunk, Done, LineParser, PullStep, Reason, ToolCall, kv_bytes_per_token
from tests import fake_ollama as wire
from tests.fake_ollama import FakeModel, FakeOllama

pytestmark = pytest.mark.anyio

USER: dict[str, object] = {"role": "user", "content": "Hi"}


@asynccontextmanager
async def served(*scripts: wire.Script, first_token_seconds: float = 5) -> AsyncIterator[tuple[FakeOllama, ModelServer]]:
    async with FakeOllama([FakeModel(capabilities=("completion", "tools", "thinking"))]) as fake:
        fake.script(*scripts)
        server = ModelServer(fake.url, "ollama", first_token_seconds=first_token_seconds)
        try:
            yield fake, server
        finally:
            await server.close()


class Heard:
    """What a stream gave, and the error it ended with."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.error: CleanroomError | None = None

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def thinking(self) -> str:
        return "".join(chunk.thinking for chunk in self.chunks)

    @property
    def calls(self) -> list[ToolCall]:
        return [call for chunk in self.chunks for call in chunk.tool_calls]

    @property
    def done(self) -> Done | None:
        return self.chunks[-1].done if self.chunks else None


async def listen(server: ModelServer, model: str = "fake:tools", messages: list[dict[str, object]] | None = None) -> Heard:
    heard = Heard()
    stream = server.stream(model=model, messages=messages or [USER], tools=[], options={"num_ctx": 4096}, think=False)
    try:
        async with aclosing(stream):
            async for chunk in stream:
                heard.chunks.append(chunk)
    except CleanroomError as error:
        heard.error = error
    return heard


async def hear(script: wire.Script) -> Heard:
    async with served(script) as (_, server):
        return await listen(server)


# ---- What is sent ----


async def test_sends_the_request_as_given() -> None:
    tool: dict[str, object] = {"type": "function", "function": {"name": "task_add", "parameters": {"type": "object"}}}
    async with served() as (fake, server):
        stream = server.stream(model="fake:tools", messages=[USER], tools=[tool], options={"num_ctx": 2048}, think=True)
        assert "".join([chunk.text async for chunk in stream]) == "Hello from the fake model."
        assert fake.requests[0].body == {
            "model": "fake:tools",
            "messages": [USER],
            "tools": [tool],
            "options": {"num_ctx": 2048},
            "think": True,
            "stream": True,
            "truncate": False,
        }
        await listen(server)
        assert "tools" not in fake.requests[1].body
        assert fake.requests[1].think is False
        assert "keep_alive" not in fake.requests[1].body
        assert not {"origin", "referer", "cookie", "authorization"} & set(fake.requests[0].headers)
        # No connection is used twice: one that died unseen would cost a reply.
        assert fake.requests[0].headers["connection"] == "close"


async def test_sends_how_long_the_model_stays_loaded() -> None:
    async with served() as (fake, server):
        async for _ in server.stream(model="fake:tools", messages=[USER], tools=[], options={}, think="low", keep_alive=0):
            pass
        assert (fake.requests[0].keep_alive, fake.requests[0].think) == (0, "low")


async def test_sends_a_long_history_and_text_that_should_not_exist() -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "я" * 2_000_000}, {"role": "user", "content": "a\ud800b"}]
    async with served() as (fake, server):
        heard = await listen(server, messages=messages)
        assert heard.error is None
        assert [message["content"] for message in fake.requests[0].messages] == ["я" * 2_000_000, "a?b"]


# ---- Replies that must be read whole ----


@pytest.mark.parametrize(
    ("script", "text"),
    [
        pytest.param(wire.reply("Hello <big> wörld 👋🏽"), "Hello <big> wörld 👋🏽", id="plain"),
        pytest.param(wire.blank_line(), "Hello", id="blank lines"),
        pytest.param(wire.crlf(), "Hello", id="CRLF"),
        pytest.param(wire.content_missing(), "Hello", id="content or message missing or null"),
        pytest.param(wire.double_done(), "Hello", id="two done lines"),
        pytest.param(wire.text_after_done(), "Hello", id="text after done"),
        pytest.param(wire.bad_utf8(), "a\ufffd\ufffdb", id="invalid UTF-8"),
        pytest.param(wire.nel(), "a\x85b\u2028c\u2029d", id="NEL and its like"),
        pytest.param(wire.lone_surrogate(), "a\ufffdb\ufffd", id="lone surrogate and NUL"),
        pytest.param([wire.raw(b'{"message":{"content":"\\ud83d\\ude00 \x01"}}\n'), wire.done()], "😀 \x01", id="escaped pair"),
        pytest.param([wire.raw(b'{"message":7}\n{"error":null,"message":{"content":[]}}\n'), wire.done()], "", id="wrong types"),
        pytest.param([wire.text("A"), wire.raw(b'{"done":true,"done_reason":"stop"}')], "A", id="no newline at the end"),
        pytest.param(wire.split_every_byte(wire.reply("Привет 👋🏽 мир")), "Привет 👋🏽 мир", id="cut at every byte"),
        pytest.param(wire.ten_lines_one_packet(), "0 1 2 3 4 5 6 7 8 9 ", id="ten lines in one packet"),
        pytest.param(wire.huge_line(), "x" * 5_000_000, id="huge line"),
        pytest.param(wire.many_tokens(3000), "".join(f"{n} " for n in range(3000)), id="fast tokens"),
        pytest.param(wire.think_tags_in_content("a", "b"), "<think>a</think>b", id="tags are text"),
    ],
)
async def test_reads_a_reply(script: wire.Script, text: str) -> None:
    heard = await hear(script)
    assert heard.error is None
    assert heard.text == text
    assert heard.done is not None
    assert heard.done.reason == "stop"
    assert [chunk.done for chunk in heard.chunks[:-1]] == [None] * (len(heard.chunks) - 1)


async def test_merges_the_lines_of_one_read() -> None:
    heard = await hear([wire.packet(wire.text(*"abcdefghij"), wire.done())])
    assert [chunk.text for chunk in heard.chunks] == ["abcdefghij"]


async def test_reads_thinking() -> None:
    heard = await hear(wire.thinking_then_text("Let me think", "Hello"))
    assert (heard.thinking, heard.text) == ("Let me think", "Hello")
    heard = await hear(wire.thinking_only())
    assert (heard.thinking, heard.text, heard.done and heard.done.reason) == ("Let me think", "", "length")


async def test_reads_counters_in_milliseconds() -> None:
    last = wire.done("length", prompt_eval_count=7, eval_count=3, total_duration=5_500_000, load_duration=None, prompt_eval_duration=1, eval_duration=2_000_000)
    heard = await hear([wire.text("A"), last])
    assert heard.done == Done("length", 7, 3, 5.5, None, 1e-6, 2.0)


async def test_absent_or_impossible_counters_are_none() -> None:
    heard = await hear(wire.line({"message": {"content": "A"}, "done": True, "eval_count": "9", "prompt_eval_count": True}))
    assert heard.done == Done(None, None, None, None, None, None, None)
    heard = await hear(wire.clock_backwards())
    assert heard.text == "Hello world"
    assert heard.done is not None
    assert heard.done.total_ms is None


# ---- Tool calls ----


TASK = ToolCall("task_add", {"title": "x"})


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        pytest.param(wire.call("task_add", {"title": "x"}), [TASK], id="own line"),
        pytest.param(wire.call("task_add", {"title": "x"}, on_done_line=True), [TASK], id="done line"),
        pytest.param(wire.call("task_add", {"title": "x"}, call_id="call_1"), [ToolCall("task_add", {"title": "x"}, "call_1")], id="with an id"),
        pytest.param(wire.call("task_add", {"title": "x"}, before="Sure, I", thought="Hm"), [TASK], id="after text"),
        pytest.param(wire.calls(*[wire.tool_call("task_add", {"n": n}) for n in range(3)]), [ToolCall("task_add", {"n": n}) for n in range(3)], id="one line"),
        pytest.param(wire.calls(wire.tool_call("a", {}), wire.tool_call("b", {}), one_line=False), [ToolCall("a", {}), ToolCall("b", {})], id="a line each"),
        pytest.param(wire.call("task_add", '{"title": "x"}'), [TASK], id="object as a string"),
        pytest.param(wire.call("task_add", "title=x"), [ToolCall("task_add", "title=x")], id="string"),
        pytest.param(wire.call("task_add", "[1]"), [ToolCall("task_add", "[1]")], id="list as a string"),
        pytest.param(wire.call("task_add", None), [ToolCall("task_add", None)], id="null"),
        pytest.param(wire.call("task_add", ["x"]), [ToolCall("task_add", ["x"])], id="list"),
        pytest.param(wire.call("task_add", {"title": "x" * 2_000_000}), [ToolCall("task_add", {"title": "x" * 2_000_000})], id="2 MB"),
        pytest.param([wire.tool_calls({}, {"function": None}, {"function": {"name": 7}}), wire.done()], [ToolCall("", None)] * 3, id="no name"),
        pytest.param([wire.line({"message": {"tool_calls": None}}), wire.line({"message": {"tool_calls": "x"}}), wire.done()], [], id="no list"),
        pytest.param(
            [wire.raw(b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"\\ud800":["\\u0000",{"n":1e999}]}}}]}}\n'), wire.done()],
            [ToolCall("f", {"\ufffd": ["\ufffd", {"n": None}]})],
            id="cleaned inside",
        ),
    ],
)
async def test_reads_tool_calls(script: wire.Script, calls: list[ToolCall]) -> None:
    heard = await hear(script)
    assert heard.error is None
    assert heard.calls == calls
    assert heard.done is not None


async def test_a_call_written_as_text_stays_text() -> None:
    heard = await hear(wire.call_as_text("task_add", {"title": "x"}))
    assert heard.calls == []
    assert json.loads(heard.text) == {"name": "task_add", "parameters": {"title": "x"}}


# ---- Replies that end badly ----

# Deep enough to stop a walk in Python, not deep enough to stop the JSON decoder.
DEEP_CALL = b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":' + b"[" * 700 + b"]" * 700 + b"}}]}}\n"


@pytest.mark.parametrize(
    ("script", "text", "words"),
    [
        pytest.param(wire.no_done(), "AB", "without its last line", id="never done"),
        pytest.param(wire.reset_mid(), "Hello", "connection broke", id="reset"),
        pytest.param(wire.half_line_close(), "Hello", "connection broke", id="half line, cut"),
        pytest.param(wire.half_line_clean_end(), "Hello", "without its last line", id="half line, clean end"),
        pytest.param([wire.packet(wire.text("Hel", "lo")), wire.close()], "Hello", "connection broke", id="cut"),
        pytest.param(wire.err_mid("out of memory"), "Hello", "out of memory", id="error line"),
        pytest.param([wire.packet(wire.err_mid("out of memory"))], "Hello", "out of memory", id="error line in the same read"),
        pytest.param(wire.err_mid(""), "Hello", "no reason", id="empty error"),
        pytest.param(wire.err_mid({"message": "as an object"}), "Hello", "as an object", id="error object"),
        pytest.param(wire.err_nested_json(), "Hello", "the inner reason", id="error holding JSON"),
        pytest.param([wire.text("Hello"), wire.raw(b"<html>\n"), wire.done()], "Hello", "can't be read", id="not JSON"),
        pytest.param([wire.text("Hello"), wire.raw(b"[1]\n"), wire.done()], "Hello", "can't be read", id="no object"),
        pytest.param([wire.text("Hello"), wire.raw(b"[" * 200_000 + b"\n"), wire.done()], "Hello", "can't be read", id="nesting"),
        pytest.param([wire.text("Hello"), wire.raw(DEEP_CALL), wire.done()], "Hello", "can't be read", id="arguments nested too deep"),
    ],
)
async def test_a_reply_that_breaks_off_keeps_its_text(script: wire.Script, text: str, words: str) -> None:
    heard = await hear(script)
    assert heard.text == text
    assert heard.done is None
    assert type(heard.error) is BrokenStream
    assert words in heard.error.message
    assert "{" not in heard.error.message


async def test_text_that_arrived_before_the_break_reaches_a_slow_reader() -> None:
    more = asyncio.Event()
    async with served([wire.text("Hel"), wire.hold(more), wire.text("lo"), wire.reset()]) as (fake, server):
        stream = server.stream(model="fake:tools", messages=[USER], tools=[], options={}, think=False)
        async with aclosing(stream):
            text = (await anext(stream)).text
            more.set()
            await fake.wait_ended()
            await _connection_lost(server)
            text += (await anext(stream)).text
            assert text == "Hello"
            with pytest.raises(BrokenStream):
                await anext(stream)


async def _connection_lost(server: ModelServer) -> None:
    """Wait until the client's side has seen the break, while nobody reads."""
    assert server._session is not None
    assert server._session.connector is not None
    async with asyncio.timeout(5):
        while any(protocol.is_connected() for protocol in server._session.connector._acquired):
            await asyncio.sleep(0.001)


# ---- Refusals ----


def refused_with(code: int, body: bytes, content_type: str = "application/json") -> wire.Script:
    return wire.status(code, body, content_type)


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        pytest.param(wire.err_first(500, "runner has stopped"), ModelUnavailable, ["500", "runner has stopped"], id="500"),
        pytest.param(wire.err_first(500, "context deadline exceeded"), ModelUnavailable, ["500", "deadline"], id="a timeout"),
        pytest.param(wire.err_first(400, "fake:tools does not support tools"), ModelUnavailable, ["400", "support tools"], id="400"),
        pytest.param(wire.err_first(500, {"message": "inner"}), ModelUnavailable, ["500", "inner"], id="error object"),
        pytest.param(wire.err_first(500, "<html>x</html>"), ModelUnavailable, ["500", "without a reason"], id="HTML as the reason"),
        pytest.param(wire.html_502(), ModelUnavailable, ["502", "No model server could be reached behind http://127.0.0.1"], id="HTML"),
        pytest.param(refused_with(504, b""), ModelUnavailable, ["504", "No model server could be reached behind"], id="a balancer's 504"),
        pytest.param(wire.err_first(502, "runner died"), ModelUnavailable, ["502", "runner died"], id="502 with a reason"),
        pytest.param(
            refused_with(503, b"<html>No server is available</html>", "text/html"), ModelBusy, ["503", "No model server is free behind http"], id="none free"
        ),
        pytest.param([wire.header("X-Served-By", "gpu-2"), wire.err_first(500, "oom")], ModelUnavailable, ["server gpu-2 refused", "oom"], id="a host's"),
        pytest.param(refused_with(500, b'[{"error":"x"}]'), ModelUnavailable, ["500", "without a reason"], id="JSON array"),
        pytest.param(refused_with(403, b""), ModelUnavailable, ["403", "without a reason"], id="empty"),
        pytest.param(refused_with(404, b"404 page not found", "text/plain"), ModelUnavailable, ["404"], id="another server's 404"),
        pytest.param(refused_with(500, b'{"error":"' + b"long " * 50_000), ModelUnavailable, ["500"], id="endless"),
        pytest.param(wire.err_first(500, "long " * 1000), ModelUnavailable, ["500", "long long", "…"], id="long reason"),
        pytest.param(wire.busy_503(), ModelBusy, ["503", "again"], id="busy"),
        pytest.param(wire.not_found_404("fake:tools"), ModelNotFound, ["'fake:tools'", "`ollama pull fake:tools`"], id="404"),
        pytest.param(wire.not_found_404("x", double_quotes=True), ModelNotFound, ["`ollama pull fake:tools`"], id="404, double quotes"),
        pytest.param(wire.context_exceeded(7900, 4096), ContextExceeded, ["7900", "4096"], id="context, llama.cpp"),
        pytest.param(wire.context_exceeded(nested=False), ContextExceeded, ["longer than"], id="context, Ollama"),
        pytest.param(wire.error_line("the input length exceeds the context length"), ContextExceeded, ["exceeds"], id="context, as a line"),
        pytest.param(wire.error_line("boom"), ModelUnavailable, ["boom", "http://127.0.0.1"], id="error line first"),
        pytest.param([], ModelUnavailable, ["without its last line", "http://127.0.0.1"], id="empty reply"),
        pytest.param([wire.raw(b" "), wire.reset()], ModelUnavailable, ["connection broke", "http://127.0.0.1"], id="reset after the headers"),
        pytest.param(wire.reset_before_headers(), ModelUnavailable, ["ollama serve", "http://127.0.0.1"], id="reset"),
    ],
)
async def test_refusals_are_told_in_a_sentence(script: wire.Script, kind: type[CleanroomError], words: list[str]) -> None:
    heard = await hear(script)
    assert heard.chunks == []
    assert type(heard.error) is kind
    for word in words:
        assert word in heard.error.message
    assert "<" not in heard.error.message
    assert '{"' not in heard.error.message
    assert len(heard.error.message) < 450


@pytest.mark.parametrize(
    ("header", "host"),
    [("gpu-2", "gpu-2"), (" gpu \t 2 ", "gpu 2"), ("g" * 100, "g" * 64), ("", None), ("\x85\xad", None)],
    ids=["name", "spaces", "long", "empty", "unprintable"],
)
async def test_the_host_that_a_balancer_names_comes_with_the_first_chunk(header: str, host: str | None) -> None:
    heard = await hear([wire.header("X-Served-By", header), wire.text("one", "two"), wire.done()])
    assert heard.error is None
    assert [chunk.host for chunk in heard.chunks] == [host, *[None] * (len(heard.chunks) - 1)]


async def test_a_host_that_goes_away_in_mid_reply_is_named() -> None:
    heard = await hear([wire.header("X-Served-By", "gpu-2"), wire.text("one"), wire.reset()])
    assert heard.text == "one"
    assert type(heard.error) is BrokenStream
    assert heard.error.message.startswith("The model server gpu-2 broke off")


async def test_missing_model_is_named() -> None:
    async with served() as (_, server):
        heard = await listen(server, "nobody:7b")
    assert type(heard.error) is ModelNotFound
    assert "`ollama pull nobody:7b`" in heard.error.message


@pytest.mark.parametrize("kind", ["ollama", "embedded"])
async def test_a_refused_connection_names_the_address(kind: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    server = ModelServer(url, "embedded" if kind == "embedded" else "ollama")
    heard = await listen(server)
    assert type(heard.error) is ModelUnavailable
    assert url in heard.error.message
    assert ("ollama serve" in heard.error.message) == (kind == "ollama")
    with pytest.raises(ModelUnavailable, match=url):
        await server.list_models()
    assert not await server.is_alive()
    await server.close()


@pytest.mark.parametrize("script", [wire.hang_before_headers(), [wire.raw(b"\n"), wire.hang()]], ids=["no headers", "no line"])
async def test_a_first_word_that_never_comes(script: wire.Script) -> None:
    async with served(script, first_token_seconds=0.1) as (fake, server):
        heard = await listen(server)
        assert type(heard.error) is ModelUnavailable
        assert "0.1 seconds" in heard.error.message
        assert "CLEANROOM_FIRST_TOKEN_SECONDS" in heard.error.message
        assert (await fake.wait_ended(seconds=1)).closed_early


async def test_a_reply_that_has_begun_may_take_its_time() -> None:
    more = asyncio.Event()
    async with served([wire.text("A"), wire.hold(more), wire.text("B"), wire.done()], first_token_seconds=0.2) as (_, server):
        listening = asyncio.create_task(listen(server))
        assert not (await asyncio.wait([listening], timeout=0.4))[0]
        more.set()
        assert (await listening).text == "AB"


async def test_redirects_are_not_followed() -> None:
    async with FakeOllama() as other, served() as (fake, server):

        async def redirect(exchange: wire.Exchange) -> None:
            exchange.over = True
            exchange.writer.write(f"HTTP/1.1 307 X\r\nLocation: {other.url}/api/chat\r\nContent-Length: 0\r\n\r\n".encode())

        fake.script(redirect)
        heard = await listen(server)
        assert type(heard.error) is ModelUnavailable
        assert "307" in heard.error.message
        assert other.paths == []


# ---- Leaving ----


@pytest.mark.parametrize("script", [wire.hang_before_headers(), wire.hang_mid(), [wire.text("A")] * 10_000_000], ids=["headers", "stalled", "streaming"])
async def test_a_cancelled_task_ends_the_generation(script: wire.Script) -> None:
    async with served(script) as (fake, server):
        listening = asyncio.create_task(listen(server))
        await fake.wait_for_requests(1)
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        assert (await fake.wait_ended(seconds=1)).closed_early


async def test_closing_the_stream_ends_the_generation() -> None:
    async with served(wire.hang_mid()) as (fake, server):
        stream = server.stream(model="fake:tools", messages=[USER], tools=[], options={}, think=False)
        async with aclosing(stream):
            async for chunk in stream:
                assert chunk.text == "Hello"
                break
        assert (await fake.wait_ended(seconds=1)).closed_early


async def test_a_finished_reply_is_not_an_early_leave() -> None:
    async with served(wire.reply("Hello")) as (fake, server):
        await listen(server)
        assert not (await fake.wait_ended()).closed_early


async def test_more_than_a_hundred_streams_at_once() -> None:
    everyone = asyncio.Event()
    async with served() as (fake, server):
        fake.default = lambda _: [wire.text("A"), wire.hold(everyone), wire.text("B"), wire.done()]
        async with asyncio.TaskGroup() as group:
            listening = [group.create_task(listen(server)) for _ in range(130)]
            await fake.wait_for_requests(130, seconds=30)
            everyone.set()
        assert {(task.result().text, task.result().error) for task in listening} == {("AB", None)}


async def test_a_server_that_comes_back_is_used_at_once() -> None:
    async with served() as (fake, server):
        assert (await listen(server)).error is None
        await fake.stop()
        assert type((await listen(server)).error) is ModelUnavailable
        assert not await server.is_alive()
        await fake.start()
        assert (await listen(server)).error is None
        assert await server.is_alive()


async def test_a_stopped_server_breaks_the_stream() -> None:
    async with served(wire.hang_mid()) as (fake, server):
        listening = asyncio.create_task(listen(server))
        await fake.wait_for_requests(1)
        await fake.stop()
        assert isinstance((await listening).error, ModelUnavailable)


async def test_proxies_are_not_used_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOllama() as proxy, served() as (fake, server):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert (await listen(server)).error is None
        assert len(await server.list_models()) == 1
        assert await server.is_alive()
        assert proxy.paths == []
        assert fake.paths == ["POST /api/chat", "GET /api/tags", "POST /api/show", "GET /api/version"]


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:11434", True),
        ("http://127.8.0.1", True),
        ("http://[::1]:11434", True),
        ("http://[::ffff:127.0.0.1]:1", True),
        ("http://localhost:11434", True),
        ("http://ollama.localhost", True),
        ("http://ollama:11434", False),
        ("http://192.168.0.2", False),
        ("http://localhost.example.org", False),
        ("http://[2001:db8::1]:80", False),
    ],
)
def test_is_loopback(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


# ---- Models ----


async def test_lists_models_that_can_chat() -> None:
    models = [
        FakeModel("big:8b", ("completion", "tools"), 8192, size=5, parameter_size="8.0B", quantization="Q4_K_M"),
        FakeModel("vectors", ("embedding",)),
        FakeModel("old:1b", (), architecture="gemma3", context_length=2048, parameter_size="", quantization=""),
    ]
    async with FakeOllama(models) as fake, closing_server(fake) as server:
        big, old = await server.list_models()
        assert (big.name, big.size_bytes, big.context_length, big.capabilities) == ("big:8b", 5, 8192, ("completion", "tools"))
        assert (big.parameter_size, big.quantization) == ("8.0B", "Q4_K_M")
        assert (old.name, old.context_length, old.capabilities) == ("old:1b", 2048, ("completion",))
        assert (old.parameter_size, old.quantization) == (None, None)


async def test_asks_for_a_models_facts_once() -> None:
    async with FakeOllama([FakeModel(f"m{number}") for number in range(20)]) as fake, closing_server(fake) as server:
        assert len(await server.list_models()) == 20
        fake.models.append(FakeModel("new"))
        fake.models[0] = FakeModel("m0", context_length=1)
        assert (await server.list_models())[0].context_length == 1
        assert fake.paths.count("POST /api/show") == 22


LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.embedding_length": 4096,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({}, 131_072, id="lengths from the embedding"),
        pytest.param({"attention.key_length": 256, "attention.value_length": 64}, 32 * 8 * 320 * 2, id="lengths as told"),
        pytest.param({"attention.head_count_kv": [8] * 4 + [0] * 28}, 4 * 8 * 256 * 2, id="a number for each layer"),
        pytest.param({"attention.head_count": [0, 32, 16], "attention.head_count_kv": [0, 8, 8], "block_count": 3}, 2 * 8 * 512 * 2, id="lists of both"),
        pytest.param({"attention.head_count_kv": [8] * 40}, 131_072, id="more numbers than layers"),
        pytest.param({"attention.head_count_kv": None}, None, id="a list that was left out"),
        pytest.param({"attention.head_count_kv": []}, None, id="an empty list"),
        pytest.param({"attention.head_count": None}, None, id="no heads"),
        pytest.param({"attention.head_count": 0}, None, id="no attention"),
        pytest.param({"block_count": None}, None, id="no layers"),
        pytest.param({"block_count": "32"}, None, id="a text"),
        pytest.param({"attention.head_count_kv": -8}, None, id="below zero"),
    ],
)
def test_the_memory_of_a_token(facts: dict[str, object], expected: int | None) -> None:
    assert kv_bytes_per_token(LLAMA | {f"llama.{name}": value for name, value in facts.items()}) == expected


def test_the_memory_of_a_token_needs_facts() -> None:
    assert kv_bytes_per_token({}) is None
    assert kv_bytes_per_token({"general.architecture": "llama", "llama.context_length": 8192}) is None
    without = {name: value for name, value in LLAMA.items() if not name.endswith("head_count_kv")}
    assert kv_bytes_per_token(without) == 131_072 * 4, "then each head has its own"


async def test_says_which_models_always_think() -> None:
    async with FakeOllama([FakeModel("a", architecture="gptoss"), FakeModel("b")]) as fake, closing_server(fake) as server:
        assert [(model.name, model.thinks_always) for model in await server.list_models()] == [("a", True), ("b", False)]


# ---- Pulls ----


async def test_tells_the_steps_of_a_pull() -> None:
    async with FakeOllama([]) as fake, closing_server(fake) as server:
        fake.script_pull([wire.progress("pulling manifest"), wire.layer("a" * 64, 10, 0, 10), wire.progress("success"), wire.progress("more")])
        steps = [step async for step in server.pull("x:1b")]
    digest = f"sha256:{'a' * 64}"
    layer = [PullStep(f"pulling {'a' * 12}", digest, None, 10), PullStep(f"pulling {'a' * 12}", digest, 10, 10)]
    assert steps == [PullStep("pulling manifest"), *layer, PullStep("success")]


async def test_closing_a_pull_ends_it_at_its_source() -> None:
    async with FakeOllama([]) as fake, closing_server(fake) as server:
        fake.script_pull([wire.progress("pulling manifest"), wire.hang()])
        async with aclosing(server.pull("x:1b")) as steps:
            assert (await anext(steps)).status == "pulling manifest"
        async with asyncio.timeout(5):
            await fake.pulls[0].ended.wait()
        assert fake.pulls[0].closed_early


async def test_a_pull_from_nobody_names_the_address() -> None:
    async with FakeOllama([]) as fake, closing_server(fake) as server:
        await fake.stop()
        with pytest.raises(ModelUnavailable, match=fake.url):
            await anext(server.pull("x:1b"))


@asynccontextmanager
async def closing_server(fake: FakeOllama) -> AsyncIterator[ModelServer]:
    server = ModelServer(fake.url, "ollama")
    try:
        yield server
    finally:
        await server.close()


@pytest.mark.parametrize("body", [b"[]", b"<html>", b'{"version":', b'"version"'])
async def test_something_else_that_listens_is_no_model_server(body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        server = ModelServer(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", "ollama")
        assert not await server.is_alive()
        with pytest.raises(ModelUnavailable):
            await server.list_models()
        await server.close()


async def test_a_silent_server_is_not_alive() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        server = ModelServer(f"http://127.0.0.1:{silent.getsockname()[1]}", "ollama")
        async with asyncio.timeout(3):
            assert not await server.is_alive()
        await server.close()


# ---- The parser alone ----


def test_parser_reads_a_text_cut_at_every_position() -> None:
    content = "é👋🏽\x85\u2028мир"
    data = json.dumps({"message": {"content": content}}, ensure_ascii=False).encode() + b'\n{"done":true}\n'
    for position in range(len(data) + 1):
        parser = LineParser()
        first, second = parser.feed(data[:position]), parser.feed(data[position:])
        assert first.text + second.text == content
        assert parser.done
        assert parser.failure is None


def test_parser_ends_at_the_first_done_line_or_failure() -> None:
    parser = LineParser()
    chunk = parser.feed(b'{"message":{"content":"A"}}\n{"done":true}\n{"error":"late"}\n{"message":{"content":"B"}}\n')
    assert (chunk.text, parser.done, parser.failure) == ("A", True, None)
    parser = LineParser()
    chunk = parser.feed(b'{"message":{"content":"A"}}\n{"error":"boom"}\n{"done":true}\n')
    assert (chunk.text, chunk.done, parser.failure) == ("A", None, Reason("boom"))


def test_parser_gives_up_on_a_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.llm.wire.LINE_BYTES", 1000)
    parser = LineParser()
    parser.feed(b"x" * 1000)
    assert not parser.ended
    parser.feed(b"x")
    assert parser.failure == Reason("it sent a line without an end")
