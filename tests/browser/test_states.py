"""The states that the page has words for: nothing there yet, nobody answers, something broke off, the line is cut."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, ServerProcess, Site
from tests.browser.test_page import ENGLISH, RUSSIAN, Words, send, start_chat
from tests.fake_ollama import FakeModel, FakeOllamaThread
from tests.server import rows

BOTH = pytest.mark.parametrize("words", [RUSSIAN, pytest.param(ENGLISH, marks=pytest.mark.long)], ids=["ru", "en"])


@pytest.fixture
def site(process_site: Site) -> Site:
    """The server is killed here."""
    return process_site


def saved(folder: Path, text: str) -> None:
    """Wait until the database has the text: within about a second."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not rows(folder, "SELECT 1 FROM chat_messages WHERE content LIKE ?", f"%{text}%"):
        assert time.monotonic() < deadline, "the reply's text was not saved"
        time.sleep(0.05)


def kill(site: Site) -> None:
    assert isinstance(site.server, ServerProcess)
    site.server.end(signal.SIGKILL)


@BOTH
def test_no_chat_yet(open_page: OpenPage, words: Words) -> None:
    page = open_page(words.locale)
    expect(page.locator(".hero h2")).to_be_visible()
    page.locator("[data-action=new-chat]").click()
    expect(page.locator("[data-composer] textarea")).to_be_focused()


@BOTH
def test_a_server_without_models_says_how_to_get_one(open_page: OpenPage, site: Site, words: Words) -> None:
    site.offer()
    page = open_page(words.locale)
    notice = page.locator("[data-notice=no-model]")
    expect(notice).to_contain_text("ollama pull")
    site.fake.server.models.append(FakeModel("qwen3:4b"))
    notice.locator("[data-action=refresh-models]").click()
    expect(notice).to_have_count(0)


def test_ollama_gone_in_mid_reply_keeps_the_text_and_offers_to_go_on(open_page: OpenPage, site: Site) -> None:
    site.fake.script(script.reset_mid("Half ", "a reply"), script.reply("Whole now"))
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    send(page, "Say something")
    reply = page.locator("[data-role=assistant]")
    expect(reply).to_have_attribute("data-status", "interrupted")
    expect(reply).to_contain_text("Half a reply")
    expect(reply.locator("[data-note=interrupted]")).to_be_visible()
    page.reload()
    expect(reply.locator("[data-note=interrupted]")).to_be_visible()
    reply.locator("[data-action=retry]").click()
    expect(reply).to_contain_text("Whole now")


def test_a_lost_connection_is_said_and_found_again_and_what_was_typed_is_sent(loose_page: Page, site: Site) -> None:
    page = loose_page
    start_chat(page, ENGLISH)
    kill(site)
    line = page.locator("[data-connection-line]")
    expect(line).to_have_attribute("data-connection-line", "lost")
    site.fake.script(script.reply("Here again"))
    send(page, "Typed meanwhile")
    expect(page.locator("[data-pending]")).to_contain_text("Typed meanwhile")
    site.server.start()
    expect(line).to_have_attribute("data-connection-line", "open")  # for a moment only
    expect(page.locator("[data-role=assistant]")).to_contain_text("Here again")
    expect(page.locator("[data-role=user]")).to_have_count(1)


def test_a_reply_that_a_restart_interrupted_says_so(loose_page: Page, site: Site, tmp_path: Path) -> None:
    page = loose_page
    start_chat(page, ENGLISH)
    site.fake.script([script.text("As far as ", "this"), script.hang()], script.reply("From the start"))
    send(page, "Say something long")
    expect(page.locator("[data-role=assistant]")).to_contain_text("As far as this")
    saved(tmp_path, "As far as this")
    kill(site)
    site.server.start()
    reply = page.locator("[data-role=assistant]")
    expect(reply).to_have_attribute("data-status", "interrupted")
    expect(reply.locator("[data-note=interrupted]")).to_be_visible()
    reply.locator("[data-action=retry]").click()
    expect(reply).to_contain_text("From the start")


@BOTH
def test_a_model_that_cannot_call_tools(open_page: OpenPage, site: Site, words: Words) -> None:
    site.offer(FakeModel("plain:1b", capabilities=("completion",)))
    page = open_page(words.locale)
    start_chat(page, words)
    expect(page.locator("[data-notice=no-tools]")).to_contain_text("plain:1b")


@BOTH
def test_a_message_too_long_for_the_window_says_both_numbers(open_page: OpenPage, site: Site, words: Words) -> None:
    site.offer(FakeModel("small:1b", context_length=2048))
    page = open_page(words.locale)
    start_chat(page, words)
    send(page, "слово " * 3000)
    failure = page.locator("[data-failure=too_large]")
    expect(failure).to_be_visible()
    expect(failure.locator("[data-too-long]")).to_have_text(re.compile(r"\D9[\s,]\d{3}\D.*\D1[\s,]536\D"))
    expect(page.locator("[data-role=user]")).to_contain_text("слово слово")


@BOTH
def test_the_embedded_model_says_once_that_it_answers(browser: Browser, tmp_path: Path, words: Words) -> None:
    server = ServerProcess(tmp_path, "http://127.0.0.1:9", CLEANROOM_EMBEDDED="always")
    server.start()
    context = browser.new_context(locale=words.locale)
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(server.url)
        start_chat(page, words)
        notice = page.locator("[data-notice=embedded]")
        expect(notice).to_contain_text("ollama pull")
        notice.locator(".corner").click()
        page.reload()
        expect(page.locator("[data-composer] textarea")).to_be_visible()
        expect(page.locator("[data-backend=embedded]")).to_be_visible()
        expect(notice).to_have_count(0)
    finally:
        context.close()
        assert server.end() == 0


def test_ollama_that_comes_is_noticed(browser: Browser, tmp_path: Path) -> None:
    with FakeOllamaThread([FakeModel("qwen3:4b")]) as fake:
        address = fake.url
    server = ServerProcess(tmp_path, address)
    server.start()
    context = browser.new_context(locale="en-GB")
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(server.url)
        start_chat(page, ENGLISH)
        expect(page.locator("[data-notice=no-model]")).to_be_visible()
        with FakeOllamaThread([FakeModel("qwen3:4b")], port=int(address.rpartition(":")[2])):
            expect(page.locator("[data-notice=no-model]")).to_have_count(0)
            expect(page.locator("[data-backend=ollama]")).to_contain_text("qwen3:4b")
    finally:
        context.close()
        assert server.end() == 0
