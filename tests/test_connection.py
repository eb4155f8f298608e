"""One socket at a time: every frame gets one reply, and whatever a client does, the others and the server go on."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from backend import hub as hubs
from backend.__main__ import PING_SECONDS, Server, configure, listen
from backend.app import create_app, frame_bytes
from backend.connection import CLOSE_RESTART
from backend.errors import StoreError
from backend.services.chats import Chats
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.raw_http import unread_socket
from tests.replay import drop
from tests.server import Client, Json, make_settings, running
from tests.services.test_archives import gpt, gpt_node
from tests.test_protocol import BAD_FRAMES, COMMAND_LIKE, JSON

pytestmark = pytest.mark.anyio


CLOSED_AS_SLOW = b"\x88\x06" + (4001).to_bytes(2, "big") + b"slow"


class Line:
    """A socket that takes one frame at a time."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def ask(self, frame: str | bytes) -> Json:
        """Send a frame and return the one reply to it; events are passed over."""
        await self.connection.send(frame)
        while True:
            answer: Json = json.loads(await self.connection.recv())
            if answer["type"] in ("ok", "error"):
                return answer


def line(address: str) -> connect:
    return connect(f"ws://{address}/ws", max_size=None)


async def greeted(connection: ClientConnection) -> Line:
    assert json.loads(await connection.recv())["type"] == "welcome"
    return Line(connection)


# --- frames


async def test_the_first_frame_tells_what_a_page_needs(client: Client) -> None:
    welcome = client.welcome
    assert (welcome["protocol"], welcome["chats"], welcome["model_backend"], welcome["default_model"]) == (1, [], "ollama", "fake:tools")
    limits = {"history_limit": 12, "ttl_messages": 4, "max_message_bytes": 1_048_576}
    assert limits.items() <= welcome["settings"].items()
    assert welcome["settings"]["max_frame_bytes"] > 3 * 1_048_576
    assert {"epoch", "server_version", "models"} <= welcome.keys()


async def test_every_bad_frame_gets_its_reply_and_the_socket_stays(address: str) -> None:
    async with line(address) as connection:
        asker = await greeted(connection)
        for name, text in BAD_FRAMES.items():
            reply = await asker.ask(text)
            assert (reply["type"], reply["code"], reply["ref"]) == ("error", "bad_frame", "r" if '"r"' in text else None), name
        for frame in (b"", b'{"type": "tool.list", "ref": "r"}', b"\xff\xfe"):
            reply = await asker.ask(frame)
            assert (reply["code"], reply["ref"]) == ("bad_frame", None)
        assert (await asker.ask('{"type": "tool.list", "ref": "still"}'))["ref"] == "still"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ('{"type": "tool.list", "ref": "r", "x": NaN}', "bad_frame"),
        ('{"type": 5, "ref": "r"}', "bad_frame"),
        ('{"type": "chat.fly", "ref": "r"}', "unknown_command"),
        ('{"type": "chat.open", "ref": "r"}', "invalid"),
        ('{"type": "chat.open", "ref": "r", "chat_id": "nowhere"}', "not_found"),
        ('{"type": "message.send", "ref": "r", "chat_id": "nowhere", "client_id": "1", "text": " "}', "not_found"),
    ],
)
async def test_a_refusal_names_its_command(address: str, frame: str, code: str) -> None:
    async with line(address) as connection:
        reply = await (await greeted(connection)).ask(frame)
    assert (reply["type"], reply["ref"], reply["code"]) == ("error", "r", code)
    assert ("fields" in reply) == (code == "invalid")


@pytest.mark.parametrize("ref", ["", "r", "x" * 5000, "эхо 😀", "a\nb"])
async def test_any_text_is_a_ref(address: str, ref: str) -> None:
    async with line(address) as connection:
        assert (await (await greeted(connection)).ask(json.dumps({"type": "tool.list", "ref": ref})))["ref"] == ref


FORBIDDEN = ("Traceback", 'File "', "/backend/", "SELECT ", "INSERT ", "sqlite3", "IntegrityError", "OverflowError")


