"""Who can use the page: in any language, without a mouse, enlarged, in colours of their own, and without losing what they typed."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Page, expect

from backend.settings import PROJECT_FOLDER
from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_facts import add_task, idle
from tests.browser.test_page import ENGLISH, RUSSIAN, send, start_chat

expect.set_options(timeout=PATIENCE_MS)

# More presses of Tab than any way through the page takes.
LONGEST_WAY = 80


# --- Languages


@pytest.fixture
def site(process_site: Site) -> Site:
    """Some tests here serve a copy of the project."""
    return process_site


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The project itself, or for a test that names a language a copy of it with one file more: a catalogue."""
    language = getattr(request, "param", None)
    if language is None:
        return PROJECT_FOLDER
    copy = tmp_path / "project"
    for folder in ("backend", "frontend", "migrations"):
        shutil.copytree(PROJECT_FOLDER / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "node_modules").symlink_to(PROJECT_FOLDER / "node_modules")
    catalogues = copy / "frontend" / "js" / "i18n"
    english = (catalogues / "en.js").read_text(encoding="utf-8")
    (catalogues / f"{language}.js").write_text(english.replace('"New chat"', '"Neuer Chat"'), encoding="utf-8")
    return copy


def choose_language(page: Page, name: str) -> None:
    page.locator(".bar-preferences [aria-haspopup=menu]").last.click()
    page.get_by_role("menuitemradio", name=name).click()


@pytest.mark.parametrize("project", ["de"], indirect=True)
def test_a_language_is_one_file(open_page: OpenPage) -> None:
    page = open_page("de-AT")
    new_chat = page.locator("[data-action=new-chat]")
    expect(new_chat).to_have_text("Neuer Chat")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    loaded = page.evaluate("performance.getEntriesByType('resource').map(({name}) => name.split('/i18n/')[1]).filter(Boolean)")
    assert set(loaded) == {"de.js"}, "the other languages can wait"
    choose_language(page, "Русский")
    expect(new_chat).to_have_text("Новый чат")
    expect(page.locator("html")).to_have_attribute("lang", "ru")
    page.reload()
    expect(new_chat).to_have_text("Новый чат")
    choose_language(page, "Deutsch")
    expect(new_chat).to_have_text("Neuer Chat")


def test_a_choice_holds_in_every_page_of_the_browser(open_page: OpenPage, site: Site) -> None:
    page = open_page(ENGLISH.locale)
    other = page.context.new_page()
    other.goto(site.url)
    choose_language(page, "Русский")
    expect(other.locator("[data-action=new-chat]")).to_have_text(RUSSIAN.new_chat)


# --- The keyboard


def focused(page: Page) -> dict[str, Any]:
    """What has the focus: its name, whether that can be seen at it or at its frame, how large the target is."""
    return dict(
        page.evaluate(
            """() => {
                const element = document.activeElement;
                const around = [element, element.closest("label"), element.closest("form")].filter(Boolean);
                const seen = around.map(getComputedStyle).some(({ outlineStyle, outlineWidth }) => outlineStyle !== "none" && outlineWidth !== "0px");
                const { width, height } = (element.closest("label") ?? element).getBoundingClientRect();
                return { tag: element.tagName, seen, width, height, html: element.outerHTML.slice(0, 200) };
            }"""
        )
    )


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    """Press Tab until it is there; every stop on the way is a thing that shows its focus."""
    for _ in range(LONGEST_WAY):
        page.keyboard.press(key)
        stop = focused(page)
        if stop["tag"] != "BODY":  # the end of the page, before its beginning
            assert stop["seen"], stop
            assert min(stop["width"], stop["height"]) >= 24 or 'class="skip"' in stop["html"], stop
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"no way by {key} to {selector}")


def expect_focus_somewhere(page: Page) -> None:
    """The focus is not at nothing, but for the moment that it takes to find a place."""
    expect(page.locator("body :focus")).to_have_count(1)


def test_a_day_without_a_mouse(open_page: OpenPage, site: Site) -> None:
    page = open_page(ENGLISH.locale)
    box = page.locator("[data-composer] textarea")
    expect(page.locator("[data-action=new-chat]")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    tab_to(page, "[data-action=new-chat]")
    page.keyboard.press("Enter")
    expect(box).to_be_focused()

    gate = asyncio.Event()
    site.fake.script([script.text("Once upon"), script.hold(gate), script.done()])
    page.keyboard.type("Tell me a story")
    page.keyboard.press("Enter")
    expect(page.locator("[data-role=assistant]")).to_contain_text("Once upon")
    page.keyboard.press("Escape")
    expect(page.locator("[data-action=stop]")).to_have_count(0)
    expect(box).to_be_focused()
    site.fake.call(gate.set)

    tab_to(page, "[role=tab]", "Shift+Tab")
    page.keyboard.press("F2")
    expect(page.locator("[data-rename]")).to_be_focused()
    page.keyboard.type("Stories")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab")).to_have_text("Stories")
    expect(page.get_by_role("tab")).to_be_focused()

    page.keyboard.press("?")
    expect(page.locator("[data-dialog=help]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("tab")).to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.locator("[data-dialog=search]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("[data-dialog=search]")).to_have_count(0)
    expect(page.get_by_role("tab")).to_be_focused()

    page.keyboard.press("Alt+n")
    expect(page.get_by_role("tab")).to_have_count(2)
    page.keyboard.press("Alt+1")
    expect(page).to_have_title("Stories · Cleanroom")
    page.keyboard.press("Alt+2")
    tab_to(page, "[role=tab]", "Shift+Tab")
    page.keyboard.press("Delete")
    expect(page.get_by_role("tab")).to_have_count(1)
    expect_focus_somewhere(page)

    tab_to(page, "[data-chat-row] .row-menu")
    page.keyboard.press("Enter")
    expect(page.locator(".menu:popover-open :focus")).to_have_count(1)
    page.keyboard.press("End")
    expect(page.locator(".menu:popover-open .danger")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".row-menu:focus")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".menu:popover-open :focus")).to_have_count(1)
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("[data-dialog=delete]")).to_be_visible()
    tab_to(page, "[data-action=confirm-delete]")
    page.keyboard.press("Enter")
    expect(page.locator("[data-chat-row]")).to_have_count(1)
    expect_focus_somewhere(page)


