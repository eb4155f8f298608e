"""A chat of 10,000 messages and messages of 200 kB: what is drawn stays small, and what the person reads stays still."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_page import send

pytestmark = pytest.mark.long

expect.set_options(timeout=PATIENCE_MS)

CHAT = "long-chat"
MOMENT = "2026-01-02T03:04:05.000000Z"
MESSAGES = 10_000

# More rows than this have no place near a view of 900 pixels.
MOST_ROWS = 60

WIDE = {"width": 1360, "height": 900}

Row = tuple[str, str]


@pytest.fixture
def database(tmp_path: Path, site: Site) -> Path:
    """The database of the running server."""
    return tmp_path / "cleanroom.db"


def fill(database: Path, rows: Iterable[Row]) -> None:
    """Write a chat with these messages, as `(role, content)`; pages that open later find it."""
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.execute("INSERT INTO chats (id, title, created_at, updated_at) VALUES (?, 'Long', ?, ?)", (CHAT, MOMENT, MOMENT))
        connection.executemany(
            "INSERT INTO chat_messages (session_id, role, content, created_at) VALUES (?, ?, ?, ?)",
            ((CHAT, role, content, MOMENT) for role, content in rows),
        )


def message(number: int) -> Row:
    if number % 2:
        return "user", f"Question {number}\nwith a second line"
    words = " ".join(f"word{step}" for step in range(number % 160))
    return "assistant", f"Answer **{number}**\n\n{words}\n\n```python\nprint({number})\n```"


def messages(count: int) -> list[Row]:
    """Rows whose numbers are their ids."""
    return [message(number) for number in range(1, count + 1)]


def open_chat(open_page: OpenPage) -> Page:
    page = open_page("en-GB", viewport=WIDE)
    watch_long_tasks(page)
    page.locator("[data-chat-row]").first.locator("button").first.click()
    expect(page.locator("[data-loaded=true]")).to_be_visible()
    return page


def watch_long_tasks(page: Page) -> None:
    page.evaluate(
        """() => {
            window.longTasks = [];
            new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((entry) => Math.round(entry.duration)))).observe({ type: "longtask" });
        }"""
    )


def tell_long_tasks(page: Page, what: str) -> None:
    """Print for how long at a time the page could not answer; `pytest -s` shows it."""
    print(f"\n{what}: long tasks in ms {page.evaluate('longTasks.splice(0)')}")


def row(page: Page, number: int) -> Locator:
    return page.locator(f"[data-message-id='{number}']")


def scroll_by(page: Page, pixels: int) -> None:
    page.locator(".scroll").evaluate("(frame, by) => { frame.scrollTop += by; }", pixels)
    settle(page)


def settle(page: Page) -> None:
    """Whatever waits for the next frames is done after them."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))))")


def place_of(page: Page, number: int) -> float:
    box = row(page, number).bounding_box()
    assert box is not None
    return box["y"]


def at_end(page: Page) -> bool:
    return bool(page.locator(".scroll").evaluate("(frame) => frame.scrollHeight - frame.scrollTop - frame.clientHeight < 2"))


def first_in_view(page: Page) -> int:
    """The first message whose top is in view."""
    return int(
        page.evaluate(
            """() => {
                const { top } = document.querySelector(".scroll").getBoundingClientRect();
                const rows = [...document.querySelectorAll("[data-message-id]")];
                return rows.find((row) => row.getBoundingClientRect().top > top).dataset.messageId;
            }"""
        )
    )


def test_of_10_000_messages_only_those_near_the_view_are_drawn(database: Path, open_page: OpenPage) -> None:
    fill(database, messages(MESSAGES))
    page = open_chat(open_page)
    expect(row(page, MESSAGES)).to_be_in_viewport()
    assert at_end(page)
    tell_long_tasks(page, "open")

    search_for_message(page, "Question 1")
    expect(row(page, 1)).to_be_in_viewport()
    expect(row(page, 1)).to_be_focused()
    expect(page.locator("[data-marked=true]")).to_have_count(1)
    assert not at_end(page)
    tell_long_tasks(page, "to the first of 10,000")
    assert page.locator("[data-row]").count() < MOST_ROWS
    assert page.locator("body *").count() < 4000

    for _ in range(20):
        scroll_by(page, 900)
        assert page.locator("[data-row]").count() < MOST_ROWS
    assert first_in_view(page) > 50
    tell_long_tasks(page, "scroll")

    page.get_by_role("button", name="To the newest").click()
    expect(row(page, MESSAGES)).to_be_in_viewport()
    assert at_end(page)
    tell_long_tasks(page, "to the newest")
    expect(page.locator("[data-marked=true]")).to_have_count(0)


def search_for_message(page: Page, words: str) -> None:
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill(words)
    page.locator("[data-search-hit='1']").click()


def test_older_pages_leave_the_view_where_it_was(database: Path, open_page: OpenPage) -> None:
    fill(database, messages(200))
    page = open_chat(open_page)
    expect(row(page, 200)).to_be_in_viewport()
    while first_in_view(page) > 80:
        scroll_by(page, -900)
        watched = first_in_view(page)
        before = place_of(page, watched)
        settle(page)
        settle(page)
        assert abs(place_of(page, watched) - before) < 2


