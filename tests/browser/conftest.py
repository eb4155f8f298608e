"""Real Chromium against a real server process, which asks a scripted model server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from websockets.sync.client import connect

from backend.settings import PROJECT_FOLDER
from tests.browser.recording_proxy import RecordingProxy
from tests.fake_ollama import FakeModel, FakeOllamaThread
from tests.server import make_settings, migrated_database, running

# The features are pages of Chromium's own for the address bar of each context, which cost more than ours.
CHROMIUM_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync "
    "--disable-features=WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,WebUIOmniboxPopup,PreloadTopChromeWebUI,AutofillServerCommunication"
).split()
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")

# What a person who waits would still take for "at once" on a busy machine, and a failed test beyond it.
PATIENCE_MS = 30_000


@dataclass
class Site:
    """A running server of a test's own."""

    url: str
    fake: FakeOllamaThread
    server: ServerThread | ServerProcess

    def offer(self, *models: FakeModel) -> None:
        """Have the model server offer these, and Cleanroom know of it: it may have looked before."""
        self.fake.server.models[:] = models
        with connect(self.url.replace("http", "ws", 1) + "/ws") as socket:
            socket.send(json.dumps({"type": "models.refresh", "ref": "offer"}))
            while json.loads(socket.recv(PATIENCE_MS / 1000)).get("ref") != "offer":
                pass


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = next(path for name in CHROMIUM_NAMES if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def proxy() -> Iterator[RecordingProxy]:
    with RecordingProxy() as started:
        yield started


@pytest.fixture
def fake() -> Iterator[FakeOllamaThread]:
    with FakeOllamaThread([FakeModel("qwen3:4b")]) as server:
        yield server


class ServerThread:
    """A server in a thread of this process, which saves each test the second that the imports take."""

    def __init__(self, folder: Path, ollama_url: str, **values: Any) -> None:
        self._settings = make_settings(folder, ollama_url=ollama_url, **values)
        self._stack = ExitStack()
        self.url = ""

    def start(self) -> None:
        """Start it, the second time at the same address."""
        portal = self._stack.enter_context(start_blocking_portal())
        address = self._stack.enter_context(portal.wrap_async_context_manager(running(self._settings)))
        self._settings = self._settings.model_copy(update={"port": int(address.rpartition(":")[2])})
        self.url = f"http://{address}"

    def end(self) -> None:
        self._stack.close()

    def change(self, **values: object) -> None:
        """Start it anew with other settings."""
        self.end()
        self._settings = self._settings.model_copy(update=values)
        self.start()


class ServerProcess:
    """A server process on a database of its own, which can be killed and started again at the same address."""

    def __init__(self, folder: Path, ollama_url: str, project: Path = PROJECT_FOLDER, **environment: str) -> None:
        database = folder / "cleanroom.db"
        if not database.exists():
            database.write_bytes(migrated_database())
        self._project = project
        self._environment = os.environ | {
            "CLEANROOM_PORT": "0",
            "CLEANROOM_DATABASE_URL": f"sqlite:///{database}",
            "CLEANROOM_EMBEDDED": "never",
            "OLLAMA_HOST": ollama_url,
            **environment,
        }
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "backend"], cwd=self._project, env=self._environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready.startswith("Cleanroom is ready at "), ready
        self.url = ready.split()[-1]
        self._environment["CLEANROOM_PORT"] = self.url.rpartition(":")[2].strip("/")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and wait; the exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with process:
            process.send_signal(number)
            return process.wait(10)


@pytest.fixture
def site(tmp_path: Path, fake: FakeOllamaThread) -> Iterator[Site]:
    server = ServerThread(tmp_path, fake.url)
    server.start()
    yield Site(server.url, fake, server)
    server.end()


@pytest.fixture
def project() -> Path:
    """The folder whose server and page are tried by `process_site`."""
    return PROJECT_FOLDER


@pytest.fixture
def process_site(tmp_path: Path, fake: FakeOllamaThread, project: Path) -> Iterator[Site]:
    """A site whose server is a process of its own, to be killed or to serve another folder."""
    server = ServerProcess(tmp_path, fake.url, project)
    server.start()
    yield Site(server.url, fake, server)
    assert server.end() == 0


@pytest.fixture
def loose_page(browser: Browser, site: Site) -> Iterator[Page]:
    """A page whose console may complain: the browser itself tells of a lost connection and of a refusal there."""
    with closing(browser.new_context(locale="en-GB")) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(site.url)
        yield page


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, site: Site, proxy: RecordingProxy) -> Iterator[OpenPage]:
    """Open pages by `open_page(locale="ru-RU")`. A console error fails the test, and so does anything that leaves this machine.

    Their way out is a proxy, which sees what the browser itself does not tell of.
    """
    troubles: list[str] = []
    contexts = []

    def watch_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            troubles.append(f"console {message.type}: {message.text}")

    def watch_request(request: Request) -> None:
        if not request.url.startswith((site.url, "data:")):
            troubles.append(f"request to {request.url}")

    def open_one(locale: str = "ru-RU", path: str = "/", **options: object) -> Page:
        context = browser.new_context(locale=locale, proxy={"server": proxy.url, "bypass": "127.0.0.1"}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", watch_console)
        page.on("pageerror", lambda error: troubles.append(f"page error: {error}"))
        context.on("request", watch_request)
        page.goto(site.url + path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    asked, proxy.asked[:] = proxy.asked[:], []
    assert (troubles, asked) == ([], [])
