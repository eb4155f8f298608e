"""A page's side of Cleanroom's socket: commands and what they are answered with, on whichever client carries the frames."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

Json = dict[str, Any]


class CleanroomPage(ABC):
    """What is used one command after the other; events that come before a command's reply are passed over."""

    @abstractmethod
    async def send_text(self, text: str) -> None: ...

    @abstractmethod
    async def next_frame(self) -> Json:
        """Raises ConnectionError when the server ends the socket."""

    async def send(self, kind: str, **fields: object) -> None:
        """Send a command and wait for nothing."""
        await self.send_text(json.dumps({"type": kind, "ref": kind, **fields}))

    async def command(self, kind: str, **fields: object) -> Json:
        """Send a command and wait for its reply. Raises ConnectionError when it is refused."""
        await self.send(kind, **fields)
        while (frame := await self.next_frame()).get("ref") != kind:
            pass
        if frame["type"] == "error":
            raise ConnectionError(frame["message"])
        return frame

    async def new_chat(self, **fields: object) -> str:
        """Make a chat and watch it; its id."""
        chat_id = str((await self.command("chat.create", **fields))["chat"]["id"])
        await self.command("chat.open", chat_id=chat_id)
        return chat_id
