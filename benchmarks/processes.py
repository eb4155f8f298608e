"""The processes that a benchmark measures: Cleanroom's server and others beside it, started, watched and ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

PROJECT = Path(__file__).parents[1]
END_SECONDS = 10
# Large programs read their packages for half a minute before they answer, on a slow disk for longer.
START_SECONDS = 180

# With two cores or more, what is measured has the last one to itself, so that its figures are its own.
SERVER_CORE = (os.cpu_count() or 1) - 1
DRIVER_CORE = 0


@dataclass(frozen=True, slots=True)
class Running:
    """A process that is ready, and its address."""

    process: subprocess.Popen[str]
    url: str


@contextmanager
def running(command: Sequence[str], *, environment: Mapping[str, str] | None = None, core: int | None = None) -> Iterator[Running]:
    """Start a process and wait for the first line that it prints, which ends with its address; end it by its id when the block ends.

    `core`: the one that it and all its threads stay on, where the system can be told so.
    Raises RuntimeError when it ends before it has said anything.
    """
    with _started(command, environment, core, subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended with {process.wait()} before it was ready")
        yield Running(process, line.split()[-1])


@contextmanager
def serving(command: Sequence[str], port: int, log: Path, *, environment: Mapping[str, str] | None = None, core: int | None = None) -> Iterator[Running]:
    """Start a server that doesn't say when it is ready and wait until it listens on `port`; what it prints is kept in `log`.

    Otherwise as `running`.
    """
    with log.open("w") as output, _started(command, environment, core, output) as process:
        deadline = time.monotonic() + START_SECONDS
        while not _is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} does not listen on {port}; it said: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield Running(process, f"http://127.0.0.1:{port}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def scripted_model() -> AbstractContextManager[Running]:
    """The model server, beside whoever reads."""
    return running([sys.executable, "-m", "benchmarks.scripted_model"])


def relay(model_url: str) -> AbstractContextManager[Running]:
    """The yardstick, on the core of what is measured."""
    return running([sys.executable, "-m", "benchmarks.relay", model_url], core=SERVER_CORE)


def cleanroom(folder: Path, ollama_url: str, **variables: str) -> AbstractContextManager[Running]:
    """Cleanroom's server on a core of its own, with a database in `folder` unless `variables` of the environment name another."""
    values = {
        "CLEANROOM_PORT": "0",
        "CLEANROOM_DATABASE_URL": f"sqlite:///{folder / 'cleanroom.db'}",
        "CLEANROOM_EMBEDDED": "never",
        "CLEANROOM_LOG_LEVEL": "warning",
        "OLLAMA_HOST": ollama_url,
        **variables,
    }
    return running([sys.executable, "-m", "backend"], environment=values, core=SERVER_CORE)


def stay_on_driver_core() -> None:
    """Keep this process, and what it starts without a core of its own, off the core of what is measured."""
    if sys.platform == "linux":
        psutil.Process().cpu_affinity([DRIVER_CORE])


def use_all_cores() -> None:
    """Take `stay_on_driver_core` back: for a browser, which has several processes of its own."""
    if sys.platform == "linux":
        psutil.Process().cpu_affinity([])


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str] | None, core: int | None, output: int | IO[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended by its id when the block ends. What it prints goes to `output`; into a file, its errors too."""
    errors = None if output == subprocess.PIPE else subprocess.STDOUT
    started = subprocess.Popen(command, cwd=PROJECT, env=os.environ | (environment or {}), stdout=output, stderr=errors, text=True)
    with started as process:
        try:
            if core is not None and sys.platform == "linux":
                psutil.Process(process.pid).cpu_affinity([core])
            yield process
        finally:
            _end(process)


def _is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    if process.poll() is None:
        process.kill()
