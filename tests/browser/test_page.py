"""The main job in a real browser: a message streams, a draft becomes a prompt, the person is asked and answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site

PROMPT = "Отвечай по-русски, в двух-трёх предложениях.\nНе обещай сроков, которых нет в базе."

expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Words:
    """What the page says in one language."""

    locale: str
    new_chat: str
    apply: str
    question: str
    yes: str
    no: str
    undo: str
    clear_now: str


RUSSIAN = Words("ru-RU", "Новый чат", "Применить", "Желаемый результат получен?", "👍 Да, закрыть", "👎 Нет, продолжить", "Вернуть", "Убрать сейчас")
ENGLISH = Words("en-GB", "New chat", "Apply", "Did you get the result you wanted?", "👍 Yes, close", "👎 No, continue", "Undo", "Clear now")


def start_chat(page: Page, words: Words) -> None:
    page.get_by_role("button", name=words.new_chat).last.click()
    expect(page.locator("[data-composer] textarea")).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


def send(page: Page, text: str) -> None:
    box = page.locator("[data-composer] textarea")
    box.fill(text)
    box.press("Enter")


def script_a_draft(site: Site) -> None:
    site.fake.script(
        script.call("system_prompt_draft", {"content": PROMPT}),
        script.reply("Черновик готов, посмотрите карточку.", eval_count=14, eval_duration=420_000_000),
    )


@pytest.mark.parametrize("words", [RUSSIAN, pytest.param(ENGLISH, marks=pytest.mark.long)], ids=["ru", "en"])
def test_a_draft_becomes_a_prompt_and_the_person_is_asked(open_page: OpenPage, site: Site, words: Words) -> None:
    page = open_page(words.locale)
    start_chat(page, words)
    script_a_draft(site)
    send(page, "Сделай системный промпт короче")

    card = page.locator("[data-kind=diff]").first
    expect(card).to_contain_text("Отвечай по-русски")
    expect(page.locator("[data-role=assistant]").last).to_contain_text("Черновик готов")
    expect(page.locator("[data-ttl-chip]")).to_be_visible()
    expect(page.locator("[data-banner]")).to_be_hidden()
    card.get_by_role("button", name=words.apply).click()

    banner = page.locator("[data-banner]")
    expect(banner).to_contain_text(words.question)
    expect(banner.get_by_role("button", name=words.yes)).to_be_visible()
    expect(banner.get_by_role("button", name=words.no)).to_be_visible()

    second = open_page(words.locale)
    second.locator("[data-chat-row] >> nth=0").click()
    expect(second.locator("[data-banner]")).to_contain_text(words.question)
    page.reload()
    expect(page.locator("[data-banner]")).to_contain_text(words.question)

    second.locator("[data-banner]").get_by_role("button", name=words.yes).click()
    for shown in (page, second):
        expect(shown.locator("[data-banner]")).to_be_hidden()
        expect(shown.locator("[data-kind=diff]")).to_have_count(0)
        expect(shown.locator("[data-ttl-chip]")).to_be_hidden()
    site.fake.script(script.reply("Понял."))
    send(page, "Начнём?")
    expect(page.locator("[data-role=assistant]").last).to_contain_text("Понял.")
    assert site.fake.requests[-1].messages[0] == {"role": "system", "content": PROMPT}


def test_a_reply_streams_as_it_comes_and_is_the_same_in_two_tabs(open_page: OpenPage, site: Site) -> None:
    gate = asyncio.Event()
    site.fake.script([script.text("**Первая** часть"), script.hold(gate), script.text(" и вторая"), script.done()])
    page = open_page()
    start_chat(page, RUSSIAN)
    send(page, "Привет")
    reply = page.locator("[data-role=assistant]").last
    expect(reply).to_contain_text("Первая часть")
    expect(reply.locator("strong")).to_have_text("Первая")
    second = open_page()
    second.locator("[data-chat-row] >> nth=0").click()
    expect(second.locator("[data-role=assistant]").last).to_contain_text("Первая часть")
    site.fake.call(gate.set)
    for shown in (page, second):
        expect(shown.locator("[data-role=assistant]").last).to_contain_text("Первая часть и вторая")


def test_no_keeps_the_material_and_clearing_can_be_undone(open_page: OpenPage, site: Site) -> None:
    page = open_page()
    start_chat(page, RUSSIAN)
    script_a_draft(site)
    send(page, "Сделай промпт")
    page.locator("[data-kind=diff]").get_by_role("button", name=RUSSIAN.apply).click()
    page.locator("[data-banner]").get_by_role("button", name=RUSSIAN.no).click()
    expect(page.locator("[data-banner]")).to_be_hidden()
    expect(page.locator("[data-kind=diff]")).to_have_count(2)

    page.locator("[data-ttl-chip]").get_by_role("button", name=RUSSIAN.clear_now).click()
    expect(page.locator("[data-kind=diff]")).to_have_count(0)
    page.locator("[data-cleared]").get_by_role("button", name=RUSSIAN.undo).click()
    expect(page.locator("[data-kind=diff]")).to_have_count(2)
    expect(page.locator("[data-ttl-chip]")).to_be_visible()


def test_what_a_person_types_is_shown_as_typed_and_runs_nothing(open_page: OpenPage, site: Site) -> None:
    hostile = 'a <b> c <channel> &lt; $5 <img src=x onerror="window.hit=1"> <script>window.hit=1</script>'
    site.fake.script(script.reply(f"{hostile}\n\n![x](https://elsewhere.example/x.png) [ok](javascript:window.hit=1)"))
    page = open_page()
    start_chat(page, RUSSIAN)
    send(page, hostile)
    expect(page.locator("[data-role=user] [data-text]").first).to_have_text(hostile)
    reply = page.locator("[data-role=assistant]").last
    expect(reply).to_have_attribute("data-status", "complete")
    expect(reply.locator(".prose")).to_contain_text("ok")
    assert reply.locator("img, script, a[href^=javascript]").count() == 0
    assert page.evaluate("window.hit") is None


def test_slash_opens_the_tools_and_runs_one(open_page: OpenPage, site: Site) -> None:
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    page.locator("[data-composer] textarea").press_sequentially("/add")
    page.keyboard.press("Enter")
    form = page.locator("[data-tool-form]")
    form.get_by_role("textbox").fill("buy milk")
    page.keyboard.press("Enter")
    expect(page.locator("[data-kind=notice]").last).to_contain_text("buy milk")
    assert site.fake.requests == []


def test_the_person_sees_what_the_model_sees(open_page: OpenPage, site: Site) -> None:
    page = open_page(viewport={"width": 1360, "height": 820})
    start_chat(page, RUSSIAN)
    script_a_draft(site)
    send(page, "Сделай промпт")
    expect(page.locator("[data-role=assistant]").last).to_contain_text("Черновик готов")
    inspector = page.locator("[data-inspector]")
    expect(inspector.locator("[data-part=history]")).to_be_visible()
    expect(inspector.locator("[data-withheld]")).to_contain_text("временн")


def test_a_failed_turn_keeps_the_words_and_offers_to_try_again(open_page: OpenPage, site: Site) -> None:
    site.fake.script(script.err_first(), script.reply("Теперь да"))
    page = open_page()
    start_chat(page, RUSSIAN)
    send(page, "Важные слова")
    failure = page.locator("[data-failure]")
    expect(failure).to_be_visible()
    page.reload()
    expect(page.locator("[data-role=user]")).to_contain_text("Важные слова")
    failure.get_by_role("button").first.click()
    expect(page.locator("[data-role=assistant]").last).to_contain_text("Теперь да")


def test_deleting_a_chat_asks_once_and_takes_it_from_every_tab(open_page: OpenPage, site: Site) -> None:
    page, second = open_page("en-GB"), open_page("en-GB")
    start_chat(page, ENGLISH)
    send(page, "Goodbye")
    expect(page.locator("[data-role=assistant]").last).to_have_attribute("data-status", "complete")
    expect(second.locator("[data-chat-row]")).to_have_count(1)
    page.locator("[data-chat-row]").get_by_role("button").last.click()
    page.get_by_role("menuitem", name="Delete").click()
    page.locator("[data-dialog]").get_by_role("button", name="Delete").click()
    for shown in (page, second):
        expect(shown.locator("[data-chat-row]")).to_have_count(0)


def test_the_picture_in_the_readme_can_be_drawn(open_page: OpenPage, site: Site, picture: Path) -> None:
    page = open_page(viewport={"width": 1360, "height": 820})
    start_chat(page, RUSSIAN)
    script_a_draft(site)
    send(page, "Сделай системный промпт короче и добавь, чтобы ассистент отвечал по-русски.")
    page.locator("[data-kind=diff]").get_by_role("button", name=RUSSIAN.apply).click()
    expect(page.locator("[data-banner]")).to_be_visible()
    expect(page.locator("[data-inspector] [data-part=history]")).to_be_visible()
    page.mouse.move(0, 0)
    page.screenshot(path=picture, animations="disabled")
    assert picture.stat().st_size > 20_000