def test_the_focus_stays_near_what_went_away(open_page: OpenPage, site: Site) -> None:
    page = open_page(ENGLISH.locale, viewport={"width": 1360, "height": 900})
    start_chat(page, ENGLISH)
    add_task(page, "Bread")
    idle(page)
    page.locator("[data-task-id] [data-action=delete]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-task-id]")).to_have_count(0)
    expect_focus_somewhere(page)
    page.set_viewport_size({"width": 600, "height": 800})
    page.locator(".list-toggle").focus()
    page.keyboard.press("Enter")
    page.locator("#chat-list input").focus()
    page.keyboard.press("Escape")
    expect(page.locator("#chat-list")).to_be_hidden()
    expect_focus_somewhere(page)


# --- Enlarged, and in other colours


@pytest.mark.parametrize(
    "options",
    [
        {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},
        {"viewport": {"width": 1280, "height": 800}, "forced_colors": "active"},
    ],
    ids=["200 %", "forced colours"],
)
def test_a_conversation_enlarged_and_in_forced_colours(open_page: OpenPage, site: Site, options: dict[str, Any]) -> None:
    page = open_page(RUSSIAN.locale, reduced_motion="reduce", **options)
    start_chat(page, RUSSIAN)
    site.fake.script(script.call("system_prompt_draft", {"content": "Кратко.\n" + "слово " * 60}), script.reply("Готово: `код`"))
    send(page, "Сделай промпт " + "ы" * 200)
    idle(page)
    page.locator("[data-kind=diff]").get_by_role("button", name=RUSSIAN.apply).click()
    expect(page.locator("[data-banner]")).to_be_visible()
    check(page)
    expect(page.locator("[data-composer] textarea")).to_be_in_viewport(ratio=1)
    assert page.locator("[data-conversation]").bounding_box()["height"] > 40, "there is room to read"  # type: ignore[index]
    assert page.evaluate("document.getAnimations().every(({playState}) => playState !== 'running')")


# --- What was typed


def test_what_was_typed_survives_a_reload_and_a_crash(open_page: OpenPage, site: Site) -> None:
    page = open_page(ENGLISH.locale)
    start_chat(page, ENGLISH)
    box = page.locator("[data-composer] textarea")
    box.fill("before the reload")
    page.reload()
    expect(box).to_have_value("before the reload")

    box.fill("before the crash")
    chat = page.locator("[data-chat-row]").get_attribute("data-chat-row")
    stored = f"localStorage.getItem('cleanroom.draft.{chat}')"
    while page.evaluate(stored) != '"before the crash"':
        page.wait_for_timeout(30)
    survivor = page.context.new_page()
    with page.expect_event("crash"), contextlib.suppress(Error):
        page.goto("chrome://crash")
    survivor.goto(site.url)
    expect(survivor.locator("[data-composer] textarea")).to_have_value("before the crash")


def test_two_pages_send_without_touching_each_others_drafts(open_page: OpenPage, site: Site) -> None:
    page = open_page(ENGLISH.locale)
    start_chat(page, ENGLISH)
    first = page.locator("[data-chat-row]").get_attribute("data-chat-row")
    page.locator("[data-composer] textarea").fill("kept in the first chat")
    other = page.context.new_page()
    other.goto(site.url)
    expect(other.locator("[data-composer] textarea")).to_be_visible()
    other.keyboard.press("Alt+n")
    expect(other.get_by_role("tab")).to_have_count(2)
    site.fake.script(script.reply("Here"))
    send(other, "from the second page")
    expect(other.locator("[data-role=assistant]")).to_contain_text("Here")
    other.reload()
    page.reload()
    page.locator(f"[data-chat-row='{first}'] .chat-name").click()
    expect(page.locator("[data-composer] textarea")).to_have_value("kept in the first chat")


def test_a_text_that_the_browser_can_not_keep_is_said_so(open_page: OpenPage) -> None:
    page = open_page(ENGLISH.locale)
    start_chat(page, ENGLISH)
    box, hint = page.locator("[data-composer] textarea"), page.locator(".composer-hint")
    page.evaluate("localStorage.setItem('filler', 'x'.repeat(5_200_000))")
    box.fill("y" * 60_000)
    expect(hint).to_contain_text("not kept across a reload")
    box.fill("short")
    expect(hint).not_to_contain_text("not kept across a reload")


def test_forbidden_storage_breaks_nothing(open_page: OpenPage, site: Site) -> None:
    page = open_page(ENGLISH.locale)
    forbid = "Object.defineProperty(window, '{0}', {{ get() {{ throw new DOMException('forbidden', 'SecurityError') }} }});"
    page.add_init_script(forbid.format("localStorage") + forbid.format("sessionStorage"))
    page.reload()
    start_chat(page, ENGLISH)
    site.fake.script(script.reply("All the same"))
    page.locator("[data-composer] textarea").fill("Does it work?")
    expect(page.locator(".composer-hint")).to_contain_text("not kept across a reload")
    page.keyboard.press("Enter")
    expect(page.locator("[data-role=assistant]")).to_contain_text("All the same")
    expect(page.locator(".composer-hint")).to_have_text("")
