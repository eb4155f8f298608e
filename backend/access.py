"""The access token: whoever has it gets in, by a signed cookie from the login page or by a header; all others stay out.

ASGI middleware behind the guard of hosts and origins. It keeps nothing: a cookie is good while the token is the same.
"""

from __future__ import annotations

import hmac
import html
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeGuard
from urllib.parse import parse_qs

from itsdangerous import BadSignature, TimestampSigner
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.security import is_loopback
from backend.settings import OFF

COOKIE = "cleanroom_session"
COOKIE_SECONDS = 30 * 86_400

# Needed before anyone is logged in: the login page's looks, and what watches over the process or sends people to it.
OPEN_PATHS = ("/healthz", "/readyz", "/icon.svg", "/css/tokens.css", "/css/base.css", "/css/controls.css")

# Wrong tokens that one address, and all together, may give in a minute.
GUESSES = 5
ALL_GUESSES = 60
GUESS_SECONDS = 60.0
ADDRESSES_KEPT = 1_000
FORM_BYTES = 4_096

TEXTS = {
    "en": {
        "title": "Cleanroom: log in",
        "label": "Access token",
        "button": "Log in",
        "hint": "It is the value of CLEANROOM_ACCESS_TOKEN where the server was started.",
        "wrong": "This is not the token.",
        "slow": "Too many wrong tokens. Wait a minute, then try again.",
    },
    "ru": {
        "title": "Cleanroom: вход",
        "label": "Токен доступа",
        "button": "Войти",
        "hint": "Это значение CLEANROOM_ACCESS_TOKEN там, где запущен сервер.",
        "wrong": "Это не тот токен.",
        "slow": "Слишком много неверных токенов. Подождите минуту и попробуйте снова.",
    },
}


class Guesses:
    """How many wrong tokens came lately, by address; addresses beyond the newest thousand are forgotten."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()
        self._all: deque[float] = deque()

    def are_too_many(self, address: str) -> bool:
        mine = self._by_address.get(address, deque())
        for guesses in (mine, self._all):
            while guesses and guesses[0] < self._now() - GUESS_SECONDS:
                guesses.popleft()
        return len(mine) >= GUESSES or len(self._all) >= ALL_GUESSES

    def add(self, address: str) -> None:
        self._all.append(self._now())
        self._by_address.setdefault(address, deque()).append(self._now())
        self._by_address.move_to_end(address)
        if len(self._by_address) > ADDRESSES_KEPT:
            self._by_address.popitem(last=False)


def has_login(token: str | None) -> TypeGuard[str]:
    """Whether a server with this setting asks for its token."""
    return token not in (None, OFF)


class AccessControl:
    """Lets in whoever has the token. With none set, this machine alone is served.

    `scope["is_known"]` says on open paths whether the request would have been let in elsewhere too.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, now: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._token = token
        self._signer = TimestampSigner(token, salt="cleanroom.session") if has_login(token) else None
        self._guesses = Guesses(now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope, receive) if scope["type"] in ("http", "websocket") else None
        await (answer or self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """What is said in the place of the app; None lets the request through."""
        connection = HTTPConnection(scope)
        if self._signer is not None and scope["type"] == "http" and scope["path"] in ("/login", "/logout"):
            return await self._log_in_or_out(Request(scope, receive))
        scope["is_known"] = self._is_known(connection)
        return None if scope["is_known"] or scope["path"] in OPEN_PATHS else self._refusal(scope, connection)

    def _is_known(self, connection: HTTPConnection) -> bool:
        if self._token == OFF:
            return True
        if self._signer is None:
            return _is_this_machine(connection)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._is_token(given.strip(), _address(connection))
        try:
            self._signer.unsign(connection.cookies.get(COOKIE, ""), max_age=COOKIE_SECONDS)
        except BadSignature:
            return False
        return True

    def _is_token(self, given: str, address: str) -> bool:
        """Compare without telling by the time how much was right; wrong ones are counted, and too many close the door."""
        assert self._token is not None
        if self._guesses.are_too_many(address):
            return False
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return True
        self._guesses.add(address)
        return False

    def _refusal(self, scope: Scope, connection: HTTPConnection) -> Response:
        if self._signer is None:
            return PlainTextResponse(_NO_TOKEN, 403)
        if scope["type"] == "http" and "text/html" in connection.headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        return PlainTextResponse("The access token is needed.\n", 401, {"www-authenticate": "Bearer"})

    async def _log_in_or_out(self, request: Request) -> Response:
        if request.url.path == "/logout":
            if request.method != "POST":
                return PlainTextResponse("Log out by POST.\n", 405, {"allow": "POST"})
            answer = RedirectResponse("/login", 303)
            answer.delete_cookie(COOKIE, samesite="strict", httponly=True)
            return answer
        if request.method in ("GET", "HEAD"):
            return RedirectResponse("/", 303) if self._is_known(request) else _login_page(request)
        if request.method != "POST":
            return PlainTextResponse("Log in by POST.\n", 405, {"allow": "GET, POST"})
        return await self._log_in(request)

    async def _log_in(self, request: Request) -> Response:
        address = _address(request)
        if self._guesses.are_too_many(address):
            return _login_page(request, "slow", 429)
        if not self._is_token(await _token_in(request), address):
            return _login_page(request, "wrong", 401)
        assert self._signer is not None
        answer = RedirectResponse("/", 303)
        value = self._signer.sign(b"in").decode()
        answer.set_cookie(COOKIE, value, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer


_NO_TOKEN = "Beyond its own machine this server asks for a token. Set CLEANROOM_ACCESS_TOKEN and start it again.\n"


def _address(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


def _is_this_machine(connection: HTTPConnection) -> bool:
    """Whether client and name both are loopback: a proxy on this machine passes on the name that others use."""
    return is_loopback(_address(connection)) and is_loopback(connection.url.hostname or "")


async def _token_in(request: Request) -> str:
    """The form's token; "" when it has none, or is no form."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            return ""
    return parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0].strip()


def _login_page(request: Request, problem: str | None = None, status: int = 200) -> Response:
    language = "ru" if request.headers.get("accept-language", "").lower().startswith("ru") else "en"
    texts = {name: html.escape(text) for name, text in TEXTS[language].items()}
    said = f'<p class="danger-text" role="alert" id="problem">{texts[problem]}</p>' if problem else ""
    described = "hint problem" if problem else "hint"
    return HTMLResponse(
        f"""<!doctype html>
<html lang="{language}">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{texts["title"]}</title>
  <link rel="icon" href="/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/css/tokens.css">
  <link rel="stylesheet" href="/css/base.css">
  <link rel="stylesheet" href="/css/controls.css">
</head>
<body>
  <main class="login">
    <h1>{texts["title"]}</h1>
    <form method="post" action="/login">
      <div class="field"><label for="token">{texts["label"]}</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required autofocus aria-describedby="{described}"></div>
      <p class="muted small" id="hint">{texts["hint"]}</p>
      {said}
      <div class="actions"><button class="button primary">{texts["button"]}</button></div>
    </form>
  </main>
</body>
</html>
""",
        status,
        {"cache-control": "no-store"},
    )
