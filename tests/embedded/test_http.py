"""What the embedded model's server tells of itself, and what it refuses."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from ollama import AsyncClient

from backend.embedded.__main__ import BUNDLED_NAME

pytestmark = pytest.mark.anyio


async def test_lists_and_shows_its_model(client: AsyncClient) -> None:
    (listed,) = (await client.list()).models
    assert listed.model == BUNDLED_NAME
    assert listed.size and listed.size > 50_000_000
    shown = await client.show(BUNDLED_NAME)
    assert shown.capabilities == ["completion"]
    assert shown.modelinfo == {"general.architecture": "llama", "llama.context_length": 8192}
    assert shown.details and shown.details.parameter_size == "135M"


async def test_tells_what_is_loaded(client: AsyncClient) -> None:
    await client.chat(BUNDLED_NAME, [])
    (running,) = (await client.ps()).models
    assert (running.model, running.context_length) == (BUNDLED_NAME, 8192)


async def test_root_and_version(embedded_url: str) -> None:
    async with aiohttp.ClientSession(embedded_url) as session:
        async with session.get("/") as response:
            assert await response.text() == "Ollama is running"
        async with session.get("/api/version") as response:
            assert list(await response.json()) == ["version"]
        async with session.get("/api/nothing") as response:
            assert response.status == 404


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Host": ""}])
async def test_pages_of_other_sites_are_kept_out(embedded_url: str, headers: dict[str, str]) -> None:
    async with aiohttp.ClientSession(embedded_url) as session, session.get("/api/tags", headers=headers) as response:
        assert response.status == 403


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "missing request body"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "JSON object"),
        (b"{}", "model is required"),
        (b'{"model": 1}', "model is required"),
        (b'{"model": "%s", "messages": 1}', "messages must be a list"),
        (b'{"model": "%s", "messages": ["x"]}', "an object with a role"),
        (b'{"model": "%s", "messages": [{"role": "user", "content": 1}]}', "content must be a string"),
        (b'{"model": "%s", "options": 1}', "options must be an object"),
        (b'{"model": "%s", "options": {"seed": "x"}}', '"seed"'),
        (b'{"model": "%s", "options": {"temperature": true}}', '"temperature"'),
        (b'{"model": "%s", "format": "json"}', "does not support format"),
    ],
)
async def test_a_bad_chat_is_refused_in_ollamas_shape(embedded_url: str, body: bytes, error: str) -> None:
    body = body.replace(b"%s", BUNDLED_NAME.encode())
    async with aiohttp.ClientSession(embedded_url) as session, session.post("/api/chat", data=body) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == 400
    assert list(answer) == ["error"]
    assert error in answer["error"]
