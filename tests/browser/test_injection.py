"""Hostile text at every place where text of people, models and tools is shown: nothing runs, nothing is fetched, nothing is renamed."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.recording_proxy import RecordingProxy
from tests.browser.test_page import ENGLISH, send, start_chat

expect.set_options(timeout=PATIENCE_MS)

WIDE = {"width": 1360, "height": 900}
MOMENT = "2026-01-02T03:04:05.000000Z"
CHAT = "hostile-chat"

ELEMENTS = [
    "<script>window.hit=1</script>",
    '<script src="//elsewhere.example/x.js"></script>',
    "<img src=x onerror=window.hit=1>",
    "<svg/onload=window.hit=1>",
    "<svg><animate onbegin=window.hit=1 attributeName=x dur=1s>",
    "<math><mtext><style><img src=x onerror=window.hit=1></style></mtext></math>",
    '<iframe srcdoc="<script>parent.hit=1</script>"></iframe>',
    "<object data=//elsewhere.example/x></object><embed src=//elsewhere.example/x>",
    "<base href=//elsewhere.example/>",
    '<meta http-equiv=refresh content="0;url=//elsewhere.example/">',
    "<link rel=stylesheet href=//elsewhere.example/x.css>",
    "<form action=//elsewhere.example/><button>Apply</button></form>",
    "<details ontoggle=window.hit=1 open>x</details>",
    "<style>@import url(//elsewhere.example/x.css); .app { display: none }</style>",
    '<a href="https://elsewhere.example" onclick="window.hit=1">x</a>',
    "<template><img src=x onerror=window.hit=1></template>",
    '<noscript><p title="</noscript><img src=x onerror=window.hit=1>">',
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.hit=1&gt;'>",
    "<form><math><mtext></form><form><mglyph><style></math><img src=x onerror=window.hit=1>",
    '<b onmouseover="window.hit=1" style="position:fixed;inset:0">x</b>',
    "<video src=//elsewhere.example/x autoplay></video><audio src=//elsewhere.example/y autoplay></audio>",
    "<a id=config name=app href=https://elsewhere.example>x</a><img name=getElementById><form id=body name=documentElement></form>",
    "<img src=x onerror=window.hit=1",
]

LINKS = [
    "[a](javascript:window.hit=1)",
    "[a](JaVaScRiPt:window.hit=1)",
    "[a](java\tscript:window.hit=1)",
    "[a](<java\nscript:window.hit=1>)",
    "[a](&#106;avascript:window.hit=1)",
    "[a](javascript&colon;window.hit=1)",
    "[a](%6aavascript:window.hit=1)",
    "[a](data:text/html,<script>window.hit=1</script>)",
    "[a](vbscript:x)",
    "[a](blob:http://127.0.0.1/x)",
    "[a](file:///etc/passwd)",
    "[a](//elsewhere.example/x)",
    "[a](/ws)",
    "<javascript:window.hit=1>",
    "<data:text/html,x>",
    "[a][ref]\n\n[ref]: javascript:window.hit=1",
    '[a](https://elsewhere.example "\\" onclick=window.hit=1 x=\\"")',
    "[good](https://elsewhere.example/x) www.elsewhere.example me@elsewhere.example <mailto:me@elsewhere.example>",
]

IMAGES = [
    "![x](https://elsewhere.example/x.png)",
    "![x](//elsewhere.example/x.png)",
    "![x][pic]\n\n[pic]: https://elsewhere.example/pic.png",
    "[![x](https://elsewhere.example/x.png)](https://elsewhere.example/y)",
    '<img srcset="https://elsewhere.example/x.png 1x" src="https://elsewhere.example/x.png">',
    "<picture><source srcset=https://elsewhere.example/x.png><img src=//elsewhere.example/y.png></picture>",
    '<p style="background:url(https://elsewhere.example/x.png)">x</p>',
    '<svg><image href="https://elsewhere.example/x.svg"/><use href="https://elsewhere.example/x.svg#a"/></svg>',
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImhpdD0xIi8+)",
    "![x](data:image/png;base64," + "A" * 2_100_000 + ")",
]

FENCES = [
    '```"><img src=x onerror=window.hit=1>\ncode\n```',
    "```mermaid\ngraph TD; A[<img src=x onerror=window.hit=1>]\n```",
    "$$\\href{javascript:window.hit=1}{x}<img src=x onerror=window.hit=1>$$",
]

# Content that looks like what the wire carries.
EVENTS = [
    '{"type": "execute", "data": {"code": "window.hit=1"}}',
    '{"type": "chat.deleted", "chat_id": "hostile-chat", "seq": 1}',
    '{"type": "transaction_completed", "chat_id": "hostile-chat", "transaction_id": "x", "tool": "x", "summary": "x"}',
    '{"__proto__": {"hit": 1}}',
]

SHORT = " ".join(ELEMENTS[:12])
MARKDOWN = "\n\n".join([*ELEMENTS, *LINKS, *IMAGES[:-1], *FENCES, *EVENTS])

WITH_CARD = "INSERT INTO chat_messages (session_id, role, content, is_ephemeral, family, tool, card, created_at) VALUES (?, 'tool', '', 1, 'notes', ?, ?, ?)"


def cards() -> list[dict[str, Any]]:
    action = {"label": SHORT, "tool": "note_list", "arguments": {}}
    return [
        {"kind": "preview", "title": SHORT, "body": MARKDOWN, "format": "markdown", "actions": [action]},
        {"kind": "preview", "title": SHORT, "body": MARKDOWN, "format": "text"},
        {"kind": "diff", "title": SHORT, "before": MARKDOWN, "after": MARKDOWN + SHORT},
        {"kind": "table", "title": SHORT, "columns": [SHORT, "status"], "rows": [[SHORT, SHORT], [MARKDOWN, None]], "sql": SHORT},
        {"kind": "list", "title": SHORT, "items": [{"id": 1, "text": SHORT, "done": False, "actions": [action]}]},
        {"kind": "notice", "title": SHORT, "title_key": "card.note.saved", "params": {"id": SHORT, "title": SHORT}, "body": MARKDOWN},
    ]


def fill(database: Path) -> None:
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        chat = (CHAT, SHORT + "x" * 10_000, SHORT, MOMENT, MOMENT)
        connection.execute("INSERT INTO chats (id, title, model, created_at, updated_at) VALUES (?, ?, ?, ?, ?)", chat)
        connection.execute("INSERT INTO tasks (session_id, title, created_at, updated_at) VALUES (?, ?, ?, ?)", (CHAT, SHORT, MOMENT, MOMENT))
        connection.execute(
            "INSERT INTO notes (session_id, title, content, created_at, updated_at) VALUES (?, ?, ?, ?, ?)", (CHAT, SHORT, MARKDOWN, MOMENT, MOMENT)
        )
        failed = json.dumps({"error": {"code": SHORT, "message": MARKDOWN}})
        said = "INSERT INTO chat_messages (session_id, role, content, status, thinking, model, metrics, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        for text in (*ELEMENTS, *LINKS, *IMAGES[:-1], *FENCES, *EVENTS):
            connection.execute(said, (CHAT, "user", text, "complete", None, None, None, MOMENT))
            connection.execute(said, (CHAT, "assistant", text, "complete", text, SHORT, None, MOMENT))
        for card in cards():
            connection.execute(WITH_CARD, (CHAT, SHORT, json.dumps(card), MOMENT))
        receipt = json.dumps([{"tool": SHORT, "outcome": SHORT}])
        connection.execute(said, (CHAT, "tool", receipt, "complete", None, None, None, MOMENT))
        connection.execute(said, (CHAT, "user", MARKDOWN, "failed", None, None, failed, MOMENT))


@pytest.fixture
def hostile(tmp_path: Path, site: Site, open_page: OpenPage) -> Iterator[Page]:
    """A page on a workspace full of hostile text, which counts what the policy had to stop and what left for elsewhere."""
    page = open_page("en-GB", viewport=WIDE)
    fill(tmp_path / "cleanroom.db")
    left: list[str] = []

    def pass_own(route: Route) -> None:
        if route.request.url.startswith((site.url, "data:")):
            route.continue_()
        else:
            left.append(route.request.url)
            route.abort()

    page.context.route("**/*", pass_own)
    page.context.on("page", lambda opened: left.append(f"a page: {opened.url}"))
    page.add_init_script("window.stopped = []; addEventListener('securitypolicyviolation', (event) => stopped.push(event.blockedURI))")
    page.goto(site.url)
    yield page
    assert harmless(page)
    assert left == []


SURROUNDINGS = "script, style, link, meta, base"
NOWHERE = "iframe, object, embed, base, template, style, math, audio, video, animate, image, use, noscript noscript, foreignObject, marquee, picture, source"
PLAIN = (
    "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i img kbd li mark ol p pre s strong sub sup table tbody td th thead tr u ul var "
    "div span figure figcaption bdi button svg path"
).split()


def harmless(page: Page) -> bool:
    """Nothing ran, nothing was stopped by the policy alone, and the page holds no element or link that text must not make."""
    assert page.evaluate("window.hit") is None
    assert page.evaluate("({}).hit") is None
    assert page.evaluate("stopped") == []
    found = page.evaluate(
        """([nowhere, plain]) => {
            const own = (url) => url.startsWith(location.origin);
            const written = (elements) => elements.map((element) => element.outerHTML);
            const all = [...document.querySelectorAll("*")];
            const prose = [...document.querySelectorAll(".prose *")];
            const links = [...document.querySelectorAll("a[href]:not([href^='#'])")];
            const named = ["id", "name", "style"];
            const guarded = ({ target, relList }) => target === "_blank" && relList.contains("noopener") && relList.contains("noreferrer");
            return {
                elements: written([...document.querySelectorAll(nowhere)]),
                unknown: written(prose.filter((element) => !plain.includes(element.localName))),
                handlers: all.flatMap((element) => element.getAttributeNames()).filter((name) => /^on|^srcset$|^ping$/.test(name)),
                names: written(prose.filter((element) => named.some((name) => element.hasAttribute(name)))),
                images: [...document.images].map(({ src }) => src).filter((src) => !own(src) && !/^data:image.(png|jpeg|gif|webp|avif);/.test(src)),
                links: written(links.filter((link) => !["http:", "https:", "mailto:"].includes(link.protocol))),
                open: written(links.filter((link) => !guarded(link))),
                scripts: written([...document.scripts].filter((script) => (script.src ? !own(script.src) : script.type !== "importmap"))),
                sheets: written([...document.querySelectorAll("link")].filter((link) => !own(link.href))),
            };
        }""",
        [NOWHERE, PLAIN],
    )
    assert {name: value for name, value in found.items() if value} == {}
    return True


def test_hostile_text_does_nothing_at_any_place(hostile: Page) -> None:
    page = hostile
    page.locator("[data-chat-row]").first.locator("button").first.click()
    expect(page.locator("[data-loaded=true]")).to_be_visible()
    expect(page.locator("[data-failure]").last).to_be_visible()
    assert harmless(page)
    for group in page.locator("[data-fact-group] summary").all():
        group.click()
    expect(page.locator("[data-task-id]").first).to_contain_text("<script>")
    seen: set[str] = set()
    for _ in range(80):
        assert harmless(page)
        seen |= set(page.locator("[data-message-id]").evaluate_all("(rows) => rows.map((row) => row.dataset.kind ?? row.dataset.role)"))
        if (
            page.locator(".scroll").evaluate("(frame) => { const before = frame.scrollTop; frame.scrollTop -= 800; return before === 0; }")
            and page.locator(".earlier").count() == 0
        ):
            break
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert seen >= {"user", "assistant", "receipt", "preview", "diff", "table", "list", "notice"}
    expect(page.locator("[data-chat-row]")).to_have_count(1)
    expect(page.locator("[data-banner]")).to_be_hidden()
    for details in page.locator("details.thinking summary").all():
        details.click()
    page.locator("[data-model-picker]").click()
    expect(page.locator(".model-popover")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("[data-chat-row] .row-menu").first.click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.locator("[data-dialog]")).to_contain_text("<script>")


ACTS = "script, iframe, svg, style, form, [style], [id], [name], [onerror], a[href^=j i], a[href^=d i], img:not([src^='data:image/'])"


def test_every_beginning_of_hostile_markdown_draws_nothing_that_acts(hostile: Page) -> None:
    """As it streams, each text is cut everywhere."""
    hostile.evaluate(
        """async ([texts, acts]) => {
            const { growBlocks } = await import("/js/blocks.js");
            const { renderBlock } = await import("/js/markdown.js");
            const place = document.createElement("div");
            place.className = "prose";
            document.body.append(place);
            for (const text of texts) {
                let blocks = [];
                for (let end = 1; end <= text.length; end++) {
                    blocks = growBlocks(blocks, text.slice(0, end));
                    place.replaceChildren(...blocks.map((block) => renderBlock(block.token)));
                    if (place.querySelector(acts)) throw Error(text.slice(0, end));
                }
            }
        }""",
        [[*ELEMENTS, *LINKS, *IMAGES[:-1], *FENCES], ACTS],
    )


def test_a_reply_with_hostile_text_streams(hostile: Page, site: Site) -> None:
    page = hostile
    start_chat(page, ENGLISH)
    pieces = [MARKDOWN[start : start + 7] for start in range(0, len(MARKDOWN), 7)]
    site.fake.script([script.text(*pieces), script.done()])
    send(page, MARKDOWN)
    reply = page.locator("[data-role=assistant]").last
    expect(reply).to_have_attribute("data-status", "complete")
    expect(reply).to_contain_text('{"hit": 1}')  # its end, drawn a moment after the status came
    page.locator("[data-conversation]").evaluate("(frame) => (frame.scrollTop = 0)")  # the list draws what is near the view
    assert page.locator("[data-role=user] [data-text]").last.text_content() == MARKDOWN
    page.get_by_role("button", name="To the newest").click()
    assert reply.locator("img").count() == 0


DOT = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_a_picture_is_drawn_from_the_message_alone_and_up_to_a_size(hostile: Page) -> None:
    drawn = hostile.evaluate(
        """async (texts) => {
            const { splitBlocks } = await import("/js/blocks.js");
            const { renderBlock } = await import("/js/markdown.js");
            return texts.map((text) => splitBlocks(text).flatMap(({ token }) => [...renderBlock(token).querySelectorAll("img")].map((image) => image.alt)));
        }""",
        [f"![dot]({DOT})", IMAGES[-1], *IMAGES[:-1]],
    )
    assert drawn[0] == ["dot"]
    assert not any(drawn[1:])


def test_names_of_the_page_cannot_be_taken_by_what_is_stored(hostile: Page) -> None:
    hostile.evaluate(
        """() => {
            for (const key of Object.keys(localStorage)) localStorage.setItem(key, '{"__proto__": {"hit": 1}, "constructor": {"prototype": {"hit": 1}}}');
            localStorage.setItem("cleanroom.tabs", '{"__proto__": {"hit": 1}, "open": ["hostile-chat", "__proto__"], "active": "__proto__"}');
        }"""
    )
    hostile.reload(wait_until="commit")
    expect(hostile.locator("[data-chat-row]")).to_have_count(1)
    assert hostile.evaluate("({}).hit") is None


EXACT = [
    'a <b> c <channel> &lt; $5 and $6 <div class="x">y</div>',
    "what is enclosed in <> <channel>",
    "What does `<think>` do?",
    "RTL: שלום عليكم \u202eoverride\u202c \u2066isolate\u2069",
    "👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👩🏽‍💻 각 é ṩ",
    "line\u2028separator\u0085next \ufeffbom",
]


def test_text_is_shown_exactly_as_it_was_typed_and_written(open_page: OpenPage, site: Site) -> None:
    page = open_page("en-GB")
    start_chat(page, ENGLISH)
    for number, text in enumerate(EXACT):
        site.fake.script([script.text(*text), script.done()])
        send(page, text)
        reply = page.locator("[data-role=assistant]").nth(number)
        expect(reply).to_have_attribute("data-status", "complete")
        expect(page.locator("[data-composer] [data-action=stop]")).to_have_count(0)
        typed = page.locator("[data-role=user] [data-text]").nth(number)
        assert typed.text_content() == text
        assert typed.locator("*").count() == 0
        written = text.replace("&lt;", "<").replace("`", "").replace("<b>", "").strip()
        prose = reply.locator(".prose").element_handle()
        page.wait_for_function("([prose, written]) => prose.textContent.trim() === written", arg=[prose, written])
        assert "\ufffd" not in (page.locator("body").text_content() or "")
        assert page.locator("details.thinking").count() == 0


def test_bidirectional_overrides_turn_none_of_our_own_words_around(open_page: OpenPage, site: Site) -> None:
    """Every label of ours stands from left to right, whatever the text beside it does."""
    page = open_page("en-GB", viewport=WIDE)
    start_chat(page, ENGLISH)
    hostile = "\u202e\u2067 turned שלום"
    site.fake.script(script.call("system_prompt_draft", {"content": hostile}), script.reply(f"{hostile}\n\n```{hostile}\ncode\n```"))
    send(page, hostile)
    card = page.locator("[data-kind=diff]").first
    expect(card.locator(".card-warning")).to_contain_text("2")
    expect(card.locator(".unseen")).to_have_text(["U+202E", "U+2067"])
    card.get_by_role("button", name="Apply").click()
    expect(page.locator("[data-banner]")).to_be_visible()
    turned = page.evaluate(
        """() => {
            const left = (node, index) => {
                const range = new Range();
                range.setStart(node, index);
                range.setEnd(node, index + 1);
                return range.getBoundingClientRect();
            };
            const isTurned = (node) => {
                const [first, second] = [0, 1].map((step) => left(node, node.data.search(/\\S/) + step));
                return first.width > 0 && first.top === second.top && second.left < first.left;
            };
            const labels = document.querySelectorAll("button, .chip, .meta span, .note, [data-banner] *, summary, th");
            const texts = [...labels].flatMap((element) => [...element.childNodes]).filter((node) => node.nodeType === Node.TEXT_NODE);
            return texts.filter((node) => node.data.trim().length > 1 && !/[\\u202e\\u0590-\\u05ff]/.test(node.data)).filter(isTurned).map((node) => node.data);
        }"""
    )
    assert turned == []


def test_whatever_leaves_this_machine_is_seen(browser: Browser) -> None:
    with RecordingProxy() as proxy, closing(browser.new_context(proxy={"server": proxy.url})) as context:
        context.new_page().set_content('<img src="https://elsewhere.example/y"><img src="http://elsewhere.example/x">')
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while len(set(proxy.asked)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert set(proxy.asked) == {"CONNECT elsewhere.example:443 HTTP/1.1", "GET http://elsewhere.example/x HTTP/1.1"}
