"""What can be done with a message: copied, edited, made anew, hidden, forked, continued; and what is known about a reply."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_composer import SLOW_MS, held, put, waiting
from tests.browser.test_page import ENGLISH, RUSSIAN, Words, send, start_chat

expect.set_options(timeout=PATIENCE_MS)

BOTH = pytest.mark.parametrize("words", [RUSSIAN, pytest.param(ENGLISH, marks=pytest.mark.long)], ids=["ru", "en"])


def start(open_page: OpenPage, words: Words = ENGLISH, **options: object) -> Page:
    page = open_page(words.locale, **options)
    start_chat(page, words)
    return page


def ask(page: Page, site: Site, text: str, answer: str) -> Locator:
    """Send a message and wait for its reply."""
    site.fake.script(script.reply(answer))
    before = questions(page).count()
    send(page, text)
    expect(questions(page)).to_have_count(before + 1)
    reply = replies(page).last
    expect(reply).to_contain_text(answer)
    expect(reply).to_have_attribute("data-status", "complete")
    return reply


def questions(page: Page) -> Locator:
    return page.locator("[data-role=user]")


def replies(page: Page) -> Locator:
    return page.locator("[data-role=assistant]")


def press(message: Locator, action: str) -> None:
    message.hover()
    message.locator(f"[data-action={action}]").click()


def choose(page: Page, message: Locator, item: str) -> None:
    """Choose from what a message's menu offers."""
    message.hover()
    message.locator("[aria-haspopup=menu]").click()
    page.get_by_role("menuitem", name=item).click()


def prompts(site: Site) -> list[list[str]]:
    """The questions and replies of each request that the model server got."""
    return [
        [message["content"] for message in request.messages if message["role"] in ("user", "assistant") and message["content"]]
        for request in site.fake.requests
    ]


# ---- Copying ----

ODD = 'a <b> c <channel> &lt; $5 and $6 <div class="x">y</div>\n\n  indented\ttab \nlast'


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_copying_gives_what_was_typed_and_the_markdown_of_the_reply(open_page: OpenPage, site: Site) -> None:
    page = start(open_page, permissions=["clipboard-read", "clipboard-write"])
    markdown = "**bold** `code`\n\n- one\n- two"
    site.fake.script(script.reply(markdown))
    send(page, ODD)
    expect(replies(page)).to_have_attribute("data-status", "complete")
    bubble = questions(page).locator("[data-text]")
    assert bubble.evaluate("element => element.textContent") == ODD
    assert bubble.evaluate("element => (getSelection().selectAllChildren(element), getSelection().toString())") == ODD
    questions(page).hover()
    questions(page).get_by_role("button", name="Copy the text").click()
    assert clipboard(page) == ODD
    replies(page).get_by_role("button", name="Copy as Markdown").click()
    assert clipboard(page) == markdown


# ---- Made anew ----


def test_a_reply_made_anew_keeps_the_earlier_one_and_only_the_shown_one_is_sent(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "first", "one way")
    site.fake.script(script.reply("another way"))
    press(replies(page), "regenerate")
    expect(replies(page)).to_contain_text("another way")
    variants = page.locator("[data-variant]")
    expect(variants).to_have_attribute("data-variant", "2")
    expect(variants).to_contain_text("2/2")
    expect(variants.get_by_role("button", name="Next variant")).to_have_attribute("aria-disabled", "true")
    variants.get_by_role("button", name="Previous variant").focus()
    page.keyboard.press("Enter")
    expect(replies(page)).to_contain_text("one way")
    expect(page.get_by_role("status").filter(has_text="Variant 1 of 2")).to_be_attached()
    expect(variants.get_by_role("button", name="Previous variant")).to_be_focused()
    ask(page, site, "second", "later")
    assert prompts(site)[-1] == ["first", "one way", "second"]
    page.reload()
    expect(page.locator("[data-variant='1']")).to_be_visible()


