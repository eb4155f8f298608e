"""Which model server answers: Ollama when it is there, else the embedded model."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

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

# How often the watch asks whether Ollama is there, and how often what it offers.
WATCH_SECONDS = 5.0
LOOK_SECONDS = 45.0
# A busy Ollama may miss an answer, and a new version of it takes a moment to start.
MISSES_UNTIL_GONE = 3
# A look takes a moment, and one that is cancelled while it connects loses its socket.
END_SECONDS = 1.0

# A bare number of seconds has to go out as a number: the server reads a text as a duration with its unit.
KEEP_ALIVE: dict[Any, int] = {"0": 0, "-1": -1}


@dataclass(frozen=True, slots=True)
class BoundModel:
    """A model of a server with the options that every request to it has."""

    server: ModelServer
    info: ModelInfo
    num_ctx: int
    chat_id: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The chat's own: `temperature`, `think` and `keep_alive` as the protocol has them, each only where it was chosen."""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def can_call_tools(self) -> bool:
        return "tools" in self.info.capabilities

    def stream(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], options: dict[str, Any]) -> AsyncGenerator[Chunk, None]:
        chosen = {"temperature": self.parameters["temperature"]} if "temperature" in self.parameters else {}
        return self.server.stream(
            model=self.name,
            messages=messages,
            tools=tools,
            options={"num_ctx": self.num_ctx, **chosen, **options},
            think=self._think(),
            keep_alive=KEEP_ALIVE.get(self.parameters.get("keep_alive"), self.parameters.get("keep_alive")),
            chat_id=self.chat_id,
        )

    def _think(self) -> bool | str:
        """What to ask of the model's thinking. One that always thinks does not heed an "off": the lowest level is next to it."""
        if "thinking" not in self.info.capabilities:
            return False
        wanted = str(self.parameters.get("think", "on"))
        switch: dict[str, bool | str] = {"on": True, "off": "low" if self.info.thinks_always else False}
        return switch.get(wanted, wanted)


