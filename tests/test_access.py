"""The access token over raw HTTP: what is open, what asks for it, how it is given, guessed and given back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from itsdangerous import TimestampSigner
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Scope

from backend.access import ALL_GUESSES, COOKIE, GUESS_SECONDS, GUESSES, AccessControl, Guesses
from backend.app import create_app
from tests.fake_ollama import FakeOllama
from tests.raw_http import Answer, ask, shake_hands
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

TOKEN = "a token with 24 letters."
HTML = "Accept: text/html,application/xhtml+xml"


@pytest.fixture
async def address(tmp_path: Path, fake: FakeOllama) -> AsyncIterator[str]:
    async with running(make_settings(tmp_path, fake, access_token=TOKEN)) as where:
        yield where


async def log_in(address: str, token: str = TOKEN, *lines: str, host: str = "") -> Answer:
    body = f"token={quote(token)}"
    form = ("Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}")
    # The body goes after the empty line that ends the head.
    return await ask(address, "/login", *form, *lines, "", body, method="POST", host=host)


async def asked_by_hand(app: ASGIApp, path: str, *lines: str, client: str = "127.0.0.1") -> tuple[int, bytes]:
    """The status and the body that an app gives to a client of any address, without a server; its own name where no line says another."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    named = {"host": "127.0.0.1", **{name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}}
    scope: Scope = {
        "type": "http", "method": "GET", "path": path, "query_string": b"", "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()], "client": (client, 50_000), "server": ("127.0.0.1", 8765),
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def test_without_the_token_nothing_but_the_login_page_is_there(address: str) -> None:
    for path in ("/", "/js/app.js", "/metrics", "/modules/preact.mjs", "/nothing"):
        answer = await ask(address, path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        sent_on = await ask(address, path, HTML)
        assert (sent_on.status, sent_on.headers["location"]) == (303, "/login"), path
    for path in ("/login", "/healthz", "/icon.svg", "/css/base.css"):
        assert (await ask(address, path)).status == 200, path
    assert (await shake_hands(address)).status == 401
    assert (await shake_hands(address, f"Origin: http://{address}")).status == 401


async def test_whoever_asks_is_told_whether_the_server_is_ready_and_the_details_with_the_token_alone(address: str, tmp_path: Path) -> None:
    with_token = f"Authorization: Bearer {TOKEN}"
    for lines in ((), (HTML,), ("Authorization: Bearer wrong token here",), (f"Cookie: {COOKIE}=in",)):
        answer = await ask(address, "/readyz", *lines)
        assert (answer.status, answer.body) == (200, b"ready\n"), lines
    assert json.loads((await ask(address, "/readyz", with_token)).body)["database"] == "ok"
    unopened = make_settings(tmp_path, access_token=TOKEN)
    assert await asked_by_hand(create_app(unopened), "/readyz") == (503, b"not ready\n")
    status, body = await asked_by_hand(create_app(unopened), "/readyz", with_token)
    assert (status, json.loads(body)) == (503, {"database": "failed", "model_backend": "none"})


async def test_the_right_token_gives_a_cookie_that_opens_everything(address: str) -> None:
    answer = await log_in(address)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    attributes = answer.headers["set-cookie"].lower()
    assert "httponly" in attributes and "samesite=strict" in attributes and "secure" not in attributes
    assert TOKEN not in answer.headers["set-cookie"]
    cookie = f"Cookie: {cookie_of(answer)}"
    assert (await ask(address, "/", cookie)).status == 200
    assert (await shake_hands(address, cookie, f"Origin: http://{address}")).status == 101
    assert (await ask(address, "/login", cookie)).headers["location"] == "/"


async def test_scripts_give_the_token_in_a_header(address: str) -> None:
    async with Client.connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert client.welcome["protocol"] == 1
    assert (await shake_hands(address, "Authorization: Bearer wrong token here")).status == 401


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "ключ", "x" * 5000])
async def test_a_wrong_token_gives_nothing(address: str, token: str) -> None:
    answer = await log_in(address, token)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert b'role="alert"' in answer.content


@pytest.mark.parametrize(
    "cookie",
    ["", "in", TOKEN, TimestampSigner("another token of letters", salt="cleanroom.session").sign(b"in").decode()],
    ids=["empty", "bare", "token", "forged"],
)
async def test_a_cookie_that_is_not_ours_opens_nothing(address: str, cookie: str) -> None:
    assert (await ask(address, "/", f"Cookie: {COOKIE}={cookie}")).status == 401


async def test_a_cookie_ends_with_its_time_and_with_the_token(tmp_path: Path, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(make_settings(tmp_path, fake, access_token=TOKEN)) as address:
        cookie = f"Cookie: {cookie_of(await log_in(address))}"
        now = TimestampSigner.get_timestamp
        monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda self: now(self) + 31 * 86_400)
        assert (await ask(address, "/", cookie)).status == 401
        monkeypatch.undo()
        assert (await ask(address, "/", cookie)).status == 200
    async with running(make_settings(tmp_path, fake, access_token=TOKEN + " new")) as address:
        assert (await ask(address, "/", cookie)).status == 401


