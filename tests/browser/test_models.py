"""Models as a person meets them: chosen, fetched, set, missing, coming and going."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from tests import fake_ollama as script
from tests.browser.conftest import PATIENCE_MS, OpenPage, Site
from tests.browser.test_accessibility import check
from tests.browser.test_chats import PHONE, WIDE, elsewhere, start
from tests.browser.test_page import ENGLISH, RUSSIAN, Words, send, start_chat
from tests.fake_ollama import FakeModel

THINKER = FakeModel("deep:8b", capabilities=("completion", "tools", "thinking"), context_length=131_072, size=5_200_000_000)
SEER = FakeModel("seer:7b", capabilities=("completion", "vision"))

expect.set_options(timeout=PATIENCE_MS)


def open_picker(page: Page) -> Locator:
    page.locator("[data-model-picker]").click()
    picker = page.locator(".model-popover")
    expect(picker.get_by_role("listbox")).to_be_visible()
    return picker


def answered(page: Page) -> None:
    expect(page.locator("[data-role=assistant]").last).to_have_attribute("data-status", "complete")


# ---- choosing ----


def test_the_picker_says_what_each_model_takes_and_can_and_is_used_by_keys(open_page: OpenPage, site: Site) -> None:
    site.offer(FakeModel("qwen3:4b"), THINKER, SEER)
    page = start(open_page)
    start_chat(page, ENGLISH)
    button = page.locator("[data-model-picker]")
    button.focus()
    page.keyboard.press("Enter")
    picker = page.locator(".model-popover")
    listbox = picker.get_by_role("listbox", name="Model")
    expect(listbox).to_be_focused()
    thinker = picker.get_by_role("option", name="deep:8b")
    expect(thinker).to_contain_text("5.2 GB")
    expect(thinker).to_contain_text("Q4_K_M")
    expect(thinker).to_contain_text("128k")
    expect(thinker.locator("[data-ability]")).to_have_text(["calls tools", "thinks before it answers"])
    expect(picker.get_by_role("option", name="qwen3:4b")).to_contain_text("default")
    check(page)
    page.keyboard.press("ArrowDown")
    expect(listbox).to_have_attribute("aria-activedescendant", str(thinker.get_attribute("id")))
    page.keyboard.press("Enter")
    expect(picker).to_be_hidden()
    expect(button).to_be_focused()
    expect(button).to_contain_text("deep:8b")
    send(page, "Hello")
    answered(page)
    assert site.fake.requests[-1].model == "deep:8b"
    button.click()
    expect(thinker).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(picker).to_be_hidden()


def test_many_models_can_be_filtered_on_a_phone_too(open_page: OpenPage, site: Site) -> None:
    site.offer(*(FakeModel(f"model-{number}:1b") for number in range(12)))
    page = start(open_page, viewport=PHONE, reduced_motion="reduce")
    start_chat(page, ENGLISH)
    picker = open_picker(page)
    field = picker.get_by_role("combobox", name="Find a model")
    expect(field).to_be_focused()
    check(page)
    field.fill("el-7")
    expect(picker.get_by_role("option")).to_have_count(1)
    field.press("Enter")
    expect(page.locator("[data-model-picker]")).to_contain_text("model-7:1b")
    open_picker(page)
    field.fill("nothing like this")
    expect(picker.get_by_role("status")).to_be_visible()
    check(page)


# ---- fetching ----


def open_pulls(page: Page) -> Locator:
    open_picker(page).locator("[data-action=pull]").click()
    dialog = page.locator("[data-dialog=pull]")
    expect(dialog).to_be_visible()
    return dialog


def gated_pull(site: Site, name: str) -> asyncio.Event:
    """Script a pull that stands at 43 % until the event is set."""
    gate = asyncio.Event()
    half = [script.progress("pulling manifest"), script.layer("a" * 60, 1_000_000_000, 430_000_000)]
    site.fake.script_pull([*half, script.hold(gate), site.fake.server.arrives(name), script.progress("success")])
    return gate


def test_a_model_is_fetched_beside_the_conversation_and_offered_when_it_is_here(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    start_chat(page, ENGLISH)
    dialog = open_pulls(page)
    gate = gated_pull(site, "tiny:1b")
    dialog.get_by_label("Name of the model").fill("tiny:1b")
    page.keyboard.press("Enter")
    pulled = dialog.locator("[data-pull-row='tiny:1b']")
    expect(pulled).to_contain_text("43 % · 430 MB of 1 GB")
    check(page)
    page.keyboard.press("Escape")
    expect(page.locator("[data-pulling]")).to_contain_text("43 %")
    page.reload()
    expect(page.locator("[data-pulling='tiny:1b']")).to_contain_text("43 %")
    check(page)
    site.fake.call(gate.set)
    notice = page.locator("[data-notice=pull-complete]")
    expect(notice).to_contain_text("tiny:1b")
    expect(page.locator("[data-pulling]")).to_have_count(0)
    check(page)
    notice.locator("[data-action=use-model]").click()
    expect(page.locator("[data-model-picker]")).to_contain_text("tiny:1b")
    expect(notice).to_have_count(0)


def test_a_fetch_can_be_cancelled_and_begun_again(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    start_chat(page, ENGLISH)
    dialog = open_pulls(page)
    gated_pull(site, "qwen3:1.7b")
    dialog.locator("[data-suggestion='qwen3:1.7b']").click()
    pulled = dialog.locator("[data-pull-row='qwen3:1.7b']")
    expect(pulled).to_contain_text("43 %")
    pulled.locator("[data-action=cancel-pull]").click()
    expect(pulled).to_have_attribute("data-status", "cancelled")
    pulled.locator("[data-action=pull-again]").click()
    expect(pulled).to_have_attribute("data-status", "complete")
    expect(dialog.locator("[data-suggestion='qwen3:1.7b']")).to_have_count(0)


def test_what_goes_wrong_is_said_in_place(open_page: OpenPage, site: Site) -> None:
    page = start(open_page, viewport=PHONE, reduced_motion="reduce")
    start_chat(page, ENGLISH)
    dialog = open_pulls(page)
    field = dialog.get_by_label("Name of the model")
    field.fill("no such name!")
    field.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("can't be pulled")
    check(page)
    site.fake.script_pull(script.unknown_model())
    field.fill("nobody:1b")
    field.press("Enter")
    expect(dialog.locator("[data-pull-row='nobody:1b']")).to_have_attribute("data-status", "failed")
    expect(dialog.get_by_role("alert")).to_be_empty()
    check(page)


def test_a_missing_model_offers_to_be_fetched(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    start_chat(page, ENGLISH)
    chat_id = page.locator("[data-chat-row]").get_attribute("data-chat-row")
    elsewhere(page, {"type": "chat.update", "chat_id": chat_id, "model": "later:3b"})
    notice = page.locator("[data-notice=missing-model]")
    expect(notice).to_contain_text("ollama pull later:3b")
    check(page)
    notice.locator("[data-action=get-model]").click()
    expect(page.locator("[data-pull-row='later:3b']")).to_have_attribute("data-status", "complete")
    page.keyboard.press("Escape")
    expect(notice).to_have_count(0)


@pytest.mark.parametrize("words", [RUSSIAN, pytest.param(ENGLISH, marks=pytest.mark.long)], ids=["ru", "en"])
def test_the_first_model_is_fetched_from_the_page(open_page: OpenPage, site: Site, words: Words) -> None:
    site.offer()
    page = open_page(words.locale, viewport=PHONE, reduced_motion="reduce")
    notice = page.locator("[data-notice=no-model]")
    expect(notice).to_contain_text("ollama pull qwen3:4b")
    check(page)
    notice.locator("[data-action=get-model]").click()
    expect(page.locator("[data-pull-row='qwen3:4b']")).to_have_attribute("data-status", "complete")
    page.keyboard.press("Escape")
    expect(notice).to_have_count(0)
    expect(page.locator("[data-model-picker]")).to_contain_text("qwen3:4b")


# ---- setting ----


def open_parameters(page: Page) -> Locator:
    open_picker(page).locator("[data-action=parameters]").click()
    dialog = page.locator("[data-dialog=parameters]")
    expect(dialog).to_be_visible()
    return dialog


def test_parameters_hold_for_the_chat_and_the_window_for_the_model(open_page: OpenPage, site: Site) -> None:
    site.offer(THINKER)
    page = start(open_page)
    start_chat(page, ENGLISH)
    dialog = open_parameters(page)
    dialog.locator("[data-parameter=temperature]").get_by_role("checkbox").uncheck()
    dialog.get_by_role("spinbutton").fill("0.3")
    expect(dialog.get_by_role("slider")).to_have_value("0.3")
    dialog.get_by_label("Thinking").select_option("low")
    dialog.get_by_label("stays in memory").select_option("2h")
    dialog.get_by_label("Window").select_option("32768")
    expect(dialog.locator("[data-window-cost]")).to_contain_text("GB of memory, beside the 5.2 GB")
    check(page)
    dialog.locator("[data-action=save-parameters]").click()
    expect(dialog).to_have_count(0)
    send(page, "Hello")
    answered(page)
    request = site.fake.requests[-1]
    assert (request.options["temperature"], request.options["num_ctx"]) == (0.3, 32_768)
    assert (request.body["think"], request.body["keep_alive"]) == ("low", "2h")

    dialog = open_parameters(page)
    expect(dialog.get_by_label("Window")).to_have_value("32768")
    dialog.locator("[data-action=reset-parameters]").click()
    dialog.locator("[data-action=save-parameters]").click()
    expect(dialog).to_have_count(0)
    send(page, "Again")
    expect(page.locator("[data-role=assistant]")).to_have_count(2)
    answered(page)
    request = site.fake.requests[-1]
    assert "temperature" not in request.options
    assert request.options["num_ctx"] == 8_192


def test_a_model_that_can_not_think_is_not_asked_how(open_page: OpenPage) -> None:
    page = start(open_page, viewport=PHONE, reduced_motion="reduce")
    start_chat(page, ENGLISH)
    dialog = open_parameters(page)
    expect(dialog.get_by_label("Thinking")).to_have_count(0)
    check(page)


# ---- coming and going ----


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server looks at Ollama only when it is asked to: by itself it would at times be quicker than a click."""
    monkeypatch.setattr("backend.llm.backend.WATCH_SECONDS", 600)


