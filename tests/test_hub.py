"""Numbers, logs and outboxes; then the same over real sockets that come and go."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import event_log
from backend import hub as hubs
from backend.event_log import Logged, MemoryLog
from backend.hub import Hub, Outbox
from backend.protocol import Channel, ChatDeleted, Event, MessageDelta, TurnStarted
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.replay import Replica, drop, events_of, replayed
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio


def started(chat: str = "a") -> TurnStarted:
    return TurnStarted(chat_id=chat, turn_id="t")


def piece(text: str = "x", *, chat: str = "a", message: int = 1, channel: Channel = "content", offset: int = 0) -> MessageDelta:
    return MessageDelta(chat_id=chat, message_id=message, channel=channel, offset=offset, text=text)


def publish(hub: Hub, *events: Event | MessageDelta) -> None:
    for event in events:
        hub.publish(event)


def seqs(missed: Iterable[Logged] | None) -> list[int] | None:
    return None if missed is None else [event.seq for event in missed]


async def drain(outbox: Outbox) -> list[Json]:
    """Every frame that waits."""
    outbox.put_reply('{"type": "end"}')
    frames: list[Json] = []
    while (frame := await outbox.take()) is not None:
        frames.append(json.loads(frame))
        if frames[-1]["type"] == "end":
            return frames[:-1]
    return frames


# --- numbers and logs


async def test_each_chat_counts_for_itself() -> None:
    hub = Hub(MemoryLog())
    publish(hub, started("a"), started("b"), started("a"))
    assert (hub.seq("a"), hub.seq("b"), hub.seq("c")) == (2, 1, 0)
    assert seqs(await hub.log.since("a", hub.epoch, 0)) == [1, 2]


@pytest.mark.parametrize(
    ("after_seq", "own_epoch", "expected"),
    [
        (0, True, [1, 2, 3]),
        (2, True, [3]),
        (3, True, []),
        (4, True, None),  # from the future: not "0 missed"
        (2**53 - 1, True, None),
        (None, True, None),
        (2, False, None),  # another epoch
    ],
)
async def test_what_a_returning_socket_missed(after_seq: int | None, own_epoch: bool, expected: list[int] | None) -> None:
    hub = Hub(MemoryLog())
    publish(hub, started(), started(), started())
    assert seqs(await hub.log.since("a", hub.epoch if own_epoch else "before", after_seq)) == expected


async def test_a_log_that_no_longer_reaches_back_needs_a_snapshot() -> None:
    hub = Hub(MemoryLog())
    publish(hub, *(started() for _ in range(event_log.LOG_EVENTS + 1)))
    assert await hub.log.since("a", hub.epoch, 0) is None
    assert len(seqs(await hub.log.since("a", hub.epoch, 1)) or []) == event_log.LOG_EVENTS


async def test_a_log_is_bounded_in_bytes_too() -> None:
    hub = Hub(MemoryLog())
    publish(hub, *(piece("y" * 100_000) for _ in range(30)))
    assert await hub.log.since("a", hub.epoch, 0) is None
    assert len(seqs(await hub.log.since("a", hub.epoch, 25)) or []) == 5


async def test_only_the_chats_in_use_keep_a_log_but_all_keep_their_number() -> None:
    hub = Hub(MemoryLog())
    publish(hub, started("first"), *(started(str(number)) for number in range(event_log.LOGS_KEPT)))
    assert await hub.log.since("first", hub.epoch, 0) is None
    assert seqs(await hub.log.since("first", hub.epoch, 1)) == []
    assert seqs(await hub.log.since("0", hub.epoch, 0)) == [1]


async def test_a_deleted_chat_leaves_no_event() -> None:
    hub, outbox = Hub(MemoryLog()), Outbox()
    hub.subscribe("a", outbox)
    publish(hub, piece("secret"))
    await drain(outbox)
    hub.forget("a")
    assert (hub.seq("a"), await hub.log.since("a", hub.epoch, 1)) == (0, None)
    publish(hub, started())
    assert await drain(outbox) == []


async def test_who_gets_what() -> None:
    hub, watcher, other = Hub(MemoryLog()), Outbox(), Outbox()
    for outbox in (watcher, other):
        hub.attach(outbox)
    hub.subscribe("a", watcher)
    publish(hub, started("a"), started("b"))
    hub.broadcast(ChatDeleted(chat_id="b", user=""))
    assert [frame["type"] for frame in await drain(watcher)] == ["turn.started", "chat.deleted"]
    assert [frame["type"] for frame in await drain(other)] == ["chat.deleted"]
    hub.detach(watcher)
    publish(hub, started("a"))
    hub.broadcast(ChatDeleted(chat_id="a", user=""))
    assert await drain(watcher) == []


# --- merging


async def test_deltas_that_wait_become_one() -> None:
    hub, outbox = Hub(MemoryLog()), Outbox()
    hub.subscribe("a", outbox)
    publish(hub, started(), piece("при"), started("b"), piece("вет", offset=3), piece("!", offset=6))
    _, merged = await drain(outbox)
    assert (merged["text"], merged["offset"], merged["first_seq"], merged["seq"]) == ("привет!", 0, 2, 4)
    publish(hub, piece("?", offset=7))
    (alone,) = await drain(outbox)
    assert (alone["text"], alone["seq"], "first_seq" in alone) == ("?", 5, False)


@pytest.mark.parametrize(
    "second",
    [piece("2", channel="thinking"), piece("2", message=2)],
    ids=["another channel", "another message"],
)
async def test_deltas_of_different_texts_stay_apart(second: MessageDelta) -> None:
    hub, outbox = Hub(MemoryLog()), Outbox()
    hub.subscribe("a", outbox)
    publish(hub, piece("1"), second, piece("3", offset=1))
    assert [frame["text"] for frame in await drain(outbox)] == ["1", "2", "3"]


async def test_no_delta_overtakes_another_event_or_a_reply() -> None:
    hub, outbox = Hub(MemoryLog()), Outbox()
    hub.subscribe("a", outbox)
    publish(hub, piece("1"), started(), piece("2", offset=1))
    outbox.put_reply('{"type": "ok"}')  # a snapshot, say: what came before must not grow past it
    publish(hub, piece("3", offset=2))
    frames = await drain(outbox)
    assert [frame.get("text", frame["type"]) for frame in frames] == ["1", "turn.started", "2", "ok", "3"]


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("delta"), st.sampled_from("ab"), st.just(1), st.sampled_from(["content", "thinking"]), st.text(min_size=1, max_size=3)),
        st.tuples(st.just("event"), st.sampled_from("ab")),
        st.tuples(st.just("snapshot"), st.sampled_from("ab")),
        st.tuples(st.just("has_room"), st.booleans()),
        st.tuples(st.just("run")),
    ),
    max_size=40,
)


class Socket:
    """A socket that takes frames while it has room, at once or by the task that serves it."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.frames: list[Json] = []

    def write(self, frame: str) -> bool:
        if self.room.is_set():
            self.frames.append(json.loads(frame))
        return self.room.is_set()

    async def serve(self, outbox: Outbox) -> None:
        while (frame := await outbox.take()) is not None:
            await self.room.wait()
            self.frames.append(json.loads(frame))


