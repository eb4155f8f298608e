"""Frames of every kind: each gets exactly one reply or a named close, never `internal`, and the server goes on.

python -m tests.faults.fuzz_frames --minutes 3
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from backend import rate_limit
from backend.app import frame_bytes
from backend.errors import Invalid
from backend.protocol import BadFrame, UnknownCommand, decode_command, encode_error, ref_of
from tests.fake_ollama import FakeModel, FakeOllama
from tests.faults import fuzzing
from tests.faults.fuzzing import ODD, Check
from tests.raw_http import HANDSHAKE
from tests.server import Client, Json, make_settings, running
from tests.test_protocol import BAD_FRAMES, FIELDS, JSON, TYPES

PATIENCE_SECONDS = 20
MAX_MESSAGE_BYTES = 1_024
TOO_BIG = 1009
# How uvicorn logs what it closes with 1007.
CLIENTS_FAULT = "Invalid UTF-8 sequence received from client."
REFUSALS = {
    "bad_frame", "unknown_command", "invalid", "not_found", "turn_running", "too_large", "conflict", "model_unavailable", "model_not_found", "tool_failed",
}  # fmt: skip

# Stand for what is there, so that frames come further than the first look.
CHAT, OTHER_CHAT = "{chat}", "{other}"
TOOLS = ["task_add", "task_list", "task_complete", "note_save", "system_prompt_draft", "system_prompt_apply", "snapshot_take", "data_query"]
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "chat_id": st.sampled_from([CHAT, OTHER_CHAT]),
    "message_id": st.integers(0, 40),
    "before_id": st.integers(0, 40),
    "index": st.integers(0, 4),
    "client_id": st.text(min_size=1, max_size=3),
    "text": st.text(min_size=1),
    "title": st.text(min_size=1),
    "tool": st.sampled_from(TOOLS),
    "arguments": st.dictionaries(st.sampled_from(["title", "content", "id", "label", "sql", "version"]), st.integers(-1, 9) | st.text(min_size=1), max_size=2),
    "answer": st.sampled_from(["yes", "no", "allow", "deny"]),
    "format": st.sampled_from(["json", "markdown"]),
    "hidden": st.booleans(),
    "query": st.text(),
    "limit": st.integers(0, 501),
    "name": st.sampled_from(["fake:tools", "nowhere", "new:1b"]),
    "num_ctx": st.none() | st.sampled_from([255, 2048]),
    "content": ODD.map(json.dumps) | st.text(),
    "after_seq": st.integers(0, 50),
}
COMMANDS = st.fixed_dictionaries({"type": st.sampled_from(TYPES)}, optional={field: LIKELY.get(field, ODD) | ODD for field in FIELDS})
LIKELY_COMMANDS = st.fixed_dictionaries({"type": st.sampled_from(TYPES), **LIKELY})


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A command's text with a few places cut out, doubled or written over."""
    text = json.dumps(draw(COMMANDS | LIKELY_COMMANDS))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 20)))
        text = text[:start] + draw(st.sampled_from(["", text[start:end] * 2]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)) + text[end:]
    return text


TEXTS = st.one_of(
    st.text(),
    JSON.map(json.dumps),
    COMMANDS.map(json.dumps),
    LIKELY_COMMANDS.map(json.dumps),
    LIKELY_COMMANDS.map(lambda command: json.dumps(command, ensure_ascii=False)),
    mangled(),
    st.sampled_from(list(BAD_FRAMES.values())),
)
SIZES = st.sampled_from([MAX_MESSAGE_BYTES, 60_000, 2**16 + 3 * MAX_MESSAGE_BYTES, 100_000]).map("x".__mul__)
FRAMES = st.one_of(TEXTS, TEXTS, TEXTS, st.binary(max_size=30), SIZES).filter(lambda frame: isinstance(frame, bytes) or is_utf8(frame))


def is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def decode(frame: str) -> None:
    """A command, or one of three refusals that can be told and name the frame's own ref."""
    try:
        command = decode_command(frame)
    except (BadFrame, UnknownCommand, Invalid):
        ref = json.loads(encode_error(ref_of(frame), "invalid", "no"))["ref"]
        assert ref is None or isinstance(ref, str)
    else:
        command.model_dump_json().encode()


