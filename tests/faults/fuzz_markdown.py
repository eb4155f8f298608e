"""Random hostile Markdown in a real browser, with the page's own modules: see fuzz_markdown.mjs.

python -m tests.faults.fuzz_markdown --minutes 3
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import CHROMIUM_FLAGS, CHROMIUM_NAMES, ServerThread
from tests.fake_ollama import FakeOllamaThread

FUZZER = Path(__file__).with_suffix(".mjs")
CHECKS = ("kept", "drawn", "tree")
# The page may not be busy for longer at a time.
ROUND_SECONDS = 5.0

TRY = """async ([checks, seed, milliseconds]) => {
    const [fuzzer, blocks, { renderBlock }] = await Promise.all(["/fuzz_markdown.mjs", "/js/blocks.js", "/js/markdown.js"].map((name) => import(name)));
    const draw = (token) => {
        const drawn = document.createElement("div");
        drawn.append(token.type === "code" ? token.text : renderBlock(token));
        return drawn.innerHTML;
    };
    return fuzzer.explore({ ...blocks, renderBlock, draw }, checks, seed, milliseconds);
}"""


def explore(checks: tuple[str, ...], seconds: float, seed: int) -> dict[str, dict[str, Any]]:
    """For each check how many texts were tried, how many failed, and the shortest that did. Nothing may be fetched meanwhile."""
    executable = next(path for name in CHROMIUM_NAMES if (path := shutil.which(name)))
    with TemporaryDirectory() as folder, FakeOllamaThread() as fake, sync_playwright() as playwright:
        server = ServerThread(Path(folder), fake.url)
        server.start()
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        try:
            return _explore_in(browser.new_page(), server.url, checks, seconds, seed)
        finally:
            browser.close()
            server.end()


def _explore_in(page: Page, url: str, checks: tuple[str, ...], seconds: float, seed: int) -> dict[str, dict[str, Any]]:
    page.route("**/fuzz_markdown.mjs", lambda route: route.fulfill(body=FUZZER.read_text(), content_type="text/javascript"))
    page.goto(url)
    page.evaluate(TRY, [checks, seed, 0])  # what the modules themselves fetch
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    total: dict[str, dict[str, Any]] = {check: {"tried": 0, "failures": 0, "shortest": None} for check in checks}
    left = seconds
    while left > 0:
        figures = page.evaluate(TRY, [checks, seed, min(left, ROUND_SECONDS) * 1000])
        for check, found in figures.items():
            total[check] = _sum(total[check], found)
        seed += max(found["tried"] for found in figures.values())
        left -= ROUND_SECONDS
    assert fetched == [], f"what was drawn fetched {fetched[:3]}"
    return total


def _sum(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    failing = [example for example in (first["shortest"], second["shortest"]) if example]
    return {
        "tried": first["tried"] + second["tried"],
        "failures": first["failures"] + second["failures"],
        "shortest": min(failing, key=lambda example: len(example["text"]), default=None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    figures = explore(CHECKS, options.minutes * 60, options.seed)
    print(json.dumps(figures, ensure_ascii=False, indent=1))
    raise SystemExit(any(found["failures"] for found in figures.values()))


if __name__ == "__main__":
    main()
