"""`python -m backend` as a real process: how it starts, how it ends, what a killed one leaves."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from backend.store.migrate import migrate
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.raw_http import ask, shake_hands, unread_socket
from tests.server import PATIENCE_SECONDS, Client, rows

pytestmark = pytest.mark.anyio

PROJECT = Path(__file__).parent.parent
# An orderly end takes under five of these on a quiet machine; what is held up by a socket waits for its ping, or for ever.
END_SECONDS = 15


class Process:
    """A server in a process of its own; it is ended with the test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.address = ""

    @property
    def id(self) -> int:
        return self._process.pid

    async def ready(self) -> str:
        """Wait for the line that says where it listens; the address."""
        assert self._process.stdout is not None
        said = (await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_SECONDS)).decode()
        assert said.startswith("Cleanroom is ready at http://127.0.0.1:"), (said, await self.said())
        self.address = said.strip().removeprefix("Cleanroom is ready at http://")
        return self.address

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for the end; the exit code."""
        return await asyncio.wait_for(self._process.wait(), seconds)

    async def said(self) -> str:
        """Everything on stderr, once it has ended."""
        assert self._process.stderr is not None
        return (await asyncio.wait_for(self._process.stderr.read(), PATIENCE_SECONDS)).decode()


@asynccontextmanager
async def started(folder: Path, fake: FakeOllama | None = None, *interpreter: str, arguments: str = "", **variables: str) -> AsyncIterator[Process]:
    """Start `python -m backend` on a free port with a database in `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CLEANROOM_", "OLLAMA_"))}
    environment |= {
        "CLEANROOM_PORT": "0",
        "CLEANROOM_DATABASE_URL": f"sqlite:///{folder / 'cleanroom.db'}",
        "CLEANROOM_EMBEDDED": "never",
        "CLEANROOM_LOG_LEVEL": "warning",
    }
    environment |= {"OLLAMA_HOST": fake.url if fake else "127.0.0.1:9", **variables}
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, *interpreter, "-m", "backend", *arguments.split())
    process = await asyncio.create_subprocess_exec(
        *command, cwd=PROJECT, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )  # fmt: skip
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


# --- what stops a start


async def refused(process: Process) -> str:
    """The one line of a start that failed."""
    assert await process.ended() == 1
    said = await process.said()
    assert said.startswith("cleanroom: ") and said.count("\n") == 1 and said.endswith("\n"), said
    return said


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CLEANROOM_PORT", "none"), ("CLEANROOM_EMBEDDED", "perhaps"), ("OLLAMA_HOST", "ftp://x")],
)
async def test_a_bad_setting_stops_the_start(tmp_path: Path, variable: str, value: str) -> None:
    async with started(tmp_path, None, **{variable: value}) as process:
        assert f"{variable}='{value}' can't be used: it " in await refused(process)
    assert list(tmp_path.iterdir()) == []


async def test_an_option_stops_the_start_and_help_says_where_settings_are(tmp_path: Path) -> None:
    async with started(tmp_path, None, arguments="--port 9000") as process:
        said = await refused(process)
    assert "no option '--port'" in said and "CLEANROOM_PORT=9000" in said
    async with started(tmp_path, None, arguments="--help") as process:
        assert await process.ended() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("variable", "value"), [("CLEANROOM_DATABASE_URL", "oracle://me:secret@x"), ("CLEANROOM_REDIS_URL", "redis://:secret@x")])
async def test_a_bad_address_stops_the_start_and_its_password_is_not_repeated(tmp_path: Path, variable: str, value: str) -> None:
    async with started(tmp_path, None, **{variable: value}) as process:
        said = await refused(process)
    assert f"{variable} can't be used: it " in said
    assert "secret" not in said


async def test_a_variable_without_effect_is_told(tmp_path: Path) -> None:
    async with started(tmp_path, None, CLEANROOM_QUEUE_URL="secret word") as process:
        await process.ready()
        process.tell(signal.SIGTERM)
        assert await process.ended() == 0
        said = await process.said()
    assert "CLEANROOM_QUEUE_URL is no setting" in said and "secret word" not in said


async def test_a_busy_port_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with started(tmp_path) as first:
        port = (await first.ready()).rpartition(":")[2]
        async with started(tmp_path / "other", CLEANROOM_PORT=port) as second:
            said = await refused(second)
    assert said == f"cleanroom: Can't listen on 127.0.0.1:{port} (address already in use). Set CLEANROOM_HOST or CLEANROOM_PORT to another.\n"
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("host", ["no-such-name.invalid", "192.0.2.1"])
async def test_an_address_of_others_stops_the_start(tmp_path: Path, host: str) -> None:
    async with started(tmp_path, CLEANROOM_HOST=host) as process:
        assert f"Can't listen on {host}:0 (" in await refused(process)


async def test_a_second_server_on_the_same_database_is_refused(tmp_path: Path) -> None:
    async with started(tmp_path) as first:
        await first.ready()
        async with started(tmp_path) as second:
            said = await refused(second)
        assert f"cleanroom.db is in use by a running Cleanroom (process {first.id})" in said
        async with Client.connect(first.address) as client:
            await client.new_chat()


@pytest.mark.parametrize("what", ["garbage", "a folder", "no right to write"])
async def test_a_database_that_can_not_be_used_stops_the_start(tmp_path: Path, what: str) -> None:
    path = tmp_path / "cleanroom.db"
    if what == "garbage":
        path.write_bytes(b"This is a diary, not a database.\n" * 100)
    elif what == "a folder":
        path.mkdir()
    else:
        path = tmp_path / "file" / "cleanroom.db"
        (tmp_path / "file").touch()
    async with started(tmp_path, CLEANROOM_DATABASE_URL=f"sqlite:///{path}") as process:
        said = await refused(process)
    assert "cleanroom.db" in said
    assert str(tmp_path) not in said
    if what == "garbage":
        assert path.read_bytes() == b"This is a diary, not a database.\n" * 100


# --- a start


async def test_an_existing_database_is_ready_soon(tmp_path: Path, fake: FakeOllama) -> None:
    """The figures are printed, not asserted: they are the machine's as much as ours."""
    seconds = []
    for _ in range(3):
        begun = time.monotonic()
        async with started(tmp_path, fake) as process:
            await process.ready()
            seconds.append(time.monotonic() - begun)
            assert (await ask(process.address, "/healthz")).body == b"ok\n"
            status = Path(f"/proc/{process.id}/status").read_text(encoding="ascii")
            process.tell(signal.SIGTERM)
            assert await process.ended(END_SECONDS) == 0
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    print(f"ready after {seconds[0]:.2f} s with a new database, {min(seconds[1:]):.2f} s with this one; {resident / 1024:.0f} MB resident")


async def test_an_ordinary_start_imports_nothing_heavy(tmp_path: Path) -> None:
    async with started(tmp_path) as process:
        await process.ready()
        process.tell(signal.SIGTERM)
        await process.ended(END_SECONDS)
    async with started(tmp_path, None, "-X", "importtime") as process:
        await process.ready()
        process.tell(signal.SIGTERM)
        await process.ended(END_SECONDS)
        lines = [line.split("|") for line in (await process.said()).splitlines() if line.startswith("import time:") and "[us]" not in line]
    costs = {name.strip(): int(cumulative) for _, cumulative, name in lines}
    heaviest = sorted(costs, key=lambda name: -costs[name])[:25]
    print("imports, ms: " + ", ".join(f"{name} {costs[name] / 1000:.0f}" for name in heaviest))
    assert not {"alembic", "xllamacpp", "numpy", "pytest", "asyncpg"} & costs.keys()


async def test_what_it_says_of_itself(tmp_path: Path) -> None:
    async with started(tmp_path, CLEANROOM_HOST="localhost") as process:
        answer = await ask(await process.ready(), "/healthz")
        assert "server" not in answer.headers


# --- ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(tmp_path: Path, fake: FakeOllama, number: signal.Signals) -> None:
    """S09, A8: with a stream open and a socket that reads nothing; the text so far is kept."""
    fake.script(script.hang_mid("words so far"))
    async with started(tmp_path, fake) as process, Client.connect(await process.ready()) as client:
        chat = await client.new_chat()
        await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
        await client.event("message.delta")
        process.tell(number)
        assert await process.ended(END_SECONDS) == 0
        await fake.wait_ended(0)
        with pytest.raises(ConnectionClosed) as closed:
            await client.send_raw("{}")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code in (1001, 1012)
        assert await process.said() == ""
    stored = rows(tmp_path, "SELECT role, content, status FROM chat_messages ORDER BY id")
    assert [tuple(row.values()) for row in stored] == [("user", "hi", "complete"), ("assistant", "words so far", "interrupted")]
    assert {path.name for path in tmp_path.iterdir()} == {"cleanroom.db", "cleanroom.db.lock"}


async def test_sockets_that_do_not_read_can_not_hold_up_the_end(tmp_path: Path, fake: FakeOllama) -> None:
    """One just hangs, another has said goodbye and never took its answer."""
    pieces = ["z" * 50_000] * 400
    fake.script([script.text(*pieces), script.done()])
    async with started(tmp_path, fake) as process, Client.connect(await process.ready()) as client:
        chat = await client.new_chat()
        frame = f'{{"type": "chat.open", "chat_id": "{chat}"}}'
        async with unread_socket(process.address, frame) as hanging, unread_socket(process.address, frame) as leaving:
            for slow in (hanging, leaving):
                await slow.readuntil(b'"resumed":false')
            await client.say(chat, "much")
            await leaving.say_goodbye()
            await client.ok("tool.list")
            process.tell(signal.SIGTERM)
            assert await process.ended(END_SECONDS) == 0
        assert await process.said() == ""


async def test_a_signal_during_the_start_ends_it_too(tmp_path: Path) -> None:
    """At many moments: it ends by itself, says nothing odd, and the next start works."""
    for number in (signal.SIGTERM, signal.SIGINT):
        for after in (0.3, 0.8):
            async with started(tmp_path) as process:
                with pytest.raises(TimeoutError):
                    await process.ended(after)
                process.tell(number)
                code = await process.ended()  # what it is importing or migrating is done with first
                said = await process.said()
            # Before the first line of ours runs, the interpreter ends as it does by itself.
            assert code in (0, -number, 130) or "KeyboardInterrupt" in said, (after, code, said)
    async with started(tmp_path) as process:
        await process.ready()


async def test_a_killed_server_leaves_a_database_that_starts_again(tmp_path: Path, fake: FakeOllama) -> None:
    """S01: what was acknowledged is there, the reply is what was saved of it, nothing runs."""
    fake.script([script.text("kept"), script.hang()])
    async with started(tmp_path, fake) as process, Client.connect(await process.ready()) as client:
        chat = await client.new_chat()
        await client.press(chat, "task_add", title="milk")
        await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
        await client.event("message.delta")
        process.tell(signal.SIGKILL)
        assert await process.ended() == -signal.SIGKILL
        await fake.wait_ended(0)
    async with started(tmp_path, fake) as process, Client.connect(await process.ready()) as client:
        assert [known["turn_running"] for known in client.welcome["chats"]] == [False]
        shown = await client.messages(chat)
        assert (shown[-2]["content"], shown[-1]["role"], shown[-1]["status"]) == ("hi", "assistant", "interrupted")
        assert "kept".startswith(shown[-1]["content"])
        assert (await client.say(chat, "again"))["status"] == "complete"
        process.tell(signal.SIGTERM)
        assert await process.ended(END_SECONDS) == 0
    with closing(sqlite3.connect(tmp_path / "cleanroom.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_strangers_can_not_fill_the_log(tmp_path: Path) -> None:
    async with started(tmp_path, CLEANROOM_ACCESS_TOKEN="a token with 24 letters.") as process:
        address = await process.ready()
        assert (await shake_hands(address)).status == 401
        assert (await shake_hands(address, "Origin: http://evil.example")).status == 403
        process.tell(signal.SIGTERM)
        assert await process.ended(END_SECONDS) == 0
        assert await process.said() == ""


# --- a file that fails under a running server


def take_space(process: Process, file: Path) -> tuple[int, int]:
    """Leave the process no room to write beyond the file's present end; the limits before."""
    soft, hard = resource.prlimit(process.id, resource.RLIMIT_FSIZE)
    resource.prlimit(process.id, resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
    return soft, hard


async def test_a_full_disk_is_said_and_nothing_is_lost_once_there_is_room(tmp_path: Path, fake: FakeOllama) -> None:
    """S02: in the middle of a reply; its end waits, stopped or not, and no restart is needed."""
    gate, text = asyncio.Event(), "two " * 100
    fake.script([script.text("one "), script.hold(gate), script.text(text), script.done()], script.reply("three"))
    async with started(tmp_path, fake) as process, Client.connect(await process.ready()) as client:
        chat = await client.new_chat()
        turn = (await client.ok("message.send", chat_id=chat, client_id="1", text="hi"))["turn_id"]
        await client.event("message.delta")
        limits = take_space(process, tmp_path / "cleanroom.db-wal")
        gate.set()
        assert (await client.event("turn.waiting"))["reason"] == "storage"
        stopping = asyncio.create_task(client.ok("turn.stop", chat_id=chat))
        assert "check the disk and the space left on it" in (await client.refused("internal", "chat.create"))["message"]
        resource.prlimit(process.id, resource.RLIMIT_FSIZE, limits)
        assert (await client.finished(turn))["status"] == "complete"
        await stopping
        await client.say(chat, "again")
        assert {"role": "assistant", "content": "one " + text} in fake.requests[-1].messages
        process.tell(signal.SIGTERM)
        assert await process.ended(END_SECONDS) == 0
    with closing(sqlite3.connect(tmp_path / "cleanroom.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    stored = rows(tmp_path, "SELECT content, status FROM chat_messages ORDER BY id")
    assert [tuple(row.values()) for row in stored] == [("hi", "complete"), ("one " + text, "complete"), ("again", "complete"), ("three", "complete")]


async def test_a_full_disk_does_not_hold_up_the_end_of_the_server(tmp_path: Path, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    fake.script([script.text("one "), script.hold(gate), script.text("two"), script.done()])
    async with started(tmp_path, fake) as process, Client.connect(await process.ready()) as client:
        chat = await client.new_chat()
        await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
        await client.event("message.delta")
        take_space(process, tmp_path / "cleanroom.db-wal")
        gate.set()
        await client.event("turn.waiting")
        process.tell(signal.SIGTERM)
        await process.ended(END_SECONDS)
    async with started(tmp_path, fake) as process, Client.connect(await process.ready()) as client:
        assert [message["status"] for message in await client.messages(chat)] == ["complete", "interrupted"]


@pytest.mark.long
@pytest.mark.parametrize("number", [None, signal.SIGTERM])
async def test_a_start_on_a_file_that_another_program_locks_ends_by_itself_and_by_a_signal(tmp_path: Path, number: signal.Signals | None) -> None:
    """S03 and S09: it waits as long as any write does, then says which file; a signal does not make that longer."""
    path = tmp_path / "cleanroom.db"
    migrate(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")
        async with started(tmp_path) as process:
            while not path.with_name("cleanroom.db.lock").exists():
                await asyncio.sleep(0.05)
            if number is not None:
                process.tell(number)
                await process.ended(END_SECONDS + 1)
            assert await process.ended(2 * END_SECONDS) == 1
            assert await process.said() == "cleanroom: cleanroom.db is locked by another program; close that program, then try again.\n"
        other.execute("ROLLBACK")
    async with started(tmp_path) as process:
        await process.ready()
