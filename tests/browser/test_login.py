"""With an access token: the login page, what a login that ended looks like, and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerThread, Site
from tests.browser.test_accessibility import check
from tests.browser.test_page import ENGLISH, start_chat
from tests.fake_ollama import FakeOllamaThread

TOKEN = "a token with 24 letters."
OTHER_TOKEN = "another one with letters"


@pytest.fixture
def site(tmp_path: Path, fake: FakeOllamaThread) -> Iterator[Site]:
    server = ServerThread(tmp_path, fake.url, access_token=TOKEN)
    server.start()
    yield Site(server.url, fake, server)
    server.end()


def log_in(page: Page, token: str) -> None:
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_in_by_the_token_and_out_by_the_button(loose_page: Page, site: Site) -> None:
    page = loose_page
    expect(page).to_have_url(f"{site.url}/login")
    check(page)
    log_in(page, "a wrong token")
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    log_in(page, TOKEN)
    page.locator("[data-action=log-out]:visible").click()
    expect(page.get_by_label("Access token")).to_be_visible()
    page.go_back()
    expect(page.locator("[data-action=log-out]")).to_have_count(0)


def test_a_login_that_ended_asks_again_and_keeps_the_draft(loose_page: Page, site: Site) -> None:
    page = loose_page
    log_in(page, TOKEN)
    start_chat(page, ENGLISH)
    field = page.get_by_label("Message", exact=True)
    field.fill("not sent yet")
    assert isinstance(site.server, ServerThread)
    site.server.change(access_token=OTHER_TOKEN)
    expect(page.get_by_label("Access token")).to_be_visible()
    log_in(page, OTHER_TOKEN)
    expect(field).to_have_value("not sent yet")
