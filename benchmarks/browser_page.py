"""The page in a real Chromium: what its loads take, and what it is busy with while chats stream."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from playwright.async_api import Browser, Page, Request, async_playwright, expect

from tests.browser.conftest import CHROMIUM_FLAGS, CHROMIUM_NAMES

COMPOSER = "[data-composer] textarea"
PATIENCE_MS = 60_000
# With no request for so long a page has loaded all that it loads by itself.
QUIET_SECONDS = 0.5

# The moment of the first frame that shows what was typed, in milliseconds since the page was asked for.
NOTE_TYPING = "addEventListener('input', () => requestAnimationFrame(() => window.typedAtMs ??= performance.now()), true)"
# Tasks of more than 50 ms, during which the page answers nothing.
NOTE_LONG_TASKS = """() => {
  window.longTasksMs = [];
  new PerformanceObserver((list) => window.longTasksMs.push(...list.getEntries().map((entry) => entry.duration))).observe({ entryTypes: ["longtask"] });
}"""


@dataclass(frozen=True, slots=True)
class Load:
    """One load of the page. Requests are those that reached the server, the service worker's among them; bytes are those of the answers."""

    requests: int
    bytes: int
    interactive_ms: float


def chromium() -> str | None:
    """The program, if there is one."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        yield started
        await started.close()


@asynccontextmanager
async def page_with_tabs(started: Browser, url: str, chat_ids: Sequence[str], slowdown: float) -> AsyncIterator[Page]:
    """A page of a new profile that remembers these chats as its tabs, the last in front; its processor is so many times slower."""
    tabs = {"name": "cleanroom.tabs", "value": json.dumps({"open": list(chat_ids), "active": chat_ids[-1]})}
    remembered = {"cookies": [], "origins": [{"origin": url, "localStorage": [tabs]}]}
    context = await started.new_context(locale="en-GB", storage_state=remembered)  # type: ignore[arg-type]
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.add_init_script(NOTE_TYPING)
    session = await context.new_cdp_session(page)
    await session.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
    yield page
    await context.close()


async def load(page: Page, url: str) -> Load:
    """Load the page until its composer takes a character, and wait for what it loads afterwards."""
    finished: list[Request] = []

    def note(request: Request) -> None:
        finished.append(request)

    page.context.on("requestfinished", note)
    await page.goto(url, wait_until="commit")
    await page.locator(COMPOSER).press("a")
    typed_at = await page.wait_for_function("window.typedAtMs")
    seen = -1
    while len(finished) > seen:
        seen = len(finished)
        await asyncio.sleep(QUIET_SECONDS)
    page.context.remove_listener("requestfinished", note)
    sizes = [size for request in finished if (size := await _wire_bytes(request))]
    return Load(len(sizes), sum(sizes), float(await typed_at.json_value()))


async def _wire_bytes(request: Request) -> int:
    """The bytes of its answer with head and body; 0 when the browser or its service worker answered from what they had."""
    answer = await request.response()
    if answer is None or answer.from_service_worker:
        return 0
    sizes = await request.sizes()
    return sizes["responseHeadersSize"] + sizes["responseBodySize"]


async def show_tabs(page: Page, url: str, count: int) -> None:
    """Open the page, wait until its tabs are there, and note long tasks from then on."""
    await page.goto(url)
    await expect(page.get_by_role("tab")).to_have_count(count, timeout=PATIENCE_MS)
    await page.locator(COMPOSER).wait_for()
    await page.evaluate(NOTE_LONG_TASKS)


async def long_tasks_ms(page: Page) -> list[float]:
    """The long tasks until no tab shows a reply under way."""
    await expect(page.locator("[role=tab][data-running=true]")).to_have_count(0, timeout=PATIENCE_MS)
    found: list[float] = await page.evaluate("window.longTasksMs")
    return found