class ModelBackend:
    """The servers that may answer, and what the one in use offers."""

    def __init__(self, settings: Settings, embedded: EmbeddedProcess) -> None:
        self._settings = settings
        self._embedded = embedded
        self._ollama: ModelServer | None = None
        self._child: ModelServer | None = None
        # Two who ask for a server at once must get the same one: a second would never be closed.
        self._one_connect = asyncio.Lock()
        self._one_look = asyncio.Lock()
        self._next_look: asyncio.Task[None] | None = None
        self._looks: set[asyncio.Task[None]] = set()
        self._looked_at: float | None = None
        self._trouble = ""
        # Called whenever another server answers, or it offers other models.
        self.on_change: Callable[[], None] = lambda: None
        self.kind: BackendKind = "none"
        self.models: list[ModelInfo] = []
        # The windows that a person chose, by the models' names.
        self.windows: dict[str, int] = {}
        # Where other servers may have chosen some meanwhile: how these are looked up.
        self.read_windows: Callable[[], Awaitable[dict[str, int]]] | None = None

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
        await asyncio.shield(self.look_again())

    def look_again(self) -> asyncio.Task[None]:
        """Begin a look beside what the caller does. All who ask before it begins share it; one under way may have seen
        what was, so they get the next."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look())
            self._looks.add(self._next_look)
            self._next_look.add_done_callback(self._looks.discard)
        return self._next_look

    async def known(self, seconds: float) -> None:
        """Wait for the first look, but no longer than `seconds`; what was seen a while ago is looked at again beside."""
        if self._looked_at is not None:
            if self._age() >= WATCH_SECONDS:
                self.look_again()
        elif self._looks:
            await asyncio.wait(self._looks, timeout=seconds)

    async def watch(self) -> None:
        """Notice, until cancelled, that Ollama comes or goes, and that its models change. Asks as little as it can."""
        if self._settings.embedded == "always":
            return
        misses = 0
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            is_alive = await (await self._ollama_server()).is_alive()
            misses = 0 if is_alive or self.kind != "ollama" else misses + 1
            if misses >= MISSES_UNTIL_GONE or (is_alive and self._is_outdated()):
                misses = 0
                await self.refresh()

    def _is_outdated(self) -> bool:
        """Whether an Ollama that answers may offer something else than what is known of it."""
        return self.kind != "ollama" or not self.models or self._age() >= LOOK_SECONDS

    def _age(self) -> float:
        """Seconds since the last look; endless before the first."""
        return math.inf if self._looked_at is None else time.monotonic() - self._looked_at

    async def bind(self, chat_id: str, name: str | None, parameters: Mapping[str, Any]) -> BoundModel:
        """The model for the chat, which chose `name` (None: the default) and `parameters`. Raises a ModelError that says what to do."""
        await self._meet_ollama()
        if self.read_windows is not None:
            self.windows = await self.read_windows()
        if self.kind == "embedded":
            await self._embedded_server()
        if self.kind == "none":
            raise ModelUnavailable(f"No model answers: there is no Ollama at {self.address}. Start it with 'ollama serve' and try again.")
        wanted = name or self.default_model
        if wanted is None:
            raise ModelNotFound("Ollama has no model yet. Pull one, here or with 'ollama pull qwen3:4b', and try again.")
        info = await self.find(wanted)
        if info is None:
            raise self._missing(wanted)
        server = await (self._ollama_server() if self.kind == "ollama" else self._embedded_server())
        return BoundModel(server, info, self.num_ctx(info), chat_id, parameters)

    async def find(self, name: str) -> ModelInfo | None:
        """The model of that name, also when it has only just come; None when the server has none."""
        info = self._info(name)
        if info is None:
            await self.refresh()
            info = self._info(name)
        return info

    def num_ctx(self, info: ModelInfo) -> int:
        """The window of a model, one constant for all chats: another value makes the server load the model again."""
        chosen = self.windows.get(info.name)
        if chosen is not None:
            return min(chosen, info.context_length or chosen)
        return min(self._settings.num_ctx or DEFAULT_NUM_CTX, info.context_length or UNKNOWN_CONTEXT_LENGTH)

    async def puller(self) -> ModelServer:
        """The Ollama that can fetch models. Raises ModelUnavailable, saying what to do, when none answers."""
        if self._settings.embedded == "always":
            raise ModelUnavailable("Models are pulled by Ollama, and this server uses the embedded model only. Start it with CLEANROOM_EMBEDDED=auto.")
        await self._meet_ollama()
        if self.kind != "ollama":
            raise ModelUnavailable(f"Models are pulled by Ollama, and there is none at {self.address}. Start it with 'ollama serve' and pull again.")
        return await self._ollama_server()

    async def close(self) -> None:
        if looks := list(self._looks):
            await asyncio.wait(looks, timeout=END_SECONDS)
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        for server in (self._ollama, self._child):
            if server is not None:
                await server.close()
        await self._embedded.close()

    async def _look(self) -> None:
        async with self._one_look:
            self._next_look = None
            before = (self.kind, self.models)
            try:
                server = await self._find()
                self.models = await server.list_models()
                self.kind, trouble = server.kind, ""
            except ModelError as error:
                self.kind, self.models, trouble = "none", [], error.message
            if trouble and trouble != self._trouble:
                logger.info("no model server answers: %s", trouble)
            self._trouble = trouble
            self._looked_at = time.monotonic()
            if before != (self.kind, self.models):
                self.on_change()

    def _info(self, name: str) -> ModelInfo | None:
        return next((model for model in self.models if model.name in (name, f"{name}:latest")), None)

    def _missing(self, name: str) -> ModelError:
        if self.kind == "embedded":
            return ModelUnavailable(
                f"The model '{name}' needs Ollama, and there is none at {self.address}. Start it, or choose the embedded model for this chat."
            )
        return ModelNotFound(f"Ollama has no model '{name}'. Pull it, here or with 'ollama pull {name}', or choose another model for this chat.")

    async def _meet_ollama(self) -> None:
        """Look again when Ollama may have come since the last look."""
        if self.kind == "none" or (self.kind == "embedded" and await self._ollama_came()):
            await self.refresh()

    async def _find(self) -> ModelServer:
        mode = self._settings.embedded
        if mode == "never" or (mode == "auto" and await self._ollama_came()):
            return await self._ollama_server()
        return await self._embedded_server()

    async def _ollama_came(self) -> bool:
        return self._settings.embedded == "auto" and await (await self._ollama_server()).is_alive()

    async def _ollama_server(self) -> ModelServer:
        async with self._one_connect:
            if self._ollama is None:
                self._ollama = await self._connect(self._settings.ollama_url, "ollama")
            return self._ollama

    async def _embedded_server(self) -> ModelServer:
        """The embedded model's server; its child is started again when it has died, with another address."""
        url = await self._embedded.url()
        async with self._one_connect:
            if self._child is None or self._child.url != url:
                if self._child is not None:
                    await self._child.close()
                self._child = await self._connect(url, "embedded")
            return self._child

    async def _connect(self, url: str, kind: Literal["ollama", "embedded"]) -> ModelServer:
        model_server = await asyncio.to_thread(_model_server)
        return model_server(url, kind, first_token_seconds=self._settings.first_token_seconds)


@cache
def _model_server() -> type[ModelServer]:
    # The HTTP clients take longer to import than all the rest, and the page can be served without them.
    module = importlib.import_module("backend.llm.model")
    gc.freeze()  # as after the start: these are most of what the collector would look through again and again
    return cast("type[ModelServer]", module.ModelServer)
