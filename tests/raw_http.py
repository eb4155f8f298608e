"""HTTP by hand: requests that no client would send, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from websockets.frames import Frame, Opcode

PATIENCE_SECONDS = 10

HANDSHAKE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")


@dataclass(frozen=True)
class Answer:
    """A response; names of headers in lower case, of several equal ones the last."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> bytes:
        """The body without its compression."""
        return gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body


async def ask(address: str, target: str = "/", *lines: str, method: str = "GET", host: str | None = "") -> Answer:
    """Send one request and read its answer. `host` is the server's own when empty; None sends no Host header."""
    named = [f"Host: {host or address}"] if host is not None else []
    head = "\r\n".join([f"{method} {target} HTTP/1.1", *named, *lines, "", ""])
    name, _, port = address.rpartition(":")
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(name, int(port))
        try:
            writer.write(head.encode("latin-1"))
            return await _read(reader, has_body=method != "HEAD")
        finally:
            writer.close()
            await writer.wait_closed()


async def shake_hands(address: str, *lines: str, target: str = "/ws", host: str | None = "") -> Answer:
    """Ask for a WebSocket."""
    return await ask(address, target, *HANDSHAKE, *lines, host=host)


class UnreadSocket:
    """A WebSocket that reads only when it is told to: the server's frames wait, as bytes, on their way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.read = reader.read
        self.readuntil = reader.readuntil

    def send(self, text: str) -> None:
        self._writer.write(Frame(Opcode.TEXT, text.encode()).serialize(mask=True))

    async def say_goodbye(self) -> None:
        self._writer.write(Frame(Opcode.CLOSE, (1000).to_bytes(2, "big")).serialize(mask=True))
        await self._writer.drain()


@asynccontextmanager
async def unread_socket(address: str, *frames: str) -> AsyncIterator[UnreadSocket]:
    """Open a WebSocket, send text frames and read nothing."""
    name, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write("\r\n".join(["GET /ws HTTP/1.1", f"Host: {address}", *HANDSHAKE, "", ""]).encode())
        await reader.readuntil(b"\r\n\r\n")
        opened = UnreadSocket(reader, writer)
        for frame in frames:
            opened.send(frame)
        yield opened
    finally:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader, *, has_body: bool) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.strip().split("\r\n")
    status = int(status_line.split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if status in (101, 204, 304) or not has_body:
        return Answer(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, headers, await _chunks(reader))
    return Answer(status, headers, await reader.readexactly(int(headers["content-length"])))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    return body
