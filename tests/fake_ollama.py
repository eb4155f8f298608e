"""A scripted model server: the real HTTP and NDJSON of Ollama on a loopback port, every fault included.

    async with FakeOllama() as fake:
        fake.script(call("task_add", {"title": "x"}), reply("Done."))
        ...                                   # the code under test talks to fake.url
        assert fake.requests[0].messages[-1]["content"] == "add x"

A script answers one /api/chat request: steps, which may be nested in lists, run in order. When none is queued,
`fake.default(request)` gives it. A reply that no step ended is ended cleanly. /api/pull is scripted in the same way
with `fake.script_pull`; by default what is asked for arrives. `python -m tests.fake_ollama` serves a small
demonstration to try things by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.listening import stop_listening

Step = Callable[["Exchange"], Awaitable[None]]
Script = Step | Sequence["Script"]
Json = dict[str, Any]

NDJSON = "application/x-ndjson"
VERSION = "0.33.0"


@dataclass(frozen=True)
class FakeModel:
    name: str = "fake:tools"
    capabilities: tuple[str, ...] = ("completion", "tools")
    context_length: int = 8192
    size: int = 4_000_000_000
    parameter_size: str = "8.0B"
    quantization: str = "Q4_K_M"
    architecture: str = "llama"
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    embedding_length: int = 4096

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def listed(self) -> Json:
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": "2026-01-02T03:04:05.678901234Z",
            "size": self.size,
            "digest": self.digest,
            "details": self.details(),
        }

    def shown(self) -> Json:
        return {
            "details": self.details(),
            "model_info": {
                "general.architecture": self.architecture,
                f"{self.architecture}.context_length": self.context_length,
                f"{self.architecture}.block_count": self.layers,
                f"{self.architecture}.embedding_length": self.embedding_length,
                f"{self.architecture}.attention.head_count": self.heads,
                f"{self.architecture}.attention.head_count_kv": self.kv_heads,
            },
            "capabilities": list(self.capabilities),
            "modified_at": "2026-01-02T03:04:05.678901234Z",
        }

    def details(self) -> Json:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.architecture,
            "families": [self.architecture],
            "parameter_size": self.parameter_size,
            "quantization_level": self.quantization,
        }


@dataclass(eq=False)
class Request:
    """A request that is answered by a script, as it came, and how its answer ended."""

    raw: bytes
    body: Json
    headers: dict[str, str]
    received_at: float = field(default_factory=time.monotonic)
    closed_early: bool = False
    """The client left before the last line was sent."""
    seconds: float | None = None
    """From receipt to the end, or to the client's leaving; None while it runs."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model(self) -> str:
        return str(self.body["model"])


@dataclass(eq=False)
class ChatRequest(Request):
    """One /api/chat request."""

    shared_messages: int = 0
    """Messages at the start that equal those of the request before: what a prefix cache keeps."""

    @property
    def messages(self) -> list[Json]:
        return list(self.body.get("messages") or [])

    @property
    def tools(self) -> list[Json]:
        return list(self.body.get("tools") or [])

    @property
    def options(self) -> Json:
        return dict(self.body.get("options") or {})

    @property
    def tool_names(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.tools]

    @property
    def think(self) -> bool | str | None:
        return cast("bool | str | None", self.body.get("think"))

    @property
    def keep_alive(self) -> int | str | None:
        return cast("int | str | None", self.body.get("keep_alive"))

    def estimated_tokens(self) -> int:
        return max(1, len(json.dumps([self.messages, self.tools], ensure_ascii=False)) // 4)


class Exchange:
    """One answer under way. The status line goes out with the first bytes, as the real server's does."""

    def __init__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.writer = writer
        self.started = False
        self.over = False
        self.last_line_sent = False
        self.lines_sent = 0
        self.headers: dict[str, str] = {}
        self.piece_bytes: int | None = None
        self._packet: list[bytes] | None = None

    async def line(self, item: Json) -> None:
        self.lines_sent += 1
        self.last_line_sent = self.last_line_sent or item.get("done") is True or item.get("status") == "success"
        await self.send(go_json(item) + b"\n")

    async def message(self, fields: Json, **more: object) -> None:
        await self.line(
            {
                "model": self.request.model,
                "created_at": _timestamp(),
                "message": {"role": "assistant", **fields},
                "done": False,
                **more,
            }
        )

    async def send(self, data: bytes) -> None:
        """Send bytes of the body, as one HTTP chunk or cut into pieces."""
        size = self.piece_bytes or max(1, len(data))
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            await self._write(b"%x\r\n%s\r\n" % (len(piece), piece))

    async def packet(self, run: Callable[[], Awaitable[None]]) -> None:
        """Hold back what `run` sends and write it at once."""
        self._packet = []
        await run()
        data, self._packet = b"".join(self._packet), None
        await self._write(data)

    async def answer(self, status: int, body: bytes, content_type: str) -> None:
        self.started = self.over = True
        self.writer.write(_head(status, content_type, len(body), self.headers) + body)
        await self.writer.drain()

    async def end(self) -> None:
        if not self.over:
            await self._write(b"0\r\n\r\n")
            self.over = True

    def cut(self, *, reset: bool) -> None:
        """Close the connection without an end of the body: politely, or with a TCP reset."""
        self.over = True
        if reset:
            connection = self.writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()

    async def _write(self, data: bytes) -> None:
        if self._packet is not None:
            self._packet.append(data)
            return
        if not self.started:
            self.started = True
            self.writer.write(_head(200, NDJSON, None, self.headers))
        self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0)


