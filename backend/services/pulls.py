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
    """The pulls under way, and those that ended a while ago. One model is pulled once, whoever asks."""

    def __init__(self, backend: ModelBackend, journal: Journal, clock: Clock) -> None:
        self._backend = backend
        self._journal = journal
        self._clock = clock
        self._places = asyncio.Semaphore(AT_ONCE)
        self._known: dict[str, _Following] = {}

    def list_all(self) -> list[Pull]:
        """Those under way and those that ended within minutes, in the order in which they began."""
        oldest = self._clock.monotonic() - KEEP_ENDED_SECONDS
        self._known = {key: known for key, known in self._known.items() if known.ended_at is None or known.ended_at > oldest}
        return [known.pull for known in self._known.values()]

    async def start(self, name: str) -> Pull:
        """Begin to pull a model, or join the pull that is under way. Raises Invalid or ModelUnavailable."""
        if not _NAME.fullmatch(name):
            reason = "must be a model's name, such as qwen3:4b"
            raise Invalid(f"'{name[:60]}' can't be pulled: it {reason}.", {"name": reason})
        server = await self._backend.puller()
        self.list_all()
        known = self._known.pop(_tagged(name), None)
        if known is None or not known.is_running:
            known = _Following(name, self._publish, self._clock)
            known.task = asyncio.create_task(self._run(known, server))
            known.task.add_done_callback(lambda task: self._note_end(known, task))
            self._publish(known.pull)
        self._known[_tagged(name)] = known
        return known.pull

    async def cancel(self, name: str) -> None:
        """End a pull at its source; one that has ended stays as it is. Raises NotFound."""
        known = self._known.get(_tagged(name))
        if known is None or known.task is None:
            raise NotFound(f"No pull of '{name[:60]}' is under way.")
        if not known.has_arrived:
            known.task.cancel()
        await asyncio.wait({known.task})

    async def close(self) -> None:
        """End every pull; Ollama keeps what has arrived for the next time."""
        tasks = [known.task for known in self._known.values() if known.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, known: _Following, server: ModelServer) -> None:
        async with self._places, aclosing(server.pull(known.pull.name)) as steps:
            async for step in steps:
                known.follow(step)
        # The page offers the model before it reads that the model is there.
        await self._backend.refresh()

    def _note_end(self, known: _Following, task: asyncio.Task[None]) -> None:
        """Tell how a pull ended, also one that was cancelled before it began."""
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

    def _publish(self, pull: Pull) -> None:
        self._journal.publish(ModelPulled(pull=pull))


def _tagged(name: str) -> str:
    """The name as Ollama completes it."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
