"""Read the settings, run the server: `python -m backend`."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # Until the server follows signals, Ctrl+C ends it at once: Python's KeyboardInterrupt can get lost in an import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
import uvloop
from starlette.applications import Starlette

from backend import logs
from backend.app import create_app, frame_bytes
from backend.errors import CleanroomError, SettingsError
from backend.frame_socket import FrameSocket
from backend.settings import LOOPBACK_OF, Settings

logger = logging.getLogger("backend")

# A socket that does not answer a ping for this long is gone.
PING_SECONDS = 20
# What is left of the five seconds of an orderly end after turns are settled and files closed.
SHUTDOWN_SECONDS = 3


class Server(uvicorn.Server):
    """A server that ends by returning, so that what was opened before it is closed after it."""

    def follow_signals(self) -> None:
        """End by SIGINT and SIGTERM from now on; one that comes during the start ends it once it is started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run(settings: Settings) -> None:
    """Serve until a signal ends it. Raises a CleanroomError when it can't start."""
    asyncio.get_running_loop().set_exception_handler(logs.report_loop_error)
    app = create_app(settings)
    server = Server(configure(app, settings))
    server.follow_signals()
    with listen(settings) as listener:
        async with app.router.lifespan_context(app):
            if not server.should_exit:
                gc.freeze()  # what is there now stays: looking through it again and again would hold up every stream
                print(f"Cleanroom is ready at {_url(listener)}", flush=True)
            await server.serve(sockets=[listener])


def configure(app: Starlette, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",  # entered in `run`, so that a failing start is one line and not a traceback
        ws=FrameSocket,
        ws_max_size=frame_bytes(settings),
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,  # a stream of small frames gains nothing, and each socket would pay for it
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        log_config=None,  # its records go where ours go
        log_level="warning",
        server_header=False,
        proxy_headers=settings.identity_header is None,  # it would put a header's address in the place of the proxy's own
    )


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(settings: Settings) -> socket.socket:
    """Open the listening socket. Raises SettingsError with what to change."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        # `create_server` adds the address to the system's words; a name that isn't found has a negative number.
        reason = (os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)).lower()
        raise SettingsError(f"Can't listen on {settings.host}:{settings.port} ({reason}). Set CLEANROOM_HOST or CLEANROOM_PORT to another.") from None
    # Both are inherited by its connections. Small frames go out at once (asyncio, unlike uvloop, leaves that to us here) …
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # … and one that takes no data for so long ends.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2 * PING_SECONDS * 1000)
    return listener


def refuse_options() -> None:
    """Raises SettingsError for an argument, which would have no effect; `--help` says so and ends."""
    where = "Settings are variables of the environment, such as CLEANROOM_PORT=9000; the README lists them."
    _, unknown = argparse.ArgumentParser(prog="python -m backend", description=f"Cleanroom's server. {where}").parse_known_args()
    if unknown:
        raise SettingsError(f"There is no option '{unknown[0]}'. {where}")


def main() -> int:
    try:
        refuse_options()
        settings = Settings.from_environment()
        logs.configure(settings.log_level)
        for name in Settings.unknown_in():
            logger.warning("%s is no setting of this version and has no effect; the README lists those that are", name)
        uvloop.run(run(settings))
    except CleanroomError as error:
        print(f"cleanroom: {error.message}", file=sys.stderr)
        return 1
    except Exception:
        logger.exception("the server ended by an error of its own")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
