"""Many chats at once: forty open tabs of which ten stream, and a list of five hundred."""

from __future__ import annotations

import asyncio

import pytest
from playwright.sync_api import Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_chats import elsewhere, new_chats, row, start
from tests.browser.test_page import send

pytestmark = pytest.mark.long

TABS = 40
STREAMING = 10

# Pieces of a reply, each of which a page may draw.
TOKENS = 300

# What the page was busy with for longer than a person would take for "at once" when typing.
WATCH = """() => {
  window.longTasks = [];
  new PerformanceObserver(list => window.longTasks.push(...list.getEntries().map(entry => Math.round(entry.duration)))).observe({ entryTypes: ['longtask'] });
}"""

expect.set_options(timeout=PATIENCE_MS)


def open_all(page: Page, chats: list[str]) -> None:
    """Open the page anew with a tab for each chat, the last in front, as it remembers them."""
    page.evaluate("tabs => localStorage.setItem('cleanroom.tabs', JSON.stringify(tabs))", {"open": chats, "active": chats[-1]})
    page.reload()
    expect(page.get_by_role("tab")).to_have_count(len(chats))
    expect(page.locator("[data-composer] textarea")).to_be_visible()


def long_tasks(page: Page) -> list[int]:
    tasks: list[int] = page.evaluate("window.longTasks")
    return sorted(tasks, reverse=True)


def test_forty_tabs_of_which_ten_stream(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    chats = new_chats(page, *(f"Chat {number}" for number in range(1, TABS + 1)))
    open_all(page, chats)
    page.evaluate(WATCH)
    gate = asyncio.Event()
    begin, tokens, end = script.text("Begun "), script.many_tokens(TOKENS, seconds=0.01), script.done()
    site.fake.script(*([begin, script.hold(gate), tokens, end] for _ in range(STREAMING)))
    elsewhere(page, *({"type": "message.send", "chat_id": chat, "client_id": chat, "text": "Go"} for chat in chats[:STREAMING]))
    running = page.locator("[role=tab][data-running=true]")
    expect(running).to_have_count(STREAMING)

    # The strip scrolls, and what is in front is in view.
    strip = page.get_by_role("tablist")
    assert strip.evaluate("strip => strip.scrollWidth > strip.clientWidth")
    expect(page.get_by_role("tab", name=f"Chat {TABS}")).to_be_in_viewport()
    page.keyboard.press("Alt+1")
    expect(page.get_by_role("tab", name="Chat 1", exact=False).first).to_be_in_viewport()
    site.fake.call(gate.set)
    box = page.locator("[data-composer] textarea")
    box.press_sequentially("Typed while ten replies stream", delay=20)
    expect(box).to_have_value("Typed while ten replies stream")

    expect(running).to_have_count(0)
    expect(page.locator("[data-role=assistant]")).to_have_attribute("data-status", "complete")
    expect(page.get_by_role("tab").locator(".badge")).to_have_count(STREAMING - 1)
    print("long tasks, ms:", long_tasks(page))
    check(page)

    # All of them in a menu, which also closes the others.
    page.locator(".tab-menu").click()
    entries = page.locator(".menu:popover-open")
    expect(entries.get_by_role("menuitemradio")).to_have_count(TABS)
    check(page)
    entries.get_by_role("menuitemradio", name="Chat 33").click()
    expect(page.get_by_role("tab", name="Chat 33")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tab", name="Chat 33")).to_be_in_viewport()
    page.locator(".tab-menu").click()
    page.get_by_role("menuitem", name="Close the others").click()
    expect(page.get_by_role("tab")).to_have_count(1)
    expect(page.locator("[data-chat-row]")).to_have_count(TABS)


def test_tabs_are_moved_and_closed_by_keys_and_by_the_mouse(open_page: OpenPage) -> None:
    page = start(open_page)
    open_all(page, new_chats(page, "One", "Two", "Three"))
    tabs = page.get_by_role("tab")
    tabs.last.focus()
    page.keyboard.press("Control+Shift+PageUp")
    expect(tabs).to_have_text(["One", "Three", "Two"])
    expect(page.get_by_role("tab", name="Three")).to_be_focused()
    page.reload()
    expect(tabs).to_have_text(["One", "Three", "Two"])
    page.get_by_role("tab", name="Two").click(button="middle")
    expect(tabs).to_have_text(["One", "Three"])
    page.keyboard.press("Alt+1")
    expect(page.get_by_role("tab", name="One")).to_have_attribute("aria-selected", "true")
    page.locator(".tab-menu").click()
    page.get_by_role("menuitem", name="Close all").click()
    expect(page.locator(".hero")).to_be_visible()


def test_a_list_of_five_hundred_chats_stays_at_hand(open_page: OpenPage) -> None:
    page = start(open_page)
    new_chats(page, *(f"Subject {number}" for number in range(500)))
    page.reload()
    rows = page.locator("[data-chat-row]")
    expect(rows).to_have_count(500)
    page.evaluate(WATCH)
    page.get_by_role("searchbox").fill("Subject 499")
    expect(rows).to_have_count(1)
    row(page, "Subject 499").locator(".chat-name").click()
    page.get_by_role("searchbox").fill("")
    expect(rows).to_have_count(500)
    send(page, "Hello")
    expect(page.locator("[data-role=assistant]")).to_have_attribute("data-status", "complete")
    expect(rows.first).to_contain_text("Subject 499")
    # A menu's items are drawn when it is opened: five hundred closed ones cost nothing.
    assert page.locator(".menu button").count() == 0
    print("long tasks, ms:", long_tasks(page))
