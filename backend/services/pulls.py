"""Models that Ollama fetches for a person: begun, followed, told of and ended here."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal

from backend.errors import CleanroomError, Invalid, NotFound
from backend.llm.backend import ModelBackend
from backend.llm.wire import PullStep
from backend.protocol import ModelPulled, Pull, TurnError
from backend.services.journal import Journal
from backend.services.ownership import PULLS
from backend.services.peers import Peers
from backend.services.records import Clock

if TYPE_CHECKING:
    from backend.llm.model import ModelServer

logger = logging.getLogger(__name__)

# One line to the world serves two downloads; further ones wait in the order in which they were asked for.
AT_ONCE = 2
# Ollama tells its progress 16 times a second, which nobody reads.
TELL_SECONDS = 0.25
# A page that was reloaded meanwhile learns how a pull ended.
KEEP_ENDED_SECONDS = 600
# A step is a few words; what a disk's or a proxy's fault writes into it may be a page.
STEP_CHARACTERS = 120

# Its own name is all that a model needs; host, namespace and tag may be around it.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]*")


class _Following:
    """A pull as it stands. What changes is told at once or soon after, and its end always."""

    def __init__(self, name: str, tell: Callable[[Pull], None], clock: Clock) -> None:
        self.pull = Pull(name=name, status="running", step="waiting")
        self.has_arrived = False
        self.ended_at: float | None = None
        self.task: asyncio.Task[None] | None = None
        self._files: dict[str, tuple[int, int]] = {}
        self._tell = tell
        self._clock = clock
        self._told_at = 0.0
        self._telling: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    def follow(self, step: PullStep) -> None:
        """Take over the next step. The bytes are those of all files that the server has named so far."""
        self.has_arrived = step.status == "success"
        if step.total is not None:
            self._files[step.digest or step.status] = (min(step.completed or 0, step.total), step.total)
        completed, total = (sum(sizes) for sizes in zip(*self._files.values(), strict=True)) if self._files else (None, None)
        self._become(step=step.status[:STEP_CHARACTERS], completed=completed, total=total)

    def end(self, status: Literal["complete", "failed", "cancelled"], error: TurnError | None = None) -> None:
        self.ended_at = self._clock.monotonic()
        self._become(status=status, error=error)

    def _become(self, **fields: object) -> None:
        self.pull = self.pull.model_copy(update=fields)
        if not self.is_running:
            self._tell_now()
        elif self._telling is None:
            wait = self._told_at + TELL_SECONDS - self._clock.monotonic()
            self._telling = asyncio.get_running_loop().call_later(wait, self._tell_now)

    def _tell_now(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._told_at = self._clock.monotonic()
        self._tell(self.pull)


class Pulls:
    """The pulls under way, and those that ended a while ago. One model is pulled once, whoever asks.

    Of several servers one has them all; when it ends, or is not heard any more, another one goes on with those under way.
    """

    def __init__(self, backend: ModelBackend, journal: Journal, peers: Peers, clock: Clock) -> None:
        self._backend = backend
        self._journal = journal
        self._peers = peers
        self._clock = clock
        self._places = asyncio.Semaphore(AT_ONCE)
        self._known: dict[str, _Following] = {}

    @property
    def is_busy(self) -> bool:
        """Whether one is under way here."""
        return any(known.is_running for known in self._known.values())

    async def list_all(self) -> list[Pull]:
        """Those under way, at whichever server, and those that ended here within minutes. Raises Unreachable."""
        elsewhere = {_tagged(pull.name): pull for pull in await self._peers.shared_pulls(with_own=False)}
        self._forget_old()
        return list(({key: known.pull for key, known in self._known.items()} | elsewhere).values())

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - KEEP_ENDED_SECONDS
        self._known = {key: known for key, known in self._known.items() if known.ended_at is None or known.ended_at > oldest}

    async def recover(self) -> None:
        """Go on with the pulls that were lost, by another server or by this one: Ollama has kept what arrived."""
        for pull in await self._peers.shared_pulls(with_own=True):
            self._begin(pull.name, None)

    async def start(self, name: str) -> Pull:
        """Begin to pull a model, or join the pull that is under way. Raises Invalid or ModelUnavailable."""
        if not _NAME.fullmatch(name):
            reason = "must be a model's name, such as qwen3:4b"
            raise Invalid(f"'{name[:60]}' can't be pulled: it {reason}.", {"name": reason})
        server = await self._backend.puller()
        self._forget_old()
        known = self._known.get(_tagged(name))
        return known.pull if known is not None and known.is_running else self._begin(name, server)

    def _begin(self, name: str, server: ModelServer | None) -> Pull:
        known = _Following(name, self._publish, self._clock)
        known.task = asyncio.create_task(self._run(known, server))
        known.task.add_done_callback(lambda task: self._note_end(known, task))
        self._known.pop(_tagged(name), None)
        self._known[_tagged(name)] = known
        self._peers.turn_began(PULLS, PULLS)
        self._publish(known.pull)
        return known.pull

    async def cancel(self, name: str) -> None:
        """End a pull at its source; one that has ended stays as it is. Raises NotFound."""
        known = self._known.get(_tagged(name))
        if known is None or known.task is None:
            raise NotFound(f"No pull of '{name[:60]}' is under way.")
        if not known.has_arrived:
            known.task.cancel()
        await asyncio.wait({known.task})

    def lose(self) -> list[asyncio.Task[None]]:
        """End every pull without a word: another server goes on with them. The tasks that end."""
        tasks = [known.task for known in self._known.values() if known.task is not None]
        self._known.clear()
        for task in tasks:
            task.cancel()
        return tasks

    async def close(self) -> None:
        """End every pull in the same way; Ollama keeps what has arrived for the next time."""
        await asyncio.gather(*self.lose(), return_exceptions=True)

    async def _run(self, known: _Following, server: ModelServer | None) -> None:
        async with self._places:
            server = server or await self._backend.puller()
            async with aclosing(server.pull(known.pull.name)) as steps:
                async for step in steps:
                    known.follow(step)
        # The page offers the model before it reads that the model is there.
        await self._backend.refresh()

    def _note_end(self, known: _Following, task: asyncio.Task[None]) -> None:
        """Tell how a pull ended, also one that was cancelled before it began."""
        if self._known.get(_tagged(known.pull.name)) is not known:
            return  # it is another server's
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            known.end("cancelled")
        elif error is None:
            known.end("complete")
        elif isinstance(error, CleanroomError):
            known.end("failed", TurnError(code=error.code, message=error.message))
        else:
            logger.error("pull failed", exc_info=error)
            known.end("failed", TurnError(code="internal", message="Something went wrong in the server. Please try again."))
        if not self.is_busy:
            self._peers.turn_ended(PULLS)

    def _publish(self, pull: Pull) -> None:
        if _tagged(pull.name) in self._known:  # else it is another server's
            self._peers.share_pull(_tagged(pull.name), pull)  # before it is told, so that a page that has read it hears all that follows
            self._journal.publish(ModelPulled(pull=pull))


def _tagged(name: str) -> str:
    """The name as Ollama completes it."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
