"""How replies look while they come and afterwards: blocks that stay, code, tables, maths."""

from __future__ import annotations

import asyncio

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_page import ENGLISH, send, start_chat

expect.set_options(timeout=PATIENCE_MS)

CODE = "def greet(name: str) -> str:\n    # says hello\n    return f'Hello, {name}!'\n"

FINISHED = f"""## A title

A paragraph with *stress* and $a_1*b_2$.

- one
- two

| a | b |
|---|---|
| 1 | 2 |

```python
{CODE}```

$$
\\frac{{a_1}}{{b_1}} \\\\
- c
$$

"""


def reply(page: Page, site: Site, text: str) -> Locator:
    """The finished reply with this text."""
    site.fake.script(script.reply(text))
    send(page, "Go on")
    said = page.locator("[data-role=assistant]").last
    expect(said).to_have_attribute("data-status", "complete")
    return said


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    opened = open_page("en-GB")
    start_chat(opened, ENGLISH)
    return opened


def test_finished_blocks_are_never_drawn_again(page: Page, site: Site) -> None:
    gate = asyncio.Event()
    rest = [f"word{number} " for number in range(50)] + ["\n\nnew paragraph\n\n", "- more\n- items\n\n", "end"]
    site.fake.script([script.text(*script.tokens(FINISHED)), script.text("Last "), script.hold(gate), script.text(*rest), script.done()])
    send(page, "Go on")
    prose = page.locator("[data-role=assistant] .prose")
    expect(prose).to_contain_text("Last")
    expect(prose.locator(".code-keyword").first).to_have_text("def")
    page.evaluate(
        """() => {
            const prose = document.querySelector("[data-role=assistant] .prose");
            window.finished = [...prose.children].slice(0, -1).flatMap((block) => [block, ...block.querySelectorAll("*")]);
            window.places = finished.map((element) => element.getBoundingClientRect().top - prose.getBoundingClientRect().top);
            window.changes = 0;
            new MutationObserver((list) => {
                changes += list.filter(({ target }) => finished.some((element) => element.contains(target))).length;
            }).observe(prose, { childList: true, characterData: true, subtree: true });
        }"""
    )
    assert page.evaluate("finished.length") > 30
    site.fake.call(gate.set)
    expect(page.locator("[data-role=assistant]").last).to_have_attribute("data-status", "complete")
    expect(prose).to_contain_text("end")
    assert page.evaluate("finished.every((element) => element.isConnected)")
    assert page.evaluate("changes") == 0
    moved = """() => {
        const { top } = document.querySelector("[data-role=assistant] .prose").getBoundingClientRect();
        return Math.max(...finished.map((element, i) => Math.abs(element.getBoundingClientRect().top - top - places[i])));
    }"""
    assert page.evaluate(moved) < 1


def test_colours_come_with_the_first_finished_block_of_code_and_only_its_grammar(page: Page, site: Site) -> None:
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url.removeprefix(site.url)))
    gate = asyncio.Event()
    site.fake.script([script.text("```python\n", CODE), script.hold(gate), script.text("```\n\nDone."), script.done()])
    send(page, "Go on")
    code = page.locator("[data-role=assistant] pre code")
    expect(code).to_have_text(CODE.rstrip("\n"), use_inner_text=False)
    assert not [path for path in fetched if "highlight" in path]
    assert code.locator("span").count() == 0
    site.fake.call(gate.set)
    expect(code.locator(".code-keyword").first).to_have_text("def")
    expect(code.locator(".code-comment")).to_have_text("# says hello")
    assert code.text_content() == CODE.rstrip("\n")
    loaded = [path for path in fetched if path.startswith("/modules/highlight/")]
    assert sorted(loaded) == ["/modules/highlight/core.min.js", "/modules/highlight/languages/python.min.js"]


def test_code_is_copied_as_it_was_written(open_page: OpenPage, site: Site) -> None:
    page = open_page("en-GB", permissions=["clipboard-read", "clipboard-write"])
    start_chat(page, ENGLISH)
    lines = "".join(f"line {number}\n" for number in range(350))
    said = reply(page, site, f"```python\n{CODE}```\n\n- in a list:\n  ```\n  x = 1\n  ```\n\n```\n{lines}```")
    copied = [CODE.rstrip("\n"), "x = 1", lines.rstrip("\n")]
    buttons = said.get_by_role("button", name="Copy code")
    expect(buttons).to_have_count(len(copied))
    for button, text in zip(buttons.all(), copied, strict=True):
        button.click()
        page.wait_for_function("(text) => navigator.clipboard.readText().then((held) => held.trimEnd() === text)", arg=text)
    # Selected by hand too, although long code stands in pieces.
    selected = said.locator("pre").last.evaluate("(pre) => { getSelection().selectAllChildren(pre); return getSelection().toString(); }")
    assert selected.rstrip("\n") == lines.rstrip("\n")


def test_maths_is_kept_exactly_and_money_is_money(page: Page, site: Site) -> None:
    said = reply(page, site, "Take $a_1*b*c_2$ or \\(x_*y*z_\\), not $5 and $6.\n\n$$\n\\frac{a_1}{b_1} \\\\\n- c_*d*\n$$\n\n\\[ \\sum_{i=1}^n <b>x_i</b> \\]")
    expect(said.locator(".math")).to_have_text(["a_1*b*c_2", "x_*y*z_", "\\frac{a_1}{b_1} \\\\ - c_*d*", "\\sum_{i=1}^n <b>x_i</b>"])
    expect(said).to_contain_text("not $5 and $6.")
    assert said.locator("em, li, b").count() == 0


def test_a_wide_table_scrolls_inside_itself_and_colours_can_be_read(open_page: OpenPage, site: Site) -> None:
    cells = " | ".join(f"column{number}" for number in range(20))
    wide = f"| {cells} |\n|{'---|' * 20}\n| {cells} |"
    samples = [
        f"```python\n@decorator\nclass A(B):\n    x: int = 1\n{CODE}```",
        '```html\n<p class="x">a</p>\n```',
        "```diff\n+ a\n- b\n```",
        '```json\n{"a": [1, null]}\n```',
    ]
    for theme in ("light", "dark"):
        page = open_page("en-GB", color_scheme=theme, viewport={"width": 320, "height": 640}, reduced_motion="reduce")
        start_chat(page, ENGLISH)
        said = reply(page, site, "\n\n".join([wide, "and $x_1$", *samples]))
        expect(said.locator(".code-removed")).to_be_attached()
        expect(said.locator("pre").last.locator("[class^=code-]").first).to_be_attached()
        table = said.locator(".scroll-x")
        assert table.evaluate("(frame) => frame.scrollWidth > frame.clientWidth")
        check(page)
