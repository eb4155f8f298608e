"""The models as the person sees them, what the person decides of them, and the news when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backend.errors import Invalid, NotFound
from backend.llm.backend import ModelBackend
from backend.llm.wire import ModelInfo
from backend.protocol import Model, ModelsUpdated, Pull
from backend.services.journal import Journal, Unit
from backend.services.peers import Peers
from backend.services.pulls import Pulls
from backend.store import model_windows

# How long a page that connects waits for the first look at the model servers.
FIRST_LOOK_SECONDS = 3.0


class Models:
    def __init__(self, backend: ModelBackend, journal: Journal, pulls: Pulls, peers: Peers) -> None:
        self._backend = backend
        self._journal = journal
        self._pulls = pulls
        self._pages = 0
        self._watch: asyncio.Task[None] | None = None
        backend.on_change = self._tell
        if not peers.is_alone:
            backend.read_windows = self._read_windows

    async def begin(self) -> None:
        """Read the chosen windows, then look which server answers, beside what comes next."""
        self._backend.windows = await self._read_windows()
        self._backend.look_again()

    async def close(self) -> None:
        """End what runs on its own: pulls and the watch."""
        await self._pulls.close()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A page is connected: as long as one is, what changes at the model servers shows by itself."""
        self._pages += 1
        if self._watch is None:
            self._watch = asyncio.create_task(self._backend.watch())
        try:
            yield
        finally:
            self._pages -= 1
            if self._pages == 0:
                self._watch.cancel()
                self._watch = None

    async def known(self) -> None:
        """Wait a moment for the first look. A page that connects later gets what is known, and hears of what changed since."""
        await self._backend.known(FIRST_LOOK_SECONDS)

    def describe(self) -> dict[str, Any]:
        """What answers and what it offers, as in `models.updated`."""
        backend = self._backend
        return {
            "models": [self._wire(info) for info in backend.models],
            "default_model": backend.default_model,
            "model_backend": backend.kind,
            "model_server": backend.address,
        }

    async def pulls(self) -> list[Pull]:
        """The pulls under way and those that ended within minutes. Raises Unreachable."""
        return await self._pulls.list_all()

    async def refresh(self) -> dict[str, Any]:
        """Look again, then describe."""
        await self._backend.refresh()
        return self.describe()

    async def set_window(self, name: str, num_ctx: int | None) -> dict[str, Any]:
        """Give a model another window for all chats; None: the setting's. Raises NotFound, or Invalid beyond the model's own."""
        info = await self._backend.find(name)
        if info is None:
            raise NotFound(f"There is no model '{name}'.")
        if num_ctx is not None and info.context_length is not None and num_ctx > info.context_length:
            reason = f"must be at most {info.context_length}, the model's own"
            raise Invalid(f"A window of {num_ctx} tokens is too long: it {reason}.", {"num_ctx": reason})

        async def write(unit: Unit) -> None:
            if num_ctx is None:
                await model_windows.delete(unit.tx, info.name)
            else:
                await model_windows.save(unit.tx, info.name, num_ctx)
            unit.after_commit(lambda: self._take_window(info.name, num_ctx))

        await self._journal.write(write)
        return {"models": self.describe()["models"]}

    async def pull(self, name: str) -> Pull:
        """Have Ollama fetch a model. Raises Invalid or ModelUnavailable."""
        return await self._pulls.start(name)

    async def cancel_pull(self, name: str) -> None:
        """Raises NotFound."""
        await self._pulls.cancel(name)

    async def _read_windows(self) -> dict[str, int]:
        return await self._journal.read(model_windows.get_all)

    def _take_window(self, name: str, num_ctx: int | None) -> None:
        windows = {model: tokens for model, tokens in self._backend.windows.items() if model != name}
        self._backend.windows = windows if num_ctx is None else {**windows, name: num_ctx}
        self._tell()

    def _wire(self, info: ModelInfo) -> Model:
        return Model(
            name=info.name,
            size_bytes=info.size_bytes,
            context_length=info.context_length,
            num_ctx=self._backend.num_ctx(info),
            kv_bytes_per_token=info.kv_bytes_per_token,
            capabilities=list(info.capabilities),
            parameter_size=info.parameter_size,
            quantization=info.quantization,
        )

    def _tell(self) -> None:
        self._journal.tell_sockets(ModelsUpdated(**self.describe()))  # the other servers look by themselves