def test_only_the_last_reply_is_made_anew_and_not_after_a_tool_by_hand(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "first", "one")
    ask(page, site, "second", "two")
    expect(page.locator("[data-action=regenerate]")).to_have_count(1)
    box = page.locator("[data-composer] textarea")
    box.fill("/task_list")
    box.press("Enter")
    page.locator("[data-tool-form]").get_by_role("button", name="Run").click()
    expect(page.locator("[data-tool=task_list]")).to_be_visible()
    button = page.locator("[data-action=regenerate]")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_accessible_name("Can't be regenerated: a tool was used after this reply")
    button.click(force=True)
    expect(replies(page).last).to_contain_text("two")
    assert len(site.fake.requests) == 2


# ---- Hidden ----


def test_a_hidden_message_looks_it_and_is_not_sent_until_it_is_shown_again(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "secret question", "secret reply")
    choose(page, questions(page), "Hide from the model")
    expect(questions(page).locator("[data-note=hidden]")).to_contain_text("Hidden from the model")
    choose(page, replies(page), "Hide from the model")
    expect(replies(page).locator("[data-note=hidden]")).to_be_visible()
    page.reload()
    expect(questions(page)).to_have_count(1)
    ask(page, site, "open question", "an answer")
    assert prompts(site)[-1] == ["open question"]
    for message in (questions(page).first, replies(page).first):
        press(message, "show")
        expect(message.locator("[data-note=hidden]")).to_have_count(0)
    ask(page, site, "again", "yes")
    assert prompts(site)[-1][:2] == ["secret question", "secret reply"]


# ---- Forked ----


def test_a_fork_holds_what_stood_up_to_that_message(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "first", "one")
    ask(page, site, "second", "two")
    choose(page, replies(page).first, "Fork from here")
    expect(page.locator("[role=tab]")).to_have_count(2)
    expect(questions(page)).to_have_count(1)
    expect(replies(page)).to_contain_text("one")


# ---- Edited ----


def edit(page: Page, message: Locator, text: str) -> Locator:
    press(message, "edit")
    field = page.locator("[data-editor] textarea")
    expect(field).to_be_focused()
    field.fill(text)
    return field


def test_an_edited_message_takes_the_place_of_what_followed(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "first", "one")
    ask(page, site, "second", "two")
    field = edit(page, questions(page).first, "better\nfirst")
    expect(page.locator("[data-following]")).to_have_text("What follows goes: 3 messages. Changes that were made stay made.")
    field.press("Enter")
    field.press("Backspace")
    site.fake.script(script.reply("anew"))
    field.press("Control+Enter")
    expect(replies(page)).to_have_count(1)
    expect(replies(page)).to_contain_text("anew")
    expect(questions(page).locator("[data-text]")).to_have_text("better\nfirst")
    expect(page.locator("[data-editor]")).to_have_count(0)
    assert prompts(site)[-1] == ["better\nfirst"]


def test_escape_leaves_a_message_as_it_was_and_gives_the_focus_back(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "as it was", "one")
    field = edit(page, questions(page), "changed")
    for how in ("{isComposing: true}", "{keyCode: 229}"):
        for key in ("Escape", "Enter"):
            field.evaluate(
                f"field => field.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', ctrlKey: true, bubbles: true, cancelable: true, ...{how}}}))"
            )
    expect(field).to_have_value("changed")
    field.press("Escape")
    expect(questions(page).locator("[data-text]")).to_have_text("as it was")
    expect(questions(page).locator("[data-action=edit]")).to_be_focused()
    assert len(site.fake.requests) == 1


def test_an_edit_outlives_a_reload_and_an_error(loose_page: Page, site: Site) -> None:
    page = loose_page
    start_chat(page, ENGLISH)
    ask(page, site, "first", "one")
    edit(page, questions(page), "first")
    put(page.locator("[data-editor] textarea"), "word " * 209_716)
    page.locator("[data-action=save-edit]").click(timeout=SLOW_MS)
    expect(page.locator("[data-editor] [data-too-large]")).to_be_visible()
    page.locator("[data-editor] textarea").fill("long thought")
    page.reload()
    field = page.locator("[data-editor] textarea")
    expect(field).to_have_value("long thought")
    site.server.end()
    expect(page.locator("[data-connection-line=lost]")).to_be_visible()
    page.locator("[data-action=save-edit]").click()
    expect(page.locator("[data-editor] [role=alert]")).to_be_visible()
    expect(field).to_have_value("long thought")
    site.server.start()
    expect(page.locator(".app")).to_have_attribute("data-connection", "open")
    site.fake.script(script.reply("thought through"))
    page.locator("[data-action=save-edit]").click()
    expect(replies(page)).to_contain_text("thought through")


