"""The yardstick: what a bare Starlette relay between a page and the `ollama` client costs, with nothing kept.

`python -m benchmarks.relay MODEL_URL` prints its address; a frame of its socket is a message, and each token comes back as a frame.
"""

from __future__ import annotations

import json
import socket
import sys

import ollama
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from benchmarks.scripted_model import MODEL

client = ollama.AsyncClient(host=sys.argv[1])


async def relay(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            asked = await websocket.receive_json()
            messages = [{"role": "user", "content": asked["text"]}]
            async for part in await client.chat(MODEL, messages, stream=True):
                await websocket.send_text(json.dumps({"text": part.message.content, "done": part.done}))
    except WebSocketDisconnect:
        pass


async def serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"Relay at http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = Starlette(routes=[WebSocketRoute("/ws", relay)])
    config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio", ws_per_message_deflate=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    uvloop.run(serve())
