"""Stands between Cleanroom and the model server: exchanges the history of each request, and keeps what was asked and answered.

So the product itself is what runs, and knows nothing of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from backend.llm.model import is_loopback
from backend.llm.textcall import parse_call
from backend.llm.wire import ToolCall, json_object, tool_call
from benchmarks.context.arms import Arm, Everything, Message, cut
from benchmarks.context.facts import Facts

# A line may hold a call with a long body.
LINE_BYTES = 8 * 2**20


@dataclass(slots=True)
class Round:
    """One request as the model server got it, with the facts of that moment, and what came back.

    Tokens are the server's own counts, None where it gave none; `first_token_ms` counts to the first piece that says something.
    """

    facts: Facts
    messages: list[Message]
    tools: list[str]
    options: dict[str, Any]
    text: str = ""
    thinking: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    first_token_ms: float | None = None
    error: str | None = None

    def hear(self, line: dict[str, Any], elapsed_ms: float) -> None:
        message = line.get("message") or {}
        said = [message.get(name) for name in ("content", "thinking", "tool_calls")]
        if self.first_token_ms is None and any(said):
            self.first_token_ms = elapsed_ms
        self.text += said[0] or ""
        self.thinking += said[1] or ""
        self.calls += map(tool_call, said[2] or [])
        self.error = line.get("error") or self.error
        if line.get("done"):
            self.prompt_tokens, self.reply_tokens = line.get("prompt_eval_count"), line.get("eval_count")
            self._read_call()

    def _read_call(self) -> None:
        """Find a call that came as text, as Cleanroom does."""
        found = None if self.calls else parse_call(self.text, self.tools)
        if found is not None:
            self.calls, self.text = [found], ""


class Proxy:
    """Serves one chat of one arm. `options` hold wherever Cleanroom sends none of its own; `look` reads the facts."""

    def __init__(self, upstream: str, arm: Arm, options: dict[str, Any], look: Callable[[], Facts]) -> None:
        self._upstream = upstream
        self._arm = arm
        self._options = options
        self._look = look
        self._everything = Everything()
        self._session: aiohttp.ClientSession
        self._rounds: list[Round] = []
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve at `url`, a free port of this machine."""
        app = web.Application(client_max_size=0)
        app.router.add_post("/api/chat", self._chat)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        try:
            async with aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), trust_env=not is_loopback(self._upstream), read_bufsize=LINE_BYTES
            ) as self._session:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield
        finally:
            await runner.cleanup()

    def end_turn(self) -> list[Round]:
        """The rounds of the turn that has ended; what comes from now on is of the next one."""
        rounds, self._rounds = self._rounds, []
        self._everything.end_turn(rounds[-1].text if rounds and not rounds[-1].calls else "")
        return rounds

    async def _pass_on(self, request: web.Request) -> web.Response:
        async with self._session.request(request.method, self._upstream + request.path_qs, data=await request.read()) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers={"Content-Type": answer.content_type})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        sent = cut(body["messages"])
        self._everything.follow(sent.turn)
        body["messages"] = self._arm.messages(sent, self._everything.earlier)
        body["options"] = {**self._options, **body["options"]}
        if tools := self._arm.tools(body.pop("tools", [])):
            body["tools"] = tools
        this = Round(self._look(), body["messages"], [tool["function"]["name"] for tool in tools], body["options"])
        self._rounds.append(this)
        began = time.perf_counter()
        async with self._session.post(f"{self._upstream}/api/chat", json=body) as answer:
            if answer.status != 200:
                content = await answer.read()
                this.error = content.decode(errors="replace")
                return web.Response(status=answer.status, body=content, headers={"Content-Type": answer.content_type})
            response = web.StreamResponse(headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            async for data in answer.content:
                line = json_object(data.decode(errors="replace"))
                if line is not None:
                    this.hear(line, (time.perf_counter() - began) * 1000)
                    # Cleanroom would learn a false length of tokens from a prompt that it has not sent.
                    line.pop("prompt_eval_count", None)
                    data = json.dumps(line).encode() + b"\n"
                await response.write(data)
            with suppress(ConnectionResetError):  # Cleanroom leaves after the last line
                await response.write_eof()
            return response
