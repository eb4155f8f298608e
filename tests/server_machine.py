"""What machines have in common that Hypothesis drives: a server's world on a loop of its own, and how long they are driven."""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize

from tests.fake_ollama import Exchange

T = TypeVar("T")


@dataclass(frozen=True)
class Effort:
    """How long a machine is driven."""

    settings: settings
    timeout_seconds: int


def effort(variable: str, *, max_examples: int, steps: int) -> Effort:
    """The same few examples in each run; many random ones when the environment's `variable` is `long`.

    Shrinking a failure takes minutes, so that only the long run does it.
    """
    short = settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    if os.environ.get(variable) != "long":
        return Effort(short, 300)
    return Effort(settings(short, max_examples=200, stateful_step_count=50, derandomize=False, phases=[Phase.generate, Phase.shrink]), 7200)


@dataclass(eq=False)
class Hold:
    """A place at which a scripted reply or pull stands still until it is let go."""

    reached: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    let_go: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def step(self, _: Exchange) -> None:
        self.reached.set()
        await self.let_go.wait()


class ServerMachine(RuleBasedStateMachine):
    """A world in a folder below `folder`. `server` holds what ends with a server, `stack` what ends with the world."""

    folder: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack, self.server = AsyncExitStack(), AsyncExitStack()
        self.root = self.folder / uuid.uuid4().hex

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def start(self) -> None:
        self.run(self._start())

    async def _start(self) -> None:
        """Make the world."""
        raise NotImplementedError

    def teardown(self) -> None:
        try:
            self.run(self.server.aclose())
            self.run(self.stack.aclose())
        finally:
            self.runner.close()
            shutil.rmtree(self.root, ignore_errors=True)


async def first(*work: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them is done, and drop the others; the one that failed says why."""
    tasks = [asyncio.ensure_future(part) for part in work]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    done.pop().result()
