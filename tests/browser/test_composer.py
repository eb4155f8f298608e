"""Writing: what is typed while a reply streams, what an input method does, and texts of any size."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_page import ENGLISH, RUSSIAN, send, start_chat
from tests.fake_ollama import Script
from tests.server import rows

expect.set_options(timeout=PATIENCE_MS)

# What a person still takes for typing that is followed at once.
KEY_MS = 100


@dataclass
class Held:
    """A reply that stands still after its first words until it is let go."""

    site: Site
    gate: asyncio.Event

    def let_go(self) -> None:
        self.site.fake.call(self.gate.set)


def held(site: Site, before: str = "Started", after: str = " and ended") -> tuple[Held, Script]:
    gate = asyncio.Event()
    return Held(site, gate), [script.text(before), script.hold(gate), script.text(after), script.done()]


def box(page: Page) -> Locator:
    return page.locator("[data-composer] textarea")


def replies(page: Page) -> Locator:
    return page.locator("[data-role=assistant]")


def waiting(page: Page) -> Locator:
    return page.locator("[data-pending]")


def asked(site: Site) -> list[str]:
    """What the model server was asked, message by message."""
    return [request.messages[-1]["content"] for request in site.fake.requests]


def start_held_reply(open_page: OpenPage, site: Site, *then: str) -> tuple[Page, Held]:
    first, reply = held(site)
    site.fake.script(reply, *(script.reply(text) for text in then))
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    send(page, "first")
    expect(replies(page)).to_contain_text("Started")
    return page, first


def test_messages_written_meanwhile_wait_in_view_and_go_out_in_order(open_page: OpenPage, site: Site) -> None:
    page, first = start_held_reply(open_page, site, "to the second", "to the third")
    send(page, "second")
    send(page, "third")
    expect(waiting(page)).to_have_count(2)
    expect(waiting(page).first.locator("[data-note=queued]")).to_contain_text("when the reply is ready")
    expect(box(page)).to_have_value("")
    first.let_go()
    expect(replies(page).locator(".prose")).to_have_text(["Started and ended", "to the second", "to the third"])
    expect(waiting(page)).to_have_count(0)
    assert asked(site) == ["first", "second", "third"]


def test_a_queued_message_outlives_a_reload_and_a_closed_page(open_page: OpenPage, site: Site) -> None:
    page, first = start_held_reply(open_page, site, "to the second")
    send(page, "second")
    page.reload()
    expect(waiting(page)).to_contain_text("second")
    another = page.context.new_page()
    page.close()
    another.goto(site.url)
    expect(waiting(another)).to_contain_text("second")
    first.let_go()
    expect(replies(another).last).to_contain_text("to the second")
    assert asked(site) == ["first", "second"]


def test_two_pages_with_the_same_queue_send_it_once(open_page: OpenPage, site: Site) -> None:
    page, first = start_held_reply(open_page, site, "to the second")
    other = page.context.new_page()
    other.goto(site.url)
    expect(replies(other)).to_contain_text("Started")
    send(page, "second")
    expect(waiting(other)).to_contain_text("second")
    first.let_go()
    for shown in (page, other):
        expect(replies(shown).last).to_contain_text("to the second")
        expect(shown.locator("[data-role=user]")).to_have_count(2)
        expect(waiting(shown)).to_have_count(0)
    assert asked(site) == ["first", "second"]


def test_stop_holds_the_queue_back_until_the_person_sends_it(open_page: OpenPage, site: Site) -> None:
    page, _ = start_held_reply(open_page, site, "to the second")
    send(page, "second")
    page.keyboard.press("Escape")
    expect(waiting(page).locator("[data-note=paused]")).to_be_visible()
    page.reload()
    expect(waiting(page).locator("[data-note=paused]")).to_be_visible()
    assert asked(site) == ["first"]
    waiting(page).locator("[data-action=send-now]").click()
    expect(replies(page).last).to_contain_text("to the second")


def test_a_failed_turn_fires_nothing_blindly(open_page: OpenPage, site: Site) -> None:
    gate = asyncio.Event()
    site.fake.script([script.hold(gate), script.err_first()])
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    send(page, "first")
    expect(page.locator("[data-action=stop]")).to_be_visible()
    send(page, "second")
    site.fake.call(gate.set)
    expect(page.locator("[data-failure]")).to_be_visible()
    expect(waiting(page).locator("[data-note=paused]")).to_be_visible()
    assert asked(site) == ["first"]


def test_send_now_stops_the_reply_and_sends(open_page: OpenPage, site: Site) -> None:
    page, _ = start_held_reply(open_page, site, "at once")
    send(page, "instead")
    waiting(page).locator("[data-action=send-now]").click()
    expect(replies(page).last).to_contain_text("at once")
    expect(replies(page).first).to_have_attribute("data-status", "stopped")


def test_a_queued_message_can_be_edited_in_its_place_or_taken_back(open_page: OpenPage, site: Site) -> None:
    page, first = start_held_reply(open_page, site, "to the better one")
    for text in ("second", "third"):
        send(page, text)
    waiting(page).first.locator("[data-action=edit]").click()
    field = waiting(page).locator("[data-editor] textarea")
    expect(field).to_be_focused()
    field.fill("a better second")
    field.press("Control+Enter")
    expect(waiting(page).first).to_contain_text("a better second")
    waiting(page).last.locator("[data-action=cancel-queued]").click()
    expect(box(page)).to_have_value("third")
    expect(box(page)).to_be_focused()
    first.let_go()
    expect(replies(page).last).to_contain_text("to the better one")
    assert asked(site) == ["first", "a better second"]


def test_stop_and_send_in_the_same_breath(open_page: OpenPage, site: Site) -> None:
    page, _ = start_held_reply(open_page, site, "to the second")
    box(page).fill("second")
    page.evaluate("for (const name of ['stop', 'stop', 'send']) document.querySelector(`[data-composer] [data-action=${name}]`).click()")
    expect(replies(page).last).to_contain_text("to the second")
    expect(waiting(page)).to_have_count(0)
    expect(replies(page).first).to_have_attribute("data-status", "stopped")


def test_paste_and_enter_while_a_reply_streams(open_page: OpenPage, site: Site) -> None:
    page, first = start_held_reply(open_page, site, "to the pasted one")
    paste(page, "two\nlines")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and one more")
    page.keyboard.press("Enter")
    expect(waiting(page).locator("[data-text]")).to_have_text("two\nlines\nand one more")
    first.let_go()
    expect(replies(page).last).to_contain_text("to the pasted one")
    assert asked(site) == ["first", "two\nlines\nand one more"]


def test_a_chat_that_is_deleted_takes_its_queue_along(open_page: OpenPage, site: Site) -> None:
    page, _ = start_held_reply(open_page, site)
    send(page, "second")
    expect(waiting(page)).to_have_count(1)
    page.locator("[data-chat-row] .row-menu").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.locator("[data-action=confirm-delete]").click()
    expect(page.locator("[data-chat-row]")).to_have_count(0)
    assert page.evaluate("Object.keys(localStorage).filter(key => key.includes('outbox'))") == []


# ---- Input methods ----

COMPOSING = ["{isComposing: true}", "{keyCode: 229}"]


def compose_enter(field: Locator, how: str) -> bool:
    """The Enter that takes an input method's word; whether the page let the browser have it."""
    return bool(field.evaluate(f"field => field.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true, cancelable: true, ...{how}}}))"))


