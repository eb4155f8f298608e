"""What one writes to have a chat with Ollama in Chainlit, after its guide to streaming; run by Chainlit's own Python."""

from __future__ import annotations

import os

import chainlit
import ollama

client = ollama.AsyncClient()


@chainlit.on_message
async def answer(_message: chainlit.Message) -> None:
    reply = chainlit.Message(content="")
    async for part in await client.chat(os.environ["MODEL"], chainlit.chat_context.to_openai(), stream=True):
        await reply.stream_token(part.message.content or "")
    await reply.update()