@given(MOVES)
@settings(deadline=None, max_examples=400)
async def test_whatever_waits_or_merges_a_reader_has_every_event_once_in_order(moves: list[tuple[Any, ...]]) -> None:
    hub, socket = Hub(MemoryLog()), Socket()
    outbox = Outbox("", socket.write)
    written: dict[tuple[str, int, str], str] = {}
    for chat in "ab":
        hub.subscribe(chat, outbox)
    serving = asyncio.create_task(socket.serve(outbox))
    for move in moves:
        match move:
            case ("delta", chat, message, channel, text):
                key = (chat, message, channel)
                hub.publish(piece(text, chat=chat, message=message, channel=channel, offset=len(written.get(key, ""))))
                written[key] = written.get(key, "") + text
            case ("event", chat):
                hub.publish(started(chat))
            case ("snapshot", chat):
                outbox.put_reply(json.dumps({"type": "snapshot", "chat": chat, "seq": hub.seq(chat)}))
            case ("has_room", True):
                socket.room.set()
            case ("has_room", False):
                socket.room.clear()
            case _:
                await asyncio.sleep(0)
    socket.room.set()
    outbox.put_reply('{"type": "end"}')
    while not socket.frames or socket.frames[-1]["type"] != "end":
        await asyncio.sleep(0)
    outbox.close()
    await serving
    assert read_in_order(socket.frames[:-1]) == (written, {chat: hub.seq(chat) for chat in "ab"})


