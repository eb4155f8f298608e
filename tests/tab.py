"""A page behind a bad network: it sends until it is answered, and follows its chat over all its connections."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.replay import SNAPSHOT_LIMIT, Replica
from tests.server import Client, Json

Work = Callable[[], Awaitable[Json | None]]

# Of the sends whose reply was lost, so many are given up: whether they were stored is not known then.
GIVEN_UP = 0.1
# Before a tab comes back.
PAUSE_SECONDS = 0.02


@dataclass
class Tab:
    """A page behind a bad network: it sends until it is answered, and follows its chat over all its connections."""

    address: str
    chat_id: str
    chance: random.Random
    acknowledged: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    repeats: int = 0
    resumed: int = 0
    gaps: int = 0
    replica: Replica | None = None
    socket: ClientConnection | None = None

    async def send_all(self, count: int) -> None:
        for _ in range(count):
            await self._send(uuid.uuid4().hex)

    async def follow_to(self, seq: int) -> Json:
        """What the tab shows once it has that event."""
        return await self.until(lambda replica: replica.seq >= seq)

    async def until(self, condition: Callable[[Replica], bool]) -> Json:
        """What the tab shows once the condition holds."""
        while self.replica is None or not condition(self.replica):
            await self._listen()
        return {part: value for part, value in self.replica.shown.items() if part != "chat"}

    async def close(self) -> None:
        if self.socket is not None:
            self.socket.transport.abort()  # a goodbye would wait behind the frames that nobody reads
            await self.socket.wait_closed()

    async def _send(self, client_id: str) -> None:
        command = {"type": "message.send", "chat_id": self.chat_id, "client_id": client_id, "text": client_id}
        while True:
            reply = await self._within_connection(lambda: self._ask(command))
            if reply is None and self.chance.random() < GIVEN_UP:
                self.unknown.add(client_id)
                return
            if reply is None:
                self.repeats += 1
            elif reply["type"] == "ok":
                assert reply["message"]["client_id"] == client_id
                self.acknowledged.add(client_id)
                return
            else:
                assert reply["code"] == "turn_running", reply
                await self._listen()

    async def _listen(self) -> None:
        """Wait for the next frame; what opening the chat anew tells is news enough."""
        await self._within_connection(self._hear if self._is_open else _nothing)

    @property
    def _is_open(self) -> bool:
        return self.socket is not None and self.replica is not None

    async def _within_connection(self, work: Work) -> Json | None:
        """The work's result; None when the connection broke off before it was there."""
        try:
            if self.socket is None:
                self.socket = await connect(f"ws://{self.address}/ws", max_size=None)
                await self._open()
            elif self.replica is None:
                await self._open()
            return await work()
        except (ConnectionClosed, InvalidHandshake, OSError, EOFError):
            self.socket = None
            await asyncio.sleep(PAUSE_SECONDS)
            return None

    async def _open(self) -> None:
        position = {"epoch": self.replica.epoch, "after_seq": self.replica.seq} if self.replica else {}
        opened = await self._ask({"type": "chat.open", "chat_id": self.chat_id, "limit": SNAPSHOT_LIMIT, **position})
        if opened["type"] == "error":
            await self.close()
            raise ConnectionError(opened["message"])
        if opened["resumed"]:
            self.resumed += 1
        else:
            self.replica = Replica(opened)

    async def _ask(self, command: Json) -> Json:
        assert self.socket is not None
        ref = uuid.uuid4().hex
        await self.socket.send(json.dumps({**command, "ref": ref}))
        while (frame := await self._hear()).get("ref") != ref:
            pass
        return frame

    async def _hear(self) -> Json:
        """The next frame, taken in if it is an event of the chat."""
        assert self.socket is not None
        frame: Json = json.loads(await self.socket.recv())
        if frame["type"] not in ("ok", "error", "welcome") and frame.get("chat_id") == self.chat_id:
            self._take_in(frame)
        return frame

    def _take_in(self, event: Json) -> None:
        if self.replica is None or "seq" not in event:
            return
        seq: int = event["seq"]
        first = event.get("first_seq", seq)
        assert first > self.replica.seq, f"what is known came again: {event}"
        if first > self.replica.seq + 1:
            self.gaps += 1
            self.replica = None  # to be opened anew, as a page does
        else:
            self.replica.apply(event)


async def _nothing() -> None:
    """For which a connection alone is wanted."""


async def quiet(client: Client, chats: list[str]) -> None:
    """Wait until no turn runs any more."""
    await client.until(lambda: not any(_is_running(client, chat_id) for chat_id in chats))


def _is_running(client: Client, chat_id: str) -> bool:
    told = [event["chat"] for event in client.of("chat.updated") if event["chat"]["id"] == chat_id]
    return bool(told) and bool(told[-1]["turn_running"])
