"""Tools by hand, tools of the model, and the question before a change."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_facts import WIDE, idle, start_english
from tests.browser.test_page import RUSSIAN, send, start_chat

expect.set_options(timeout=PATIENCE_MS)


def type_slash(page: Page, query: str = "") -> Locator:
    page.locator("[data-composer] textarea").fill(f"/{query}")
    return page.locator(".slash-menu")


def choose_tool(page: Page, name: str) -> Locator:
    expect(type_slash(page, name)).to_be_visible()
    page.keyboard.press("Enter")
    return page.locator(f"[data-tool-form={name}]")


def test_the_menu_has_families_by_name_and_no_tools_of_buttons(open_page: OpenPage) -> None:
    page = open_page(viewport=WIDE)
    start_chat(page, RUSSIAN)
    menu = type_slash(page)
    expect(menu.get_by_role("group", name="Заметки", exact=True)).to_be_visible()
    expect(menu.get_by_role("group", name="Снимки", exact=True)).to_be_attached()
    expect(menu.get_by_role("option", name="Добавить задачу")).to_be_attached()
    expect(menu.get_by_text("/task_restore")).to_have_count(0)


def test_the_last_used_tool_comes_first_after_a_reload_too(open_page: OpenPage) -> None:
    page = start_english(open_page)
    choose_tool(page, "task_list").get_by_role("button", name="Run").click()
    expect(page.locator("[data-tool=task_list]")).to_be_visible()
    page.reload()
    menu = type_slash(page)
    expect(menu.get_by_role("group").first).to_have_accessible_name("Recently used")
    expect(menu.get_by_role("option").first).to_contain_text("/task_list")
    expect(menu.get_by_text("/task_list")).to_have_count(1)


def test_words_behind_a_tools_name_fill_its_form_and_outlast_a_cancel(open_page: OpenPage, site: Site) -> None:
    page = start_english(open_page)
    composer = page.locator("[data-composer] textarea")
    expect(type_slash(page, "task_add Buy milk")).to_be_visible()
    page.keyboard.press("Enter")
    form = page.locator("[data-tool-form=task_add]")
    expect(form.get_by_label("Title")).to_have_value("Buy milk")
    form.get_by_label("Title").press("Escape")
    expect(composer).to_have_value("/task_add Buy milk")
    page.keyboard.press("Enter")  # not a message even now
    form.get_by_label("Title").press("Escape")
    composer.press("End")
    composer.type(" and tea")
    expect(page.locator(".slash-menu").get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(form.get_by_label("Title")).to_have_value("Buy milk and tea")
    form.get_by_role("button", name="Run").click()
    expect(page.locator("[data-tool=task_add]")).to_contain_text("Buy milk and tea")
    expect(composer).to_have_value("")
    assert not site.fake.requests


def test_a_form_has_the_controls_of_the_schema(open_page: OpenPage) -> None:
    page = start_english(open_page)
    form = choose_tool(page, "task_update")
    number = form.get_by_label("Number")
    expect(number).to_have_attribute("type", "number")
    expect(number).to_have_attribute("min", "1")
    expect(number).to_be_focused()
    expect(form.get_by_label("Done")).to_have_role("combobox")
    expect(form.get_by_text("optional")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(choose_tool(page, "note_save").get_by_label("Text")).to_have_js_property("tagName", "TEXTAREA")


def test_an_untouched_choice_changes_nothing(open_page: OpenPage) -> None:
    """A task that is done stays done when only its title is sent."""
    page = start_english(open_page)
    for name, fields in (("task_add", {"Title": "old"}), ("task_complete", {"Number": "1"}), ("task_update", {"Number": "1", "Title": "new"})):
        form = choose_tool(page, name)
        for label, value in fields.items():
            form.get_by_label(label).fill(value)
        form.get_by_role("button", name="Run").click()
        expect(page.locator(f"[data-tool={name}]")).to_be_visible()
        idle(page)
    expect(page.locator("[data-fact-group=tasks] summary")).to_contain_text("0 of 1")


def test_what_the_server_says_of_a_field_stands_at_the_field(open_page: OpenPage) -> None:
    page = start_english(open_page)
    form = choose_tool(page, "note_save")
    form.get_by_label("Title").fill("x" * 300)
    form.get_by_label("Text").fill("kept text")
    form.get_by_role("button", name="Run").click()
    expect(form.get_by_label("Title")).to_have_accessible_description("String should have at most 200 characters")
    expect(form.get_by_label("Text")).to_have_value("kept text")
    expect(page.locator("[data-problem]")).to_have_count(0)


def test_a_family_is_turned_off_for_one_chat(open_page: OpenPage, site: Site) -> None:
    page = start_english(open_page)
    part = page.locator("[data-inspector] [data-part=tools]")
    part.locator("> details > summary").click()
    family = part.locator("[data-family=tasks]")
    expect(family).to_contain_text("task_add")
    family.get_by_role("switch", name="Tasks").click()
    expect(family).to_have_attribute("data-on", "false")
    expect(family.get_by_text("task_add")).to_have_count(0)
    send(page, "Which tools do you have?")
    expect(page.locator("[data-role=assistant]").last).to_have_attribute("data-status", "complete")
    assert "task_add" not in site.fake.requests[-1].tool_names
    family.get_by_role("switch", name="Tasks").click()
    expect(family).to_contain_text("task_add")


def ask_before(page: Page) -> None:
    page.locator("[data-chat-row] .row-menu").first.click()
    page.get_by_role("menuitemcheckbox", name="Ask before changes").click()
    page.locator("[data-chat-row] .row-menu").first.click()
    expect(page.get_by_role("menuitemcheckbox", name="Ask before changes")).to_be_checked()
    page.keyboard.press("Escape")


def ask_for_a_task(page: Page, site: Site) -> Locator:
    site.fake.script(script.call("task_add", {"title": "buy milk"}), script.reply("As you wish."))
    send(page, "Add a task")
    card = page.locator("[data-kind]").filter(has_text="Add a task")
    expect(card).to_contain_text("buy milk")
    return card


def test_a_change_waits_to_be_allowed_and_the_page_says_so(open_page: OpenPage, site: Site) -> None:
    page = start_english(open_page)
    ask_before(page)
    card = ask_for_a_task(page, site)
    expect(page.locator("[data-turn=approval]")).to_have_text("Waits for your answer")
    expect(page.locator("[aria-live=polite]")).to_have_text("Waits for your answer")
    expect(page.locator("[data-task-id]")).to_have_count(0)
    page.reload()
    expect(page.locator("[data-turn=approval]")).to_be_visible()
    allow = card.get_by_role("button", name="Allow")
    allow.focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-role=assistant]").last).to_contain_text("As you wish.")
    expect(card.locator("[data-approval=allowed]")).to_be_visible()
    expect(card.get_by_role("button", name="Allow")).to_have_count(0)
    expect(page.locator("[data-fact-group=tasks] summary")).to_contain_text("1 of 1")


def test_a_change_that_is_denied_on_one_tab_is_denied_on_both(open_page: OpenPage, site: Site) -> None:
    page = start_english(open_page)
    ask_before(page)
    ask_for_a_task(page, site)
    second = open_page("en-GB", viewport=WIDE)
    second.locator("[data-chat-row] >> nth=0").click()
    second.locator("[data-answer=deny]").click()
    for shown in (page, second):
        expect(shown.locator("[data-approval=denied]")).to_be_visible()
        expect(shown.locator("[data-turn=approval]")).to_have_count(0)
        expect(shown.locator("[data-fact-group=tasks] summary")).to_contain_text("0 of 0")
