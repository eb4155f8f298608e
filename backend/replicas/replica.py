"""One of several servers on one database: what connects it to the others, and what it does as the owner of chats."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from typing import Any

from backend.connection import Dispatch
from backend.errors import Unreachable
from backend.hub import Hub
from backend.protocol import Command, Pull
from backend.replicas.leases import Claim, Leases
from backend.replicas.line import EVERYONE, PULLS_UNDER_WAY, TURNS, Line, events_key, replica_channel
from backend.replicas.owner import ChatOf, Owner
from backend.replicas.router import Router
from backend.replicas.shared_log import SharedLog

logger = logging.getLogger(__name__)

# A reply under way may take so long to end when its server is told to; docker-compose.scale.yml waits ten seconds more.
DRAIN_SECONDS = 20.0
DRAIN_LOOK_SECONDS = 0.1


class Replica:
    is_alone = False

    def __init__(self, url: str) -> None:
        self.id = uuid.uuid4().hex[:12]
        self._line = Line(url, self.id, self._heard, self._cut)
        self._leases = Leases(self._line, self)
        self._log = SharedLog(self._line, self._leases.owns)
        self.hub = Hub(self._log)
        self._owner: Owner
        self._router: Router
        self._catching_up: set[asyncio.Task[None]] = set()

    def route(self, owner: Owner, dispatch: Dispatch, chat_of: ChatOf) -> Dispatch:
        """The way by which commands go from now on."""
        self._owner = owner
        self._router = Router(self.hub, self._line, self._leases, dispatch, chat_of)
        return self._router.dispatch

    async def begin(self) -> None:
        """Join the others, and take up what nobody sees to. Raises Unreachable."""
        await self._line.open()
        await self._leases.begin()
        for chat_id in await self._owner.unfinished():
            await self._leases.owner_of(chat_id)

    async def leave(self) -> None:
        """Let idle chats go, and the others as their replies end; then have the others wait with their commands until the rest is theirs."""
        for _ in range(round(DRAIN_SECONDS / DRAIN_LOOK_SECONDS)):
            if not any(map(self._owner.is_replying, self._leases.drain())):
                break
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
        await self._router.leave()

    async def close(self) -> None:
        """Let all chats go; no turn may run any more."""
        await self._router.close()
        await self._leases.close()
        await self._line.close()

    @property
    def is_ready(self) -> bool:
        return not self._leases.is_fenced

    async def owns(self, chat_id: str) -> bool:
        """Whether the chat is this replica's, which takes it up when it is nobody's. Raises Unreachable."""
        return await self._leases.owner_of(chat_id) == self.id

    async def ask(self, chat_id: str, user: str, command: Command) -> dict[str, Any] | None:
        """The reply of the replica that has the chat; None when that is this one. Raises Unreachable."""
        frame = await self._router.ask(chat_id, user, command)
        return None if frame is None else json.loads(frame)

    def lose(self, chat_id: str) -> None:
        self._leases.lose(chat_id)

    # --- turns, as the services tell of them

    def turn_began(self, chat_id: str, turn_id: str) -> None:
        self._line.say("HSET", TURNS, chat_id, turn_id)

    def turn_ended(self, chat_id: str) -> None:
        self._line.say("HDEL", TURNS, chat_id)

    async def running(self) -> set[str]:
        """The chats in which a turn runs, at whichever replica. Raises Unreachable."""
        return set(await self._line.ask("HKEYS", TURNS))

    # --- pulls, as the services tell of them

    def share_pull(self, key: str, pull: Pull) -> None:
        if pull.status == "running":
            self._line.say("HSET", PULLS_UNDER_WAY, key, json.dumps({"from": self.id, "pull": pull.model_dump()}, ensure_ascii=False))
        else:
            self._line.say("HDEL", PULLS_UNDER_WAY, key)

    async def shared_pulls(self, *, with_own: bool) -> list[Pull]:
        shared = [json.loads(text) for text in await self._line.ask("HVALS", PULLS_UNDER_WAY)]
        return [Pull.model_validate(known["pull"]) for known in shared if with_own or known["from"] != self.id]

    # --- what an owner does (see leases.Keeper)

    async def take_up(self, claim: Claim) -> None:
        for event in await self._log.take_up(claim.chat_id, claim.newest):
            self.hub.deliver(claim.chat_id, event)
        await self._owner.hold(claim.chat_id, self.id)
        if not claim.was_left or claim.turn_id is not None:
            await self._owner.recover(claim.chat_id, claim.turn_id)
        if claim.turn_id is not None and not self.is_busy(claim.chat_id):
            self.turn_ended(claim.chat_id)

    def is_busy(self, chat_id: str) -> bool:
        return self._owner.running_turn(chat_id) is not None

    def let_go(self, chat_id: str) -> None:
        self._owner.forget(chat_id)
        self._log.give_up(chat_id)
        if self.hub.is_watched_here(chat_id):
            task = asyncio.create_task(self._catch_up(chat_id))
            self._catching_up.add(task)
            task.add_done_callback(self._catching_up.discard)

    async def interrupt(self) -> None:
        await self._owner.interrupt()

    def epoch_changed(self, epoch: str) -> None:
        self._log.epoch = epoch
        for chat_id in self._leases.owned:  # Redis has lost them: by these a turn is known elsewhere, and seen to when this replica dies
            if (turn_id := self._owner.running_turn(chat_id)) is not None:
                self.turn_began(chat_id, turn_id)
        self.hub.send_away()

    # --- what is heard

    def _heard(self, channel: str, text: str) -> None:
        try:
            self._take(channel, text)
        except Exception:
            logger.exception("what another replica said could not be taken")

    def _take(self, channel: str, text: str) -> None:
        if channel == replica_channel(self.id):
            self._router.heard(text)
        elif channel == EVERYONE:
            self._take_broadcast(json.loads(text))
        else:
            chat_id = channel.removeprefix(events_key(""))
            if (event := self._log.heard(chat_id, text)) is not None:
                self.hub.deliver(chat_id, event)

    def _take_broadcast(self, message: dict[str, Any]) -> None:
        if message["from"] == self.id:
            return
        self.hub.tell_all(message["frame"], message["user"])
        news = json.loads(message["frame"])
        if news["type"] == "chat.deleted":
            self.hub.forget_watchers(news["chat_id"])

    def _cut(self) -> None:
        """Something may have been missed: pages that come back get it from the log."""
        self.hub.send_away()

    async def _catch_up(self, chat_id: str) -> None:
        """Watch a chat from outside that was this replica's."""
        try:
            await self._log.follow(chat_id)
            for event in await self._log.missed(chat_id):
                self.hub.deliver(chat_id, event)
        except Unreachable:
            self.hub.send_away()
