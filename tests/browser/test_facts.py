"""The facts beside the conversation: looked at, changed in place, undone, and the same on every tab."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_page import ENGLISH, RUSSIAN, Words, send, start_chat

WIDE = {"width": 1360, "height": 900}

expect.set_options(timeout=PATIENCE_MS)


def open_group(page: Page, name: str) -> Locator:
    """Unfold one group of the facts panel."""
    group = page.locator(f"[data-fact-group={name}]")
    if group.locator("details[open]").count() == 0:
        group.locator("summary").click()
    return group


def add_task(page: Page, title: str) -> Locator:
    group = open_group(page, "tasks")
    group.get_by_role("textbox", name="New task").fill(title)
    page.keyboard.press("Enter")
    task = group.locator("[data-task-id]").filter(has_text=title)
    expect(task).to_be_visible()
    return task


def idle(page: Page) -> None:
    """Wait until the chat's turn has ended: only then do buttons work."""
    expect(page.locator("[data-composer] [data-action=stop]")).to_have_count(0)


def start_english(open_page: OpenPage) -> Page:
    page = open_page("en-GB", viewport=WIDE)
    start_chat(page, ENGLISH)
    return page


def test_tasks_are_added_ticked_renamed_and_deleted_in_place(open_page: OpenPage, site: Site) -> None:
    page = start_english(open_page)
    task = add_task(page, "buy milk")
    idle(page)
    task.get_by_role("checkbox").check()
    group = page.locator("[data-fact-group=tasks]")
    expect(group.locator("summary")).to_contain_text("0 of 1")
    idle(page)
    task.locator("[data-action=edit]").click()
    group.get_by_role("textbox", name="Title").fill("buy oat milk")
    page.keyboard.press("Enter")
    renamed = group.locator("[data-task-id]").filter(has_text="oat")
    expect(renamed.get_by_role("checkbox")).to_be_checked()
    idle(page)
    renamed.locator("[data-action=delete]").click()
    expect(group.locator("[data-task-id]")).to_have_count(0)
    assert site.fake.requests == []


def test_escape_leaves_a_title_as_it_was(open_page: OpenPage) -> None:
    page = start_english(open_page)
    task = add_task(page, "as it was")
    task.locator("[data-action=edit]").click()
    page.keyboard.type("changed")
    page.keyboard.press("Escape")
    expect(page.locator("[data-fact-group=tasks]").get_by_text("as it was")).to_be_visible()


def test_what_was_deleted_comes_back(open_page: OpenPage) -> None:
    page = start_english(open_page)
    task = add_task(page, "too early")
    idle(page)
    task.locator("[data-action=delete]").click()
    deleted = open_group(page, "deleted")
    expect(deleted).to_contain_text("too early")
    idle(page)
    deleted.locator("[data-action=restore]").click()
    expect(page.locator("[data-task-id]")).to_have_text(["too early"])
    expect(deleted).to_have_count(0)


def test_a_change_is_seen_on_every_tab_and_in_every_chat(open_page: OpenPage) -> None:
    page, second = start_english(open_page), start_english(open_page)
    open_group(second, "tasks")
    add_task(page, "seen everywhere")
    expect(second.locator("[data-task-id]")).to_have_text(["seen everywhere"])


def test_a_change_of_the_models_is_seen_at_once(open_page: OpenPage, site: Site) -> None:
    page = start_english(open_page)
    open_group(page, "tasks")
    site.fake.script(script.call("task_add", {"title": "from the model"}), script.reply("Added."))
    send(page, "Please add a task")
    expect(page.locator("[data-task-id]")).to_have_text(["from the model"])


def test_a_note_is_written_opened_and_changed(open_page: OpenPage) -> None:
    page = start_english(open_page)
    group = open_group(page, "notes")
    group.locator("[data-action=new-note]").click()
    dialog = page.locator("[data-dialog=note]")
    dialog.get_by_label("Title").fill("Minutes")
    dialog.get_by_label("Text").fill("We met.\nWe left.")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    group.get_by_role("button", name="Minutes", exact=True).click()
    expect(dialog.get_by_label("Text")).to_have_value("We met.\nWe left.")
    idle(page)
    dialog.get_by_label("Text").fill("We stayed.")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("[data-tool=note_save][data-kind=diff]")).to_contain_text("We stayed.")
    expect(page.locator("[data-banner]")).to_be_visible()
    group.get_by_role("button", name="Minutes", exact=True).click()
    expect(dialog.get_by_label("Text")).to_have_value("We stayed.")


