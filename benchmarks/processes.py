"""The processes that a benchmark measures: Cleanroom's server and others beside it, started, watched and ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

PROJECT = Path(__file__).parents[1]
END_SECONDS = 10

# With two cores or more, what is measured has the last one to itself, so that its figures are its own.
SERVER_CORE = (os.cpu_count() or 1) - 1
DRIVER_CORE = 0


@dataclass(frozen=True, slots=True)
class Running:
    """A process that has said its first line."""

    process: subprocess.Popen[str]
    first_line: str

    @property
    def url(self) -> str:
        """The address at the end of its first line."""
        return self.first_line.split()[-1]


@contextmanager
def running(command: Sequence[str], *, environment: Mapping[str, str] | None = None, core: int | None = None) -> Iterator[Running]:
    """Start a process and wait for the first line that it prints; end it by its id when the block ends.

    `core`: the one that it and all its threads stay on, where the system can be told so.
    Raises RuntimeError when it ends before it has said anything.
    """
    started = subprocess.Popen(command, cwd=PROJECT, env=os.environ | (environment or {}), stdout=subprocess.PIPE, text=True)
    with started as process:
        try:
            if core is not None and sys.platform == "linux":
                psutil.Process(process.pid).cpu_affinity([core])
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{' '.join(command)} ended with {process.wait()} before it was ready")
            yield Running(process, line.strip())
        finally:
            _end(process)


@contextmanager
def cleanroom(folder: Path, ollama_url: str) -> Iterator[Running]:
    """Cleanroom's server on a core of its own, with a database in `folder`."""
    values = {
        "CLEANROOM_PORT": "0",
        "CLEANROOM_DATABASE_URL": f"sqlite:///{folder / 'cleanroom.db'}",
        "CLEANROOM_EMBEDDED": "never",
        "CLEANROOM_LOG_LEVEL": "warning",
        "OLLAMA_HOST": ollama_url,
    }
    with running([sys.executable, "-m", "backend"], environment=values, core=SERVER_CORE) as server:
        yield server


def stay_on_driver_core() -> None:
    """Keep this process, and what it starts without a core of its own, off the core of what is measured."""
    if sys.platform == "linux":
        psutil.Process().cpu_affinity([DRIVER_CORE])


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    if process.poll() is None:
        process.kill()
