"""A model server that says nothing but the time: each token is the moment at which it was written.

`python -m benchmarks.scripted_model` prints its address and speaks as much of Ollama's HTTP as a chat needs. The
newest message says what is wanted: `100 tokens at 50` are 100 tokens at 50 a second, `at 0` as fast as they are taken.
A token is a space and the nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import uvloop

MODEL = "scripted:latest"
_DETAILS = {"family": "llama", "parameter_size": "8B", "quantization_level": "Q4_K_M"}
_LISTED = {"name": MODEL, "model": MODEL, "size": 4_000_000_000, "digest": "0" * 64, "details": _DETAILS}
_FACTS = {"general.architecture": "llama", "llama.context_length": 32_768}
_ANSWERS: dict[str, dict[str, Any]] = {
    "/api/version": {"version": "0.33.0"},
    "/api/tags": {"models": [_LISTED]},
    "/api/ps": {"models": []},
    "/api/show": {"details": _DETAILS, "model_info": _FACTS, "capabilities": ["completion"]},
}
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n\r\n"
_STREAM_HEAD = _HEAD % (b"application/x-ndjson", b"Transfer-Encoding: chunked")
_TOKEN = b'{"model":"scripted:latest","created_at":"2026-01-02T03:04:05.678901Z","message":{"role":"assistant","content":" %d"},"done":false}\n'
_LAST = b'{"model":"scripted:latest","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":100,"eval_count":%d}\n'
# A reply without pauses is written faster than token by token, so that the writer is not what is measured.
BURST_TOKENS = 64


def ask(count: int, rate: float) -> str:
    """The message that asks for so many tokens at so many a second (0: no pause)."""
    return f"{count} tokens at {rate:g}"


def stamps(text: str) -> list[int]:
    """The moments at which the tokens of some text were written, in nanoseconds."""
    return [int(stamp) for stamp in text.split()]


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request after the other until the client goes."""
    try:
        while True:
            path, body = await _read_request(reader)
            if path == "/api/chat":
                await _stream(writer, *_wanted(body))
            else:
                answer = json.dumps(_ANSWERS[path]).encode()
                writer.write(_HEAD % (b"application/json", b"Content-Length: %d" % len(answer)) + answer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next((int(line.partition(":")[2]) for line in head.splitlines() if line.startswith("content-length:")), 0)
    return head.split()[1], await reader.readexactly(length)


def _wanted(body: bytes) -> tuple[int, float]:
    """How many tokens, and how many a second, the newest message asks for."""
    asked = json.loads(body)["messages"]
    count, _, _, rate = next(message["content"] for message in reversed(asked) if message["role"] == "user").split()
    return int(count), float(rate)


async def _stream(writer: asyncio.StreamWriter, count: int, rate: float) -> None:
    writer.write(_STREAM_HEAD)
    began = time.monotonic()
    for number in range(count) if rate else range(0, count, BURST_TOKENS):
        if rate:
            await asyncio.sleep(began + number / rate - time.monotonic())
        if writer.is_closing():
            return
        writer.write(b"".join(_chunk(_TOKEN % time.monotonic_ns()) for _ in range(1 if rate else min(BURST_TOKENS, count - number))))
        await writer.drain()
    writer.write(_chunk(_LAST % count) + b"0\r\n\r\n")


def _chunk(line: bytes) -> bytes:
    """A line as an HTTP chunk of its own, as Ollama sends it."""
    return b"%x\r\n%s\r\n" % (len(line), line)


async def serve() -> None:
    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(f"Scripted model at http://{host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
