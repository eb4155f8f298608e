"""axe over the page's main states: both themes, both languages, wide and at 320 px, where nothing may scroll sideways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from backend.pages import NODE_MODULES
from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_facts import idle
from tests.browser.test_page import ENGLISH, RUSSIAN, Words, send, start_chat

AXE = NODE_MODULES / "axe-core" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class View:
    """How a person looks at the page."""

    words: Words
    theme: Literal["light", "dark"]
    width: int

    def __str__(self) -> str:
        return f"{self.words.locale[:2]}-{self.theme}-{self.width}"


VIEWS = [
    View(RUSSIAN, "dark", 320),
    View(ENGLISH, "light", 1360),
    pytest.param(View(RUSSIAN, "light", 320), marks=pytest.mark.long),
    pytest.param(View(ENGLISH, "dark", 1360), marks=pytest.mark.long),
]


@pytest.fixture(params=VIEWS, ids=str)
def view(request: pytest.FixtureRequest) -> View:
    chosen: View = request.param
    return chosen


@pytest.fixture
def page(open_page: OpenPage, view: View) -> Page:
    # No motion: axe must not measure a colour that is half-way.
    return open_page(view.words.locale, color_scheme=view.theme, reduced_motion="reduce", viewport={"width": view.width, "height": 800})


def check(page: Page) -> None:
    """Nothing for axe to find, and nothing wider than the window."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    # The rule on the size of targets is off by itself.
    options = {"runOnly": LEVELS, "rules": {"target-size": {"enabled": True}}}
    found: list[dict[str, Any]] = page.evaluate("options => axe.run(document, options).then(result => result.violations)", options)
    assert [(finding["id"], [(node["html"], node["failureSummary"]) for node in finding["nodes"]]) for finding in found] == []
    wide = page.evaluate(
        "[...document.querySelectorAll('html, body, .app, .scroll, .inspector, dialog')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.className)"
    )
    assert wide == []


def open_inspector(page: Page) -> None:
    """Beside the conversation it is open from the start; over it, it is asked for."""
    inspector = page.locator("[data-inspector]")
    toggle = page.locator(".inspector-toggle")
    if toggle.get_attribute("aria-expanded") == "false":
        toggle.click()
    expect(inspector.locator("[data-facts]")).to_be_visible()
    expect(inspector.locator("[data-part=tools]")).to_be_visible()


def test_a_conversation_with_cards_and_the_banner(page: Page, view: View, site: Site) -> None:
    start_chat(page, view.words)
    code = "Готово. `код`\n\n```python\nprint('x' * 200)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    site.fake.script(script.call("system_prompt_draft", {"content": "Кратко.\n" + "слово" * 60}, thought="Hm."), script.reply(code))
    send(page, "Сделай промпт " + "ы" * 200)
    idle(page)
    page.locator("[data-kind=diff]").get_by_role("button", name=view.words.apply).click()
    expect(page.locator("[data-banner]")).to_be_visible()
    site.fake.script(script.err_first())
    send(page, "?")
    expect(page.locator("[data-failure]")).to_be_visible()
    check(page)


def test_a_change_that_waits(page: Page, view: View, site: Site) -> None:
    start_chat(page, view.words)
    if view.width < 700:
        page.locator(".list-toggle").click()
    page.locator("[data-chat-row] .row-menu").click()
    check(page)
    page.get_by_role("menuitemcheckbox").click()
    if view.width < 700:
        page.keyboard.press("Escape")
    site.fake.script(script.call("note_save", {"title": "Протокол", "content": "слово " * 80}))
    send(page, "?")
    expect(page.locator("[data-turn=approval]")).to_be_visible()
    check(page)


def test_an_empty_workspace_an_empty_chat_and_a_tool_by_hand(page: Page, view: View) -> None:
    expect(page.locator("[data-action=new-chat]")).to_be_visible()
    check(page)
    start_chat(page, view.words)
    check(page)
    box = page.locator("[data-composer] textarea")
    box.fill("/")
    expect(page.locator(".slash-menu")).to_be_visible()
    check(page)
    box.fill("/note_save")
    box.press("Enter")
    form = page.locator("[data-tool-form]")
    form.locator("[name=title]").fill("x" * 300)
    form.locator("[name=content]").fill("x")
    form.locator("[name=content]").press("Control+Enter")
    expect(form.locator("[aria-invalid=true]")).to_be_focused()
    check(page)


def test_the_inspector_with_facts_and_the_dialogs(page: Page, view: View) -> None:
    start_chat(page, view.words)
    open_inspector(page)
    for summary in page.locator(".fact-groups > li > details > summary, [data-part=tools] > details > summary").all():
        summary.click()
    for field, text in (("task_add", "купить " + "о" * 80), ("snapshot_take", "до правок")):
        page.locator(f"[data-add={field}] input").fill(text)
        page.locator(f"[data-add={field}] input").press("Enter")
        expect(page.locator(f"[data-add={field}] input")).to_have_value("")
        idle(page)
    expect(page.locator("[data-task-id]")).to_be_visible()
    expect(page.locator("[data-snapshot-id]")).to_be_visible()
    check(page)
    page.locator("[data-task-id] [data-action=delete]").click()
    page.locator("[data-fact-group=deleted] summary").click()
    check(page)
    page.locator("[data-action=new-note]").click()
    in_dialog(page, "note")
    if view.width < 700:
        page.keyboard.press("Escape")
        page.locator(".list-toggle").click()
    page.locator("[data-chat-row] .row-menu").click()
    page.locator(".menu:popover-open .danger").click()
    in_dialog(page, "delete")


def in_dialog(page: Page, name: str) -> None:
    expect(page.locator(f"[data-dialog={name}]")).to_be_visible()
    check(page)
    page.keyboard.press("Escape")
    expect(page.locator(f"[data-dialog={name}]")).to_have_count(0)
