"""The model server's HTTP: which models there are, and a reply as a stream of chunks.

The only module that knows Ollama's wire; it knows nothing of chats, tools or the database.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from ipaddress import ip_address
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import aiohttp
import httpx
import ollama

from backend.errors import BrokenStream, CleanroomError, ModelUnavailable
from backend.llm.wire import (
    ALWAYS_THINKING,
    NOTHING,
    Chunk,
    LineParser,
    ModelInfo,
    PullStep,
    Reason,
    context_exceeded,
    count_of,
    host_in,
    json_object,
    kv_bytes_per_token,
    pull_failure,
    reason_in,
    reason_of,
    refusal,
    refuses_thinking,
    server_named,
)
from backend.text import clean_text

ALIVE_SECONDS = 1.0
# Connecting is quick or hopeless; everything slow (loading, queueing, reading the prompt) comes after it.
CONNECT_SECONDS = 10.0
# The list, and one model's facts: read from disk, but maybe from a cold one.
LIST_SECONDS = 15.0
SHOWN_AT_ONCE = 8
REFUSAL_SECONDS = 5.0
REFUSAL_BYTES = 65_536
# By the first a balancer can keep a chat with the server that has its prefix cached; by the second it names the one that answered.
CHAT_HEADER = "X-Cleanroom-Chat"
HOST_HEADER = "X-Served-By"
# What the client lets through: its own errors, those of httpx, and, for a body of an unexpected shape, whatever
# its parsing stumbles over.
_CLIENT_ERRORS = (ConnectionError, httpx.HTTPError, ValueError, AttributeError, TypeError)


class ModelServer:
    """One model server. Its connections are made inside the running loop, at the first request."""

    def __init__(self, url: str, kind: Literal["ollama", "embedded"], *, first_token_seconds: float = 600) -> None:
        self.url = url.rstrip("/")
        self.kind = kind
        self._first_token_seconds = first_token_seconds
        # A proxy can't reach this machine's own loopback, whatever the environment says.
        self._trust_env = not is_loopback(self.url)
        self._session: aiohttp.ClientSession | None = None
        self._client: ollama.AsyncClient | None = None
        self._puller: ollama.AsyncClient | None = None
        self._described: dict[tuple[str, str], ModelInfo] = {}

    async def is_alive(self) -> bool:
        """Whether a model server answers now; never raises."""
        try:
            timeout = aiohttp.ClientTimeout(total=ALIVE_SECONDS)
            url = f"{self.url}/api/version"
            async with self._http().get(url, timeout=timeout, allow_redirects=False) as response:
                body = await response.content.read(REFUSAL_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return False
        return response.status == 200 and "version" in (json_object(body) or {})

    async def list_models(self) -> list[ModelInfo]:
        """The models that can hold a conversation, in the server's order. Raises ModelUnavailable."""
        gate = asyncio.Semaphore(SHOWN_AT_ONCE)
        try:
            listed = (await self._ollama().list()).models
            found = await asyncio.gather(*(self._describe(model, gate) for model in listed), return_exceptions=True)
        except ollama.ResponseError as error:
            raise refusal(error.status_code, reason_of(error.error), "", url=self.url) from error
        except _CLIENT_ERRORS as error:
            raise self._unreachable() from error
        failed = [item for item in found if isinstance(item, BaseException)]
        if failed:
            raise self._unreachable() from failed[0]
        models = [item for item in found if isinstance(item, ModelInfo)]
        return [model for model in models if "completion" in model.capabilities]

    async def stream(
        self,
        *,
        model: str,
        messages: list[dict[str, object]],
        tools: list[dict[str, object]],
        options: dict[str, object],
        think: bool | str,
        keep_alive: int | str | None = None,
        chat_id: str | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """One reply. Use it within `contextlib.aclosing`: closing it, or cancelling the task that waits for it, closes
        the connection, and that ends the generation at its source. `chat_id` is told to a balancer, None when there is no chat.

        Raises ModelNotFound, ModelBusy, ContextExceeded or ModelUnavailable before the first chunk; BrokenStream when
        the reply has begun and ends without its last line, after everything that arrived was handed out.
        """
        # `truncate` keeps the server from dropping messages without a word.
        request: dict[str, object] = {"model": model, "messages": messages, "options": options, "think": think}
        request |= {"stream": True, "truncate": False}
        if tools:
            request["tools"] = tools
        if keep_alive is not None:
            request["keep_alive"] = keep_alive
        deadline = asyncio.get_running_loop().time() + self._first_token_seconds
        response = await self._ask(model, request, chat_id, deadline)
        host = host_in(response.headers.get(HOST_HEADER))
        parser = LineParser()
        is_first = True
        try:
            while not parser.ended:
                data, end = await self._receive(response, None if parser.began else deadline)
                chunk = parser.feed(data, end)
                if chunk != NOTHING:
                    yield chunk._replace(host=host) if is_first else chunk
                    is_first = False
        finally:
            response.close()
        if parser.failure is not None:
            raise self._broken(parser.failure, host, began=parser.began)

    async def pull(self, name: str) -> AsyncGenerator[PullStep, None]:
        """Have the server fetch a model: each step that it tells, the last one when it has the model. Use it within
        `contextlib.aclosing`: closing it, or cancelling the task that waits for it, ends the pull at its source.

        Raises ModelNotFound or ModelUnavailable.
        """
        if self._puller is None:
            # Checking a large file takes minutes without a word. Read as ASCII, lines end at line feeds alone, whatever
            # other separators stand in their texts.
            self._puller = self._new_client(timeout=httpx.Timeout(None, connect=CONNECT_SECONDS), default_encoding="ascii")
        try:
            # The client's type leaves out that it is a generator, which has to be closed.
            lines = cast(AsyncGenerator[ollama.ProgressResponse, None], await self._puller.pull(name, stream=True))
            async with aclosing(lines):
                async for line in lines:
                    yield PullStep(clean_text(line.status or ""), line.digest, line.completed, line.total)
                    if line.status == "success":
                        return
        except ollama.ResponseError as error:
            raise pull_failure(name, reason_of(error.error)) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._unreachable() from error
        except _CLIENT_ERRORS as error:
            raise self._lost() from error
        raise self._lost()

    async def close(self) -> None:
        """Close every connection; a stream under way breaks off."""
        session, self._session = self._session, None
        clients, self._client, self._puller = (self._client, self._puller), None, None
        if session is not None:
            await session.close()
        for client in clients:
            if client is not None:
                await client.close()  # type: ignore[no-untyped-call]

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A kept connection may have died unseen, and a request that generates can't just be sent again.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=self._trust_env,
            )
        return self._session

    def _ollama(self) -> ollama.AsyncClient:
        if self._client is None:
            self._client = self._new_client(timeout=LIST_SECONDS)
        return self._client

    def _new_client(self, **options: Any) -> ollama.AsyncClient:
        # Plain HTTP on this machine, past any proxy, has no use for certificates, and to read them takes longer than the rest.
        verify = self._trust_env or self.url.startswith("https:")
        return ollama.AsyncClient(host=self.url, follow_redirects=False, trust_env=self._trust_env, verify=verify, **options)

    async def _describe(self, listed: ollama.ListResponse.Model, gate: asyncio.Semaphore) -> ModelInfo | None:
        """The facts of one listed model; None when the server can't describe it, as when it was just deleted."""
        name, digest = listed.model or "", listed.digest or ""
        if known := self._described.get((name, digest)):
            return known
        try:
            async with gate:
                shown = await self._ollama().show(name)
        except ollama.ResponseError:
            return None
        info = _model_info(name, listed, shown)
        if digest:
            self._described[name, digest] = info
        return info

    async def _ask(self, model: str, request: dict[str, object], chat_id: str | None, deadline: float) -> aiohttp.ClientResponse:
        """The answer to a request. A server that refuses to think as asked is asked for less of it: the person wants the reply."""
        think = request["think"]
        for less in dict.fromkeys((think, bool(think), False)):
            response = await self._post(request | {"think": less}, chat_id, deadline)
            if response.status == 200:
                return response
            reason = reason_in(await _read_refusal(response))
            if not refuses_thinking(response.status, reason):
                break
        raise refusal(response.status, reason, model, url=self.url, host=host_in(response.headers.get(HOST_HEADER)))

    async def _post(self, request: dict[str, object], chat_id: str | None, deadline: float) -> aiohttp.ClientResponse:
        # Text is cleaned where it enters; should a lone surrogate be stored all the same, it must not block the chat.
        body = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with asyncio.timeout_at(deadline):
                return await self._http().post(
                    f"{self.url}/api/chat",
                    data=io.BytesIO(body),
                    headers={"Content-Type": "application/json", **({} if chat_id is None else {CHAT_HEADER: chat_id})},
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, ValueError) as error:
            raise self._unreachable() from error
        except TimeoutError as error:
            raise self._too_slow() from error

    async def _receive(self, response: aiohttp.ClientResponse, deadline: float | None) -> tuple[bytes, Reason | None]:
        """What one socket read brought, and how the stream ended, if it did."""
        try:
            if deadline is None:
                data = await response.content.readany()
            else:
                async with asyncio.timeout_at(deadline):
                    data = await response.content.readany()
        except aiohttp.ClientError:
            # aiohttp keeps what arrived before the break, but hands out the error instead.
            return b"".join(response.content._buffer), Reason("the connection broke")
        except TimeoutError as error:
            raise self._too_slow() from error
        return data, None if data else Reason("it ended without its last line")

    def _unreachable(self) -> ModelUnavailable:
        if self.kind == "embedded":
            return ModelUnavailable(f"The embedded model at {self.url} does not answer. Try again in a moment.")
        return ModelUnavailable(f"Ollama does not answer at {self.url}. Start it with `ollama serve`, or set OLLAMA_HOST to where it listens.")

    def _lost(self) -> BrokenStream:
        return BrokenStream("The pull broke off: Ollama ended it, or is gone. Pull again: it goes on where it stopped.")

    def _broken(self, failure: Reason, host: str | None, *, began: bool) -> CleanroomError:
        words = failure.text or "the model server gave no reason"
        if began:
            return BrokenStream(f"{'The reply' if host is None else server_named(host)} broke off: {words}")
        if failure.is_context_exceeded:
            return context_exceeded(failure)
        return ModelUnavailable(f"{server_named(host)} at {self.url} began no reply: {words}. Try again, or look at its log.")

    def _too_slow(self) -> ModelUnavailable:
        return ModelUnavailable(
            f"The model server at {self.url} sent nothing for {self._first_token_seconds:g} seconds. It may still be "
            "loading the model or be busy with another chat: try again, or raise CLEANROOM_FIRST_TOKEN_SECONDS."
        )


def is_loopback(url: str) -> bool:
    """Whether `url` names this machine by a loopback address or name."""
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


async def _read_refusal(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    try:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(REFUSAL_SECONDS):
                while len(body) < REFUSAL_BYTES and (data := await response.content.readany()):
                    body += data
    finally:
        response.close()
    return body


def _model_info(name: str, listed: ollama.ListResponse.Model, shown: ollama.ShowResponse) -> ModelInfo:
    facts = shown.modelinfo or {}
    details = shown.details
    return ModelInfo(
        name=name,
        size_bytes=None if listed.size is None else int(listed.size),
        context_length=count_of(facts.get(f"{facts.get('general.architecture')}.context_length")),
        # Servers from before capabilities were told list models for chat only.
        capabilities=tuple(shown.capabilities or ("completion",)),
        parameter_size=(details.parameter_size if details else None) or None,
        quantization=(details.quantization_level if details else None) or None,
        kv_bytes_per_token=kv_bytes_per_token(facts),
        thinks_always=facts.get("general.architecture") in ALWAYS_THINKING,
    )
