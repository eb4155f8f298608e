"""The model server's HTTP: which models there are, and a reply as a stream of chunks.

The only module that knows Ollama's wire; it knows nothing of chats, tools or the database.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import httpx
import ollama

from backend.errors import BrokenStream, CleanroomError, ContextExceeded, ModelBusy, ModelNotFound, ModelUnavailable
from backend.text import clean_text

ALIVE_SECONDS = 1.0
# Connecting is quick or hopeless; everything slow (loading, queueing, reading the prompt) comes after it.
CONNECT_SECONDS = 10.0
# The list, and one model's facts: read from disk, but maybe from a cold one.
LIST_SECONDS = 15.0
SHOWN_AT_ONCE = 8
REFUSAL_SECONDS = 5.0
REFUSAL_BYTES = 65_536
# A person reads an error in one breath; some servers send a page.
REASON_CHARACTERS = 300
# A tool call comes as one line whatever its size; a line without an end must not fill the memory.
LINE_BYTES = 32 * 1024 * 1024

# Not strict: a raw control character inside a string loses no line.
_DECODER = json.JSONDecoder(strict=False)

# What the client lets through: its own errors, those of httpx, and, for a body of an unexpected shape, whatever
# its parsing stumbles over.
_CLIENT_ERRORS = (ConnectionError, httpx.HTTPError, ValueError, AttributeError, TypeError)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model made it. `arguments` is a dict when the server sent an object, also one written as a
    JSON string; anything else is as it came (None: missing), for the agent to refuse. `name` is "" when missing."""

    name: str
    arguments: object
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The reply's last line. A counter that the server left out, or that can't be true, is None."""

    reason: str | None
    prompt_tokens: int | None
    reply_tokens: int | None
    total_ms: float | None
    load_ms: float | None
    prompt_ms: float | None
    reply_ms: float | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """All lines of one socket read: their texts joined, their calls in order."""

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    done: Done | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that can hold a conversation. None where the server does not say."""

    name: str
    size_bytes: int | None
    context_length: int | None
    capabilities: tuple[str, ...]
    parameter_size: str | None
    quantization: str | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the server refuses, in its own words ("" when it gives none), with the numbers of a prompt too long."""

    text: str
    prompt_tokens: int | None = None
    window_tokens: int | None = None

    @property
    def is_context_exceeded(self) -> bool:
        if self.prompt_tokens is not None:
            return True
        # A timeout within the server reads "context deadline exceeded".
        text = self.text.lower().replace("context deadline", "")
        return "context" in text and any(word in text for word in ("exceed", "longer than", "too long"))


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
        return response.status == 200 and "version" in (_json_object(body) or {})

    async def list_models(self) -> list[ModelInfo]:
        """The models that can hold a conversation, in the server's order. Raises ModelUnavailable."""
        gate = asyncio.Semaphore(SHOWN_AT_ONCE)
        try:
            listed = (await self._ollama().list()).models
            found = await asyncio.gather(*(self._describe(model, gate) for model in listed), return_exceptions=True)
        except ollama.ResponseError as error:
            raise refusal(error.status_code, _reason(error.error), "") from error
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
        think: bool,
    ) -> AsyncGenerator[Chunk, None]:
        """One reply. Use it within `contextlib.aclosing`: closing it, or cancelling the task that waits for it, closes
        the connection, and that ends the generation at its source.

        Raises ModelNotFound, ModelBusy, ContextExceeded or ModelUnavailable before the first chunk; BrokenStream when
        the reply has begun and ends without its last line, after everything that arrived was handed out.
        """
        # `truncate` keeps the server from dropping messages without a word.
        request: dict[str, object] = {"model": model, "messages": messages, "options": options, "think": think}
        request |= {"stream": True, "truncate": False}
        if tools:
            request["tools"] = tools
        deadline = asyncio.get_running_loop().time() + self._first_token_seconds
        response = await self._ask(model, request, deadline)
        parser = LineParser()
        try:
            while not parser.ended:
                data, end = await self._receive(response, None if parser.began else deadline)
                chunk = parser.feed(data, end)
                if chunk != _NOTHING:
                    yield chunk
        finally:
            response.close()
        if parser.failure is not None:
            raise self._broken(parser.failure, began=parser.began)

    async def close(self) -> None:
        """Close every connection; a stream under way breaks off."""
        session, self._session = self._session, None
        client, self._client = self._client, None
        if session is not None:
            await session.close()
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
            self._client = ollama.AsyncClient(host=self.url, timeout=LIST_SECONDS, follow_redirects=False, trust_env=self._trust_env)
        return self._client

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

    async def _ask(self, model: str, request: dict[str, object], deadline: float) -> aiohttp.ClientResponse:
        # Text is cleaned where it enters; should a lone surrogate be stored all the same, it must not block the chat.
        body = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._http().post(
                    f"{self.url}/api/chat",
                    data=io.BytesIO(body),
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, ValueError) as error:
            raise self._unreachable() from error
        except TimeoutError as error:
            raise self._too_slow() from error
        if response.status == 200:
            return response
        raise refusal(response.status, _reason_in(await _read_refusal(response)), model)

    async def _receive(self, response: aiohttp.ClientResponse, deadline: float | None) -> tuple[bytes, Reason | None]:
        """What one socket read brought, and how the stream ended, if it did."""
        try:
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

    def _broken(self, failure: Reason, *, began: bool) -> CleanroomError:
        words = failure.text or "the model server gave no reason"
        if began:
            return BrokenStream(f"The reply broke off: {words}")
        if failure.is_context_exceeded:
            return _context_exceeded(failure)
        return ModelUnavailable(f"The model server at {self.url} began no reply: {words}. Try again, or look at its log.")

    def _too_slow(self) -> ModelUnavailable:
        return ModelUnavailable(
            f"The model server at {self.url} sent nothing for {self._first_token_seconds:g} seconds. It may still be "
            "loading the model or be busy with another chat: try again, or raise CLEANROOM_FIRST_TOKEN_SECONDS."
        )


