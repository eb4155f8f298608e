"""Which model server answers: Ollama when it is there, else the embedded model."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from backend.embedded.process import EmbeddedProcess
from backend.errors import ModelError, ModelNotFound, ModelUnavailable
from backend.llm.wire import Chunk, ModelInfo
from backend.settings import Settings

if TYPE_CHECKING:
    from backend.llm.model import ModelServer

logger = logging.getLogger(__name__)

BackendKind = Literal["ollama", "embedded", "none"]

# A model's own window can be hundreds of thousands of tokens and its memory many GB; this much serves a
# window of 12 messages.
DEFAULT_NUM_CTX = 8_192
# For a server that does not say how long a model's context is.
UNKNOWN_CONTEXT_LENGTH = 4_096


@dataclass(frozen=True, slots=True)
class BoundModel:
    """A model of a server with the options that every request to it has."""

    server: ModelServer
    info: ModelInfo
    num_ctx: int

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def can_call_tools(self) -> bool:
        return "tools" in self.info.capabilities

    def stream(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], options: dict[str, Any]) -> AsyncIterator[Chunk]:
        return self.server.stream(
            model=self.name,
            messages=messages,
            tools=tools,
            options={"num_ctx": self.num_ctx, **options},
            think="thinking" in self.info.capabilities,
        )


class ModelBackend:
    """The servers that may answer, and what the one in use offers."""

    def __init__(self, settings: Settings, embedded: EmbeddedProcess) -> None:
        self._settings = settings
        self._embedded = embedded
        self._ollama: ModelServer | None = None
        self._child: ModelServer | None = None
        self._refreshing = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        # Called whenever another server answers, or it offers other models.
        self.on_change: Callable[[], None] = lambda: None
        self.kind: BackendKind = "none"
        self.models: list[ModelInfo] = []

    @property
    def address(self) -> str:
        """Where Ollama is looked for."""
        return self._settings.ollama_url

    @property
    def default_model(self) -> str | None:
        """The model of chats that name none: the setting's when the server has it, else the first."""
        names = [model.name for model in self.models]
        wanted = self._settings.model
        if wanted is not None:
            found = next((name for name in names if name in (wanted, f"{wanted}:latest")), None)
            if found or self.kind == "ollama":
                return found or wanted
        return names[0] if names else None

    async def refresh(self) -> None:
        """Look which server answers and what it offers. Never raises."""
        async with self._refreshing:
            before = (self.kind, self.models)
            try:
                server = await self._find()
                self.models = await server.list_models()
                self.kind = server.kind
            except ModelError as error:
                logger.info("no model server answers: %s", error.message)
                self.kind, self.models = "none", []
        if before != (self.kind, self.models):
            self.on_change()

    async def bind(self, name: str | None) -> BoundModel:
        """The model for a chat that chose `name` (None: the default). Raises a ModelError that says what to do."""
        if self.kind != "ollama" and (self.kind == "none" or await self._ollama_came()):
            await self.refresh()
        if self.kind == "embedded":
            await self._embedded_server()
        if self.kind == "none":
            raise ModelUnavailable(f"No model answers: there is no Ollama at {self.address}. Start it with 'ollama serve' and try again.")
        wanted = name or self.default_model
        if wanted is None:
            raise ModelNotFound("Ollama has no model yet. Get one with 'ollama pull qwen3:4b' and try again.")
        info = self._info(wanted)
        if info is None:
            await self.refresh()
            info = self._info(wanted)
        if info is None:
            raise self._missing(wanted)
        server = await (self._ollama_server() if self.kind == "ollama" else self._embedded_server())
        return BoundModel(server, info, self.num_ctx(info))

    def num_ctx(self, info: ModelInfo) -> int:
        """The window of a model, one constant: another value makes the server load the model again."""
        longest = info.context_length or UNKNOWN_CONTEXT_LENGTH
        return min(self._settings.num_ctx or DEFAULT_NUM_CTX, longest)

    def look_again(self) -> None:
        """Refresh beside what the caller does: at the start, and when a request did not reach the server."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self.refresh())

    async def known(self, seconds: float) -> None:
        """Wait for the look that is under way, but no longer than `seconds`."""
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=seconds)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        for server in (self._ollama, self._child):
            if server is not None:
                await server.close()
        await self._embedded.close()

    def _info(self, name: str) -> ModelInfo | None:
        return next((model for model in self.models if model.name in (name, f"{name}:latest")), None)

    def _missing(self, name: str) -> ModelError:
        if self.kind == "embedded":
            return ModelUnavailable(
                f"The model '{name}' needs Ollama, and there is none at {self.address}. Start it, or choose the embedded model for this chat."
            )
        return ModelNotFound(f"Ollama has no model '{name}'. Get it with 'ollama pull {name}', or choose another model for this chat.")

    async def _find(self) -> ModelServer:
        mode = self._settings.embedded
        if mode == "never" or (mode == "auto" and await self._ollama_came()):
            return await self._ollama_server()
        return await self._embedded_server()

    async def _ollama_came(self) -> bool:
        return self._settings.embedded == "auto" and await (await self._ollama_server()).is_alive()

    async def _ollama_server(self) -> ModelServer:
        if self._ollama is None:
            self._ollama = await self._connect(self._settings.ollama_url, "ollama")
        return self._ollama

    async def _embedded_server(self) -> ModelServer:
        """The embedded model's server; its child is started again when it has died, with another address."""
        url = await self._embedded.url()
        if self._child is None or self._child.url != url:
            if self._child is not None:
                await self._child.close()
            self._child = await self._connect(url, "embedded")
        return self._child

    async def _connect(self, url: str, kind: Literal["ollama", "embedded"]) -> ModelServer:
        # The HTTP clients take longer to import than all the rest, and the page can be served without them.
        module = await asyncio.to_thread(importlib.import_module, "backend.llm.model")
        server: ModelServer = module.ModelServer(url, kind, first_token_seconds=self._settings.first_token_seconds)
        return server
