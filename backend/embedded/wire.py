"""Ollama's HTTP in words: its requests read into llama.cpp's, llama.cpp's events told as its lines.

Knows no socket and no process. A prompt is never cut to fit, whatever `truncate` says: one that is
too long is refused with both numbers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic_ns
from typing import Any

from backend.embedded.gguf import ModelFile
from backend.text import clean_text

# SmolLM2 answers nonsense without a system message.
DEFAULT_SYSTEM_MESSAGE = {"role": "system", "content": "You are a helpful assistant."}

# Room for the context is taken at the start, and a large model's own can be more than the machine has.
MAX_CONTEXT_TOKENS = 8192

# A model this small tells the capital of France at its likeliest words and nonsense beside them; the penalty
# keeps it from saying the same sentence for ever.
DEFAULT_OPTIONS = {"temperature": 0, "repeat_penalty": 1.1}

# A reply that stands last goes on where it ends, which llama.cpp refuses to models that would think first.
GOES_ON = {"chat_template_kwargs": {"enable_thinking": False}}

NUMBER = (int, float)

# Ollama's name of an option: llama.cpp's name, and what its value may be.
OPTIONS: dict[str, tuple[str, tuple[type, ...]]] = {
    "temperature": ("temperature", NUMBER),
    "top_p": ("top_p", NUMBER),
    "top_k": ("top_k", (int,)),
    "min_p": ("min_p", NUMBER),
    "repeat_penalty": ("repeat_penalty", NUMBER),
    "presence_penalty": ("presence_penalty", NUMBER),
    "frequency_penalty": ("frequency_penalty", NUMBER),
    "seed": ("seed", (int,)),
    "num_predict": ("max_tokens", (int,)),
    "stop": ("stop", (str, list)),
}


class Refused(Exception):
    """No reply, or no more of it. `status` is for when nothing was sent yet, `text` for the `error` field."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True)
class Model:
    """The one model that answers, in the words of `/api/tags`, `/api/ps` and `/api/show`."""

    name: str
    file: ModelFile

    @property
    def context_tokens(self) -> int:
        return min(self.file.context_tokens, MAX_CONTEXT_TOKENS)

    def check_name(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            raise Refused(400, "model is required")
        if tagged(name) != tagged(self.name):
            raise Refused(404, f"model '{name}' not found")

    def listed(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": timestamp(self.file.modified_at),
            "size": self.file.size_bytes,
            "details": self._details(),
        }

    def running(self) -> dict[str, Any]:
        """The model stays loaded for as long as the process lives, which has no date."""
        return self.listed() | {"size_vram": 0, "context_length": self.context_tokens}

    def shown(self) -> dict[str, Any]:
        architecture = self.file.architecture
        return {
            "modified_at": timestamp(self.file.modified_at),
            "details": self._details(),
            "capabilities": ["completion"],
            "model_info": {
                "general.architecture": architecture,
                f"{architecture}.context_length": self.context_tokens,
            },
        }

    def _details(self) -> dict[str, Any]:
        return {
            "format": "gguf",
            "family": self.file.architecture,
            "families": [self.file.architecture],
            "parameter_size": self.file.parameter_size,
        }


@dataclass(frozen=True)
class ChatRequest:
    stream: bool
    messages: list[dict[str, str]]
    options: dict[str, Any]

    def for_engine(self) -> dict[str, Any]:
        """The request as llama.cpp takes it, always as a stream: only a stream ends when its reader leaves."""
        messages = self.messages
        if all(message["role"] != "system" for message in messages):
            messages = [DEFAULT_SYSTEM_MESSAGE, *messages]
        body = DEFAULT_OPTIONS | self.options | {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        return body | GOES_ON if messages[-1]["role"] == "assistant" else body


def tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def timestamp(seconds: float | None = None) -> str:
    """RFC 3339 of the given time, or of now."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat().replace("+00:00", "Z")


def read_object(body: bytes) -> dict[str, Any]:
    if not body:
        raise Refused(400, "missing request body")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the request body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refused(400, "the request body must be a JSON object")
    return value


def read_chat(body: bytes, model: Model) -> ChatRequest:
    """Read the body of `/api/chat`. Raises Refused with what Ollama would answer."""
    request = read_object(body)
    model.check_name(request.get("model"))
    if request.get("tools"):
        raise Refused(400, f"{model.name} does not support tools")
    if request.get("think"):
        raise Refused(400, f'"{model.name}" does not support thinking')
    if request.get("format"):
        raise Refused(400, f"{model.name} does not support format")
    messages = request.get("messages") or []
    if not isinstance(messages, list):
        raise Refused(400, "messages must be a list")
    return ChatRequest(
        stream=request.get("stream") is not False,
        messages=[_read_message(message) for message in messages],
        options=_read_options(request.get("options") or {}),
    )


def _read_message(message: Any) -> dict[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise Refused(400, "each message must be an object with a role")
    content = message.get("content") or ""
    if not isinstance(content, str):
        raise Refused(400, "a message's content must be a string")
    if message.get("images"):
        raise Refused(400, "the model does not support images")
    return {"role": role.lower(), "content": clean_text(content)}


def _read_options(given: Any) -> dict[str, Any]:
    """Unknown options are ignored, as Ollama does. So is `num_ctx`: the window is the one that `/api/show` tells."""
    if not isinstance(given, dict):
        raise Refused(400, "options must be an object")
    options: dict[str, Any] = {}
    for name, (engine_name, kinds) in OPTIONS.items():
        value = given.get(name)
        if value is None:
            continue
        if type(value) not in kinds:
            raise Refused(400, f'option "{name}" has a value of the wrong type')
        options[engine_name] = value
    if options.get("max_tokens", 0) < 0:
        options["max_tokens"] = -1  # any negative number means "no limit" to Ollama, only this one to llama.cpp
    return options


async def reply_lines(events: AsyncIterator[dict[str, Any]], model: Model, started_ns: int, load_ns: int) -> AsyncIterator[dict[str, Any]]:
    """Tell llama.cpp's events as the lines of a reply. Raises Refused when they end too early."""
    reason = ""
    async for event in events:
        for choice in event["choices"]:
            reason = choice["finish_reason"] or reason
            if text := choice["delta"].get("content"):
                yield _line(model, text)
        if usage := event.get("usage"):  # only the last event has it; text may come with timings too
            yield _line(model, "", done_reason=reason) | _metrics(usage, event["timings"], started_ns, load_ns)
            return
    raise Refused(500, "the model stopped in the middle of its reply")


def load_line(model: Model, started_ns: int) -> dict[str, Any]:
    """The answer to a chat without messages, which only asks for the model to be loaded."""
    return _line(model, "", done_reason="load") | {"total_duration": monotonic_ns() - started_ns}


def _line(model: Model, text: str, *, done_reason: str | None = None) -> dict[str, Any]:
    line: dict[str, Any] = {
        "model": model.name,
        "created_at": timestamp(),
        "message": {"role": "assistant", "content": text},
        "done": done_reason is not None,
    }
    return line | {"done_reason": done_reason} if done_reason else line


def _metrics(usage: dict[str, int], timings: dict[str, float], started_ns: int, load_ns: int) -> dict[str, int]:
    """Ollama's counts and nanoseconds; `prompt_tokens` includes what the prefix cache spared."""
    return {
        "total_duration": monotonic_ns() - started_ns,
        "load_duration": load_ns,
        "prompt_eval_count": usage["prompt_tokens"],
        "prompt_eval_duration": round(timings["prompt_ms"] * 1_000_000),
        "eval_count": usage["completion_tokens"],
        "eval_duration": round(timings["predicted_ms"] * 1_000_000),
    }
