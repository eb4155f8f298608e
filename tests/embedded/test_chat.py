"""The real model answering through the real client."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
from ollama import AsyncClient, ChatResponse, ResponseError

from backend.embedded.__main__ import BUNDLED_NAME

pytestmark = pytest.mark.anyio

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
EXACT = {"temperature": 0}
# Its reply runs on for minutes: what waits for its end misses SOON_SECONDS.
STORY = [{"role": "user", "content": "Write a very long story about a dog."}]
SOON_SECONDS = 60


async def ask(client: AsyncClient, **options: Any) -> ChatResponse:
    return await client.chat(BUNDLED_NAME, QUESTION, options=EXACT | options)


async def test_answers_a_question(client: AsyncClient) -> None:
    parts = [part async for part in await client.chat(BUNDLED_NAME, QUESTION, options=EXACT, stream=True)]
    assert "Paris" in "".join(part.message.content or "" for part in parts)
    assert [part.done for part in parts].index(True) == len(parts) - 1
    last = parts[-1]
    assert last.done_reason == "stop"
    assert last.prompt_eval_count and last.eval_count
    assert last.total_duration and last.eval_duration
    assert last.eval_duration <= last.total_duration


async def test_a_whole_reply_is_the_streamed_one(client: AsyncClient) -> None:
    parts = [part async for part in await client.chat(BUNDLED_NAME, QUESTION, options=EXACT, stream=True)]
    whole = await ask(client)
    assert whole.done
    assert whole.message.content == "".join(part.message.content or "" for part in parts)


async def test_counts_the_cached_prompt_too(client: AsyncClient) -> None:
    counts = {(await ask(client)).prompt_eval_count for _ in range(2)}
    assert len(counts) == 1


async def test_num_predict_and_stop_end_a_reply(client: AsyncClient) -> None:
    short = await ask(client, num_predict=3)
    assert (short.done_reason, short.eval_count) == ("length", 3)
    stopped = await ask(client, stop=["Paris"])
    assert stopped.done_reason == "stop"
    assert stopped.message.content and "Paris" not in stopped.message.content


async def test_a_reply_that_stands_last_goes_on_where_it_ends(client: AsyncClient) -> None:
    whole, begun = await ask(client), await ask(client, num_predict=3)
    assert begun.message.content and begun.message.content != whole.message.content
    messages = [*QUESTION, {"role": "assistant", "content": begun.message.content}]
    rest = await client.chat(BUNDLED_NAME, messages, options=EXACT)
    assert begun.message.content + (rest.message.content or "") == whole.message.content
    assert (rest.prompt_eval_count, rest.eval_count) == ((whole.prompt_eval_count or 0) + 3, (whole.eval_count or 0) - 3)


async def test_a_seed_repeats_a_reply(client: AsyncClient) -> None:
    replies = [(await ask(client, temperature=2, seed=seed, num_predict=8)).message.content for seed in (7, 7, 8)]
    assert replies[0] == replies[1] != replies[2]


async def test_no_messages_load_the_model(client: AsyncClient) -> None:
    reply = await client.chat(BUNDLED_NAME, [])
    assert (reply.done, reply.done_reason) == (True, "load")


async def test_a_reader_that_leaves_frees_the_slot(client: AsyncClient) -> None:
    async with asyncio.timeout(SOON_SECONDS):
        reply = await client.chat(BUNDLED_NAME, STORY, options=EXACT, stream=True)
        async with aclosing(reply) as parts:  # type: ignore[type-var]
            await anext(parts)
        assert "Paris" in ((await ask(client)).message.content or "")


async def test_a_second_chat_waits_in_silence_for_the_first(client: AsyncClient) -> None:
    first = await client.chat(BUNDLED_NAME, STORY, options=EXACT, stream=True)
    async with aclosing(first) as parts:  # type: ignore[type-var]
        await anext(parts)
        second = asyncio.create_task(ask(client))
        for _ in range(20):
            await anext(parts)
        assert not second.done()
    async with asyncio.timeout(SOON_SECONDS):
        assert "Paris" in ((await second).message.content or "")


async def test_leaving_the_queue_leaves_the_slot_to_others(client: AsyncClient) -> None:
    first = await client.chat(BUNDLED_NAME, STORY, options=EXACT, stream=True)
    async with aclosing(first) as parts:  # type: ignore[type-var]
        await anext(parts)
        queued = asyncio.create_task(client.chat(BUNDLED_NAME, STORY, options=EXACT))
        await anext(parts)
        queued.cancel()
        await asyncio.gather(queued, return_exceptions=True)
    async with asyncio.timeout(SOON_SECONDS):
        assert "Paris" in ((await ask(client)).message.content or "")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(embedded_url: str, stream: bool) -> None:
    body = {"model": BUNDLED_NAME, "stream": stream, "truncate": False, "messages": [{"role": "user", "content": "word " * 9000}]}
    async with aiohttp.ClientSession() as session, session.post(f"{embedded_url}/api/chat", json=body) as response:
        assert response.status == 400
        answer = await response.json()
    inner = json.loads(answer["error"])["error"]
    assert inner["type"] == "exceed_context_size_error"
    assert inner["n_prompt_tokens"] > 9000 > inner["n_ctx"] == 8192


async def test_odd_text_goes_both_ways(client: AsyncClient) -> None:
    messages = [{"role": "user", "content": "a\u0085b\u2028c \U0001f468\u200d\U0001f469 \u0439"}, *QUESTION]
    assert (await client.chat(BUNDLED_NAME, messages, options=EXACT | {"num_predict": 8})).done


async def test_a_lone_surrogate_does_no_harm(embedded_url: str) -> None:
    body = {"model": BUNDLED_NAME, "options": {"num_predict": 1}, "messages": [{"role": "user", "content": "\ud800"}]}
    async with aiohttp.ClientSession() as session, session.post(f"{embedded_url}/api/chat", json=body) as response:
        assert response.status == 200


async def test_tools_are_refused_as_ollama_does(client: AsyncClient) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    with pytest.raises(ResponseError, match="does not support tools") as caught:
        await client.chat(BUNDLED_NAME, QUESTION, tools=[add])
    assert caught.value.status_code == 400


async def test_thinking_is_refused_and_its_absence_accepted(client: AsyncClient) -> None:
    with pytest.raises(ResponseError, match="does not support thinking"):
        await client.chat(BUNDLED_NAME, QUESTION, think=True)
    reply = await client.chat(BUNDLED_NAME, QUESTION, think=False, keep_alive="5m", options=EXACT)
    assert "Paris" in (reply.message.content or "")


async def test_another_model_is_not_found(client: AsyncClient) -> None:
    for asked in (client.chat("qwen3:4b", QUESTION), client.show("qwen3:4b")):
        with pytest.raises(ResponseError, match="model 'qwen3:4b' not found") as caught:
            await asked
        assert caught.value.status_code == 404