def read_in_order(frames: list[Json]) -> tuple[dict[tuple[str, int, str], str], dict[str, int]]:
    """The texts and the last numbers that frames bring a page, none of which may be missing, early or late."""
    read: dict[tuple[str, int, str], str] = {}
    applied = {"a": 0, "b": 0}
    for frame in frames:
        if frame["type"] == "snapshot":
            assert frame["seq"] == applied[frame["chat"]]  # all that came before it and nothing beyond
            continue
        chat = frame["chat_id"]
        assert frame.get("first_seq", frame["seq"]) == applied[chat] + 1
        applied[chat] = frame["seq"]
        if frame["type"] == "message.delta":
            key = (chat, frame["message_id"], frame["channel"])
            assert frame["offset"] == len(read.get(key, ""))
            read[key] = read.get(key, "") + frame["text"]
    return read, applied


# --- limits of an outbox


async def test_an_outbox_that_grows_too_far_closes_and_takes_nothing_more() -> None:
    hub, slow, quick = Hub(MemoryLog()), Outbox(), Outbox()
    hub.subscribe("a", slow)
    hub.subscribe("a", quick)
    taken = 0
    rounds = hubs.OUTBOX_BYTES // 100_000 + 2
    for _ in range(rounds):
        publish(hub, piece("z" * 100_000), started())
        taken += len(await drain(quick))
    assert await slow.take() is None
    publish(hub, started())
    slow.put_reply("{}")
    slow.put_frame("{}")
    assert await slow.take() is None
    assert taken == 2 * rounds


async def test_one_event_may_be_of_any_size() -> None:
    hub, outbox = Hub(MemoryLog()), Outbox()
    hub.subscribe("a", outbox)
    publish(hub, piece("1"), piece("z" * (2 * hubs.OUTBOX_BYTES), message=2), started())
    assert [frame["type"] for frame in await drain(outbox)] == ["message.delta", "message.delta", "turn.started"]


async def test_a_waiting_text_weighs_its_letters_not_its_events() -> None:
    outbox = Outbox()
    outbox.put_event(piece("x"), "{}")
    tracemalloc.start()
    try:
        for number in range(20_000):
            delta = piece("x")
            delta.seq = number + 1
            outbox.put_event(delta, "{}")
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 500_000
    (merged,) = await drain(outbox)
    assert len(merged["text"]) == 20_001


async def test_commands_wait_while_replies_are_unread_and_a_dead_socket_frees_them() -> None:
    outbox = Outbox()
    for _ in range(hubs.OUTBOX_REPLIES):
        outbox.put_reply("{}")
    waiting = asyncio.create_task(outbox.wait_for_room())
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    await outbox.take()
    await waiting
    outbox.put_reply("{}")
    waiting = asyncio.create_task(outbox.wait_for_room())
    outbox.close()
    await asyncio.wait_for(waiting, 1)


# --- over sockets


async def stream(client: Client, fake: FakeOllama, chat: str, *steps: script.Script) -> str:
    """Start a turn whose reply is `steps`; its id, once the first piece of it is there."""
    fake.script([*steps, script.done()])
    reply = await client.ok("message.send", chat_id=chat, client_id=uuid.uuid4().hex, text="go")
    await client.event("message.delta")
    return str(reply["turn_id"])


