"""Plays a conversation with the product itself, in a database of its own, as its page would."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.llm.wire import ToolCall
from benchmarks.cleanroom_page import CleanroomPage, Json
from benchmarks.context.arms import Arm
from benchmarks.context.facts import Facts, read_facts
from benchmarks.context.proxy import Proxy, Round
from benchmarks.context.script import Call, Conversation, Turn
from benchmarks.page_socket import PageSocket

# Starts Cleanroom with a database in a folder and a model server at an address; gives its own address.
Server = Callable[[Path, str], AbstractAsyncContextManager[str]]


@dataclass(frozen=True, slots=True)
class Model:
    """What is asked, where, and with which options; `num_ctx` is the window in tokens."""

    name: str
    url: str
    num_ctx: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Played:
    """A turn as it went. `status` is the turn's end as the page is told it."""

    turn: Turn
    status: str
    rounds: list[Round]
    before: Facts
    after: Facts

    @property
    def reply(self) -> str:
        """The final reply: empty when there was none."""
        return self.rounds[-1].text if self.rounds and not self.rounds[-1].calls else ""

    @property
    def calls(self) -> list[tuple[list[ToolCall], Facts, Facts]]:
        """Each round's calls with the facts before and after."""
        after = [*(one.facts for one in self.rounds[1:]), self.after]
        return [(one.calls, one.facts, then) for one, then in zip(self.rounds, after, strict=True)]


class Page(CleanroomPage):
    """A page that knows how turns end."""

    def __init__(self, socket: PageSocket) -> None:
        self._socket = socket
        self._ended: dict[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Page]:
        async with PageSocket.open(f"{url}/ws") as socket:
            yield cls(socket)

    async def send_text(self, text: str) -> None:
        await self._socket.send(text)

    async def next_frame(self) -> Json:
        frame: Json = json.loads(await self._socket.receive())
        if frame["type"] == "turn.finished":
            self._ended[frame["turn_id"]] = frame["status"]
        return frame

    async def turn(self, kind: str, **fields: object) -> str:
        """Begin a turn and wait for its end; how it ended."""
        turn_id = (await self.command(kind, client_id=uuid.uuid4().hex, **fields))["turn_id"]
        while turn_id not in self._ended:
            await self.next_frame()
        return self._ended[turn_id]

    async def press(self, chat_id: str, calls: list[Call]) -> None:
        """Use tools as a person does. Raises ConnectionError when one of them fails: the script is wrong then."""
        for call in calls:
            if await self.turn("tool.invoke", chat_id=chat_id, tool=call.tool, arguments=call.arguments) != "complete":
                raise ConnectionError(f"{call.tool} failed with {call.arguments}")


async def play(conversation: Conversation, arm: Arm, seed: int, model: Model, server: Server) -> list[Played]:
    """Play a conversation from a new database on."""
    with TemporaryDirectory() as name:
        database = Path(name) / "cleanroom.db"
        options = {"seed": seed, "temperature": model.temperature}
        proxy = Proxy(model.url, arm, options, lambda: read_facts(database))
        async with proxy.serving(), server(Path(name), proxy.url) as url, Page.open(url) as page:
            await page.command("model.update", name=model.name, num_ctx=model.num_ctx)
            elsewhere, chat_id = await page.new_chat(), await page.new_chat(model=model.name)
            await page.press(elsewhere, conversation.before)
            played = []
            for turn in conversation.turns:
                await page.press(elsewhere, turn.elsewhere)
                before = read_facts(database)
                status = await page.turn("message.send", chat_id=chat_id, text=turn.say)
                played.append(Played(turn, status, proxy.end_turn(), before, read_facts(database)))
            return played