@pytest.mark.parametrize("place", ["first", "later"])
def test_an_edit_can_go_to_a_fork_and_leave_this_chat_alone(open_page: OpenPage, site: Site, place: str) -> None:
    page = start(open_page)
    ask(page, site, "first", "one")
    ask(page, site, "second", "two")
    edit(page, questions(page).first if place == "first" else questions(page).last, "another")
    site.fake.script(script.reply("in the fork"))
    page.locator("[data-action=send-in-fork]").click()
    expect(replies(page).last).to_contain_text("in the fork")
    before = [] if place == "first" else ["first", "one"]
    assert prompts(site)[-1] == [*before, "another"]
    page.locator("[role=tab]").first.click()
    expect(questions(page).locator("[data-text]")).to_have_text(["first", "second"])
    expect(page.locator("[data-editor]")).to_have_count(0)


def test_the_up_arrow_edits_the_last_message(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "first", "one")
    ask(page, site, "second", "two")
    page.locator("[data-composer] textarea").press("ArrowUp")
    expect(page.locator("[data-editor] textarea")).to_be_focused()
    expect(page.locator("[data-editor] textarea")).to_have_value("second")


# ---- Continued ----


def test_a_reply_cut_by_its_length_goes_on_in_its_place(open_page: OpenPage, site: Site) -> None:
    site.fake.script([script.text("Half of"), script.done("length")], script.reply(" the whole"))
    page = start(open_page)
    send(page, "first")
    note = replies(page).locator("[data-note=length]")
    expect(note).to_be_visible()
    note.get_by_role("button", name="Continue").click()
    expect(replies(page)).to_contain_text("Half of the whole")
    expect(replies(page)).to_have_count(1)
    expect(note).to_have_count(0)


def test_a_stopped_reply_goes_on(open_page: OpenPage, site: Site) -> None:
    gate = asyncio.Event()
    site.fake.script([script.text("Stopped"), script.hold(gate), script.done()], script.reply(" and resumed"))
    page = start(open_page)
    send(page, "first")
    expect(replies(page)).to_contain_text("Stopped")
    page.keyboard.press("Escape")
    replies(page).locator("[data-note=stopped] [data-action=continue]").click()
    expect(replies(page)).to_contain_text("Stopped and resumed")


# ---- Thinking ----


def test_thinking_is_folded_counts_its_seconds_and_stays_open_once_opened(open_page: OpenPage, site: Site) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    site.fake.script(
        [script.thinking("Well,"), script.hold(gates[0]), script.thinking(" so be it."), script.hold(gates[1]), script.text("Done."), script.done()]
    )
    page = start(open_page)
    send(page, "first")
    summary = page.locator(".thinking summary")
    expect(summary).to_contain_text("Thinking…")
    expect(summary).to_contain_text("2 s")
    thoughts = page.locator(".thinking .typed")
    expect(thoughts).to_be_hidden()
    summary.focus()
    page.keyboard.press("Enter")
    expect(thoughts).to_have_text("Well,")
    site.fake.call(gates[0].set)
    expect(thoughts).to_have_text("Well, so be it.")
    site.fake.call(gates[1].set)
    expect(replies(page)).to_have_attribute("data-status", "complete")
    expect(summary).to_contain_text("Thought for")
    expect(thoughts).to_be_visible()


# ---- What is known ----