def test_a_notes_wrong_field_says_so_where_it_is(open_page: OpenPage) -> None:
    page = start_english(open_page)
    open_group(page, "notes").locator("[data-action=new-note]").click()
    dialog = page.locator("[data-dialog=note]")
    dialog.get_by_label("Title").fill("x" * 300)
    dialog.get_by_label("Text").fill("text")
    dialog.get_by_role("button", name="Save").click()
    title = dialog.get_by_label("Title")
    expect(title).to_have_attribute("aria-invalid", "true")
    expect(title).to_be_focused()
    expect(dialog).to_contain_text("at most 200 characters")


def test_versions_are_compared_and_rolled_back(open_page: OpenPage) -> None:
    page = start_english(open_page)
    for text in ("Answer every question at length.", "Answer every question briefly."):
        use_tool(page, "system_prompt_draft", text)
        page.locator("[data-kind=diff]").last.get_by_role("button", name="Apply").click()
        expect(page.locator("[data-fact-group=prompts] summary")).to_contain_text("Version")
        idle(page)
    group = open_group(page, "prompts")
    expect(group.locator("[data-version]")).to_have_count(2)
    group.locator("[data-status=superseded] [data-action=compare]").click()
    dialog = page.locator("[data-dialog=versions]")
    expect(dialog.locator("del")).to_have_text("briefly")
    expect(dialog.locator("ins")).to_have_text("at length")
    dialog.locator("[data-side=before]").select_option("0")
    expect(dialog.locator(".diff-row.added")).to_have_text("Added: Answer every question at length.")
    dialog.get_by_role("button", name="Roll back to version 1").click()
    expect(group.locator("summary")).to_contain_text("Version 3")
    expect(group.locator("[data-status=applied]")).to_have_attribute("data-version", "3")


def use_tool(page: Page, name: str, text: str) -> None:
    """Run a tool with one text by the slash menu."""
    box = page.locator("[data-composer] textarea")
    box.fill(f"/{name}")
    expect(page.locator(".slash-menu")).to_be_visible()
    box.press("Enter")
    form = page.locator("[data-tool-form]")
    form.get_by_role("textbox").fill(text)
    page.keyboard.press("Control+Enter")
    expect(form).to_have_count(0)
    idle(page)


def test_a_snapshot_is_taken_compared_and_restored(open_page: OpenPage) -> None:
    page = start_english(open_page)
    task = add_task(page, "kept")
    idle(page)
    group = open_group(page, "snapshots")
    group.get_by_role("textbox", name="New snapshot").fill("before")
    page.keyboard.press("Enter")
    expect(group.locator("[data-snapshot-id]")).to_contain_text(["before"])
    idle(page)
    task.locator("[data-action=delete]").click()
    expect(page.locator("[data-task-id]")).to_have_count(0)
    idle(page)
    group.locator("[data-action=compare]").click()
    expect(page.locator("[data-tool=snapshot_diff]")).to_contain_text("kept")
    idle(page)
    group.locator("[data-action=restore]").click()
    expect(page.locator("[data-task-id]")).to_have_text(["kept"])
    expect(page.locator("[data-banner]")).to_be_visible()


@pytest.mark.parametrize(
    ("words", "title"),
    [pytest.param(RUSSIAN, "Системный промпт · черновик 1", id="ru"), pytest.param(ENGLISH, "System prompt · draft 1", id="en", marks=pytest.mark.long)],
)
def test_a_card_is_kept_as_a_note_and_a_reply_becomes_a_draft(open_page: OpenPage, site: Site, words: Words, title: str) -> None:
    page = open_page(words.locale, viewport=WIDE)
    start_chat(page, words)
    site.fake.script(script.call("system_prompt_draft", {"content": "Be kind."}), script.reply("Answer as **a friend**."))
    send(page, "Draft a prompt")
    idle(page)
    page.locator("[data-kind=diff] [data-action=keep_as_note]").click()
    expect(page.locator("[data-tool=note_save]")).to_contain_text("Be kind.")
    group = open_group(page, "notes")
    expect(group.locator("[data-note-id]")).to_have_text([title])
    idle(page)
    reply = page.locator("[data-role=assistant]").last
    reply.hover()
    reply.locator("[data-action=use-as-prompt]").click()
    expect(page.locator("[data-kind=diff]").last).to_contain_text("Answer as **a friend**.")
