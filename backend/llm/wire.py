"""Ollama's wire as pure functions: the bytes of a reply as chunks, a refusal's body as its reason.

No I/O; `model.py` does that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import from_json

from backend.errors import CleanroomError, ContextExceeded, ModelBusy, ModelError, ModelNotFound, ModelUnavailable
from backend.text import clean_text

# A person reads an error in one breath; some servers send a page.
REASON_CHARACTERS = 300
# What a balancer calls its servers: short names, told in a sentence and under each reply.
HOST_CHARACTERS = 64
# A tool call comes as one line whatever its size; a line without an end must not fill the memory.
LINE_BYTES = 32 * 1024 * 1024

# The cache holds half-precision numbers unless the server is told otherwise.
KV_NUMBER_BYTES = 2
# Families that take a level of thinking in place of on and off.
ALWAYS_THINKING = ("gptoss", "gpt-oss")

# What a pull's failure says, in part, and what the person is told.
_PULL_FAILURES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("no space left", "not enough space", "disk full", "disk quota"),
        "The disk where Ollama keeps its models is full. Make room and pull again: it goes on where it stopped.",
    ),
    (("newer version of ollama",), "This model needs a newer Ollama. Update Ollama and pull again."),
    (
        ("dial tcp", "no such host", "lookup ", "unreachable", "timeout", "deadline", "connection re", "tls", "max retries", "eof", "stalled"),
        "Ollama can't reach the library of models, or lost it on the way. Look at the network and pull again: it goes on where it stopped.",
    ),
)

# What the fast parser refuses is read by this one. Not strict: a raw control character inside a string loses no line.
_LENIENT = json.JSONDecoder(strict=False)


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


class Chunk(NamedTuple):
    """All lines of one socket read: their texts joined, their calls in order. One comes with each token: a frozen dataclass takes twice as long."""

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    done: Done | None = None
    host: str | None = None
    """Which of several servers answers, as the balancer before them names it; in a reply's first chunk."""

    @property
    def says_something(self) -> bool:
        return bool(self.text or self.thinking or self.tool_calls)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that can hold a conversation. None where the server does not say."""

    name: str
    size_bytes: int | None
    context_length: int | None
    capabilities: tuple[str, ...]
    parameter_size: str | None
    quantization: str | None
    kv_bytes_per_token: int | None = None
    # Knows how hard to think, but not how not to.
    thinks_always: bool = False


@dataclass(frozen=True, slots=True)
class PullStep:
    """One line of a pull: what the server does, and how far it has come with one of the model's files."""

    status: str
    digest: str | None = None
    completed: int | None = None
    total: int | None = None


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
        if end is not None and json_object(self._rest) is not None:
            lines.append(self._rest)  # whole but for its line end
        chunks = [chunk for line in lines if (chunk := self._read(line)) is not None]
        if not self.ended:
            self.failure = end if len(self._rest) <= LINE_BYTES else Reason("it sent a line without an end")
        return _merge(chunks) if chunks else NOTHING

    def _read(self, line: bytearray) -> Chunk | None:
        """What a line adds to the reply: nothing when it is blank, is a failure or comes after the end."""
        if self.ended or not line.strip():
            return None
        read = _read_line(line)
        if isinstance(read, Reason):
            self.failure = read
            return None
        self.began = True
        self.done = read.done is not None
        return read


NOTHING = Chunk()
_UNREADABLE = Reason("it sent a line that can't be read")


def refusal(status: int, reason: Reason, model: str, *, url: str, host: str | None = None) -> CleanroomError:
    """The error that an answer of another status than 200 stands for. `host` is the server that gave it, where a balancer said so."""
    if reason.is_context_exceeded:
        return context_exceeded(reason)
    # Only a model server words it so: a bare 404 comes from something else that listens there.
    if status == 404 and "not found" in reason.text.lower():
        return ModelNotFound(f"The model server has no model {model!r}. Get it with `ollama pull {model}`, or choose another.")
    if status == 503 and reason.text:
        return ModelBusy(f"{server_named(host)} has no free place now (503). Try again in a moment.")
    # Ollama always gives a reason: these come from a balancer that got no answer for us.
    if status == 503:
        return ModelBusy(f"No model server is free behind {url} (503). Try again in a moment.")
    if status in (502, 504) and not reason.text:
        return ModelUnavailable(f"No model server could be reached behind {url} ({status}): it is gone, or took too long. Try again, or look whether it runs.")
    words = f": {reason.text}" if reason.text else " without a reason."
    return ModelUnavailable(f"{server_named(host)} refused with status {status}{words}")


def server_named(host: str | None) -> str:
    """The model server as a sentence begins with it."""
    return "The model server" if host is None else f"The model server {host}"


def host_in(header: str | None) -> str | None:
    """The name of a server in a balancer's header, fit to be shown; None when there is none."""
    name = " ".join(clean_text(header or "").split())[:HOST_CHARACTERS]
    return name if name.isprintable() and name else None


def context_exceeded(reason: Reason) -> ContextExceeded:
    if reason.prompt_tokens is None or reason.window_tokens is None:
        return ContextExceeded(f"The messages don't fit the model's window: {reason.text}")
    return ContextExceeded(
        f"The messages need {reason.prompt_tokens} tokens, but the model's window holds {reason.window_tokens}. "
        "Shorten the message, or give the model a larger window."
    )


