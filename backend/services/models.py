"""The models as the person sees them, and the news when they change."""

from __future__ import annotations

from typing import Any

from backend.llm.backend import ModelBackend
from backend.protocol import Model, ModelsUpdated
from backend.services.journal import Journal

# How long a page that connects waits for the first look at the model servers.
FIRST_LOOK_SECONDS = 3.0


class Models:
    def __init__(self, backend: ModelBackend, journal: Journal) -> None:
        self._backend = backend
        self._journal = journal
        backend.on_change = self._tell

    async def describe(self) -> dict[str, Any]:
        """What answers and what it offers, as in `welcome`."""
        await self._backend.known(FIRST_LOOK_SECONDS)
        return self._now()

    async def refresh(self) -> dict[str, Any]:
        """Look again, then describe."""
        await self._backend.refresh()
        return self._now()

    def _now(self) -> dict[str, Any]:
        backend = self._backend
        models = [
            Model(
                name=info.name,
                size_bytes=info.size_bytes,
                context_length=info.context_length,
                num_ctx=backend.num_ctx(info),
                capabilities=list(info.capabilities),
                parameter_size=info.parameter_size,
                quantization=info.quantization,
            )
            for info in backend.models
        ]
        return {
            "models": models,
            "default_model": backend.default_model,
            "model_backend": backend.kind,
            "model_server": backend.address,
        }

    def _tell(self) -> None:
        self._journal.publish(ModelsUpdated(**self._now()))
