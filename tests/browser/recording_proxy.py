"""An HTTP proxy that forwards nothing and remembers what it was asked for."""

from __future__ import annotations

import socketserver
import threading
from types import TracebackType
from typing import Self


class RecordingProxy:
    """On a free port, in a thread. `asked` holds request lines such as `CONNECT example.org:443 HTTP/1.1`."""

    def __init__(self) -> None:
        asked: list[str] = []

        class Handler(socketserver.StreamRequestHandler):
            timeout = 5

            def handle(self) -> None:
                asked.append(self.rfile.readline(4_096).decode("latin-1").strip())
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        self.asked = asked
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