@pytest.mark.parametrize("how", COMPOSING)
def test_the_enter_of_an_input_method_sends_nothing(open_page: OpenPage, site: Site, how: str) -> None:
    page = open_page(viewport={"width": 1360, "height": 900})
    start_chat(page, RUSSIAN)
    box(page).fill("にほん")
    assert compose_enter(box(page), how)
    expect(box(page)).to_have_value("にほん")
    expect(page.locator("[data-role=user]")).to_have_count(0)
    box(page).fill("")
    task = page.locator("[data-add=task_add] input")
    page.locator("[data-fact-group=tasks] summary").click()
    task.fill("にほん")
    assert not compose_enter(task, how)
    expect(task).to_have_value("にほん")
    assert site.fake.requests == []


# ---- Sizes ----


def paste(page: Page, text: str) -> None:
    box(page).focus()
    page.evaluate("text => document.execCommand('insertText', false, text)", text)


LIMIT = 1_048_576

# Chromium itself takes seconds to lay out a megabyte in a field.
SLOW_MS = 90_000


def put(field: Locator, text: str) -> None:
    """Have a text of any size in a field at once."""
    field.evaluate("(field, text) => { field.focus(); field.value = text; field.dispatchEvent(new Event('input', {bubbles: true})); }", text)


@pytest.mark.parametrize("size", [LIMIT + 1, pytest.param(3_000_000, marks=pytest.mark.long)])
def test_a_text_beyond_the_limit_is_refused_here_and_kept(open_page: OpenPage, site: Site, size: int) -> None:
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    put(box(page), ("word " * (size // 5 + 1))[:size])
    box(page).press("Enter", timeout=SLOW_MS)
    expect(page.locator("[data-too-large]")).to_be_visible(timeout=SLOW_MS)
    assert page.evaluate("document.querySelector('[data-composer] textarea').value.length") == size
    expect(page.locator("[data-role=user]")).to_have_count(0)
    expect(waiting(page)).to_have_count(0)
    expect(page.locator(".app")).to_have_attribute("data-connection", "open")


def test_a_text_of_the_longest_size_is_sent_and_kept_when_the_window_is_too_small(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    put(box(page), "слово " * (LIMIT // 11))
    box(page).press("Enter", timeout=SLOW_MS)
    expect(page.locator("[data-role=user] [data-failure=too_large] [data-too-long]")).to_be_visible(timeout=SLOW_MS)
    (kept,) = rows(tmp_path, "SELECT content FROM chat_messages WHERE role = 'user'")
    assert kept["content"] == "слово " * (LIMIT // 11)
    expect(waiting(page)).to_have_count(0)


# What our page does for one key: what Chromium's own field costs is the same on every page.
COST_OF_A_KEY = """(field, keys) => {
  const taken = [];
  for (let i = 0; i < keys; i++) {
    const began = performance.now();
    field.dispatchEvent(new InputEvent('input', {bubbles: true}));
    taken.push(performance.now() - began);
  }
  return taken.sort((a, b) => a - b)[keys >> 1];
}"""


@pytest.mark.parametrize(
    ("lines", "line"),
    [(18_000, "some words"), pytest.param(200_000, "word", marks=pytest.mark.long), pytest.param(200_000, "word " * 5, marks=pytest.mark.long)],
    ids=["200kB", "1MB", "5MB"],
)
def test_a_key_in_a_long_draft_costs_little(open_page: OpenPage, lines: int, line: str) -> None:
    page = open_page("en-GB")
    page.set_default_timeout(SLOW_MS)
    start_chat(page, ENGLISH)
    put(box(page), "\n".join([line] * lines))
    cost = box(page).evaluate(COST_OF_A_KEY, 9)
    print(f"{lines} lines, {lines * len(line) / 1e6:.1f} MB: {cost:.1f} ms a key")
    assert cost < KEY_MS


def test_a_model_that_falls_silent_is_told_and_stopped(open_page: OpenPage, site: Site) -> None:
    _, reply = held(site)
    site.fake.script([script.header("X-Served-By", "gpu-1"), reply])
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    page.clock.install()
    send(page, "first")
    expect(replies(page)).to_contain_text("Started")
    expect(page.locator("[data-turn]")).to_have_count(0)
    page.clock.fast_forward(11_000)
    expect(page.locator("[data-turn=silent]")).to_contain_text("The model on gpu-1 has been silent for a while")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-turn]")).to_have_count(0)
    expect(replies(page)).to_contain_text("Started")
