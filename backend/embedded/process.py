"""The parent's side of the embedded model: one child process, started when it is asked for.

Starts, watches and ends the child; what it says over HTTP is for `llm/model.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from backend.errors import ModelUnavailable

PROJECT_FOLDER = Path(__file__).resolve().parents[2]

# Until the child's first line, which comes before the weights are loaded.
START_SECONDS = 60

logger = logging.getLogger(__name__)


class EmbeddedProcess:
    """Concurrent callers share one child. It ends with this process, however that ends."""

    def __init__(self, model_file: Path | None) -> None:
        self._arguments = [] if model_file is None else ["--model", str(model_file.absolute())]
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._log: asyncio.Task[str] | None = None
        self._url = ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def url(self) -> str:
        """Return where the child listens, starting it when it isn't running. Raises ModelUnavailable."""
        async with self._starting:
            if not self.is_running:
                await self._start()
            return self._url

    async def close(self) -> None:
        async with self._starting:
            if self._process is not None:
                await _end(self._process)
            if self._log is not None:
                await self._log

    async def _start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "backend.embedded", *self._arguments),
            cwd=PROJECT_FOLDER,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # Ctrl+C is for the parent, which ends the child in its own time
        )
        assert process.stdout and process.stderr
        self._log = asyncio.create_task(_drain(process.stderr))
        try:
            async with asyncio.timeout(START_SECONDS):
                first_line = await process.stdout.readline()
        except BaseException as error:
            with suppress(ProcessLookupError):
                process.kill()
            if isinstance(error, TimeoutError):
                raise ModelUnavailable("The embedded model did not start in time.") from error
            raise
        if not first_line:
            raise ModelUnavailable(f"The embedded model can't start: {await self._log}")
        self._process = process
        self._url = json.loads(first_line)["url"]


async def _drain(stderr: asyncio.StreamReader) -> str:
    """Read to the end, so that the child never waits for a full pipe; return the last line."""
    last = ""
    async for line in stderr:
        last = line.decode(errors="replace").strip() or last
        logger.debug("embedded model: %s", last)  # it may quote a message
    return last


async def _end(process: Process) -> None:
    """At once: it has nothing to save. While it loads the weights it does not see its stdin close."""
    assert process.stdin
    process.stdin.close()
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()
