"""Other chat programs for Ollama, to measure beside Cleanroom: installed, started, and driven as their own pages drive them.

Each has a virtual environment of its own under `.peers`.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil
from aiohttp import ClientSession, TCPConnector

from benchmarks.processes import PROJECT, SERVER_CORE, Running, free_port, serving
from benchmarks.scripted_model import MODEL, ask
from benchmarks.socket_io import SocketIO
from benchmarks.subjects import Chat, Heard, Subject

ENVIRONMENTS = PROJECT / ".peers"
# What their own requirements leave open is taken as it was on this day.
RELEASED_BEFORE = "2026-12-01"
PYTHON = ">=3.11,<3.13"
# The header by which a company's sign-in tells Open WebUI who someone is.
EMAIL_HEADER = "X-Email"


@dataclass(frozen=True, slots=True)
class Peer:
    """A program to measure.

    `serve` takes the folder of its programs, one for its files and the model server's address. `opens` takes its own
    address and gives what opens a chat. `left_out` are packages that it asks for, and that no chat of plain text loads.
    """

    name: str
    requirements: tuple[str, ...]
    serve: Callable[[Path, Path, str], AbstractContextManager[Running]]
    opens: Callable[[str], Callable[[], AbstractAsyncContextManager[Chat]]]
    left_out: tuple[str, ...] = ()

    @property
    def environment(self) -> Path:
        return ENVIRONMENTS / self.name.lower().replace(" ", "-")

    def install(self) -> None:
        """Install it, with its pinned version, unless that is there. Raises CalledProcessError when it can't be."""
        stamp = self.environment / "installed.txt"
        wanted = "\n".join([*self.requirements, *(f"not {package}" for package in self.left_out), RELEASED_BEFORE])
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"installing {self.name} …", flush=True)
        _uv("venv", "--clear", "--python", PYTHON, str(self.environment))
        left_out = self.environment / "left-out.txt"
        left_out.write_text("\n".join(self.left_out))
        python = str(self.environment / "bin" / "python")
        _uv("pip", "install", "--python", python, "--excludes", str(left_out), "--exclude-newer", RELEASED_BEFORE, *self.requirements)
        stamp.write_text(wanted)


def _uv(*arguments: str) -> None:
    subprocess.run([Path(sys.executable).with_name("uv"), *arguments, "--quiet"], check=True)


@contextmanager
def peers(folder: Path, model_url: str) -> Iterator[list[Subject]]:
    """All of them, installed, each with a server of its own that keeps its files in `folder`."""
    for peer in PEERS:
        peer.install()
    with ExitStack() as stack:
        yield [_started(peer, stack, folder, model_url) for peer in PEERS]


def _started(peer: Peer, stack: ExitStack, folder: Path, model_url: str) -> Subject:
    own_folder = folder / peer.name
    own_folder.mkdir()
    server = stack.enter_context(peer.serve(peer.environment / "bin", own_folder, model_url))
    return Subject(peer.name, peer.opens(server.url), psutil.Process(server.process.pid))


def chainlit(programs: Path, folder: Path, model_url: str) -> AbstractContextManager[Running]:
    port = free_port()
    command = [str(programs / "chainlit"), "run", "--headless", "--host", "127.0.0.1", "--port", str(port), str(PROJECT / "benchmarks" / "chainlit_app.py")]
    environment = {"CHAINLIT_APP_ROOT": str(folder), "OLLAMA_HOST": model_url, "MODEL": MODEL}
    return serving(command, port, folder / "log", environment=environment, core=SERVER_CORE)


class ChainlitChat:
    """A chat of Chainlit's page: everything goes through its socket, and nothing is saved."""

    def __init__(self, socket: SocketIO) -> None:
        self._socket = socket

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[ChainlitChat]:
        auth = {"clientType": "webapp", "sessionId": str(uuid.uuid4()), "threadId": "", "userEnv": "{}", "chatProfile": ""}
        async with SocketIO.open(f"{url}/ws/socket.io", auth) as socket:
            await socket.emit("connection_successful")
            await socket.emit("fetch_favorites")
            while (await socket.event())[0] != "clear_call_fn":
                pass  # the last of what it says to a page that has come
            yield cls(socket)
            await socket.emit("clear_session")

    async def ask(self, count: int, rate: float) -> Heard:
        heard = Heard()
        message = {
            "threadId": "",
            "id": str(uuid.uuid4()),
            "name": "User",
            "type": "user_message",
            "output": ask(count, rate),
            "createdAt": datetime.now(UTC).isoformat(),
        }
        await self._socket.emit("client_message", {"message": message, "fileReferences": []})
        while True:
            event, data = await self._socket.event()
            if event == "stream_start":
                heard.take(data["output"])
            elif event == "stream_token":
                heard.take(data["token"])
            elif event == "new_message" and data.get("isError"):
                raise ConnectionError(data["output"])
            elif event == "task_end":
                return heard


