"""Chats as a person keeps them: found, renamed, saved, taken in, temporary, deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_page import ENGLISH, send, start_chat

WIDE = {"width": 1360, "height": 820}
PHONE = {"width": 320, "height": 800}

HIT = {"chat_id": "x", "message_id": 1, "role": "user", "created_at": "2026-01-01T00:00:00Z", "title": "T"}

# Another page's work, over a socket of its own: commands in order, then their replies.
SAY = """commands => new Promise((resolve, reject) => {
  const socket = new WebSocket(`ws://${location.host}/ws`);
  const replies = [];
  socket.onerror = reject;
  socket.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.type === 'ok' || frame.type === 'error') replies.push(frame);
    if (frame.type === 'welcome') commands.forEach((command, ref) => socket.send(JSON.stringify({ ...command, ref: String(ref) })));
    if (replies.length === commands.length) { socket.close(); resolve(replies); }
  };
})"""

expect.set_options(timeout=PATIENCE_MS)


def elsewhere(page: Page, *commands: dict[str, Any]) -> list[dict[str, Any]]:
    replies: list[dict[str, Any]] = page.evaluate(SAY, list(commands))
    return replies


def new_chats(page: Page, *titles: str) -> list[str]:
    return [reply["chat"]["id"] for reply in elsewhere(page, *({"type": "chat.create", "title": title} for title in titles))]


def row(page: Page, title: str) -> Locator:
    return page.locator("[data-chat-row]").filter(has_text=title)


def tab(page: Page, title: str) -> Locator:
    return page.get_by_role("tab").filter(has_text=title)


def menu(page: Page, title: str, item: str) -> None:
    row(page, title).hover()
    row(page, title).locator(".row-menu").click()
    page.get_by_role("menuitem", name=item).click()


def start(open_page: OpenPage, **options: Any) -> Page:
    return open_page("en-GB", **{"viewport": WIDE, **options})


# ---- search ----


def ask(page: Page, text: str) -> Locator:
    """Open the palette and type; the palette."""
    expect(page.locator("[data-connection=open]")).to_be_visible()
    page.keyboard.press("Control+k")
    palette = page.locator("[data-dialog=search]")
    palette.get_by_role("combobox").fill(text)
    return palette


def test_a_search_finds_titles_and_messages_and_jumps_to_one(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    new_chats(page, "About penguins")
    start_chat(page, ENGLISH)
    site.fake.script(script.reply("They <b>swim</b> well, the penguins of the south."))
    send(page, "What of flightless birds?")
    expect(page.locator("[data-role=assistant]")).to_have_attribute("data-status", "complete")
    row(page, "About penguins").locator(".chat-name").click()
    palette = ask(page, "penguin")
    expect(palette.locator("[data-search-chat]")).to_have_count(1)
    hit = palette.locator("[data-search-hit]")
    expect(hit.locator("mark")).to_have_text(["penguins"])
    expect(hit).to_contain_text("They <b>swim</b> well")
    expect(palette.get_by_role("group", name="What of flightless birds?")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(palette.get_by_role("combobox")).to_have_attribute("aria-activedescendant", str(hit.get_attribute("id")))
    page.keyboard.press("Enter")
    expect(palette).to_have_count(0)
    expect(tab(page, "flightless")).to_have_attribute("aria-selected", "true")
    expect(page.locator("[data-role=assistant]")).to_be_in_viewport()


def test_an_empty_search_shows_the_chats_used_last_and_escape_goes_back(open_page: OpenPage) -> None:
    page = start(open_page)
    new_chats(page, "First", "Second")
    start_chat(page, ENGLISH)
    page.locator("[data-composer] textarea").focus()
    palette = ask(page, "")
    expect(palette.locator("[data-search-chat]")).to_have_count(3)
    check(page)
    palette.get_by_role("combobox").fill("sec")
    expect(palette.locator("[data-search-chat]")).to_have_text(["Second" + palette.locator("time").inner_text()])
    palette.get_by_role("combobox").fill("nobody wrote this")
    expect(palette.get_by_role("status")).to_contain_text("Nothing found")
    expect(palette.get_by_role("combobox")).to_have_attribute("aria-expanded", "false")
    check(page)
    page.keyboard.press("Escape")
    expect(palette).to_have_count(0)
    expect(page.locator("[data-composer] textarea")).to_be_focused()


def test_a_late_reply_to_an_earlier_question_is_not_shown(open_page: OpenPage) -> None:
    page = start(open_page)
    asked: list[Callable[[], None]] = []

    def hold_searches(route: WebSocketRoute) -> None:
        """Answer what is searched only when the test says so."""
        server = route.connect_to_server()

        def to_server(text: str | bytes) -> None:
            frame = json.loads(text)
            if frame["type"] == "chat.search":
                asked.append(lambda: route.send(json.dumps({"type": "ok", "ref": frame["ref"], "hits": [{**HIT, "snippet": f"found {frame['query']}"}]})))
            else:
                server.send(text)

        route.on_message(to_server)

    page.route_web_socket("**/ws", hold_searches)
    page.reload()
    palette = ask(page, "slow")
    wait_until(page, lambda: len(asked) == 1)
    palette.get_by_role("combobox").fill("quick")
    wait_until(page, lambda: len(asked) == 2)
    asked[1]()
    expect(palette.locator("[data-search-hit]")).to_contain_text("found quick")
    asked[0]()
    two_frames_later(page)
    expect(palette.locator("[data-search-hit]")).to_contain_text("found quick")


def wait_until(page: Page, condition: Callable[[], bool]) -> None:
    """Let the page's events come in until the condition holds."""
    for _ in range(PATIENCE_MS // 50):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not happen")


def two_frames_later(page: Page) -> None:
    """By then everything that came has been drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


# ---- titles ----


def test_a_title_is_changed_in_its_tab(open_page: OpenPage) -> None:
    page = start(open_page)
    start_chat(page, ENGLISH)
    tab(page, "New chat").dblclick()
    field = page.locator("[data-rename]")
    expect(field).to_be_focused()
    check(page)
    field.fill("Holidays")
    field.press("Enter")
    expect(tab(page, "Holidays")).to_be_focused()
    expect(row(page, "Holidays")).to_have_count(1)
    page.keyboard.press("F2")
    field.fill("Something else")
    field.press("Escape")
    expect(field).to_have_count(0)
    expect(tab(page, "Holidays")).to_be_focused()
    page.keyboard.press("F2")
    field.fill("  ")
    field.press("Enter")
    expect(tab(page, "Holidays")).to_be_focused()
    page.keyboard.press("F2")
    field.fill("Left by a click")
    page.locator("[data-composer] textarea").click()
    expect(tab(page, "Left by a click")).to_have_count(1)


def test_a_title_is_changed_in_the_list_and_an_input_method_is_left_alone(open_page: OpenPage) -> None:
    page = start(open_page)
    new_chats(page, "Old name")
    row(page, "Old name").locator(".chat-name").focus()
    page.keyboard.press("F2")
    field = page.locator("[data-rename]")
    field.fill("にほん")
    field.dispatch_event("keydown", {"key": "Enter", "keyCode": 229})
    field.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    expect(field).to_be_focused()
    field.press("Enter")
    expect(row(page, "にほん").locator(".chat-name")).to_be_focused()
    menu(page, "にほん", "Rename")
    expect(field).to_be_focused()
    check(page)


def test_renaming_a_chat_that_was_deleted_elsewhere_says_so(open_page: OpenPage) -> None:
    page = start(open_page)
    [chat_id] = new_chats(page, "Doomed")
    row(page, "Doomed").locator(".chat-name").click()
    tab(page, "Doomed").dblclick()
    page.locator("[data-rename]").fill("Too late")
    elsewhere(page, {"type": "chat.delete", "chat_id": chat_id})
    expect(page.locator("[data-problem=renamed_gone]")).to_contain_text("deleted elsewhere")
    expect(page.locator("[data-rename]")).to_have_count(0)


def test_two_pages_that_rename_at_once_show_the_same(open_page: OpenPage) -> None:
    pages = [start(open_page), start(open_page)]
    new_chats(pages[0], "Both")
    for page, title in zip(pages, ("One", "Two"), strict=True):
        expect(row(page, "Both")).to_have_count(1)
        row(page, "Both").locator(".chat-name").focus()
        page.keyboard.press("F2")
        page.locator("[data-rename]").fill(title)
    for page in pages:
        page.locator("[data-rename]").press("Enter")
    expect(row(pages[0], "Two")).to_have_count(1)
    expect(row(pages[1], "Two")).to_have_count(1)


# ---- deleting ----


def test_after_deleting_the_focus_is_on_the_next_chat_and_then_where_one_begins(open_page: OpenPage) -> None:
    page = start(open_page)
    new_chats(page, "Third", "Second", "First")
    expect(page.locator("[data-chat-row]")).to_have_count(3)
    for gone, next_one in (("First", "Second"), ("Second", "Third")):
        menu(page, gone, "Delete")
        expect(page.locator("[data-dialog=delete]")).to_contain_text("Tasks and notes")
        page.locator("[data-action=confirm-delete]").click()
        expect(row(page, gone)).to_have_count(0)
        expect(row(page, next_one).locator(".chat-name")).to_be_focused()
    menu(page, "Third", "Delete")
    page.locator("[data-action=confirm-delete]").click()
    expect(page.locator(".chat-list-head").get_by_role("button", name="New chat")).to_be_focused()


# ---- files ----


def saved(page: Page, act: Callable[[], None]) -> tuple[str, str]:
    """The name and text of the file that `act` makes the page save."""
    with page.expect_download() as download:
        act()
    return download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8")


def take_in(page: Page, *files: Path) -> Locator:
    """Choose files in the import dialog; what it says came of them."""
    if page.locator("[data-dialog=import]").count() == 0:
        page.locator(".list-menu").click()
        page.get_by_role("menuitem", name="Take in chats").click()
    page.locator("[data-dialog=import] input[type=file]").set_input_files(files)
    outcome = page.locator("[data-import-outcome]")
    expect(outcome).to_be_visible()
    return outcome


@pytest.fixture
def told(open_page: OpenPage, site: Site) -> Page:
    """A page with one chat in which something was said."""
    page = start(open_page)
    start_chat(page, ENGLISH)
    site.fake.script(script.reply("It was **Tuesday**."))
    send(page, "Which day was it?")
    expect(page.locator("[data-role=assistant]")).to_have_attribute("data-status", "complete")
    return page


def test_a_chat_is_saved_in_both_forms(told: Page) -> None:
    name, text = saved(told, lambda: menu(told, "Which day", "Save as Markdown"))
    assert name.endswith(".md")
    assert "It was **Tuesday**." in text
    name, text = saved(told, lambda: menu(told, "Which day", "Save as JSON"))
    assert name.endswith(".json")
    assert json.loads(text)["format"] == "cleanroom"


def test_all_chats_are_saved_as_one_file_and_taken_in_once(told: Page, tmp_path: Path) -> None:
    [another] = new_chats(told, "Another")
    elsewhere(told, {"type": "message.send", "chat_id": another, "client_id": "one", "text": "Hello"})
    told.keyboard.press("Alt+Shift+KeyN")
    expect(told.locator("[data-temporary]")).to_be_visible()
    name, text = saved(told, lambda: save_all(told))
    expect(told.locator("[data-exported='2']")).to_be_visible()
    check(told)
    told.keyboard.press("Escape")
    whole = json.loads(text)
    assert (whole["format"], whole["version"], len(whole["chats"])) == ("cleanroom", 1, 2)
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    expect(take_in(told, path).locator("[data-taken='2']")).to_be_visible()
    check(told)
    outcome = take_in(told, path)
    expect(outcome.locator("[data-known='2']")).to_be_visible()
    expect(outcome.locator("[data-taken], [data-failed]")).to_have_count(0)


def save_all(page: Page) -> None:
    page.locator(".list-menu").click()
    page.get_by_role("menuitem", name="Save all chats").click()


CHATGPT = [
    {
        "title": "From elsewhere",
        "conversation_id": "c-1",
        "create_time": 1700000000.0,
        "update_time": 1700000100.0,
        "current_node": "b",
        "mapping": {
            "root": {"id": "root", "message": None, "parent": None, "children": ["a"]},
            "a": {
                "id": "a",
                "parent": "root",
                "children": ["b"],
                "message": {"id": "a", "author": {"role": "user"}, "create_time": 1700000001.0, "content": {"content_type": "text", "parts": ["Hello there"]}},
            },
            "b": {
                "id": "b",
                "parent": "a",
                "children": [],
                "message": {
                    "id": "b",
                    "author": {"role": "assistant"},
                    "create_time": 1700000002.0,
                    "content": {"content_type": "text", "parts": ["General greeting"]},
                },
            },
        },
    },
    {"title": "Broken one", "mapping": "no"},
]


def test_another_programs_file_is_taken_in_and_what_is_wrong_is_named(open_page: OpenPage, tmp_path: Path) -> None:
    page = start(open_page)
    good, bad, packed = tmp_path / "conversations.json", tmp_path / "notes.json", tmp_path / "export.zip"
    good.write_text(json.dumps(CHATGPT, indent=1), encoding="utf-8")
    bad.write_text("these are no chats", encoding="utf-8")
    packed.write_bytes(b"PK\x03\x04")
    outcome = take_in(page, good, bad, packed)
    expect(outcome.locator("[data-taken='1']")).to_be_visible()
    expect(outcome.locator("[data-failed='3'] + ul > li")).to_contain_text(
        ["Broken one", "notes.json: This is not a JSON file", "export.zip: This is a packed archive"]
    )
    check(page)
    page.keyboard.press("Escape")
    row(page, "From elsewhere").locator(".chat-name").click()
    expect(page.locator("[data-role=assistant]")).to_contain_text("General greeting")


def test_a_file_let_fall_onto_the_page_is_offered_to_be_taken_in(open_page: OpenPage) -> None:
    page = start(open_page)
    data = page.evaluate_handle("() => { const data = new DataTransfer(); data.items.add(new File(['?'], 'x.json')); return data; }")
    page.dispatch_event(".app", "drop", {"dataTransfer": data})
    expect(page.locator("[data-import-outcome]")).to_contain_text("x.json: This is not a JSON file")


# ---- temporary chats ----


def start_temporary(page: Page) -> None:
    page.locator(".list-menu").click()
    page.get_by_role("menuitem", name="New temporary chat").click()
    expect(page.locator("[data-temporary]")).to_be_visible()


def test_a_temporary_chat_is_marked_and_goes_with_its_tab_after_a_question(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    start_temporary(page)
    expect(page.get_by_role("tab", name="Temporary chat: New chat")).to_be_visible()
    check(page)
    page.get_by_role("tab").press("Delete")
    expect(page.locator("[data-chat-row]")).to_have_count(0)
    page.keyboard.press("Alt+Shift+KeyN")
    expect(page.locator("[data-temporary]")).to_be_visible()
    send(page, "Between us")
    expect(page.locator("[data-role=assistant]")).to_have_attribute("data-status", "complete")
    page.reload()
    expect(page.locator("[data-role=user]")).to_contain_text("Between us")
    page.get_by_role("tab").click(button="middle")
    dialog = page.locator("[data-dialog=discard]")
    expect(dialog).to_contain_text("for good")
    check(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("tab")).to_have_count(1)
    page.get_by_role("tab").press("Delete")
    dialog.locator("[data-action=confirm-discard]").click()
    expect(page.locator("[data-chat-row]")).to_have_count(0)
    expect(page.get_by_role("tab")).to_have_count(0)


def test_a_temporary_chat_can_be_kept(open_page: OpenPage) -> None:
    page = start(open_page)
    start_temporary(page)
    page.locator("[data-action=keep-chat]").click()
    expect(page.locator("[data-temporary]")).to_have_count(0)
    page.get_by_role("tab").press("Delete")
    expect(page.get_by_role("tab")).to_have_count(0)
    expect(page.locator("[data-chat-row]")).to_have_count(1)


# ---- on a phone ----


def test_on_a_phone_the_open_chats_stand_in_the_drawer(open_page: OpenPage) -> None:
    page = start(open_page, viewport=PHONE, reduced_motion="reduce")
    start_chat(page, ENGLISH)
    page.keyboard.press("Alt+Shift+KeyN")
    expect(page.locator("[data-temporary]")).to_be_visible()
    page.locator(".list-toggle").click()
    open_chats = page.locator(".open-chats .chat-row")
    expect(open_chats).to_have_count(2)
    check(page)
    open_chats.last.get_by_role("button", name="Close tab").click()
    expect(open_chats).to_have_count(1)
    page.locator(".list-menu").click()
    expect(page.get_by_role("menuitem", name="New temporary chat")).to_be_visible()
    check(page)