# ---- Steps: one thing the server does ----


def text(*pieces: str) -> Script:
    """A line for each piece of the reply."""
    return [_message(content=piece) for piece in pieces]


def thinking(*pieces: str) -> Script:
    return [_message(content="", thinking=piece) for piece in pieces]


def tool_call(name: str, arguments: object, *, call_id: str | None = None, index: int = 0) -> Json:
    """A call as it stands in a line. `arguments` goes out as it is, whatever it is."""
    call: Json = {"function": {"index": index, "name": name, "arguments": arguments}}
    return call if call_id is None else {"id": call_id, **call}


def tool_calls(*calls: Json) -> Step:
    """A line of its own with calls."""
    return _message(content="", tool_calls=list(calls))


def done(reason: str | None = "stop", *, calls: Sequence[Json] = (), **fields: Any) -> Step:
    """The last line. A field given as None is left out, as the real server leaves out a zero."""

    async def run(exchange: Exchange) -> None:
        message: Json = {"content": "", **({"tool_calls": list(calls)} if calls else {})}
        ending = {"done_reason": reason, **_counters(exchange), **fields}
        given = {name: value for name, value in ending.items() if value is not None}
        await exchange.message(message, done=True, **given)

    return run


def line(item: Json) -> Step:
    """Any object as a line."""
    return lambda exchange: exchange.line(item)


def raw(data: bytes) -> Step:
    """Any bytes as a piece of the body."""
    return lambda exchange: exchange.send(data)


def header(name: str, value: str) -> Step:
    """A further header of the answer, before its first bytes."""

    async def run(exchange: Exchange) -> None:
        exchange.headers[name] = value

    return run


def packet(*script: Script) -> Step:
    """Everything of `script` in one write."""
    return lambda exchange: exchange.packet(lambda: _run(script, exchange))


def hold(event: asyncio.Event) -> Step:
    """Wait for an event; as the first step it holds back the status line too."""

    async def run(_: Exchange) -> None:
        await event.wait()

    return run


def pause(seconds: float) -> Step:
    return lambda _: asyncio.sleep(seconds)


def hang() -> Step:
    """Send nothing more until the client leaves."""
    return hold(asyncio.Event())


def reset() -> Step:
    """Break the connection as a dying server does, with a TCP reset."""
    return _cut(reset=True)


def close() -> Step:
    """Close the connection in the middle of the body."""
    return _cut(reset=False)


def error_line(error: object) -> Step:
    return line({"error": error})


def status(code: int, body: bytes = b"", content_type: str = "application/json") -> Step:
    """An answer of another status than 200, in place of a stream."""
    return lambda exchange: exchange.answer(code, body, content_type)


# ---- Whole replies ----


def reply(content: str = "Hello world", *, pause_seconds: float = 0, **counters: Any) -> Script:
    """A plain reply, a token a line."""
    wait: Script = pause(pause_seconds) if pause_seconds else []
    return [[[wait, text(token)] for token in tokens(content)], done(**counters)]