def open_webui(programs: Path, folder: Path, model_url: str) -> AbstractContextManager[Running]:
    port = free_port()
    command = [str(programs / "open-webui"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    environment = {
        "DATA_DIR": str(folder),
        "STATIC_DIR": str(folder / "static"),
        "OLLAMA_BASE_URL": model_url,
        "ENABLE_OPENAI_API": "false",
        # It must look for nothing outside, and needs no model of its own for what is asked here.
        "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1",
        "RAG_EMBEDDING_ENGINE": "ollama",
        "WEBUI_SECRET_KEY": secrets.token_hex(),
        "WEBUI_AUTH_TRUSTED_EMAIL_HEADER": EMAIL_HEADER,
        "DEFAULT_USER_ROLE": "user",
        "BYPASS_MODEL_ACCESS_CONTROL": "true",
        "GLOBAL_LOG_LEVEL": "WARNING",
    }
    return serving(command, port, folder / "log", environment=environment, core=SERVER_CORE)


class OpenWebUI:
    """The people of Open WebUI: each open chat is another's, since all pages of one person get the tokens of all of their chats."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle_tokens: list[str] = []

    @asynccontextmanager
    async def chat(self) -> AsyncIterator[OpenWebUIChat]:
        # A browser asks again when the server has closed an idle connection, which this client does not: so none is kept.
        async with ClientSession(self._url, connector=TCPConnector(force_close=True), raise_for_status=True) as http:
            token = self._idle_tokens.pop() if self._idle_tokens else await self._sign_up(http)
            try:
                async with SocketIO.open(f"{self._url}/ws/socket.io", {"token": token}) as socket:
                    await socket.emit("user-join", {"auth": {"token": token}})
                    yield OpenWebUIChat(http, socket, token)
            finally:
                self._idle_tokens.append(token)

    async def _sign_up(self, http: ClientSession) -> str:
        headers = {EMAIL_HEADER: f"{uuid.uuid4().hex}@example.org"}
        async with http.post("/api/v1/auths/signin", json={"email": "", "password": ""}, headers=headers) as response:
            return str((await response.json())["token"])


class OpenWebUIChat:
    """A chat of Open WebUI's page: asked by a request and heard on its socket. It is saved; what the page has thought up
    beside the answer, such as a title, is not asked for."""

    def __init__(self, http: ClientSession, socket: SocketIO, token: str) -> None:
        self._http = http
        self._socket = socket
        self._token = token
        self._chat_id: str | None = None
        self._last_id: str | None = None

    async def ask(self, count: int, rate: float) -> Heard:
        heard = Heard()
        reply_id = str(uuid.uuid4())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(ask(count, rate), reply_id))
            await self._hear(heard, reply_id)
        self._last_id = reply_id
        return heard

    async def _send(self, text: str, reply_id: str) -> None:
        message = {
            "id": str(uuid.uuid4()),
            "parentId": self._last_id,
            "childrenIds": [reply_id],
            "role": "user",
            "content": text,
            "timestamp": int(time.time()),
            "models": [MODEL],
        }
        request = {
            "model": MODEL,
            "stream": True,
            "params": {},
            "features": {},
            "variables": {},
            "session_id": self._socket.session_id,
            "id": reply_id,
            "parent_id": self._last_id,
            "user_message": message,
            "background_tasks": {},
        }
        if self._chat_id:
            request["chat_id"] = self._chat_id
        async with self._http.post("/api/chat/completions", json=request, headers={"Authorization": f"Bearer {self._token}"}) as response:
            self._chat_id = (await response.json())["chat_id"]

    async def _hear(self, heard: Heard, reply_id: str) -> None:
        while True:
            name, event = await self._socket.event()
            if name != "events" or event.get("message_id") != reply_id:
                continue
            kind, data = event["data"]["type"], event["data"].get("data") or {}
            if kind == "chat:message:error" or data.get("error"):
                raise ConnectionError(f"Open WebUI answered {data.get('error')!r}")
            if data.get("type") == "response.output_text.delta":
                heard.take(data["delta"])
            elif kind == "chat:completion" and data.get("done"):
                return


PEERS = (
    Peer("Chainlit", ("chainlit==2.12.0", "ollama==0.6.3"), chainlit, lambda url: partial(ChainlitChat.open, url)),
    Peer("Open WebUI", ("open-webui==0.12.4",), open_webui, lambda url: OpenWebUI(url).chat, left_out=("torch",)),
)
PEER_NAMES = tuple(peer.name for peer in PEERS)
