"""Commands go to the replica that has their chat, and its answers come back."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from backend.connection import Connection, Dispatch, Result, carry_out
from backend.errors import Invalid
from backend.hub import Hub
from backend.protocol import (
    BadFrame,
    ChatClose,
    ChatExport,
    ChatHistory,
    ChatOpen,
    ChatSearch,
    Command,
    FactsGet,
    UnknownCommand,
    decode_command,
    encode_error,
    ref_of,
)
from backend.replicas.leases import Leases
from backend.replicas.line import Line, replica_channel
from backend.replicas.owner import ChatOf

# These read the database or touch their own socket alone.
ANYWHERE = (ChatClose, ChatExport, ChatHistory, ChatSearch, FactsGet)
# How often it is looked whether a replica that owes an answer is still there.
LOOK_SECONDS = 1.0
WAIT_SECONDS = 0.1


class Router:
    def __init__(self, hub: Hub, line: Line, leases: Leases, dispatch: Dispatch, chat_of: ChatOf) -> None:
        self._hub = hub
        self._line = line
        self._leases = leases
        self._dispatch = dispatch
        self._chat_of = chat_of
        self._answers: dict[str, asyncio.Future[str | None]] = {}
        self._is_leaving = False
        self._serving: set[asyncio.Task[None]] = set()

    async def dispatch(self, connection: Connection, command: Command) -> Result | None:
        """Carry out a command where its chat is. Raises NotFound or Unreachable."""
        chat_id = None if isinstance(command, ANYWHERE) else await self._chat_of(connection.user, command)
        if chat_id is None:
            return await self._dispatch(connection, command)
        if isinstance(command, ChatOpen) and not self._leases.owns(chat_id) and await connection.resume(command):
            return None  # from the log alone, whoever has the chat
        while (answer := await self.ask(chat_id, connection.user, command)) is not None:
            if await self._take(connection, command, answer):
                return None
            await asyncio.sleep(WAIT_SECONDS)
        with self._leases.using(chat_id):
            return await self._dispatch(connection, command)

    async def ask(self, chat_id: str, user: str, command: Command) -> str | None:
        """The reply of the replica that has the chat; None when that is this one. Raises Unreachable."""
        while (owner := await self._leases.owner_of(chat_id)) != self._line.replica:
            answer = await self._ask(owner, chat_id, user, command)
            if answer is not None:
                return answer
            await asyncio.sleep(WAIT_SECONDS)  # the chat is on its way to somebody else
        return None

    def heard(self, text: str) -> None:
        """Another replica asks something of this one, or answers it."""
        message = json.loads(text)
        if "command" in message:
            task = asyncio.create_task(self._serve(message))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        elif (answer := self._answers.get(message["id"])) is not None and not answer.done():
            answer.set_result(message["frame"])

    async def leave(self) -> None:
        """Have the others wait with their commands until their chats are nobody's; finish what they have asked before."""
        self._is_leaving = True
        if self._serving:
            await asyncio.wait(self._serving, timeout=LOOK_SECONDS)

    async def close(self) -> None:
        """Whoever still waits for an answer then asks this one's successor."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _ask(self, owner: str, chat_id: str, user: str, command: Command) -> str | None:
        """The owner's reply as a frame; None when it is not the owner any more. A command that is asked twice does its work once."""
        request = uuid.uuid4().hex
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        try:
            question = {"id": request, "from": self._line.replica, "chat_id": chat_id, "user": user}
            self._line.tell(replica_channel(owner), question | {"command": command.model_dump_json(exclude_unset=True)})
            while not answer.done():
                await asyncio.wait({answer}, timeout=LOOK_SECONDS)
                if not answer.done() and await self._leases.holder(chat_id) != owner:
                    return None
            return answer.result()
        finally:
            del self._answers[request]

    async def _serve(self, message: dict[str, Any]) -> None:
        """Carry out what another replica asks for; no frame when the chat is not this one's, or not for long."""
        frame, chat_id = None, message["chat_id"]
        if self._leases.is_draining:
            self._leases.drain()  # or people who write at once would keep this replica up
        if not self._is_leaving and self._leases.owns(chat_id) and await self._leases.owner_of(chat_id) == self._line.replica:
            with self._leases.using(chat_id):
                frame = await self._answer(message["user"], message["command"])
        self._line.tell(replica_channel(message["from"]), {"id": message["id"], "frame": frame})

    async def _answer(self, user: str, text: str) -> str | None:
        connection = Connection(self._hub, user)
        try:
            command = decode_command(text)
        except (BadFrame, UnknownCommand, Invalid):
            reason = "The server that has this chat is of another version; try again when the upgrade is over."
            return encode_error(ref_of(text), "internal", reason)
        await carry_out(connection, command, self._dispatch)
        self._hub.detach(connection.outbox)  # what it opened is opened at the replica that asks
        return await connection.outbox.take()

    async def _take(self, connection: Connection, command: Command, frame: str) -> bool:
        """Hand on the owner's reply; a snapshot's socket gets what came after it. False when the log does not reach back to it."""
        if isinstance(command, ChatOpen) and "seq" in (opened := json.loads(frame)):
            outbox = connection.outbox
            return await self._hub.resume(command.chat_id, opened["epoch"], opened["seq"], outbox, lambda _: outbox.put_reply(frame))
        connection.outbox.put_reply(frame)
        return True