def test_figures_stand_below_a_reply_and_open_in_full_words(open_page: OpenPage, site: Site) -> None:
    site.fake.script(script.reply("Hello there", eval_count=14, eval_duration=420_000_000, prompt_eval_count=812))
    page = start(open_page)
    send(page, "first")
    figures = page.locator("[data-figures]")
    expect(figures).to_contain_text("qwen3:4b")
    expect(figures).to_contain_text("812 tok prompt")
    expect(figures).to_contain_text("33.3 tok/s")
    figures.focus()
    page.keyboard.press("Enter")
    for words in ("Model: qwen3:4b", "Tokens per second: 33.3", "counted by the model server: 812", "Tokens of the reply: 14", "Written:"):
        expect(page.locator(".figures-full")).to_contain_text(words)
    questions(page).hover()
    expect(questions(page).locator("time")).to_have_attribute("title", re.compile("20[0-9]{2}"))


@BOTH
def test_a_message_too_long_for_the_window_says_both_numbers_and_the_ways_out(open_page: OpenPage, site: Site, words: Words) -> None:
    site.fake.script(script.context_exceeded(7900, 4096))
    page = start(open_page, words)
    send(page, "long words")
    failure = page.locator("[data-failure=too_large]")
    for number in ("7", "900", "4", "096"):
        expect(failure.locator("[data-too-long]")).to_contain_text(number)
    failure.locator("[data-action=new-chat-with]").click()
    expect(page.locator("[role=tab]")).to_have_count(2)
    expect(page.locator("[data-composer] textarea")).to_have_value("long words")


# ---- Reach ----


def test_every_tool_is_reached_by_the_keyboard_and_large_enough(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    ask(page, site, "first", "one")
    expect(page.locator(".row .message-tools")).to_have_count(2)  # they come after the first paint
    found = page.evaluate(
        """() => [...document.querySelectorAll('.row button')].map(button => {
          const {width, height} = button.getBoundingClientRect();
          return {name: button.getAttribute('aria-label') ?? button.textContent.trim(), tab: button.tabIndex, width, height};
        })"""
    )
    names = [button["name"] for button in found]
    assert {"Copy the text", "Edit", "More", "Copy as Markdown", "Regenerate", "Use as system prompt draft"} <= set(names)
    assert [button for button in found if button["tab"] != 0 or min(button["width"], button["height"]) < 24 or not button["name"]] == []
    more = questions(page).get_by_role("button", name="More")
    more.focus()
    expect(questions(page).locator(".message-tools")).to_have_css("opacity", "1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Hide from the model")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    expect(more).to_be_focused()


def test_on_a_touch_screen_the_tools_are_always_there(open_page: OpenPage, site: Site) -> None:
    page = start(open_page, has_touch=True, is_mobile=True, viewport={"width": 320, "height": 700})
    ask(page, site, "first", "one")
    expect(questions(page).locator(".message-tools")).to_have_css("opacity", "1")
    assert page.evaluate("document.querySelector('.scroll').scrollWidth <= document.querySelector('.scroll').clientWidth")


@pytest.mark.parametrize(
    ("words", "theme", "width"),
    [pytest.param(RUSSIAN, "dark", 320, id="ru-dark-320"), pytest.param(ENGLISH, "light", 1360, id="en-light-1360", marks=pytest.mark.long)],
)
def test_nothing_for_axe_to_find_in_any_state_of_a_message(open_page: OpenPage, site: Site, words: Words, theme: str, width: int) -> None:
    page = start(open_page, words, color_scheme=theme, reduced_motion="reduce", viewport={"width": width, "height": 800})
    ask(page, site, "first", "one")
    site.fake.script(script.reply("another"))
    press(replies(page), "regenerate")
    expect(page.locator("[data-variant='2']")).to_be_visible()
    choose(page, replies(page), {RUSSIAN: "Скрыть от модели", ENGLISH: "Hide from the model"}[words])
    expect(page.locator("[data-note=hidden]")).to_be_visible()
    page.locator("[data-figures]").click()
    site.fake.script(script.context_exceeded(7900, 4096))
    send(page, "too long")
    expect(page.locator("[data-too-long]")).to_be_visible()
    first, reply = held(site)
    site.fake.script(reply)
    send(page, "second")
    expect(replies(page).last).to_contain_text("Started")
    send(page, "queued")
    expect(waiting(page).locator("[data-note=queued]")).to_be_visible()
    press(questions(page).first, "edit")
    expect(page.locator("[data-editor] textarea")).to_be_focused()
    check(page)
    first.let_go()
