"""A reply that is ready while the person looks elsewhere: counted in the title, told by the browser if they want it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_page import ENGLISH, send, start_chat

pytestmark = pytest.mark.long

expect.set_options(timeout=PATIENCE_MS)

# The person looks elsewhere while `window.away` is true. What is shown is recorded, and the answer to the question for
# permission is `window.answer`; the browser itself would ask nobody here.
WATCHED = """
window.away = false;
window.shown = [];
window.asked = 0;
window.answer ??= "granted";
Object.defineProperty(document, "hidden", { get: () => window.away });
Object.defineProperty(window, "isSecureContext", { get: () => !window.insecure });
window.Notification = class {
  static get permission() { return localStorage.getItem("test.permission") ?? "default"; }
  static async requestPermission() {
    window.asked++;
    localStorage.setItem("test.permission", window.answer);
    return window.answer;
  }
  constructor(title, options) { window.shown.push(Object.assign(this, { title, options, open: true })); }
  close() { this.open = false; }
};
"""


def watched_page(open_page: OpenPage, beforehand: str = "") -> Page:
    page = open_page(ENGLISH.locale)
    page.add_init_script(f"{beforehand};{WATCHED}")
    page.reload()
    return page


def look(page: Page, *, away: bool) -> None:
    page.evaluate("away => { window.away = away; document.dispatchEvent(new Event('visibilitychange')); }", away)


def shown(page: Page) -> list[dict[str, Any]]:
    return list(page.evaluate("window.shown.map(({title, options, open}) => ({title, body: options.body, open}))"))


def switch_on(page: Page) -> None:
    page.locator(".bar-preferences [data-action=notify]").click()


def reply_elsewhere(page: Page, site: Site, question: str) -> None:
    """Ask, look away, and have the reply come then."""
    gate = asyncio.Event()
    site.fake.script([script.text("Secret "), script.hold(gate), script.text("answer"), script.done()])
    send(page, question)
    expect(page.locator("[data-role=assistant]").last).to_contain_text("Secret")
    look(page, away=True)
    site.fake.call(gate.set)
    expect(page.locator("[data-role=assistant]").last).to_contain_text("Secret answer")
    expect(page).to_have_title(re.compile(r"^\(1\) "))


def test_what_is_told_is_the_title_and_a_click_leads_there(open_page: OpenPage, site: Site) -> None:
    page = watched_page(open_page)
    start_chat(page, ENGLISH)
    switch_on(page)
    expect(page.locator(".bar-preferences [data-action=notify]")).to_have_attribute("aria-pressed", "true")
    reply_elsewhere(page, site, "First question")
    assert shown(page) == [{"title": "First question", "body": "The reply is complete.", "open": True}]
    expect(page.locator("[data-notify-offer]")).to_have_count(0)

    page.keyboard.press("Alt+n")
    expect(page.get_by_role("tab")).to_have_count(2)
    expect(page.locator("[data-role=assistant]")).to_have_count(0)
    page.evaluate("window.shown[0].onclick()")
    expect(page.locator("[data-role=assistant]")).to_contain_text("Secret answer")
    assert shown(page)[0]["open"] is False


def test_it_is_quiet_for_who_looks_and_taken_back_for_who_returns(open_page: OpenPage, site: Site) -> None:
    page = watched_page(open_page)
    start_chat(page, ENGLISH)
    switch_on(page)
    site.fake.script(script.reply("At once"))
    send(page, "Here?")
    expect(page.locator("[data-role=assistant]")).to_contain_text("At once")
    expect(page.locator("[data-action=stop]")).to_have_count(0)
    assert shown(page) == []
    expect(page).to_have_title("Here? · Cleanroom")
    reply_elsewhere(page, site, "And there?")
    assert [notification["open"] for notification in shown(page)] == [True]
    look(page, away=False)
    expect(page).to_have_title("Here? · Cleanroom")
    assert [notification["open"] for notification in shown(page)] == [False]


def test_a_change_that_waits_is_told_too(open_page: OpenPage, site: Site) -> None:
    page = watched_page(open_page)
    start_chat(page, ENGLISH)
    switch_on(page)
    page.locator("[data-chat-row] .row-menu").click()
    page.get_by_role("menuitemcheckbox").click()
    gate = asyncio.Event()
    site.fake.script([script.hold(gate), script.call("task_add", {"title": "Bread"})])
    send(page, "Add it")
    expect(page.locator("[data-action=stop]")).to_be_visible()
    look(page, away=True)
    site.fake.call(gate.set)
    expect(page.locator("[data-turn=approval]")).to_be_visible()
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    assert shown(page) == [{"title": "Add it", "body": "Waits for your answer", "open": True}]


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_it_is_offered_once(open_page: OpenPage, site: Site, answer: str) -> None:
    page = watched_page(open_page)
    start_chat(page, ENGLISH)
    reply_elsewhere(page, site, "First")
    look(page, away=False)
    assert (page.evaluate("window.asked"), shown(page)) == (0, []), "off until the person wants it"
    offer = page.locator("[data-notify-offer]")
    expect(offer).to_contain_text("Tell you when a reply is ready")
    check(page)
    page.reload()
    offer.locator(f"[data-answer={answer}]").focus()
    page.keyboard.press("Enter")
    expect(offer).to_have_count(0)
    expect(page.locator("[data-composer] textarea")).to_be_focused()
    expect(page.locator(".bar-preferences [data-action=notify]")).to_have_attribute("aria-pressed", "true" if answer == "yes" else "false")
    assert page.evaluate("window.asked") == (1 if answer == "yes" else 0)
    page.reload()
    expect(page.locator("[data-role=assistant]")).to_be_visible()
    reply_elsewhere(page, site, "Second")
    assert len(shown(page)) == (1 if answer == "yes" else 0)
    expect(offer).to_have_count(0)


def test_a_browser_that_refuses_is_said_plainly(open_page: OpenPage, site: Site) -> None:
    page = watched_page(open_page, "window.answer = 'denied'")
    start_chat(page, ENGLISH)
    switch_on(page)
    expect(page.locator("[data-problem=notifications_denied]")).to_contain_text("The browser did not allow notifications.")
    expect(page.locator(".bar-preferences [data-action=notify]")).to_have_attribute("aria-pressed", "false")
    reply_elsewhere(page, site, "Anyway")
    assert shown(page) == []


def test_permission_that_was_taken_back_is_noticed(open_page: OpenPage, site: Site) -> None:
    page = watched_page(open_page)
    start_chat(page, ENGLISH)
    switch_on(page)
    page.evaluate("localStorage.setItem('test.permission', 'denied')")
    reply_elsewhere(page, site, "Still?")
    expect(page.locator("[data-problem=notifications_denied]")).to_be_visible()
    assert shown(page) == []


def test_where_browsers_have_none_there_is_no_switch(open_page: OpenPage) -> None:
    page = watched_page(open_page, "window.insecure = true")
    expect(page.locator(".bar-preferences [data-action=notify]")).to_have_count(0)


def test_the_browsers_own_notification_takes_what_it_is_given(open_page: OpenPage, site: Site) -> None:
    page = open_page(ENGLISH.locale, permissions=["notifications"])
    page.add_init_script("window.away = false; Object.defineProperty(document, 'hidden', { get: () => window.away })")
    page.add_init_script("window.Notification = class extends Notification { constructor(...given) { super(...given); (window.made ??= []).push(this); } }")
    page.reload()
    start_chat(page, ENGLISH)
    switch_on(page)
    reply_elsewhere(page, site, "Really?")
    assert page.evaluate("[Notification.permission, ...window.made.map(({title, body}) => [title, body])]") == [
        "granted",
        ["Really?", "The reply is complete."],
    ]