@pytest.mark.usefixtures("unwatched")
def test_ollama_is_noticed_when_it_goes_and_when_it_comes_back(open_page: OpenPage, site: Site) -> None:
    page = start(open_page)
    start_chat(page, ENGLISH)
    site.fake.call(site.fake.server.stop)
    page.locator("[data-composer] textarea").fill("Anyone?")
    page.keyboard.press("Enter")
    expect(page.locator("[data-notice=no-model]")).to_contain_text("ollama serve")
    check(page)
    site.fake.call(site.fake.server.start)
    page.locator("[data-action=refresh-models]").click()
    came = page.locator("[data-notice=ollama-came]")
    expect(came).to_contain_text("qwen3:4b")
    check(page)
    came.get_by_role("button").click()
    expect(page.locator("[data-notice]")).to_have_count(0)


class Embedded:
    """The page's socket, told that the embedded model answers: starting the real one takes seconds and 340 MiB."""

    MODELS: ClassVar[dict[str, Any]] = {
        "models": [
            {
                "name": "smollm2:135m",
                "size_bytes": 145_000_000,
                "context_length": 8192,
                "num_ctx": 2048,
                "kv_bytes_per_token": 23_040,
                "capabilities": ["completion"],
                "parameter_size": "135M",
                "quantization": "Q8_0",
            }
        ],
        "default_model": "smollm2:135m",
        "model_backend": "embedded",
    }

    def __init__(self, page: Page) -> None:
        self._tell: Callable[[str], None] = lambda _: None
        self._real: dict[str, Any] = {}
        page.route_web_socket("**/ws", self._connected)
        page.reload()

    def _connected(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def from_server(text: str | bytes) -> None:
            frame = json.loads(text)
            if frame["type"] == "welcome":
                self._real = {name: frame[name] for name in (*self.MODELS, "model_server")}
                frame |= self.MODELS
            route.send(json.dumps(frame))

        server.on_message(from_server)
        self._tell = route.send

    def ollama_comes(self) -> None:
        self._tell(json.dumps({"type": "models.updated", **self._real}))

    def ollama_goes(self) -> None:
        self._tell(json.dumps({"type": "models.updated", **self._real, **self.MODELS}))


@pytest.mark.parametrize("words", [RUSSIAN, pytest.param(ENGLISH, marks=pytest.mark.long)], ids=["ru", "en"])
def test_the_embedded_model_is_named_and_gives_way_to_ollama_and_back(open_page: OpenPage, words: Words) -> None:
    page = open_page(words.locale, viewport=PHONE, reduced_motion="reduce")
    start_chat(page, words)
    embedded = Embedded(page)
    notice = page.locator("[data-notice=embedded]")
    expect(notice).to_contain_text("smollm2:135m")
    expect(notice).to_contain_text("ollama.com")
    expect(page.locator("[data-model-picker]")).to_contain_text("smollm2:135m")
    check(page)
    embedded.ollama_comes()
    came = page.locator("[data-notice=ollama-came]")
    expect(came).to_contain_text("qwen3:4b")
    expect(came).to_have_attribute("role", "status")
    check(page)
    embedded.ollama_goes()
    gone = page.locator("[data-notice=ollama-gone]")
    expect(gone).to_contain_text("smollm2:135m")
    check(page)
    gone.locator(".corner").click()
    expect(notice).to_be_visible()
    notice.locator(".corner").click()
    page.reload()
    expect(page.locator("[data-notice=no-tools]")).to_be_visible()


def test_a_chat_that_chose_an_ollama_model_can_go_on_with_the_embedded_one(open_page: OpenPage, site: Site) -> None:
    site.offer(FakeModel("qwen3:4b"), THINKER)
    page = start(open_page, viewport=WIDE)
    start_chat(page, ENGLISH)
    open_picker(page).get_by_role("option", name="deep:8b").click()
    expect(page.locator("[data-model-picker]")).to_contain_text("deep:8b")
    Embedded(page)
    notice = page.locator("[data-notice=needs-ollama]")
    expect(notice).to_contain_text("deep:8b needs Ollama")
    check(page)
    notice.locator("[data-action=use-embedded]").click()
    expect(notice).to_have_count(0)
