"""What the model sees, in the page: the next request, what is withheld, what was sent, and what a card says of itself."""

from __future__ import annotations

import asyncio

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_page import ENGLISH, RUSSIAN, Words, send, start_chat

WIDE = {"width": 1360, "height": 900}

expect.set_options(timeout=PATIENCE_MS)


def start(open_page: OpenPage, words: Words = ENGLISH) -> Page:
    page = open_page(words.locale, viewport=WIDE)
    start_chat(page, words)
    return page


def replied(page: Page, text: str) -> None:
    reply = page.locator("[data-role=assistant]").last
    expect(reply).to_contain_text(text)
    expect(reply).to_have_attribute("data-status", "complete")
    expect(page.locator("[data-composer] [data-action=stop]")).to_have_count(0)


def unfold(inspector: Locator, selector: str) -> Locator:
    """Unfold a part or a reason, and wait for what it holds."""
    item = inspector.locator(selector)
    item.locator("> details > summary").click()
    expect(item.locator("> details")).to_have_attribute("open", "")
    return item


def test_the_exact_texts_show_on_a_click_and_can_be_copied(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    send(page, "What is  the sea?")
    replied(page, "Hello from the fake model.")
    part = unfold(page.locator("[data-inspector]"), "[data-part=history]")
    expect(part.locator("pre").first).to_have_text("What is  the sea?")
    part.get_by_role("button", name="Copy: user").click()
    assert page.evaluate("navigator.clipboard.readText()") == "What is  the sea?"


@pytest.mark.parametrize("words", [RUSSIAN, pytest.param(ENGLISH, marks=pytest.mark.long)], ids=["ru", "en"])
def test_after_a_turn_the_servers_count_stands_beside_the_estimate(open_page: OpenPage, site: Site, words: Words) -> None:
    page = start(open_page, words)
    inspector = page.locator("[data-inspector]")
    inspector.locator("[data-view=sent]").click()
    expect(inspector.locator("[data-sent=none]")).to_be_visible()
    site.fake.script(script.reply("The sea is wide.", prompt_eval_count=1_987))
    send(page, "What is the sea?")
    replied(page, "The sea is wide.")
    expect(inspector.locator(".total")).to_contain_text("1,987" if words is ENGLISH else "1\xa0987")
    expect(inspector.locator("[data-difference]")).to_contain_text("counted" if words is ENGLISH else "насчитал")
    part = unfold(inspector, "[data-part=new]")
    expect(part.locator("pre")).to_have_text("What is the sea?")
    inspector.locator("[data-view=next]").click()
    expect(inspector.locator("[data-counted='1987']")).to_be_visible()


def test_what_is_withheld_unfolds_to_its_messages_and_leads_to_them(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    site.fake.script(script.call("task_add", {"title": "milk"}, before="One moment."), script.reply("Added."))
    send(page, "Buy milk")
    replied(page, "Added.")
    reason = unfold(page.locator("[data-inspector]"), "[data-reason=temporary]")
    expect(reason).to_contain_text("One moment.")
    items = reason.locator("[data-withheld-message]")
    expect(items).to_have_count(2)
    wanted = items.filter(has_text="One moment.").get_attribute("data-withheld-message")
    items.filter(has_text="One moment.").locator("button").click()
    expect(page.locator(f"[data-role=assistant][data-message-id='{wanted}']")).to_be_in_viewport()


def test_a_hidden_message_can_be_shown_to_the_model_again(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    send(page, "A secret")
    replied(page, "Hello from the fake model.")
    question = page.locator("[data-role=user]").first
    question.hover()
    question.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Hide from the model").click()
    expect(question).to_have_attribute("data-hidden", "true")
    reason = unfold(page.locator("[data-inspector]"), "[data-reason=hidden]")
    expect(reason).to_contain_text("A secret")
    reason.locator("[data-action=unhide]").click()
    expect(question).to_have_attribute("data-hidden", "false")
    expect(page.locator("[data-inspector] [data-reason=hidden]")).to_have_count(0)


def test_a_prompt_that_was_cut_raises_an_alarm(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    site.fake.script(script.prompt_eval_count(2_050), script.reply("All of it."))
    send(page, "word " * 4_500)
    replied(page, "Hello")
    alarm = page.locator("[data-inspector] [data-alarm=prompt-cut]")
    expect(alarm).to_contain_text("2,050")
    expect(page.locator("[data-inspector] [data-counted='2050']")).to_be_visible()
    alarm.locator("[data-action=parameters]").click()
    expect(page.locator("[data-parameter=num_ctx]")).to_be_visible()
    page.keyboard.press("Escape")
    send(page, "And now?")
    replied(page, "All of it.")
    expect(alarm).to_have_count(0)


def test_the_saved_tokens_are_defined_on_hover_and_on_focus(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    site.fake.script(script.call("system_prompt_draft", {"content": "Be brief. " * 40}), script.reply("A draft."))
    send(page, "Draft it")
    replied(page, "A draft.")
    saved = page.locator("[data-saved]")
    expect(saved).not_to_have_attribute("data-saved", "0")  # counted at the turn's end, a moment after the reply's
    assert int(saved.get_attribute("data-saved") or 0) > 100
    told = saved.get_by_role("tooltip")
    expect(told).to_be_hidden()
    saved.hover()
    expect(told).to_contain_text("does not carry")
    page.mouse.move(0, 0)
    expect(told).to_be_hidden()
    saved.get_by_role("button").focus()
    expect(told).to_be_visible()
    page.keyboard.press("Escape")
    expect(told).to_be_hidden()


def test_what_can_not_be_looked_at_says_why_and_can_be_asked_again(open_page: OpenPage, site: Site) -> None:
    site.fake.call(site.fake.server.stop)
    page = start(open_page)
    failure = page.locator("[data-inspector-error=model_unavailable]")
    expect(failure).to_be_visible()
    site.fake.call(site.fake.server.start)
    failure.locator("[data-action=again]").click()
    expect(page.locator("[data-inspector] [data-part=prompt]")).to_be_visible()


def test_a_card_says_whether_the_model_sees_it_now_and_why(open_page: OpenPage, site: Site) -> None:
    gate = asyncio.Event()
    site.fake.script(
        script.call("system_prompt_draft", {"content": "Be brief."}, before="One moment."),
        [script.text("Nearly"), script.hold(gate), script.text(" done."), script.done()],
        script.call("system_prompt_draft", {"content": "Be very brief."}),
        script.reply("Again."),
    )
    page = start(open_page)
    send(page, "Draft it")
    card, interim = page.locator("[data-kind=diff]").first, page.locator("[data-role=assistant]").first
    expect(card.locator("[data-sight=turn]")).to_contain_text("seen by the model: until its turn ends")
    expect(interim.locator("[data-sight=turn]")).to_be_visible()
    site.fake.call(gate.set)
    replied(page, "Nearly done.")
    expect(card.locator("[data-sight=hand]")).to_contain_text("current text")
    expect(interim.locator("[data-sight=temporary]")).to_contain_text("not seen by the model")
    send(page, "Shorter")
    replied(page, "Again.")
    expect(card.locator("[data-sight=superseded]")).to_be_visible()
    expect(page.locator("[data-kind=diff]").last.locator("[data-sight=hand]")).to_be_visible()
    site.fake.script(*(script.reply(f"Reply {number}.") for number in range(3)))
    for number in range(3):
        send(page, "By the way")
        replied(page, f"Reply {number}.")
    expect(interim.locator("[data-sight=soon]")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_axe_finds_nothing_and_nothing_is_cut_off_on_a_phone(open_page: OpenPage, site: Site, scheme: str) -> None:
    page = open_page("en-GB", viewport={"width": 320, "height": 700}, color_scheme=scheme, reduced_motion="reduce")
    start_chat(page, ENGLISH)
    site.fake.script(
        script.call("system_prompt_draft", {"content": "Be brief. " * 40}, before="One moment."),
        script.prompt_eval_count(2_050, "A draft."),
    )
    send(page, "word " * 4_500)
    replied(page, "A draft.")
    page.locator(".inspector-toggle").click()
    inspector = page.locator("[data-inspector]")
    expect(inspector.locator("[data-alarm]")).to_be_visible()
    unfold(inspector, "[data-reason=temporary]")
    unfold(inspector, "[data-part=prompt]")
    inspector.locator("[data-saved]").get_by_role("button").focus()
    check(page)
    inspector.locator("[data-view=sent]").click()
    expect(inspector.locator("[data-difference]")).to_be_visible()
    unfold(inspector, "[data-part=turn]")
    check(page)
