"""One embedded model for a module's tests, since loading its weights takes the longest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from ollama import AsyncClient


@pytest.fixture(scope="module")
def embedded_url() -> Iterator[str]:
    child = subprocess.Popen([sys.executable, "-m", "backend.embedded"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout
        yield json.loads(child.stdout.readline())["url"]
        assert child.poll() is None, "it ended by itself"
        child.communicate(timeout=10)  # closes its stdin
    assert child.returncode == 0


@pytest.fixture
async def client(embedded_url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(embedded_url, trust_env=False) as client:
        yield client
