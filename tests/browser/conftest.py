"""Real Chromium against a real server process, which asks a scripted model server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from backend.settings import PROJECT_FOLDER
from tests.fake_ollama import FakeModel, FakeOllamaThread

CHROMIUM_FLAGS = ("--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync").split()
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")

# What a person who waits would still take for "at once" on a busy machine, and a failed test beyond it.
PATIENCE_MS = 10_000


@dataclass
class Site:
    """A running server of a test's own."""

    url: str
    fake: FakeOllamaThread


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = next(path for name in CHROMIUM_NAMES if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield started
        started.close()


@pytest.fixture
def fake() -> Iterator[FakeOllamaThread]:
    with FakeOllamaThread([FakeModel("qwen3:4b")]) as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, fake: FakeOllamaThread) -> Iterator[Site]:
    environment = os.environ | {
        "CLEANROOM_PORT": "0",
        "CLEANROOM_DATABASE_URL": f"sqlite:///{tmp_path / 'cleanroom.db'}",
        "CLEANROOM_EMBEDDED": "never",
        "OLLAMA_HOST": fake.url,
    }
    command = [sys.executable, "-m", "backend"]
    with subprocess.Popen(command, cwd=PROJECT_FOLDER, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            ready = server.stdout.readline()
            assert ready.startswith("Cleanroom is ready at "), ready
            yield Site(ready.split()[-1], fake)
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(10) == 0


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, site: Site) -> Iterator[OpenPage]:
    """Open pages by `open_page(locale="ru-RU")`. A console error, or a request to another host, fails the test."""
    troubles: list[str] = []
    contexts = []

    def watch_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            troubles.append(f"console {message.type}: {message.text}")

    def watch_request(request: Request) -> None:
        if not request.url.startswith((site.url, "data:")):
            troubles.append(f"request to {request.url}")

    def open_one(locale: str = "ru-RU", path: str = "/", **options: object) -> Page:
        context = browser.new_context(locale=locale, **options)  # type: ignore[arg-type]
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
    assert troubles == []
