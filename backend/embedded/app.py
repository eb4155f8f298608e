"""The embedded model's HTTP: Ollama's paths, answered by llama.cpp.

llama.cpp holds Python's lock while it loads the weights, so that nothing is answered meanwhile. Loading
begins behind the answer to `/api/show`, the last question before the first chat.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.embedded.wire import ChatRequest, Model, Refused, load_line, read_chat, read_object, reply_lines, tagged
from backend.errors import ModelUnavailable

if TYPE_CHECKING:  # aiohttp and llama.cpp are loaded behind the first answers
    from backend.embedded.engine import Engine

VERSION = "0.0.0-embedded"
OWN_NAMES = ("127.0.0.1", "localhost")

Line = dict[str, Any]


class Shim:
    """The part of Ollama's HTTP that Cleanroom uses. `load` blocks, and raises ModelUnavailable."""

    def __init__(self, model: Model, load: Callable[[], Engine]) -> None:
        self._model = model
        self._load = load
        self._loading: asyncio.Task[Engine] | None = None

    def app(self) -> ASGIApp:
        routes = [
            Route("/", self.root),
            Route("/api/version", self.version),
            Route("/api/tags", self.tags),
            Route("/api/ps", self.ps),
            Route("/api/show", self.show, methods=["POST"]),
            Route("/api/chat", self.chat, methods=["POST"]),
        ]
        return OwnMachineOnly(Starlette(routes=routes, exception_handlers={Refused: _on_refused}))

    async def root(self, _request: Request) -> Response:
        return PlainTextResponse("Ollama is running")

    async def version(self, _request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def tags(self, _request: Request) -> Response:
        return JSONResponse({"models": [self._model.listed()]})

    async def ps(self, _request: Request) -> Response:
        is_loaded = self._loading is not None and self._loading.done() and self._loading.exception() is None
        return JSONResponse({"models": [self._model.running()] if is_loaded else []})

    async def show(self, request: Request) -> Response:
        name = read_object(await request.body()).get("model")
        self._model.check_name(tagged(name) if name and isinstance(name, str) else name)
        return JSONResponse(self._model.shown(), background=BackgroundTask(self._begin_loading))

    async def chat(self, request: Request) -> ChatReply:
        chat = read_chat(await request.body(), self._model)
        return ChatReply(self._lines(chat), chat)

    async def _begin_loading(self) -> asyncio.Task[Engine]:
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        return self._loading

    async def _lines(self, chat: ChatRequest) -> AsyncGenerator[Line]:
        started_ns = monotonic_ns()
        try:
            engine = await asyncio.shield(await self._begin_loading())
        except ModelUnavailable as error:
            raise Refused(500, error.message) from error
        if not chat.messages:
            yield load_line(self._model, started_ns)
            return
        load_ns = monotonic_ns() - started_ns
        async with aclosing(engine.events(chat.for_engine())) as events:
            async for line in reply_lines(events, self._model, started_ns, load_ns):
                yield line


class ChatReply:
    """A reply as Ollama sends it: not even a status before there is something to say.

    When whoever asked leaves, the generation ends at once, also while it still waits for the slot.
    """

    def __init__(self, lines: AsyncGenerator[Line], chat: ChatRequest) -> None:
        self._lines = lines
        # Only loading the model is answered with one object whatever `stream` says.
        self._is_stream = chat.stream and bool(chat.messages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._send(scope, receive, send))
            watching = group.create_task(_call_when_gone(receive, sending.cancel))
            sending.add_done_callback(lambda _: watching.cancel())

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._lines):
            try:
                response = await (self._stream() if self._is_stream else self._whole())
            except Refused as refused:
                response = _refusal(refused)
            await response(scope, receive, send)

    async def _stream(self) -> Response:
        first = await anext(self._lines)
        return StreamingResponse(self._encoded_from(first), media_type="application/x-ndjson")

    async def _encoded_from(self, first: Line) -> AsyncGenerator[str]:
        yield _encode(first)
        try:
            async for line in self._lines:
                yield _encode(line)
        except Refused as refused:  # the status is out already
            yield _encode({"error": refused.text})

    async def _whole(self) -> Response:
        text = ""
        async for line in self._lines:
            text += line["message"]["content"]
        line["message"]["content"] = text
        return JSONResponse(line)


class OwnMachineOnly:
    """Refuse what comes from a page in a browser: another Host (DNS rebinding) or any Origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        name = headers.get("host", "").rpartition(":")[0] or headers.get("host")
        app = self._app if name in OWN_NAMES and "origin" not in headers else Response(status_code=403)
        await app(scope, receive, send)


async def _call_when_gone(receive: Receive, call: Callable[[], object]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    call()


async def _on_refused(_request: Request, refused: Exception) -> Response:
    assert isinstance(refused, Refused)
    return _refusal(refused)


def _refusal(refused: Refused) -> Response:
    return JSONResponse({"error": refused.text}, refused.status)


def _encode(line: Line) -> str:
    """ASCII, since some readers of lines also split at U+0085 and U+2028."""
    return json.dumps(line) + "\n"