class LineParser:
    """Bytes in, chunks out: the reply's lines, however they were cut on their way.

    Lines end at `\\n` alone, since a model's text may hold every other line separator. The first `done` line or the
    first failure ends the reply; what follows is ignored.
    """

    def __init__(self) -> None:
        self.began = False
        self.done = False
        self.failure: Reason | None = None
        self._rest = bytearray()

    @property
    def ended(self) -> bool:
        return self.done or self.failure is not None

    def feed(self, data: bytes, end: Reason | None = None) -> Chunk:
        """Take what one read brought. `end` says how the stream ended, which is a failure unless `done` has come."""
        self._rest += data
        lines: list[bytearray] = []
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
        if end is not None and _json_object(self._rest) is not None:
            lines.append(self._rest)  # whole but for its line end
        chunk = _merge(list(self._parse(lines))) if lines else _NOTHING
        if not self.ended:
            self.failure = end if len(self._rest) <= LINE_BYTES else Reason("it sent a line without an end")
        return chunk

    def _parse(self, lines: list[bytearray]) -> Iterator[Chunk]:
        for line in lines:
            if self.ended:
                break
            if not line.strip():
                continue
            read = _read_line(line)
            if isinstance(read, Reason):
                self.failure = read
            else:
                self.began = True
                self.done = read.done is not None
                yield read


_NOTHING = Chunk()
_UNREADABLE = Reason("it sent a line that can't be read")


def is_loopback(url: str) -> bool:
    """Whether `url` names this machine by a loopback address or name."""
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def refusal(status: int, reason: Reason, model: str) -> CleanroomError:
    """The error that an answer of another status than 200 stands for."""
    if reason.is_context_exceeded:
        return _context_exceeded(reason)
    # Only a model server words it so: a bare 404 comes from something else that listens there.
    if status == 404 and "not found" in reason.text.lower():
        return ModelNotFound(f"The model server has no model {model!r}. Get it with `ollama pull {model}`, or choose another.")
    if status == 503:
        return ModelBusy("The model server has no free place now (503). Try again in a moment.")
    words = f": {reason.text}" if reason.text else " without a reason."
    return ModelUnavailable(f"The model server refused with status {status}{words}")


def _context_exceeded(reason: Reason) -> ContextExceeded:
    if reason.prompt_tokens is None or reason.window_tokens is None:
        return ContextExceeded(f"The messages don't fit the model's window: {reason.text}")
    return ContextExceeded(
        f"The messages need {reason.prompt_tokens} tokens, but the model's window holds {reason.window_tokens}. "
        "Shorten the message, or raise CLEANROOM_NUM_CTX."
    )


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