class ErrorLog(logging.Handler):
    """The errors that were logged and that are the server's own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() != CLIENTS_FAULT:
            self._errors.append(record.getMessage())

    def check(self) -> None:
        errors, self._errors = self._errors, []
        assert not errors, errors


class Server:
    """A running server; one socket that is fuzzed, and one that has to be served all the while."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._runner = asyncio.Runner()
        self._log = ErrorLog()
        self._socket: ClientConnection | None = None

    def open(self, folder: Path) -> None:
        logging.getLogger().addHandler(self._log)
        self._runner.run(self._open(folder))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()
        logging.getLogger().removeHandler(self._log)

    def answers(self, frame: str | bytes) -> None:
        self._runner.run(self._answers(frame))
        self._log.check()

    def survives(self, data: bytes) -> None:
        self._runner.run(self._survives(data))
        self._log.check()

    async def _open(self, folder: Path) -> None:
        fake = await self._stack.enter_async_context(FakeOllama([FakeModel()]))
        self._settings = make_settings(folder, fake, max_message_bytes=MAX_MESSAGE_BYTES)
        self._address = await self._stack.enter_async_context(running(self._settings))
        self._other = await self._stack.enter_async_context(Client.connect(self._address))
        self._chats = [await self._other.new_chat() for _ in range(2)]

    async def _answers(self, frame: str | bytes) -> None:
        """Send the frame and a question after it: two answers have to come, and no third one before the next two."""
        if isinstance(frame, str):
            frame = frame.replace(CHAT, self._chats[0]).replace(OTHER_CHAT, self._chats[1])
        self._socket = self._socket or await self._connected()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answers = await self._answers_to(self._socket, frame)
        except ConnectionClosed as closed:
            self._socket = None
            code = closed.rcvd.code if closed.rcvd else None
        else:
            code = None
            assert len(answers) == 1, answers
            assert answers[0]["type"] == "ok" or answers[0]["code"] in REFUSALS, answers
        assert (code == TOO_BIG) == (len(frame) > frame_bytes(self._settings)), "a frame over the limit closes the socket, and no other does"
        await self._put_back()

    async def _answers_to(self, socket: ClientConnection, frame: str | bytes) -> list[Json]:
        """The replies up to that to a question which is sent behind the frame, and at least one."""
        last, answers, is_answered = uuid.uuid4().hex, list[Json](), False
        await socket.send(frame)
        await socket.send(json.dumps({"type": "tool.list", "ref": last}))
        while not (is_answered and answers):
            answer = json.loads(await socket.recv())
            if answer.get("ref") == last:
                is_answered = True
            elif answer["type"] in ("ok", "error"):
                answers.append(answer)
        return answers

    async def _put_back(self) -> None:
        """Whatever the frame did, there are two chats again, and the other socket is served."""
        here = [event["chat_id"] for event in self._other.of("chat.deleted")]
        self._chats = [chat_id if chat_id not in here else await self._other.new_chat() for chat_id in self._chats]
        self._other.events.clear()
        await self._other.ok("tool.list")

    async def _connected(self) -> ClientConnection:
        socket = await self._stack.enter_async_context(connect(f"ws://{self._address}/ws", max_size=None))
        assert json.loads(await socket.recv())["type"] == "welcome"
        return socket

    async def _survives(self, data: bytes) -> None:
        """Bytes where frames are expected, then the end: the server ends the connection and serves the other socket."""
        name, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(name, int(port))
        async with asyncio.timeout(PATIENCE_SECONDS):
            writer.write("\r\n".join(["GET /ws HTTP/1.1", f"Host: {self._address}", *HANDSHAKE, "", ""]).encode())
            await reader.readuntil(b'"type":"welcome"')
            writer.write(data)
            writer.write_eof()
            with suppress(ConnectionResetError):
                await reader.read()
            await self._put_back()
        writer.close()


# Frames as bytes: opcode and flags, a length that may lie, a mask or none.
OPCODES = st.sampled_from([0x01, 0x02, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8A])
RAW_FRAMES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(lambda head, rest: head + rest, st.binary(min_size=2, max_size=2), st.binary(max_size=40)),
        st.builds(lambda opcode, text: bytes([opcode, 0x80 | len(text), 0, 0, 0, 0]) + text, OPCODES, st.binary(max_size=60)),
    ),
    max_size=4,
).map(b"".join)


@contextmanager
def target() -> Iterator[dict[str, Check]]:
    with TemporaryDirectory() as folder, patch.object(rate_limit, "PER_SECOND", 1e9):
        server = Server()
        server.open(Path(folder))
        try:
            yield {
                "frames decoded": Check(TEXTS, decode),
                "frames answered": Check(FRAMES, server.answers),
                "bytes on a socket": Check(RAW_FRAMES, server.survives),
            }
        finally:
            server.close()


if __name__ == "__main__":
    fuzzing.main(target, __doc__)