async def test_a_dropped_socket_comes_back_for_what_it_missed(address: str, client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    """R01: the connection breaks at the fifth token of twenty, with no close frame."""
    gate = asyncio.Event()
    chat = await client.new_chat()
    async with Client.connect(address) as dropped:
        replica = Replica(await dropped.ok("chat.open", chat_id=chat))
        turn = await stream(client, fake, chat, script.text(*"abcde"), script.hold(gate), script.text(*"fghijklmnopqrst"))
        await dropped.until(lambda: "".join(delta["text"] for delta in dropped.of("message.delta")) == "abcde")
        drop(dropped)
    for event in events_of(dropped, chat):
        replica.apply(event)
    gate.set()
    await client.finished(turn)
    async with Client.connect(address) as back:
        opened = await back.ok("chat.open", chat_id=chat, epoch=replica.epoch, after_seq=replica.seq)
        assert (opened["resumed"], opened["epoch"], "messages" in opened) == (True, replica.epoch, False)
        await back.finished(turn)
        assert next(event.get("first_seq", event["seq"]) for event in back.events if "seq" in event) == replica.seq + 1
        for event in events_of(back, chat):
            replica.apply(event)
        assert replica.seq == opened["seq"]
        fresh = await client.ok("chat.open", chat_id=chat)
        assert {**replica.shown, "chat": None} == {**Replica(fresh).shown, "chat": None}
        assert fresh["messages"][-1]["content"] == "abcdefghijklmnopqrst"


async def test_a_restarted_server_sends_a_snapshot(tmp_path: Path, fake: FakeOllama) -> None:
    """R02: the right number of another epoch."""
    config = make_settings(tmp_path, fake)
    async with running(config) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.say(chat, "hi")
        before = await client.ok("chat.open", chat_id=chat)
    async with running(config) as address, Client.connect(address) as client:
        opened = await client.ok("chat.open", chat_id=chat, epoch=before["epoch"], after_seq=before["seq"])
        assert (opened["resumed"], opened["seq"], opened["messages"]) == (False, 0, before["messages"])
        assert opened["epoch"] == client.welcome["epoch"] != before["epoch"]


async def test_too_far_behind_or_ahead_gets_a_snapshot(client: Client, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    """R03, R04 and half a position."""
    monkeypatch.setattr(event_log, "LOG_EVENTS", 3)
    chat = await client.new_chat()
    fake.script(script.many_tokens(300))
    await client.say(chat, "count")
    newest = await client.ok("chat.open", chat_id=chat)
    assert newest["seq"] > event_log.LOG_EVENTS + 1
    for position in ({"after_seq": 1}, {"after_seq": newest["seq"] + 1}, {"after_seq": None}, {}):
        opened = await client.ok("chat.open", chat_id=chat, epoch=newest["epoch"], **position)
        assert (opened["resumed"], opened["seq"]) == (False, newest["seq"]), position
        assert opened["messages"] == newest["messages"]
    assert (await client.ok("chat.open", chat_id=chat, epoch=newest["epoch"], after_seq=newest["seq"]))["resumed"] is True


@pytest.mark.parametrize("position", [-1, "7", 2**63, 1.0, True, [1], {}])
async def test_a_position_that_is_none_is_refused(client: Client, position: object) -> None:
    """R05: the socket stays usable."""
    chat = await client.new_chat()
    refusal = await client.refused("invalid", "chat.open", chat_id=chat, epoch=client.welcome["epoch"], after_seq=position)
    assert list(refusal["fields"]) == ["after_seq"]
    await client.ok("chat.open", chat_id=chat)


@pytest.mark.parametrize("reopens", [False, True], ids=["new sockets", "the same socket"])
async def test_opening_in_the_middle_of_a_stream_misses_and_repeats_nothing(address: str, client: Client, fake: FakeOllama, reopens: bool) -> None:
    """R10: many chances for a snapshot between two events, each checked to the last letter."""
    chat = await client.new_chat()
    fake.script(script.many_tokens(300, seconds=0.001))
    turn = (await client.ok("message.send", chat_id=chat, client_id="1", text="count"))["turn_id"]
    await client.event("message.delta")

    async def watch(watcher: Client) -> Json:
        """Open the chat now and follow it to the turn's end."""
        opened = await watcher.ok("chat.open", chat_id=chat)
        await watcher.finished(turn)
        replica = Replica(opened)
        for event in events_of(watcher, chat):
            replica.apply(event)
        return replica.shown

    async def newcomer() -> Json:
        async with Client.connect(address) as socket:
            return await watch(socket)

    watching: list[asyncio.Task[Json]] = []
    while not client.of("turn.finished") and len(watching) < 30:
        watching.append(asyncio.create_task(watch(client) if reopens else newcomer()))
        await asyncio.wait(watching, timeout=0.005, return_when=asyncio.FIRST_EXCEPTION)
    results = await asyncio.gather(*watching)
    await client.finished(turn)
    expected = Replica(await client.ok("chat.open", chat_id=chat)).shown
    assert len(results) > 5
    for shown in results:
        assert shown["messages"] == expected["messages"]
        assert (shown["seq"], shown["context"]) == (expected["seq"], expected["context"])


async def test_a_send_whose_reply_was_lost_is_answered_again(address: str, client: Client, fake: FakeOllama) -> None:
    """R07: stored, but the socket died before the reply."""
    chat = await client.new_chat()
    async with Client.connect(address) as dying:
        await dying.send_raw(json.dumps({"type": "message.send", "ref": "1", "chat_id": chat, "client_id": "only", "text": "hi"}))
        drop(dying)
    await client.event("turn.finished")
    again = await client.ok("message.send", chat_id=chat, client_id="only", text="hi")
    assert again["turn_id"] == client.of("turn.finished")[0]["turn_id"]
    assert [message["role"] for message in await client.messages(chat)] == ["user", "assistant"]
    assert len(fake.requests) == 1


async def test_many_sockets_that_drop_lose_and_double_nothing(address: str, client: Client, tmp_path: Path) -> None:
    """R08: sockets use a tool with ids of their own and break off at times; what was asked for is done, once."""
    chats = [await client.new_chat() for _ in range(3)]

    async def ask(number: int, index: int) -> None:
        """Ask until there is a reply; every second first attempt breaks off before it."""
        title = f"{number}-{index}"
        command = {"chat_id": chats[number % 3], "client_id": title, "tool": "task_add", "arguments": {"title": title}}
        if (number + index) % 2:
            async with Client.connect(address) as dying:
                await dying.send_raw(json.dumps({"type": "tool.invoke", "ref": "1", **command}))
                drop(dying)
        async with Client.connect(address) as socket:
            while (await socket.command("tool.invoke", **command)).get("code") == "turn_running":
                pass  # the other socket of this chat is using a tool

    async def ask_in_turn(number: int) -> None:
        for index in range(4):
            await ask(number, index)

    await asyncio.gather(*(ask_in_turn(number) for number in range(6)))
    stored = [row["title"] for row in rows(tmp_path, "SELECT title FROM tasks ORDER BY title")]
    assert stored == [f"{number}-{index}" for number in range(6) for index in range(4)]


# --- R09: for every command, the old snapshot and its events equal a new snapshot


async def test_replay_of_a_reply(address: str, client: Client, fake: FakeOllama) -> None:
    fake.script(script.thinking_then_text("Hm, ну", "Да."))
    chat = await client.new_chat()
    async with replayed(address, chat):
        await client.say(chat, "first\nlines")
        await client.say(chat, "second")


async def test_replay_of_a_reply_under_way(address: str, client: Client, fake: FakeOllama) -> None:
    chat, gate = await client.new_chat(), asyncio.Event()
    turn = await stream(client, fake, chat, script.thinking("so"), script.text("one "), script.hold(gate), script.text("two"))
    async with replayed(address, chat) as replica:
        assert replica.messages[max(replica.messages)]["status"] == "streaming"
        gate.set()
        await client.finished(turn)


@pytest.mark.parametrize(
    "fault",
    [script.err_first(), script.reset_mid("half"), script.thinking_only(), script.busy_503(), script.context_exceeded()],
    ids=["failed", "interrupted", "empty", "busy", "too long"],
)
async def test_replay_of_a_turn_that_goes_wrong(address: str, client: Client, fake: FakeOllama, fault: script.Script) -> None:
    chat = await client.new_chat()
    fake.script(fault, script.reply("again"))
    async with replayed(address, chat):
        await client.say(chat, "hi")
        await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])