def test_a_stream_moves_nothing_that_is_read_and_the_end_is_followed_by_who_is_there(database: Path, open_page: OpenPage, site: Site) -> None:
    fill(database, messages(100))
    paragraphs = [f"paragraph {number} " + "with words " * 30 + "\n\n" for number in range(30)]
    site.fake.script([*(script.text(paragraph) for paragraph in paragraphs), script.done()])
    reader, writer = open_chat(open_page), open_chat(open_page)
    scroll_by(reader, -3000)
    watched = first_in_view(reader)
    before = place_of(reader, watched)
    watch_place(reader, watched)

    send(writer, "Go on")
    reply = writer.locator("[data-role=assistant]").last
    expect(reply).to_contain_text("paragraph 29")
    expect(reply).to_have_attribute("data-status", "complete")
    settle(writer)
    assert at_end(writer)

    assert abs(place_of(reader, watched) - before) < 2
    assert reader.evaluate("moved") < 2
    reader.get_by_role("button", name="To the newest").click()
    expect(reader.locator("[data-role=assistant]").last).to_contain_text("paragraph 29")
    assert at_end(reader)
    expect(reader.get_by_role("button", name="To the newest")).to_have_count(0)


def watch_place(page: Page, number: int) -> None:
    """From now on `moved` is how far the message ever stood from where it stands."""
    page.evaluate(
        """(id) => {
            const place = () => document.querySelector(`[data-message-id="${id}"]`)?.getBoundingClientRect().top ?? begin;
            const look = () => {
                window.moved = Math.max(window.moved, Math.abs(place() - begin));
                requestAnimationFrame(look);
            };
            const begin = place();
            window.moved = 0;
            look();
        }""",
        number,
    )


def test_what_is_opened_or_has_the_focus_stays_however_far_it_is_scrolled_away(database: Path, open_page: OpenPage) -> None:
    rows = messages(120)
    rows[118] = ("user", "a line\n" * 80)
    fill(database, rows)
    page = open_chat(open_page)
    row(page, 119).get_by_role("button", name="Show all").click()
    row(page, 116).locator("pre").focus()
    for _ in range(6):
        scroll_by(page, -900)
    expect(row(page, 118)).to_have_count(0)
    expect(row(page, 119).get_by_role("button", name="Show less")).to_be_attached()
    expect(row(page, 116).locator("pre")).to_be_focused()
    numbers = page.locator("[data-message-id]").evaluate_all("(rows) => rows.map((row) => Number(row.dataset.messageId))")
    assert numbers == sorted(numbers)


MIXED = "Some **bold** text with `code`, a [link](https://example.org) and $x_1$.\n\n- one\n- two *three*\n\n```js\nconst a = 1;\n```\n\n"
MIXED += "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
LONG_TEXTS = {
    "mixed": MIXED * (200_000 // len(MIXED)),
    "paragraphs": ("word " * 60 + "\n\n") * 660,
    "one block of code": "```\n" + "const value = compute(1, 2);\n" * 6900 + "```",
    "one paragraph": "word and *stress* " * 11_000,
    "one list": "- an item with *stress*\n" * 8300,
    "one table": "| a | b |\n|---|---|\n" + "| cell | another cell |\n" * 8000,
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS.keys())
def test_a_reply_of_200_kb_is_drawn_whole(database: Path, open_page: OpenPage, text: str) -> None:
    fill(database, [("user", "Write much"), ("assistant", text), ("user", "Thanks"), ("assistant", "**end**")])
    page = open_chat(open_page)
    expect(row(page, 4).locator("strong")).to_be_visible()
    expect(row(page, 2).locator(".prose > :last-child")).to_be_attached()
    wait_until_drawn(page)
    tell_long_tasks(page, "open")
    page.locator(".scroll").evaluate("(frame) => { frame.scrollTop = 0; }")
    settle(page)
    expect(row(page, 1)).to_be_in_viewport()
    tell_long_tasks(page, "scroll to the top")


def wait_until_drawn(page: Page) -> None:
    """A long reply grows from frame to frame; it is whole when two looks see the same."""
    size = -1
    while size != (size := page.locator(".prose").first.evaluate("(prose) => prose.textContent.length")):
        settle(page)


def test_typed_lines_without_number_are_shown_as_typed(database: Path, open_page: OpenPage) -> None:
    text = "".join(f"{number}\n" for number in range(150_000))
    fill(database, [("user", text), ("assistant", "Many")])
    page = open_chat(open_page)
    typed = row(page, 1).locator("[data-text]")
    assert text.startswith(typed.text_content() or "nothing")
    tell_long_tasks(page, "open a message of 1 MB")
    row(page, 1).get_by_role("button", name="Show all").click()
    expect(row(page, 1).get_by_role("button", name="Show less")).to_be_attached()
    assert typed.evaluate("(element) => element.textContent") == text
    tell_long_tasks(page, "unfold it")
    page.get_by_role("button", name="To the newest").click()
    expect(row(page, 2)).to_be_in_viewport()
    tell_long_tasks(page, "to its end")
