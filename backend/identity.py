"""Who asks: a name in a header that a proxy sets after it has made sure, and that is believed from that proxy alone.

ASGI middleware behind the guard of hosts and origins, before the access token. It keeps nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.settings import Network

# Who asks where no proxy says so. No header can say it, since an empty one is refused.
LOCAL_USER = ""

# A name is a key of the database and of the browser's storage.
NAME_CHARACTERS = 200

# What watches over the process asks without a person, and gets nothing of anybody's; the access token guards it as ever.
PROCESS_PATHS = ("/healthz", "/readyz", "/metrics")


class Identity:
    """Puts the user's name into `scope["user"]`. Refuses who comes past the proxies (403) or with no usable name (401).

    Without a `header` everyone is the local user.
    """

    def __init__(self, app: ASGIApp, *, header: str | None, proxies: Collection[Network]) -> None:
        self._app = app
        self._header = header
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = None
        if self._header is None or scope["path"] in PROCESS_PATHS:
            scope["user"] = LOCAL_USER
        elif not self._is_proxy(scope):
            refusal = PlainTextResponse("This server is reached through its proxy only. Another proxy's address goes into CLEANROOM_TRUSTED_PROXIES.\n", 403)
        elif (name := self._name_in(scope)) is None:
            refusal = PlainTextResponse(f"The proxy has to name the user in one {self._header} header of 1 to {NAME_CHARACTERS} plain characters.\n", 401)
        else:
            scope["user"] = name
        await (refusal or self._app)(scope, receive, send)

    def _is_proxy(self, scope: Scope) -> bool:
        """Whether the connection's other end is trusted; what a header says of the way here does not count."""
        if not scope.get("client"):
            return False
        address = ip_address(scope["client"][0])
        address = getattr(address, "ipv4_mapped", None) or address  # how a socket for both kinds shows IPv4
        return any(address in network for network in self._proxies)

    def _name_in(self, scope: Scope) -> str | None:
        """The one name that was given; None when there is none, more than one, or one that can't be shown."""
        assert self._header is not None
        values = Headers(scope=scope).getlist(self._header)
        try:
            name = values[0].encode("latin-1").decode() if len(values) == 1 else ""
        except UnicodeDecodeError:
            return None
        return name if name.strip() and name.isprintable() and len(name) <= NAME_CHARACTERS else None