async def test_replay_of_a_stop(address: str, client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    async with replayed(address, chat):
        turn = await stream(client, fake, chat, script.hang_mid("half"))
        await client.ok("turn.stop", chat_id=chat)
        await client.finished(turn)


async def test_replay_of_a_turn_with_tools(address: str, client: Client, fake: FakeOllama) -> None:
    chat = await client.new_chat()
    fake.script(
        script.call("system_prompt_draft", {"content": "Be brief."}, before="Let me draft."),
        script.call("system_prompt_apply", {}),
        script.call("no_such_tool", {}),
        script.reply("Applied."),
    )
    async with replayed(address, chat) as replica:
        await client.say(chat, "make a prompt")
    assert replica.context["pending_transaction"]["tool"] == "system_prompt_apply"


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_replay_of_buttons_and_an_answer(address: str, client: Client, answer: str) -> None:
    chat = await client.new_chat()
    async with replayed(address, chat):
        await client.press(chat, "system_prompt_draft", content="Be brief.")
        await client.press(chat, "system_prompt_apply")
        pending = (await client.context(chat))["pending_transaction"]
        await client.ok("transaction.answer", chat_id=chat, transaction_id=pending["transaction_id"], answer=answer)


async def test_replay_of_a_switch_and_a_failing_button(address: str, client: Client) -> None:
    chat = await client.new_chat()
    async with replayed(address, chat):
        await client.press(chat, "task_add", title="milk")
        await client.press(chat, "system_prompt_draft", content="Be brief.")
        await client.press(chat, "task_complete", id=99)


async def test_replay_of_what_a_person_does_to_a_context(address: str, client: Client) -> None:
    chat = await client.new_chat()
    async with replayed(address, chat):
        await client.press(chat, "task_add", title="milk")
        await client.ok("context.keep", chat_id=chat)
        await client.ok("context.clear", chat_id=chat)
        await client.ok("context.undo", chat_id=chat)
    async with replayed(address, chat) as replica:
        await client.ok("context.clear", chat_id=chat)
    assert replica.context["undo_until"] is not None


async def test_replay_of_an_expiry(address: str, client: Client) -> None:
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, ttl_messages=3)
    await client.press(chat, "task_add", title="milk")
    async with replayed(address, chat):
        for number in range(3):
            await client.say(chat, f"unrelated {number}")
    assert client.of("context.cleared")[0]["reason"] == "expired"


async def test_replay_of_changes_to_the_chat_itself(address: str, client: Client) -> None:
    chat = await client.new_chat()
    async with replayed(address, chat):
        await client.ok("chat.rename", chat_id=chat, title="Budget")
        await client.ok("chat.update", chat_id=chat, pinned=True, ttl_messages=5)
        await client.ok("chat.update", chat_id=chat, model="other", approval="before")


async def test_replay_of_a_deletion(address: str, client: Client) -> None:
    chat = await client.new_chat()
    await client.press(chat, "task_add", title="milk")
    async with replayed(address, chat) as replica:
        await client.ok("chat.delete", chat_id=chat)
    assert (replica.chat, replica.messages) == (None, {})
