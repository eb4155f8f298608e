"""The server is gone: a page says so in the person's language, and the app is back when the server is. Nothing else is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from backend.pages import FRONTEND
from tests.browser.conftest import PATIENCE_MS, Site
from tests.browser.test_accessibility import check
from tests.browser.test_page import ENGLISH, RUSSIAN, Words, send, start_chat

pytestmark = pytest.mark.long

expect.set_options(timeout=PATIENCE_MS)

SECRET = "слово-которое-никто-не-хранит"

TITLES = {ENGLISH.locale: "Cleanroom does not answer", RUSSIAN.locale: "Cleanroom не отвечает"}

# What the worker may hold: one language, and the files of the offline page.
KEPT = {"/offline/page.html", "/offline/page.css", "/offline/page.js", "/css/tokens.css", "/icon.svg"}


@pytest.fixture
def site(process_site: Site) -> Site:
    """The server goes away here, and its port has to be free at once."""
    return process_site


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """The pages here meet a dead server, so their consoles aren't watched."""
    with browser.new_context(locale=RUSSIAN.locale) as made:
        made.set_default_timeout(PATIENCE_MS)
        yield made


def until(page: Page, expression: str) -> None:
    """Wait until a promise in the page is true; the page's policy forbids Playwright's own way."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(f"Promise.resolve({expression}).then(Boolean)"):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(30)


def open_app(context: BrowserContext, site: Site, language: str = "ru") -> Page:
    """Open the app and wait until its worker has kept the offline page in that language."""
    page = context.new_page()
    page.goto(site.url)
    until(page, f"caches.match('/js/i18n/{language}.js')")
    until(page, "navigator.serviceWorker.controller")
    return page


def kept(page: Page) -> set[str]:
    """The paths of everything that any cache of the browser holds."""
    ask = "caches.keys().then(names => Promise.all(names.map(async name => (await (await caches.open(name)).keys()).map(({url}) => new URL(url).pathname))))"
    found: list[list[str]] = page.evaluate(ask)
    return {path for paths in found for path in paths}


def test_a_dead_server_is_said_plainly_and_the_app_comes_back_by_itself(context: BrowserContext, site: Site) -> None:
    page = open_app(context, site)
    start_chat(page, RUSSIAN)
    site.server.end()
    page.reload()
    expect(page.get_by_role("heading")).to_have_text(TITLES["ru-RU"])
    expect(page.locator("html")).to_have_attribute("lang", "ru")
    expect(page.locator("main")).to_contain_text(site.url.removeprefix("http://").strip("/"))
    expect(page.locator("code")).to_have_text("scripts/run")
    page.get_by_role("button").click()
    expect(page.get_by_role("status")).to_have_text("Ответа всё ещё нет.")
    check(page)
    site.server.start()
    expect(page.locator("[data-composer] textarea")).to_be_visible()


def test_the_person_need_not_wait_for_the_page_to_look(context: BrowserContext, site: Site) -> None:
    page = open_app(context, site)
    site.server.end()
    page.clock.install()
    page.reload()
    expect(page.get_by_role("heading")).to_have_text(TITLES["ru-RU"])
    site.server.start()
    page.get_by_role("button").click()
    expect(page.locator("[data-action=new-chat]")).to_be_visible()


@pytest.mark.parametrize("words", [RUSSIAN, ENGLISH], ids=["ru", "en"])
def test_the_page_speaks_the_language_that_was_chosen_last(context: BrowserContext, site: Site, words: Words) -> None:
    other = ENGLISH if words is RUSSIAN else RUSSIAN
    context.add_init_script(f"localStorage.getItem('cleanroom.language') ?? localStorage.setItem('cleanroom.language', '\"{other.locale[:2]}\"')")
    page = open_app(context, site, other.locale[:2])
    page.locator(".bar-preferences [aria-haspopup=menu]").last.click()
    page.get_by_role("menuitemradio", name="English" if words is ENGLISH else "Русский").click()
    until(page, f"caches.match('/js/i18n/{words.locale[:2]}.js')")
    until(page, f"caches.match('/js/i18n/{other.locale[:2]}.js').then(found => !found)")
    site.server.end()
    page.reload()
    expect(page.get_by_role("heading")).to_have_text(TITLES[words.locale])


def test_nothing_is_kept_but_the_offline_page_and_nothing_is_stale(context: BrowserContext, site: Site) -> None:
    page = open_app(context, site)
    start_chat(page, RUSSIAN)
    send(page, SECRET)
    expect(page.locator("[data-role=user]")).to_contain_text(SECRET)
    page.reload()
    expect(page.locator("[data-role=user]")).to_contain_text(SECRET)
    assert kept(page) == KEPT | {"/js/i18n/ru.js"}
    # What the worker holds is put to shame; the app must not show it while the server answers.
    spoil = "(async () => { const cache = await caches.open('offline'); for (const key of await cache.keys()) await cache.put(key, new Response('stale')); })()"
    page.evaluate(spoil)
    for path in sorted(KEPT | {"/js/i18n/ru.js"}):
        assert page.evaluate("path => fetch(path).then(answer => answer.text())", path) == (FRONTEND / path[1:]).read_text(encoding="utf-8"), path
    page.reload()
    expect(page.locator("[data-role=user]")).to_contain_text(SECRET)


def test_a_new_worker_takes_over_without_anyone_reloading(context: BrowserContext, site: Site) -> None:
    page = open_app(context, site)
    page.evaluate("caches.delete('offline')")
    page.evaluate("navigator.serviceWorker.register('/sw.js?another')")
    until(page, "navigator.serviceWorker.controller.scriptURL.endsWith('?another')")
    until(page, "caches.match('/offline/page.html')")


def test_the_browser_finds_the_app_installable(context: BrowserContext, site: Site) -> None:
    page = open_app(context, site)
    session = context.new_cdp_session(page)
    found = session.send("Page.getAppManifest")
    assert found["errors"] == []
    assert json.loads(found["data"])["name"] == "Cleanroom"
    errors = [error["errorId"] for error in session.send("Page.getInstallabilityErrors")["installabilityErrors"]]
    assert [error for error in errors if error != "in-incognito"] == []