def refuses_thinking(status: int, reason: Reason) -> bool:
    """Whether the server refuses what was asked of the model's thinking: none at all, or no levels of it."""
    return status == 400 and "think" in reason.text.lower()


def pull_failure(name: str, reason: Reason) -> ModelError:
    """The error that a pull's `error` line, or its refusal, stands for."""
    text = reason.text.lower()
    if "file does not exist" in text or ("not found" in text and "model" in text) or "manifest unknown" in text:
        return ModelNotFound(f"There is no model '{name}' to pull. Look at its spelling, and at the part after the colon.")
    words = next((words for marks, words in _PULL_FAILURES if any(mark in text for mark in marks)), None)
    return ModelUnavailable(words or f"Ollama could not pull '{name}': {reason.text or 'it gave no reason'}")


def reason_in(body: bytes) -> Reason:
    """The reason in a refusal's body; none unless it is Ollama's own JSON, so that no page is passed on."""
    item = json_object(body)
    return Reason("") if item is None else reason_of(item.get("error"))


def reason_of(error: object) -> Reason:
    """Read an `error` field. llama.cpp's own JSON may stand in it as a string: that is unwrapped once."""
    inner = (json_object(error) if isinstance(error, str) else error) or error
    if isinstance(inner, dict):
        inner = inner.get("error", inner)
    if isinstance(inner, dict):
        return Reason(_readable(inner.get("message")), count_of(inner.get("n_prompt_tokens")), count_of(inner.get("n_ctx")))
    return Reason(_readable(inner))


def _readable(text: object) -> str:
    if not isinstance(text, str) or text.lstrip().startswith("<") or "<html" in text.lower():
        return ""
    text = " ".join(clean_text(text[: REASON_CHARACTERS * 4]).split())
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"


def json_object(text: str | bytes | bytearray) -> dict[str, Any] | None:
    try:
        item = from_json(text, cache_strings="keys")
    except ValueError:
        item = _leniently(text)
    return item if isinstance(item, dict) else None


def _leniently(text: str | bytes | bytearray) -> object:
    """JSON with control characters, half a surrogate pair, broken UTF-8 or more than 200 levels in it; None when it is none."""
    if not isinstance(text, str):
        text = text.decode("utf-8", "replace")
    try:
        return _LENIENT.decode(text)
    except (ValueError, RecursionError):
        return None


def _read_line(line: bytearray) -> Chunk | Reason:
    """A line's chunk, or the reason why the reply ends with it."""
    item = json_object(line)
    if item is None:
        return _UNREADABLE
    if item.get("error") is not None:
        return reason_of(item["error"])
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
        done=chunks[-1].done,
    )


def _chunk(item: dict[str, Any]) -> Chunk:
    message = item.get("message")
    if not isinstance(message, dict):
        message = {}
    calls = message.get("tool_calls")
    return Chunk(
        text=_text(message.get("content")),
        thinking=_text(message.get("thinking")),
        tool_calls=tuple(map(tool_call, calls)) if isinstance(calls, list) else (),
        done=_done(item) if item.get("done") is True else None,
    )


def tool_call(item: object) -> ToolCall:
    call = item if isinstance(item, dict) else {}
    function = call.get("function")
    if not isinstance(function, dict):
        function = {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        parsed = json_object(arguments)
        arguments = arguments if parsed is None else parsed
    return ToolCall(_text(function.get("name")), _clean(arguments), _text(call.get("id")) or None)


def _done(item: dict[str, Any]) -> Done:
    return Done(
        reason=_text(item.get("done_reason")) or None,
        prompt_tokens=count_of(item.get("prompt_eval_count")),
        reply_tokens=count_of(item.get("eval_count")),
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


def kv_bytes_per_token(facts: Mapping[str, Any]) -> int | None:
    """What a token of the context takes in memory, from a model's facts as `/api/show` tells them; None when it tells too few.

    That is the plain attention cache in half precision. For a model whose layers look back through a sliding window,
    share their caches or keep them compressed it is an upper bound.
    """
    architecture = facts.get("general.architecture")
    layers, length = (count_of(facts.get(f"{architecture}.{name}")) for name in ("block_count", "embedding_length"))
    attention = f"{architecture}.attention"
    heads = facts.get(f"{attention}.head_count")
    # A list has a number for each layer, 0 where the layer keeps something else than attention.
    shared = facts.get(f"{attention}.head_count_kv", heads)
    count = sum(map(_count, shared[:layers])) if isinstance(shared, list) else _count(shared) * (layers or 0)
    fewest = min((_count(item) for item in (heads if isinstance(heads, list) else [heads]) if _count(item)), default=0)
    head_length = (length or 0) // fewest if fewest else 0
    key, value = (_count(facts.get(f"{attention}.{name}", head_length)) for name in ("key_length", "value_length"))
    return count * (key + value) * KV_NUMBER_BYTES or None


def _count(value: object) -> int:
    return count_of(value) or 0


def count_of(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _milliseconds(nanoseconds: object) -> float | None:
    count = count_of(nanoseconds)
    return None if count is None else count / 1e6