def _reason_in(body: bytes) -> Reason:
    """The reason in a refusal's body; none unless it is Ollama's own JSON, so that no page is passed on."""
    item = _json_object(body)
    return Reason("") if item is None else _reason(item.get("error"))


def _reason(error: object) -> Reason:
    """Read an `error` field. llama.cpp's own JSON may stand in it as a string: that is unwrapped once."""
    inner = (_json_object(error) if isinstance(error, str) else error) or error
    if isinstance(inner, dict):
        inner = inner.get("error", inner)
    if isinstance(inner, dict):
        return Reason(_readable(inner.get("message")), _count(inner.get("n_prompt_tokens")), _count(inner.get("n_ctx")))
    return Reason(_readable(inner))


def _readable(text: object) -> str:
    if not isinstance(text, str) or text.lstrip().startswith("<") or "<html" in text.lower():
        return ""
    text = " ".join(clean_text(text[: REASON_CHARACTERS * 4]).split())
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"


def _json_object(text: str | bytes | bytearray) -> dict[str, Any] | None:
    if not isinstance(text, str):
        text = text.decode("utf-8", "replace")
    try:
        item = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def _read_line(line: bytearray) -> Chunk | Reason:
    """A line's chunk, or the reason why the reply ends with it."""
    item = _json_object(line)
    if item is None:
        return _UNREADABLE
    if item.get("error") is not None:
        return _reason(item["error"])
    try:
        return _chunk(item)
    except RecursionError:  # arguments nested deeper than they can be walked
        return _UNREADABLE


def _merge(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    return Chunk(
        text="".join(chunk.text for chunk in chunks),
        thinking="".join(chunk.thinking for chunk in chunks),
        tool_calls=tuple(call for chunk in chunks for call in chunk.tool_calls),
        done=chunks[-1].done if chunks else None,
    )


def _chunk(item: dict[str, Any]) -> Chunk:
    message = item.get("message")
    if not isinstance(message, dict):
        message = {}
    calls = message.get("tool_calls")
    return Chunk(
        text=_text(message.get("content")),
        thinking=_text(message.get("thinking")),
        tool_calls=tuple(map(_tool_call, calls)) if isinstance(calls, list) else (),
        done=_done(item) if item.get("done") is True else None,
    )


def _tool_call(item: object) -> ToolCall:
    call = item if isinstance(item, dict) else {}
    function = call.get("function")
    if not isinstance(function, dict):
        function = {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        parsed = _json_object(arguments)
        arguments = arguments if parsed is None else parsed
    return ToolCall(_text(function.get("name")), _clean(arguments), _text(call.get("id")) or None)


def _done(item: dict[str, Any]) -> Done:
    return Done(
        reason=_text(item.get("done_reason")) or None,
        prompt_tokens=_count(item.get("prompt_eval_count")),
        reply_tokens=_count(item.get("eval_count")),
        total_ms=_milliseconds(item.get("total_duration")),
        load_ms=_milliseconds(item.get("load_duration")),
        prompt_ms=_milliseconds(item.get("prompt_eval_duration")),
        reply_ms=_milliseconds(item.get("eval_duration")),
    )


def _text(value: object) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def _clean(value: object) -> object:
    """Clean every text of a JSON value; a number that JSON can't write (1e999) becomes null."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _milliseconds(nanoseconds: object) -> float | None:
    count = _count(nanoseconds)
    return None if count is None else count / 1e6


def _model_info(name: str, listed: ollama.ListResponse.Model, shown: ollama.ShowResponse) -> ModelInfo:
    facts = shown.modelinfo or {}
    details = shown.details
    return ModelInfo(
        name=name,
        size_bytes=None if listed.size is None else int(listed.size),
        context_length=_count(facts.get(f"{facts.get('general.architecture')}.context_length")),
        # Servers from before capabilities were told list models for chat only.
        capabilities=tuple(shown.capabilities or ("completion",)),
        parameter_size=(details.parameter_size if details else None) or None,
        quantization=(details.quantization_level if details else None) or None,
    )