async def test_any_frame_gets_one_reply_and_no_secret(address: str, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    chat = await client.new_chat()
    known = COMMAND_LIKE.map(lambda command: {**command, **({"chat_id": chat} if "chat_id" in command else {})}).filter(
        lambda command: command["type"] != "models.refresh"
    )
    frames = st.one_of(st.text(), JSON.map(json.dumps), known.map(json.dumps), st.binary(max_size=20))
    async with line(address) as connection:
        asker = await greeted(connection)
        loop = asyncio.get_running_loop()

        async def try_one(frame: str | bytes) -> None:
            reply = await asyncio.wait_for(asker.ask(frame), 10)
            if reply["type"] == "error":
                assert not any(word in reply["message"] for word in FORBIDDEN), reply
                assert reply["code"] != "internal", frame

        @given(frames)
        @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
        def try_all(frame: str | bytes) -> None:
            asyncio.run_coroutine_threadsafe(try_one(frame), loop).result(20)

        await asyncio.to_thread(try_all)
        asked = await asker.ask('{"type": "tool.list", "ref": "last"}')
        assert asked["ref"] == "last"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("number", [2**53, -(2**63), 2**63, 10**300])
async def test_numbers_that_no_database_holds(client: Client, number: int) -> None:
    chat = await client.new_chat()
    reply = await client.command("tool.invoke", chat_id=chat, client_id="1", tool="task_complete", arguments={"id": number})
    assert reply.get("code") in (None, "invalid")
    assert "Something went wrong" not in json.dumps(reply)
    await client.refused("invalid", "chat.history", chat_id=chat, before_id=number)


async def test_dirty_text_is_cleaned_and_can_be_replayed(tmp_path: Path, fake: FakeOllama, database_url: str) -> None:
    """F05, F06: NUL and lone surrogates on every way that text comes in by; what is stored is the same on both engines."""
    dirty, clean = "a\0b\ud83d😀\u202e", "a\ufffdb\ufffd😀\u202e"
    calls = {"note_save": {"title": dirty, "content": dirty}, "system_prompt_draft": {"content": dirty}}
    async with running(make_settings(tmp_path, fake, database_url=database_url)) as address, Client.connect(address) as client:
        chat = await client.new_chat(title=f"t{dirty}")
        fake.script(script.lone_surrogate())
        await client.say(chat, dirty)
        for tool, arguments in calls.items():
            await client.press(chat, tool, **arguments)
            call = {"message": {"content": "", "thinking": dirty, "tool_calls": [script.tool_call(tool, arguments)]}}
            fake.script([script.raw(json.dumps(call).encode() + b"\n"), script.done()], script.reply("done"))
            assert (await client.say(chat, "again"))["status"] == "complete"
        await client.press(chat, "data_query", sql="SELECT 'q' || char(0) AS nul, CAST(x'eda0bd' AS TEXT) AS half")
        archive = json.dumps([gpt(gpt_node("a", "root", "user", dirty), title=dirty)])
        imported = (await client.ok("chat.import", content=archive))["chat"]
        async with Client.connect(address) as other:
            opened = await other.ok("chat.open", chat_id=chat)
            taken = await other.ok("chat.open", chat_id=imported["id"])
        found = (await client.ok("chat.search", query=dirty))["hits"]
    assert (opened["chat"]["title"], opened["messages"][0]["content"]) == (f"t{clean}", clean)
    assert opened["messages"][1]["content"] == "a\ufffdb\ufffd"
    told = json.dumps(opened["messages"], ensure_ascii=False)
    assert told.count(clean) == 7 and "\\ud83d" not in told
    assert opened["messages"][-2]["card"]["rows"] == [["q\0", "\ufffd" * 3]]  # within a card's JSON
    assert (taken["chat"]["title"], taken["messages"][0]["content"]) == (clean, clean)
    assert {hit["chat_id"] for hit in found} == {chat, imported["id"]}
    assert clean.encode() in fake.requests[0].raw or json.dumps(clean)[1:-1].encode() in fake.requests[0].raw


@pytest.mark.parametrize("fragments", [1, 64])
async def test_a_frame_over_the_limit_closes_that_socket_alone(tmp_path: Path, fake: FakeOllama, fragments: int) -> None:
    """F01: the frame's limit is the larger one; a message over its own limit is answered."""
    config = make_settings(tmp_path, fake, max_message_bytes=1024)
    async with running(config) as address, Client.connect(address) as other, line(address) as connection:
        asker = await greeted(connection)
        frame = {"type": "message.send", "ref": "r", "chat_id": await other.new_chat(), "client_id": "1", "text": "x" * 1025}
        assert (await asker.ask(json.dumps(frame)))["code"] == "too_large"
        assert (await asker.ask("x" * frame_bytes(config)))["code"] == "bad_frame"
        size = frame_bytes(config) // fragments + 1
        await connection.send("x" * size if fragments == 1 else ["x" * size] * fragments)
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(connection.recv(), 10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        await other.ok("tool.list")


# --- sockets that come, go and hang


@pytest.fixture
def no_leaks(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


async def until_tasks_are(count: int) -> None:
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > count:
            await asyncio.sleep(0.01)


async def test_a_page_that_the_database_can_not_greet_is_asked_to_come_back(
    address: str, no_leaks: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("The database can't be reached.")

    monkeypatch.setattr(Chats, "list_all", fail)
    async with connect(f"ws://{address}/ws") as socket:
        await socket.wait_closed()
        assert socket.close_code == CLOSE_RESTART


async def test_two_hundred_sockets_that_break_off_leave_nothing(address: str, client: Client, fake: FakeOllama, no_leaks: pytest.LogCaptureFixture) -> None:
    """A7: connect, send, abort; the turn goes on, is stored, and another tab gets every piece."""
    gate, chat = asyncio.Event(), await client.new_chat()
    fake.script([script.text("one "), script.hold(gate), script.text("two"), script.done()])
    turn = (await client.ok("message.send", chat_id=chat, client_id="1", text="hi"))["turn_id"]
    await client.event("message.delta")
    before = len(asyncio.all_tasks())
    burst = [json.dumps({"type": "chat.open", "ref": str(number), "chat_id": chat}) for number in range(2 * hubs.OUTBOX_REPLIES)]
    for number in range(200):
        async with line(address) as connection:
            for frame in burst if number % 10 == 0 else burst[:1]:
                await connection.send(frame)
            connection.transport.abort()
    gate.set()
    await client.finished(turn)
    assert "".join(delta["text"] for delta in client.of("message.delta")) == "one two"
    await until_tasks_are(before)
    assert (await client.messages(chat))[-1]["content"] == "one two"
    assert [record.getMessage() for record in no_leaks.records] == []


async def test_a_socket_that_reads_nothing_is_let_go(address: str, client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: what waits for it is bounded, it learns why it was closed, and nobody else notices."""
    monkeypatch.setattr(hubs, "OUTBOX_BYTES", 1_000_000)
    chat, text = await client.new_chat(), "z" * 2_000_000
    fake.script(*([script.text(*[text[:50_000]] * 40), script.done()] for _ in range(8)))
    async with unread_socket(address, json.dumps({"type": "chat.open", "chat_id": chat})) as slow:
        await slow.readuntil(b'"resumed":false')
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(8):
            assert (await client.say(chat, "hi"))["status"] == "complete"
        assert sum(len(delta["text"]) for delta in client.of("message.delta")) == 8 * len(text)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"resident memory grew by {grown:.0f} MB, with client and model server")
        received = bytearray()
        async with asyncio.timeout(15):
            while not received.endswith(CLOSED_AS_SLOW):
                received += await slow.read(1_000_000)
    assert len(received) < 8 * 2 * len(text)
    async with Client.connect(address) as back:
        assert (await back.messages(chat))[-1]["content"] == text


async def test_a_socket_that_asks_and_never_reads_is_not_asked_for_more(address: str, client: Client) -> None:
    """Replies that nobody reads stop the next commands from being taken, so they can't pile up."""
    chat = await client.new_chat(title="as it was")
    before = len(asyncio.all_tasks())
    rename = json.dumps({"type": "chat.rename", "chat_id": chat, "title": "too far"})
    async with unread_socket(address, *['{"type": "tool.list"}'] * 3000, rename):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.event("chat.updated"), 3)
        assert (await client.ok("chat.open", chat_id=chat))["chat"]["title"] == "as it was"
    await until_tasks_are(before)


async def test_small_frames_go_out_at_once_and_who_takes_no_data_is_ended_by_the_system(tmp_path: Path) -> None:
    with listen(make_settings(tmp_path)) as listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2 * PING_SECONDS * 1000


async def test_a_silent_peer_is_pinged_and_let_go(tmp_path: Path, fake: FakeOllama) -> None:
    """R12: who answers pings stays, who doesn't is gone soon after the second interval."""
    config = make_settings(tmp_path, fake)
    app = create_app(config)
    uvicorn_config = configure(app, config)
    assert (uvicorn_config.ws_ping_interval, uvicorn_config.ws_ping_timeout) == (PING_SECONDS, PING_SECONDS)
    uvicorn_config.ws_ping_interval = uvicorn_config.ws_ping_timeout = 0.2
    server = Server(uvicorn_config)
    async with app.router.lifespan_context(app):
        with listen(config) as listener:
            host, port = listener.getsockname()[:2]
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            async with Client.connect(f"{host}:{port}") as alive:
                async with unread_socket(f"{host}:{port}") as silent:
                    frames = await asyncio.wait_for(silent.read(), 10)
                assert b"\x89\x04" in frames  # a ping
                assert b"\x88\x18" + (1011).to_bytes(2, "big") in frames
                await alive.ok("tool.list")
            server.should_exit = True
            await serving


async def test_two_sockets_at_once_get_their_own_replies(address: str) -> None:
    async with Client.connect(address) as first, Client.connect(address) as second:
        client_id = uuid.uuid4().hex
        replies = await asyncio.gather(*(one.ok("chat.create", client_id=client_id) for one in (first, second) for _ in range(20)))
        assert len({reply["chat"]["id"] for reply in replies}) == 1
        assert [len(one.of("chat.created")) for one in (first, second)] == [1, 1]


async def test_a_socket_dropped_during_a_slow_command_ends_cleanly(address: str, client: Client, no_leaks: pytest.LogCaptureFixture) -> None:
    before = len(asyncio.all_tasks())
    async with Client.connect(address) as dying:
        for _ in range(5):
            await dying.send_raw('{"type": "models.refresh", "ref": "1"}')
        drop(dying)
    await client.ok("tool.list")
    await until_tasks_are(before)
    assert [record.getMessage() for record in no_leaks.records] == []
