"""llama.cpp's server with one model: loads the weights, asks for replies, passes its events on.

Knows nothing of Ollama's HTTP but how a refusal looks.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
from xllamacpp import CommonParams, Server

from backend.embedded.wire import Refused

# The prefixes of chats that lost the slot to another are kept in memory, 8 GiB of them by default.
PREFIX_CACHE_MIB = 256

# Its threads wait for each other at every step, so one that lost its core to another program holds up
# all: on 2 busy cores, 2 threads made 1 token a second and 1 thread made 9.
THREADS = max(1, (os.cpu_count() or 2) // 2)

EVENT_PREFIX = b"data: "
LAST_EVENT = b"data: [DONE]"


class Engine:
    def __init__(self, model_file: Path, context_tokens: int) -> None:
        """Load the weights: blocks for seconds. Raises RuntimeError when llama.cpp can't use the file."""
        # Its port is open to every process and page on this machine; the key keeps it ours.
        self._key = secrets.token_urlsafe()
        params = CommonParams()
        params.model.path = str(model_file)
        params.n_ctx = context_tokens
        params.n_parallel = 1  # n_ctx is shared between the slots
        params.cache_ram_mib = PREFIX_CACHE_MIB
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
        params.api_keys = [self._key]
        params.ui = False
        params.endpoint_slots = False
        params.verbosity = 1  # errors only; its log is for developers of llama.cpp
        self._server = Server(params)

    async def events(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of one reply. Closing the iterator stops the generation; Refused tells why there is none."""
        headers = {"Authorization": f"Bearer {self._key}"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(self._server.listening_address, headers=headers, timeout=timeout) as session,
            session.post("/v1/chat/completions", json=body) as response,
        ):
            if response.status != 200:
                raise Refused(response.status, await response.text())
            async for line in response.content:
                if line.startswith(LAST_EVENT):
                    return
                if line.startswith(EVENT_PREFIX):
                    yield _read_event(line.removeprefix(EVENT_PREFIX))


def _read_event(data: bytes) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(data)
    if "error" in event:
        raise Refused(500, data.decode())
    return event
