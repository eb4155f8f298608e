"""The embedded model's engine as a process that reads prompts: `python -m benchmarks.prompt_reader FILE.gguf` prints its address.

It answers the messages of a request with what it had to compute of them. The engine says so; Ollama's HTTP, and so the
embedded model's, has no word for it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from aiohttp import web

from backend.embedded.engine import Engine
from backend.embedded.gguf import read_model_file
from backend.embedded.wire import ChatRequest, Model

# The least that the engine generates: the token that the prompt's end gives, at no further cost.
ONE_TOKEN = {"max_tokens": 1}


async def serve(weights: Path) -> None:
    model = Model(weights.stem, read_model_file(weights))
    engine = Engine(weights, model.context_tokens)

    async def read(request: web.Request) -> web.Response:
        asked = ChatRequest(stream=True, messages=await request.json(), options=ONE_TOKEN).for_engine()
        began = time.perf_counter()
        last = [event async for event in engine.events(asked)][-1]
        first_token_ms = (time.perf_counter() - began) * 1000
        counts = {"prompt_tokens": last["usage"]["prompt_tokens"], "computed_tokens": last["timings"]["prompt_n"]}
        return web.json_response({**counts, "first_token_ms": first_token_ms})

    app = web.Application(client_max_size=0)
    app.router.add_post("/", read)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"Engine at http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
