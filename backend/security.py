"""The guard before every request: which hosts and origins may speak to the server, and what pages may load."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.settings import LOOPBACK_OF

LOOPBACK_NAME = "localhost"


def content_security_policy(inline_script: str) -> str:
    """The page's policy: everything from here, no inline script but the one import map."""
    digest = base64.b64encode(hashlib.sha256(inline_script.encode()).digest()).decode()
    return (
        f"default-src 'self'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )


def is_loopback(host: str) -> bool:
    """Whether a Host header's name, without brackets, is this machine's own. A trailing dot or another spelling is not."""
    if host == LOOPBACK_NAME:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware. Refuses foreign hosts (DNS rebinding) and origins (cross-site sockets) with 403.

    A handshake without an Origin comes from a script and is let in on a loopback Host. A page's own origin
    is the one that its Host header names.
    """

    def __init__(self, app: ASGIApp, *, bound_host: str, allowed_origins: Iterable[str], policy: str) -> None:
        self._app = app
        self._origins = frozenset(allowed_origins)
        self._hosts = frozenset({bound_host.lower(), *(urlsplit(origin).hostname or "" for origin in self._origins)}) - {""} - LOOPBACK_OF.keys()
        self._headers = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            # Not "no-referrer": a form of ours would then come from the origin "null", as another site's may.
            "referrer-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": "camera=(), geolocation=(), microphone=()",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await PlainTextResponse(refusal, 403)(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (is_loopback(name) or name in self._hosts):
            return "This server does not answer under that name. Add its origin to CLEANROOM_ALLOWED_ORIGINS to allow it.\n"
        origins = headers.getlist("origin")
        if not origins:
            loopback = scope["type"] == "http" or is_loopback(name)
            return None if loopback else "A connection without an Origin is taken on this machine's own address only.\n"
        own = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if len(origins) > 1 or origins[0].lower() not in own | self._origins:
            return "Pages of other origins may not use this server. Add the origin to CLEANROOM_ALLOWED_ORIGINS to allow it.\n"
        return None


_HOST = re.compile(r"(\[[\da-f:.]+\]|[\w.-]+)(?::\d*)?", re.ASCII)


def _host_name(host: str) -> str | None:
    """The name of a Host header without its port, in lower case; None when it can't be one."""
    match = _HOST.fullmatch(host.lower())
    return match[1].strip("[]") if match else None