def call(
    name: str,
    arguments: object,
    *,
    before: str = "",
    thought: str = "",
    call_id: str | None = None,
    on_done_line: bool = False,
) -> Script:
    """A reply that calls one tool, maybe after some text or thinking."""
    return calls(tool_call(name, arguments, call_id=call_id), before=before, thought=thought, on_done_line=on_done_line)


def calls(*items: Json, before: str = "", thought: str = "", on_done_line: bool = False, one_line: bool = True) -> Script:
    """A reply that calls several tools: in one line, in a line each, or on the done line."""
    opening = [thinking(thought) if thought else [], text(*tokens(before))]
    if on_done_line:
        return [opening, done(calls=items)]
    lines = [tool_calls(*items)] if one_line else [tool_calls(item) for item in items]
    return [opening, lines, done()]


def call_as_text(name: str, arguments: Json, *, pieces: int = 3) -> Script:
    """A call that the server did not recognise: its JSON as text, cut over lines."""
    written = json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)
    size = -(-len(written) // pieces)
    return [text(*(written[start : start + size] for start in range(0, len(written), size))), done()]


def many_tokens(count: int, *, seconds: float = 0) -> Script:
    """`count` tokens ("0 ", "1 ", ...), by default as fast as they can be sent."""
    return reply("".join(f"{number} " for number in range(count)), pause_seconds=seconds)


def delay_headers(event: asyncio.Event, script: Script | None = None) -> Script:
    """Not even a status line until the event: loading, queueing, reading a long prompt."""
    return [hold(event), script or reply()]


def cold_load(seconds: float) -> Script:
    return [pause(seconds), text("Hello"), done(load_duration=int(seconds * 1e9))]


# ---- Pulls ----


def progress(status: str, **fields: object) -> Step:
    """A line of a pull."""
    return line({"status": status, **fields})


def layer(digest: str, total: int, *completed: int) -> Script:
    """A line for each amount that has arrived of one file; the real server leaves out a zero."""
    known = {"digest": f"sha256:{digest}", "total": total}
    return [progress(f"pulling {digest[:12]}", **known, **({"completed": size} if size else {})) for size in completed]


def unknown_model() -> Script:
    """The answer to a pull of a name that the library does not have: a 200."""
    return [progress("pulling manifest"), error_line("pull model manifest: file does not exist")]


# ---- Faults ----


def err_first(code: int = 500, error: object = "model runner has unexpectedly stopped") -> Script:
    return status(code, go_json({"error": error}))


def html_502() -> Script:
    page = b"<html>\r\n<head><title>502 Bad Gateway</title></head><body><h1>502</h1><script>x()</script></body></html>"
    return status(502, page, "text/html")


def busy_503() -> Script:
    return err_first(503, "server busy, please try again.  maximum pending requests exceeded")


def not_found_404(name: str, *, double_quotes: bool = False) -> Script:
    return err_first(404, f'model "{name}" not found, try pulling it first' if double_quotes else f"model '{name}' not found")


def context_exceeded(prompt_tokens: int = 7900, window_tokens: int = 4096, *, nested: bool = True) -> Script:
    """A prompt too long: llama.cpp's JSON inside the error string, or Ollama's own sentence."""
    if not nested:
        return err_first(400, "the prompt is longer than the available context, and this model can't shift it")
    return err_first(
        400,
        json.dumps(
            {
                "error": {
                    "code": 400,
                    "message": f"request ({prompt_tokens} tokens) exceeds the available context size",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": prompt_tokens,
                    "n_ctx": window_tokens,
                }
            }
        ),
    )


def err_mid(error: object = "an error of the runner", content: str = "Hello") -> Script:
    return [text(content), error_line(error)]


def err_nested_json(content: str = "Hello") -> Script:
    return err_mid(json.dumps({"error": {"code": 500, "message": "the inner reason", "type": "server_error"}}), content)


def hang_before_headers() -> Script:
    return hang()


def hang_mid(content: str = "Hello") -> Script:
    return [text(content), hang()]


def reset_before_headers() -> Script:
    return reset()


def reset_mid(*pieces: str) -> Script:
    return [text(*(pieces or ("Hel", "lo"))), reset()]


def half_line_close(content: str = "Hello") -> Script:
    return [text(content), raw(b'{"model":"fake","message":{"con'), close()]


def half_line_clean_end(content: str = "Hello") -> Script:
    return [text(content), raw(b'{"model":"fake","message":{"con')]


def no_done(*pieces: str) -> Script:
    return text(*(pieces or ("A", "B")))


def double_done(content: str = "Hello") -> Script:
    return [text(content), done(), done("length")]


def text_after_done(content: str = "Hello") -> Script:
    return [text(content), done(), text(" and more")]


def blank_line(content: str = "Hello") -> Script:
    return [raw(b"\n"), text(content), raw(b"\n  \n"), done()]


def crlf(content: str = "Hello") -> Script:
    return [raw(go_json({"message": {"role": "assistant", "content": content}, "done": False}) + b"\r\n"), done()]


def bad_utf8() -> Script:
    return [raw(b'{"message":{"role":"assistant","content":"a\xff\xfeb"},"done":false}\n'), done()]


def nel() -> Script:
    """A text with raw U+0085, U+2028 and U+2029; the real server escapes the latter two."""
    item = {"message": {"role": "assistant", "content": "a\x85b\u2028c\u2029d"}, "done": False}
    return [raw(json.dumps(item, ensure_ascii=False).encode() + b"\n"), done()]


def lone_surrogate() -> Script:
    return [raw(b'{"message":{"role":"assistant","content":"a\\ud83db\\u0000"},"done":false}\n'), done()]


def split_every_byte(script: Script) -> Script:
    async def run(exchange: Exchange) -> None:
        exchange.piece_bytes = 1

    return [run, script]


def ten_lines_one_packet() -> Script:
    return [packet(text(*(f"{number} " for number in range(10)))), done()]


def content_missing() -> Script:
    return [
        line({"message": {"role": "assistant"}, "done": False}),
        line({"message": {"role": "assistant", "content": None}, "done": False}),
        line({"done": False}),
        text("Hello"),
        done(),
    ]


def thinking_only(thought: str = "Let me think", reason: str = "length") -> Script:
    return [thinking(*tokens(thought)), done(reason)]


def thinking_then_text(thought: str = "Let me think", content: str = "Hello") -> Script:
    return [thinking(*tokens(thought)), text(*tokens(content)), done()]


def think_tags_in_content(thought: str = "Let me think", content: str = "Hello") -> Script:
    return reply(f"<think>{thought}</think>{content}")


def length_stop(content: str = "Hello") -> Script:
    return [text(content), done("length")]


def prompt_eval_count(count: int, content: str = "Hello") -> Script:
    return reply(content, prompt_eval_count=count)


def clock_backwards(content: str = "Hello world") -> Script:
    """The server's clock goes back two hours in mid-reply, durations included."""
    lines = [_message(content=token, created_at=_timestamp(-3600 * hour)) for hour, token in enumerate(tokens(content))]
    return [lines, done(created_at=_timestamp(-7200), total_duration=-7_200_000_000_000)]


def huge_line(size: int = 5_000_000) -> Script:
    return [text("x" * size), done()]


# ---- The server ----


class FakeOllama:
    """The server. It can be stopped and started again on the same port; requests and scripts stay."""

    def __init__(
        self,
        models: Iterable[FakeModel] = (FakeModel(),),
        *,
        default: str | Callable[[ChatRequest], Script] = "Hello from the fake model.",
        port: int = 0,
        parallel: int | None = None,
    ) -> None:
        """`default` answers when no script is queued: a text, or a function of the request. `parallel` is how many
        requests are answered at once, the others waiting without a byte (None: all)."""
        self.models = list(models)
        self.default: Callable[[ChatRequest], Script] = (lambda _: reply(default)) if isinstance(default, str) else default
        self.default_pull: Callable[[Request], Script] = lambda request: self.whole_pull(request.model)
        self.requests: list[ChatRequest] = []
        self.pulls: list[Request] = []
        self.paths: list[str] = []
        self._scripts: deque[Script] = deque()
        self._pull_scripts: deque[Script] = deque()
        self._port = port
        self._slots = asyncio.Semaphore(parallel) if parallel else None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._failures: list[Exception] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.stop()
        if kind is None and self._failures:
            raise self._failures[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Protocol(self._connected), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go away as a stopped server does: the port refuses, replies under way break off."""
        if self._server is None:
            return
        await stop_listening(self._server)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def script(self, *scripts: Script) -> None:
        """Queue scripts: one for each coming /api/chat request, in order."""
        self._scripts.extend(scripts)

    def script_pull(self, *scripts: Script) -> None:
        """Queue scripts: one for each coming /api/pull request, in order."""
        self._pull_scripts.extend(scripts)

    def whole_pull(self, name: str, *, pause_seconds: float = 0) -> Script:
        """A pull as the real server tells it, at whose end the model is there."""
        size, small = 4_000_000_000, 1_500
        wait: Script = pause(pause_seconds) if pause_seconds else []
        return [
            progress("pulling manifest"),
            [[wait, layer("6ae280299950" * 5, size, size * part // 20)] for part in range(21)],
            layer("22e1b2e8dc2f" * 5, small, 0, small),
            progress("verifying sha256 digest"),
            wait,
            progress("writing manifest"),
            self.arrives(name),
            progress("success"),
        ]

    def arrives(self, name: str) -> Step:
        """From this step on the server has the model."""

        async def run(_: Exchange) -> None:
            full_name = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
            if self._model(full_name) is None:
                self.models.append(FakeModel(full_name))

        return run

    async def wait_for_pulls(self, count: int, seconds: float = 5) -> list[Request]:
        """Wait until `count` pull requests have come in all; return them."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.pulls) >= count)
        return self.pulls

    @property
    def unused_scripts(self) -> int:
        return len(self._scripts)

    async def wait_for_requests(self, count: int, seconds: float = 5) -> list[ChatRequest]:
        """Wait until `count` chat requests have come in all; return them."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def wait_ended(self, number: int = -1, seconds: float = 5) -> ChatRequest:
        """Wait until the answer to a request is over, or its client has left; return the request."""
        request = self.requests[number]
        async with asyncio.timeout(seconds):
            await request.ended.wait()
        return request

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._connections.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    await self._serve(*await _read_request(reader), writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, method: str, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        self.paths.append(f"{method} {path}")
        if (method, path) == ("POST", "/api/chat"):
            refused = await self._chat(headers, body, writer)
            if refused is not None:
                await _answer(writer, *refused)
        elif (method, path) == ("POST", "/api/pull"):
            await self._pull(headers, body, writer)
        else:
            await _answer(writer, *self._facts(method, path, body), with_body=method != "HEAD")
        if headers.get("connection", "").lower() == "close":
            writer.close()

    def _facts(self, method: str, path: str, body: bytes) -> tuple[int, Json | str]:
        get: dict[str, Json | str] = {
            "/": "Ollama is running",
            "/api/version": {"version": VERSION},
            "/api/tags": {"models": [model.listed() for model in self.models]},
            "/api/ps": {"models": []},
        }
        if path in get:
            return (200, get[path]) if method in ("GET", "HEAD") else (405, "405 method not allowed")
        if path == "/api/show":
            return self._show(body) if method == "POST" else (405, "405 method not allowed")
        return 404, "404 page not found"

    def _show(self, body: bytes) -> tuple[int, Json]:
        name = str(json.loads(body).get("model", ""))
        model = self._model(name)
        if model is None:
            return 404, {"error": f"model '{name if ':' in name else name + ':latest'}' not found"}
        return 200, model.shown()

    def _model(self, name: str) -> FakeModel | None:
        return next((model for model in self.models if model.name in (name, f"{name}:latest")), None)

    async def _chat(self, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> tuple[int, Json] | None:
        request = self._record(headers, body)
        if request is None:
            return 400, {"error": "missing request body" if not body else "invalid character in the request"}
        async with self._changed:
            self._changed.notify_all()
        refused = self._refuse(request)
        if refused is None:
            await self._reply(request, writer)
        _over(request)
        return refused

    async def _pull(self, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        request = Request(body, json.loads(body), headers)
        self.pulls.append(request)
        async with self._changed:
            self._changed.notify_all()
        await self._reply(request, writer)
        _over(request)

    def _record(self, headers: dict[str, str], body: bytes) -> ChatRequest | None:
        try:
            item = json.loads(body)
        except ValueError:
            item = None
        if not isinstance(item, dict):
            return None
        previous = self.requests[-1].messages if self.requests else []
        pairs = zip(previous, item.get("messages") or [], strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.requests.append(ChatRequest(body, item, headers, shared_messages=shared))
        return self.requests[-1]

    def _refuse(self, request: ChatRequest) -> tuple[int, Json] | None:
        """What the real server refuses, or answers at once, before any model runs."""
        body, name = request.body, str(request.body.get("model") or "")
        model = self._model(name)
        if not name:
            return 400, {"error": "model is required"}
        if model is None:
            return 404, {"error": f"model '{name}' not found"}
        if "completion" not in model.capabilities:
            return 400, {"error": f'"{name}" does not support chat'}
        if request.tools and "tools" not in model.capabilities:
            return 400, {"error": f"registry.ollama.ai/library/{name} does not support tools"}
        if body.get("think") not in (None, True, False, "low", "medium", "high", "max"):
            return 400, {"error": f'invalid think value: "{body["think"]}"'}
        if body.get("think") and "thinking" not in model.capabilities:
            return 400, {"error": f'"{name}" does not support thinking'}
        if not request.messages:
            load = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "load"}
            return 200, {"model": name, "created_at": _timestamp(), **load}
        if body.get("stream") is False:
            return 501, {"error": "this fake only streams"}
        return None

    async def _reply(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Run the script until it ends or the client leaves, whichever is first."""
        exchange = Exchange(request, writer)
        gone = cast("_Protocol", writer.transport.get_protocol()).gone
        tasks = [asyncio.create_task(self._play(exchange)), asyncio.create_task(gone.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            request.closed_early = gone.is_set() and not exchange.last_line_sent and not exchange.over
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not exchange.over:
                exchange.cut(reset=False)

    async def _play(self, exchange: Exchange) -> None:
        """A script that fails is a mistake of the test: it comes out when the server is left."""
        try:
            script = self._script_for(exchange.request)
            async with AsyncExitStack() as stack:
                if self._slots is not None and isinstance(exchange.request, ChatRequest):
                    await stack.enter_async_context(self._slots)
                await _run(script, exchange)
                await exchange.end()
        except ConnectionError:
            exchange.over = exchange.over or exchange.last_line_sent
        except Exception as error:
            self._failures.append(error)

    def _script_for(self, request: Request) -> Script:
        if isinstance(request, ChatRequest):
            return self._scripts.popleft() if self._scripts else self.default(request)
        return self._pull_scripts.popleft() if self._pull_scripts else self.default_pull(request)


class FakeOllamaThread:
    """A FakeOllama with an event loop of its own, for tests that have none (the browser's).

    `call` runs anything inside that loop: `fake.call(event.set)`, `fake.call(fake.server.stop)`.
    """

    def __init__(self, models: Iterable[FakeModel] = (FakeModel(),), **more: Any) -> None:
        self.server = FakeOllama(models, **more)
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._stack.enter_context(self._portal.wrap_async_context_manager(self.server))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def requests(self) -> list[ChatRequest]:
        return self.server.requests

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        assert self._portal is not None
        return self._portal.call(function, *arguments)

    def script(self, *scripts: Script) -> None:
        self.call(self.server.script, *scripts)

    def script_pull(self, *scripts: Script) -> None:
        self.call(self.server.script_pull, *scripts)

    def wait_for_pulls(self, count: int, seconds: float = 5) -> list[Request]:
        self.call(self.server.wait_for_pulls, count, seconds)
        return self.server.pulls

    def wait_for_requests(self, count: int, seconds: float = 5) -> list[ChatRequest]:
        self.call(self.server.wait_for_requests, count, seconds)
        return self.requests

    def wait_ended(self, number: int = -1, seconds: float = 5) -> ChatRequest:
        self.call(self.server.wait_ended, number, seconds)
        return self.requests[number]


class _Protocol(asyncio.StreamReaderProtocol):
    """A stream connection that tells at once when its client has left, also while nobody reads."""

    def __init__(self, connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.gone = asyncio.Event()
        super().__init__(asyncio.StreamReader(), connected)

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (item.partition(":") for item in head[1:] if item)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return method, path, headers, body


async def _answer(writer: asyncio.StreamWriter, code: int, answer: Json | str, *, with_body: bool = True) -> None:
    content_type = "text/plain" if isinstance(answer, str) else "application/json; charset=utf-8"
    content = answer.encode() if isinstance(answer, str) else go_json(answer)
    writer.write(_head(code, content_type, len(content)) + (content if with_body else b""))
    await writer.drain()


def _over(request: Request) -> None:
    request.seconds = time.monotonic() - request.received_at
    request.ended.set()


def _head(code: int, content_type: str, length: int | None, headers: Mapping[str, str] | None = None) -> bytes:
    body = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"HTTP/1.1 {code} Fake\r\nContent-Type: {content_type}\r\n{more}{body}\r\n\r\n".encode()


async def _run(script: Script, exchange: Exchange) -> None:
    if callable(script):
        await script(exchange)
        return
    for part in script:
        if exchange.over:
            return
        await _run(part, exchange)


def _message(created_at: str | None = None, **fields: object) -> Step:
    more = {} if created_at is None else {"created_at": created_at}
    return lambda exchange: exchange.message(fields, **more)


def _cut(*, reset: bool) -> Step:
    async def run(exchange: Exchange) -> None:
        exchange.cut(reset=reset)

    return run


def _counters(exchange: Exchange) -> Json:
    request = cast(ChatRequest, exchange.request)
    total = int((time.monotonic() - request.received_at) * 1e9)
    return {
        "total_duration": total,
        "load_duration": 1_000_000,
        "prompt_eval_count": request.estimated_tokens(),
        "prompt_eval_duration": 2_000_000,
        "eval_count": exchange.lines_sent + 1,
        "eval_duration": max(1, total - 3_000_000),
    }


def tokens(content: str) -> list[str]:
    """Cut a text about as a tokenizer does: words with the space before them."""
    return [token for token in content.replace(" ", "\0 ").split("\0") if token]


def go_json(item: object) -> bytes:
    """JSON as Go's encoder writes it: U+2028, U+2029 and what is special in HTML escaped, everything else raw."""
    written = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written.encode("utf-8", "replace")


def _timestamp(offset_seconds: float = 0) -> str:
    moment = datetime.fromtimestamp(time.time() + offset_seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


# ---- By hand ----


def demonstration(content: str, pause_seconds: float) -> Callable[[ChatRequest], Script]:
    """A default that shows the product's ways: "draft ..." drafts a prompt, "add task ..." adds a task."""

    def answer(request: ChatRequest) -> Script:
        last = request.messages[-1]
        said = str(last.get("content") or "").strip()
        if last.get("role") == "tool":
            return reply("Done. The card above shows what changed.", pause_seconds=pause_seconds)
        if said.lower().startswith("draft"):
            wanted = said[len("draft") :].strip(" :") or "You are a careful assistant.\n\nAnswer in short sentences."
            return call("system_prompt_draft", {"content": wanted})
        if said.lower().startswith("add task"):
            return call("task_add", {"title": said[len("add task") :].strip(" :") or "Something to do"})
        return reply(content, pause_seconds=pause_seconds)

    return answer


DEMONSTRATION = """Here is a **small** reply with a list:

- one item with `code`
- another with a [link](https://example.org)

```python
def greet(name: str) -> str:
    return f"Hello, {name}!"
```

| column | value |
|---|---|
| first | 1 |
"""


async def _serve_forever(port: int, content: str, pause_seconds: float) -> None:
    async with FakeOllama(default=demonstration(content, pause_seconds), port=port) as fake:
        fake.default_pull = lambda request: fake.whole_pull(request.model, pause_seconds=0.5)
        print(f"Fake Ollama at {fake.url}; stop it with Ctrl+C.", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake Ollama to try things by hand.")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--default", default=DEMONSTRATION, help="the reply to everything that calls no tool")
    parser.add_argument("--pause-ms", type=float, default=30, help="milliseconds between tokens")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve_forever(options.port, options.default, options.pause_ms / 1000))


if __name__ == "__main__":
    main()