async def test_logging_out_takes_the_cookie_back(address: str) -> None:
    cookie = f"Cookie: {cookie_of(await log_in(address))}"
    answer = await ask(address, "/logout", cookie, "Content-Length: 0", method="POST")
    assert answer.headers["location"] == "/login"
    assert 'cleanroom_session=""' in answer.headers["set-cookie"] and "Max-Age=0" in answer.headers["set-cookie"]
    assert (await ask(address, "/logout", cookie)).status == 405


async def test_guesses_are_slowed_down_for_the_right_token_too(address: str) -> None:
    for _ in range(GUESSES):
        assert (await log_in(address, "wrong")).status == 401
    assert (await log_in(address)).status == 429
    assert (await ask(address, "/metrics", f"Authorization: Bearer {TOKEN}")).status == 401


async def test_a_form_of_another_site_logs_nobody_in(address: str) -> None:
    assert (await log_in(address, TOKEN, "Origin: http://evil.example")).status == 403


@pytest.mark.parametrize(("language", "word"), [("ru-RU,ru;q=0.9", "Войти"), ("en-GB", "Log in"), ("de", "Log in")])
async def test_the_page_speaks_the_browsers_language(address: str, language: str, word: str) -> None:
    assert word in (await ask(address, "/login", f"Accept-Language: {language}")).content.decode()


def test_guesses_are_counted_by_address_and_in_all_and_forgotten_in_time() -> None:
    moment = 0.0
    guesses = Guesses(lambda: moment)
    for _ in range(GUESSES):
        assert not guesses.are_too_many("a")
        guesses.add("a")
    assert guesses.are_too_many("a") and not guesses.are_too_many("b")
    for number in range(ALL_GUESSES - GUESSES):
        guesses.add(f"other {number}")
    assert guesses.are_too_many("b")
    moment = GUESS_SECONDS + 1
    assert not guesses.are_too_many("a") and not guesses.are_too_many("b")


@pytest.mark.parametrize(
    ("token", "client", "host", "status"),
    [
        (None, "127.0.0.1", "127.0.0.1:8765", 200),
        (None, "::1", "[::1]:8765", 200),
        (None, "127.0.0.1", "localhost:8765", 200),
        (None, "192.168.1.7", "127.0.0.1:8765", 403),  # a forged name
        (None, "127.0.0.1", "chat.example.org", 403),  # a proxy on this machine
        (None, "192.168.1.7", "192.168.1.5:8765", 403),
        ("off", "192.168.1.7", "192.168.1.5:8765", 200),
        (TOKEN, "127.0.0.1", "127.0.0.1:8765", 401),
    ],
)
async def test_who_is_served_without_a_token(token: str | None, client: str, host: str, status: int) -> None:
    app = AccessControl(PlainTextResponse("ok"), token=token)
    assert (await asked_by_hand(app, "/", f"Host: {host}", client=client))[0] == status
    assert (await asked_by_hand(app, "/readyz", f"Host: {host}", client=client))[0] == 200


async def test_behind_a_proxy_with_tls_the_login_and_the_socket_work(tmp_path: Path, fake: FakeOllama) -> None:
    """As a proxy on this machine passes requests on: the name that the browser asked for, and who asked how."""
    origin = "https://chat.example.org"
    async with running(make_settings(tmp_path, fake, access_token=TOKEN, allowed_origins=(origin,))) as address:

        def proxied(client: str, *lines: str) -> tuple[str, ...]:
            return ("X-Forwarded-Proto: https", f"X-Forwarded-For: {client}", f"Origin: {origin}", *lines)

        for _ in range(GUESSES):
            assert (await log_in(address, "wrong", *proxied("203.0.113.7"), host="chat.example.org")).status == 401
        assert (await log_in(address, TOKEN, *proxied("203.0.113.7"), host="chat.example.org")).status == 429
        answer = await log_in(address, TOKEN, *proxied("203.0.113.8"), host="chat.example.org")
        assert answer.status == 303 and "secure" in answer.headers["set-cookie"].lower()
        cookie = f"Cookie: {cookie_of(answer)}"
        assert (await shake_hands(address, *proxied("203.0.113.8", cookie), host="chat.example.org")).status == 101
        assert (await shake_hands(address, *proxied("203.0.113.8"), host="chat.example.org")).status == 401
        assert (await shake_hands(address, *proxied("203.0.113.8", cookie), host="other.example.org")).status == 403


def test_the_token_is_in_no_message(tmp_path: Path) -> None:
    settings: Any = make_settings(tmp_path, access_token=TOKEN)
    assert TOKEN not in repr(settings)
