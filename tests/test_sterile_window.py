"""The sterile window, by property: whatever happens in whatever order, a request holds only what it may.

Runs a real server against the scripted model server. `STERILE_WINDOW=long` tries many more and random sequences.
"""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from backend.llm import agent
from backend.store.migrate import migrate
from tests.fake_ollama import FakeModel, FakeOllama
from tests.server import Client, make_settings, rows, running
from tests.server_machine import ServerMachine, effort, first
from tests.sterile_machine import (
    HISTORY_LIMIT,
    HISTORY_STEP,
    Call,
    Chat,
    Fate,
    HeldReply,
    Json,
    Oracle,
    Says,
    ToolName,
    Turn,
    Use,
    Where,
    check_form,
    found_in,
    history_rows,
    placed,
    state_start,
)

T = TypeVar("T")

MODELS = (FakeModel(), FakeModel("fake:plain", ("completion",)), FakeModel("fake:thinks", ("completion", "tools", "thinking")))
MAX_CHATS = 3
MAX_RESTARTS = 2  # they take longer than all else

TOOLS: dict[ToolName, int] = {
    "draft": 9, "mended_draft": 2, "view": 2, "view_version": 2, "apply": 3, "apply_version": 2, "discard": 2, "versions": 1, "rollback": 2,
    "task_add": 2, "task_list": 1, "task_update": 1, "task_complete": 1, "task_delete": 1,
    "current_state": 2, "unknown": 1, "extra_argument": 2, "odd_argument": 1, "wrong_type": 1, "no_object": 1,
}  # fmt: skip
FATES: dict[Fate, int] = {"whole": 12, "as_text": 2, "reset": 1, "no_done": 1, "error_500": 1, "busy_503": 1}


def weighted(choices: dict[Any, int]) -> st.SearchStrategy[Any]:
    return st.sampled_from([choice for choice, weight in choices.items() for _ in range(weight)])


USES = st.builds(Use, weighted(TOOLS), st.integers(1, 4))
BUTTONS = USES.filter(lambda use: use.tool not in ("current_state", "unknown", "extra_argument", "odd_argument", "wrong_type", "no_object"))
SAYS = st.builds(Says, st.lists(USES, max_size=2).map(tuple), st.booleans(), st.booleans(), weighted(FATES))
REPLIES = st.lists(SAYS, max_size=4)
# Messages that need no tool, among them as many as the longest TTL.
DIGRESSION: st.SearchStrategy[list[list[Says]]] = st.integers(1, 5).map(lambda length: [[]] * length)
TALK: st.SearchStrategy[list[list[Says]]] = st.one_of(st.lists(REPLIES, min_size=1, max_size=3), DIGRESSION)
TO_A_PROMPT: tuple[ToolName, ...] = ("draft", "apply")
WHERE: st.SearchStrategy[Where] = st.sampled_from(["before", "in_text", "after_calls"])

PICK = st.integers(0, MAX_CHATS - 1)

EFFORT = effort("STERILE_WINDOW", max_examples=15, steps=25)


class SterileWindow(ServerMachine):
    """A few chats on a real server, pushed about at random; every request is judged."""

    template_file: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Oracle()
        self.chats: list[Chat] = []
        self.restarts = 0
        self.data = self.root / "data"
        self.client: Client

    # ---- the world ----

    async def _start(self) -> None:
        self.data.mkdir(parents=True)
        shutil.copy(self.template_file, self.data / "cleanroom.db")
        self.fake = await self.stack.enter_async_context(FakeOllama(MODELS, default=self.oracle.answer))
        await self._serve()
        self.chats.append(Chat(await self.client.new_chat()))

    async def _serve(self) -> None:
        address = await self.server.enter_async_context(running(make_settings(self.data, self.fake)))
        self.client = await self.server.enter_async_context(Client.connect(address))

    # ---- judging ----

    @invariant()
    def every_request_is_sterile(self) -> None:
        """Judge each new request as of its moment, then take in the other events."""
        for chat in self.chats:
            for asked in chat.turn.asked[chat.turn.checked :] if chat.turn else ():
                assert chat.turn is not None
                if chat.turn.cards < chat.turn.cards_due:
                    self.oracle.follow(chat, self.client.events, chat.turn.cards_due)
                self.oracle.judge(chat.turn, asked.request)
                self.check_window(chat, chat.turn, asked.request.messages)
                self.oracle.told(chat.turn, asked)
            self.oracle.follow(chat, self.client.events)
            if chat.turn and any(event["turn_id"] == chat.turn.turn_id for event in self.client.of("turn.finished")):
                chat.turn = None
            if chat.turn is None:
                self.look_at_replies(chat)

    def look_at_replies(self, chat: Chat) -> None:
        """Note what the model may be shown from now on, and that no reply was lost: each question shows one of those it ever had."""
        said = rows(self.data, "SELECT id, role, content, hidden, variant FROM chat_messages WHERE session_id = ? AND is_ephemeral = 0 ORDER BY id", chat.id)
        aside = rows(self.data, "SELECT user_message_id, position, content FROM reply_variants WHERE session_id = ?", chat.id)
        chat.shown = {canary: row["id"] for row in said if row["role"] != "tool" and not row["hidden"] for canary in found_in(row["content"])}
        replies: dict[int, dict[int, str]] = {row["id"]: {} for row in said if row["role"] == "user"}
        question = 0
        for row in said:
            question = row["id"] if row["role"] == "user" else question
            if row["role"] == "assistant":
                assert not replies[question], "two replies are shown to one question"
                replies[question] = {row["variant"] or 1: row["content"]}
        for row in aside:
            assert replies[row["user_message_id"]], "there are variants and none is shown"
            assert row["position"] not in replies[row["user_message_id"]]
            replies[row["user_message_id"]][row["position"]] = row["content"]
        for question, known in replies.items():
            assert sorted(known) == list(range(1, len(known) + 1)), "the numbers of the variants have a gap"
            for number, text in chat.replies.get(question, {}).items():
                assert known[number].startswith(text), "a reply was lost"
        chat.replies = replies

    def check_window(self, chat: Chat, turn: Turn, messages: list[Json]) -> None:
        """The form of a request, its window against the rows, and the prefix it shares with the turn before."""
        check_form(messages)
        sent = history_rows(messages)
        stored = rows(
            self.data,
            "SELECT role, content FROM chat_messages WHERE session_id = ? AND is_ephemeral = 0 AND hidden = 0 AND id < ? ORDER BY id",
            chat.id,
            turn.message_id,
        )
        # A turn that runs again may find the receipt of its earlier run behind its message, and the reply that it goes on with.
        done_before = [row for place, row in placed(turn.asked[0].request.messages) if place == "turn" and row["role"] == "assistant"]
        assert len(done_before) <= turn.runs_again + (turn.begun is not None)
        count = len(stored) + 1 + len(done_before)
        start = max(0, -(-(count - HISTORY_LIMIT) // HISTORY_STEP) * HISTORY_STEP)
        assert count - start <= HISTORY_LIMIT and len(sent) < HISTORY_LIMIT
        with_receipts = turn.asked[0].request.tools
        expected = [row for row in stored[start:] if row["role"] != "tool" or with_receipts]
        assert [row["role"] for row in expected] == [row[0]["role"] if len(row) == 1 else "tool" for row in sent], "other rows than the window's"
        assert [row["content"] for row in expected if row["role"] != "tool"] == [row[0]["content"] for row in sent if len(row) == 1]
        opening = messages[: state_start(messages)]
        if chat.prefix is not None and chat.prefix[:2] == (start, turn.asked[0].request.model) and chat.prefix[2][0] == opening[0]:
            assert opening[: len(chat.prefix[2])] == chat.prefix[2], "the prefix changed"
        chat.prefix = (start, turn.asked[0].request.model, opening)

    # ---- helpers ----

    def pick(self, number: int) -> Chat:
        return self.chats[number % len(self.chats)]

    def idle(self) -> list[Chat]:
        return [chat for chat in self.chats if chat.turn is None]

    def held(self) -> list[Chat]:
        return [chat for chat in self.chats if chat.turn is not None]

    async def _talk(self, turn: Turn) -> None:
        await self._send(turn)
        await self.client.finished(turn.turn_id)

    async def _send(self, turn: Turn) -> None:
        chat = turn.chat
        chat.turn = chat.last = turn
        text = f"{turn.question} is my question"
        reply = await self.client.ok("message.send", chat_id=chat.id, client_id=uuid.uuid4().hex, text=text)
        turn.turn_id, turn.message_id = reply["turn_id"], reply["message"]["id"]

    async def _press(self, chat: Chat, call: Call, turn: Turn) -> None:
        """Use a tool as a person; what is wrong with the call is refused and stores nothing."""
        fields = {"chat_id": chat.id, "client_id": uuid.uuid4().hex, "tool": call.tool, "arguments": call.arguments}
        reply = await self.client.command("tool.invoke", **fields)
        if reply["type"] == "ok":
            turn.calls, turn.turn_id = [call], reply["turn_id"]
            chat.turn = turn
            await self.client.finished(turn.turn_id)
        else:
            assert reply["code"] in ("invalid", "turn_running"), reply

    # ---- what happens ----

    @precondition(lambda self: len(self.chats) < MAX_CHATS)
    @rule()
    def new_chat(self) -> None:
        self.chats.append(Chat(self.run(self.client.new_chat())))

    @precondition(lambda self: self.idle())
    @rule(number=PICK, talk=TALK)
    def send(self, number: int, talk: list[list[Says]]) -> None:
        """A few messages, one after the other."""
        chat = self.idle()[number % len(self.idle())]
        for says in talk:
            self.run(self._talk(self.oracle.begin(chat, says)))
            self.every_request_is_sterile()

    @precondition(lambda self: self.idle())
    @rule(number=PICK, says=st.lists(SAYS, min_size=1, max_size=4), at=st.integers(0, 2), where=WHERE)
    def send_and_hold(self, number: int, says: list[Says], at: int, where: Where) -> None:
        """A turn that stands still in one of its replies, or ends before it gets there."""
        chat, hold = self.idle()[number % len(self.idle())], HeldReply(at, where)

        async def send() -> None:
            turn = self.oracle.begin(chat, says, hold)
            await self._send(turn)
            await first(hold.reached.wait(), self.client.finished(turn.turn_id))
            if hold.reached.is_set() and where == "in_text":
                text = turn.asked[-1].text
                assert text is not None
                await self.client.event("message.delta", lambda event: text in event["text"])

        self.run(send())

    @precondition(lambda self: self.held())
    @rule(number=PICK)
    def let_go(self, number: int) -> None:
        turn = self.held()[number % len(self.held())].turn
        assert turn is not None and turn.hold is not None

        async def let_go(hold: HeldReply) -> None:
            hold.let_go.set()
            await self.client.finished(turn.turn_id)

        self.run(let_go(turn.hold))

    @precondition(lambda self: self.held())
    @rule(number=PICK)
    def stop(self, number: int) -> None:
        chat = self.held()[number % len(self.held())]
        assert chat.turn is not None
        self.run(self.client.ok("turn.stop", chat_id=chat.id))
        self.oracle.cut_off(chat.turn)

    @precondition(lambda self: self.idle())
    @rule(number=PICK, says=REPLIES)
    def regenerate(self, number: int, says: list[Says]) -> None:
        chat = self.idle()[number % len(self.idle())]
        if chat.last is not None:
            self.run(self._regenerate(chat, chat.last, says))

    async def _regenerate(self, chat: Chat, last: Turn, says: list[Says]) -> None:
        turn = self.oracle.begin_again(last, says)
        reply = await self.client.command("turn.regenerate", chat_id=chat.id)
        if reply["type"] == "ok":
            await self._run_again(turn, reply["turn_id"])
        else:
            assert reply["code"] == "conflict"
            self.oracle.keep(last)

    async def _run_again(self, turn: Turn, turn_id: str) -> None:
        """Take in what went when the turn was begun, and wait for its end."""
        chat = turn.chat
        turn.turn_id = turn_id
        chat.turn = chat.last = turn
        await self.client.event("turn.started", lambda event: event["turn_id"] == turn_id)
        self.oracle.follow_start(chat, self.client.events, turn_id)
        if turn.begun is None:
            self.oracle.take_back(turn)
        await self.client.finished(turn_id)

    @precondition(lambda self: self.idle())
    @rule(number=PICK, fate=st.sampled_from(["reset", "no_done", "whole"]), says=REPLIES)
    def break_off_and_go_on(self, number: int, fate: Fate, says: list[Says]) -> None:
        """A reply that breaks off, or is whole, and is asked to go on."""
        chat = self.idle()[number % len(self.idle())]
        self.run(self._talk(self.oracle.begin(chat, [Says(text=True, fate=fate)])))
        self.every_request_is_sterile()
        self.go_on(chat, says)

    def go_on(self, chat: Chat, says: list[Says]) -> None:
        assert chat.last is not None
        self.run(self._go_on(chat, chat.last, says))

    async def _go_on(self, chat: Chat, last: Turn, says: list[Says]) -> None:
        turn = self.oracle.begin_again(last, says, goes_on=True)
        reply = await self.client.command("turn.continue", chat_id=chat.id)
        if reply["type"] == "ok":
            await self._run_again(turn, reply["turn_id"])
        else:
            assert reply["code"] == "conflict"
            self.oracle.keep(last)

    @precondition(lambda self: any(chat.replies for chat in self.idle()))
    @rule(number=PICK, which=st.integers(0, 9), says=REPLIES)
    def edit(self, number: int, which: int, says: list[Says]) -> None:
        """Put another question in the place of one of the chat's."""
        chats = [chat for chat in self.idle() if chat.replies]
        chat = chats[number % len(chats)]
        message_id = sorted(chat.replies)[-1 - which % len(chat.replies)]
        turn = self.oracle.begin(chat, says)
        turn.message_id, turn.runs_again, chat.prefix = message_id, True, None
        chat.replies = {question: known for question, known in chat.replies.items() if question < message_id}
        self.run(self._edit(turn))

    async def _edit(self, turn: Turn) -> None:
        reply = await self.client.ok("message.edit", message_id=turn.message_id, text=f"{turn.question} is my question")
        await self._run_again(turn, reply["turn_id"])

    @precondition(lambda self: any(chat.replies for chat in self.idle()))
    @rule(number=PICK, which=st.integers(0, 9), index=st.integers(1, 4))
    def choose(self, number: int, which: int, index: int) -> None:
        """Show another reply to one of the questions that have several; a number that is none is refused."""
        chats = [chat for chat in self.idle() if chat.replies]
        chat = chats[number % len(chats)]
        many = rows(self.data, "SELECT id, variants FROM chat_messages WHERE session_id = ? AND variants IS NOT NULL ORDER BY id DESC", chat.id)
        if many:
            row, chat.prefix = many[which % len(many)], None
            reply = self.run(self.client.command("message.variant", message_id=row["id"], index=index))
            assert (reply["type"] == "ok") == (index <= row["variants"]), reply

    @precondition(lambda self: any(chat.replies for chat in self.idle()))
    @rule(number=PICK, which=st.integers(0, 9), hidden=st.booleans())
    def hide(self, number: int, which: int, hidden: bool) -> None:
        """Take a question or a reply out of what the model is shown, or back in."""
        chats = [chat for chat in self.idle() if chat.replies]
        chat = chats[number % len(chats)]
        said = rows(self.data, "SELECT id FROM chat_messages WHERE session_id = ? AND is_ephemeral = 0 AND role <> 'tool' ORDER BY id DESC", chat.id)
        chat.prefix = None
        self.run(self.client.ok("message.hide", message_id=said[which % len(said)]["id"], hidden=hidden))

    @precondition(lambda self: self.chats)
    @rule(number=PICK, use=BUTTONS)
    def press_a_button(self, number: int, use: Use) -> None:
        chat = self.pick(number)
        turn = self.oracle.begin(chat, ())
        self.run(self._press(chat, self.oracle.call(use, turn), turn))

    @precondition(lambda self: self.idle())
    @rule(number=PICK, answer=st.sampled_from(["yes", "no"]))
    def finish(self, number: int, answer: str) -> None:
        """A whole piece of work: drafted, applied and answered for, with a message after each step."""
        chat = self.idle()[number % len(self.idle())]
        for tool in TO_A_PROMPT:
            turn = self.oracle.begin(chat, ())
            self.run(self._press(chat, self.oracle.call(Use(tool), turn), turn))
            self.every_request_is_sterile()
            self.run(self._talk(self.oracle.begin(chat, ())))
            self.every_request_is_sterile()
        self.run(self.client.ok("transaction.answer", chat_id=chat.id, transaction_id=chat.transactions[-1], answer=answer))
        self.every_request_is_sterile()
        self.run(self._talk(self.oracle.begin(chat, ())))

    @precondition(lambda self: any(chat.actions for chat in self.chats))
    @rule(number=PICK, index=st.integers(0, 3))
    def press_a_cards_button(self, number: int, index: int) -> None:
        chats = [chat for chat in self.chats if chat.actions]
        chat = chats[number % len(chats)]
        action = chat.actions[index % len(chat.actions)]
        self.run(self._press(chat, Call(action["tool"], action["arguments"]), self.oracle.begin(chat, ())))

    @precondition(lambda self: any(chat.transactions for chat in self.chats))
    @rule(number=PICK, age=st.integers(0, 2), answer=st.sampled_from(["yes", "no"]))
    def answer(self, number: int, age: int, answer: str) -> None:
        """The question of now, or one that was answered or has ended before."""
        chats = [chat for chat in self.chats if chat.transactions]
        chat = chats[number % len(chats)]
        transaction_id = chat.transactions[-1 - age % len(chat.transactions)]
        self.run(self.client.ok("transaction.answer", chat_id=chat.id, transaction_id=transaction_id, answer=answer))

    @precondition(lambda self: self.chats)
    @rule(number=PICK, command=st.sampled_from(["context.keep", "context.clear", "context.undo"]))
    def tend(self, number: int, command: str) -> None:
        chat = self.pick(number)
        reply = self.run(self.client.command(command, chat_id=chat.id))
        assert (reply["type"] == "ok") == (command != "context.undo" or chat.undo is not None), reply

    @precondition(lambda self: self.chats)
    @rule(number=PICK, ttl=st.integers(3, 5), model=st.sampled_from([model.name for model in MODELS]))
    def set_up(self, number: int, ttl: int, model: str) -> None:
        self.run(self.client.ok("chat.update", chat_id=self.pick(number).id, ttl_messages=ttl, model=model))

    @precondition(lambda self: len(self.chats) > 1)
    @rule(number=PICK)
    def delete_chat(self, number: int) -> None:
        chat = self.pick(number)
        self.run(self.client.ok("chat.delete", chat_id=chat.id))
        self.chats.remove(chat)

    @precondition(lambda self: self.restarts < MAX_RESTARTS)
    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        """Stop the server and start it again; after a crash on the database as it was in that moment."""
        self.restarts += 1
        self.run(self._restart(crash))

    async def _restart(self, crash: bool) -> None:
        folder = self.data
        if crash:
            self.data = self.root / f"after-crash-{uuid.uuid4().hex}"
            self.data.mkdir()
            with closing(sqlite3.connect(folder / "cleanroom.db")) as old, closing(sqlite3.connect(self.data / "cleanroom.db")) as new:
                old.backup(new)
        await self.server.aclose()
        await self._serve()
        for chat in self.chats:
            opened = await self.client.ok("chat.open", chat_id=chat.id)
            self.oracle.restarted(chat, opened["context"]["active_tool"])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[SterileWindow]:
    """The machine, its databases copied from one that is migrated already."""
    monkeypatch.setattr(agent, "BUSY_PAUSE_SECONDS", 0.0)  # nothing is measured here
    template = tmp_path / "template.db"
    migrate(template)

    class InThisFolder(SterileWindow):
        folder, template_file = tmp_path, template

    return InThisFolder


@pytest.mark.timeout(EFFORT.timeout_seconds)
def test_whatever_happens_a_request_holds_only_what_it_may(machine: type[SterileWindow]) -> None:
    run_state_machine_as_test(machine, settings=EFFORT.settings)


Happening = Callable[[SterileWindow], None]


def uses(*tools: ToolName) -> Says:
    return Says(tuple(Use(tool) for tool in tools))


def send(*says: Says) -> Happening:
    return lambda machine: machine.send(0, [list(says)])


def regenerate(*says: Says) -> Happening:
    return lambda machine: machine.regenerate(0, list(says))


def edit(which: int, *says: Says) -> Happening:
    return lambda machine: machine.edit(0, which, list(says))


def go_on(*says: Says) -> Happening:
    return lambda machine: machine.go_on(machine.chats[0], list(says))


def choose(index: int) -> Happening:
    return lambda machine: machine.choose(0, 0, index)


def hide(which: int, hidden: bool = True) -> Happening:
    return lambda machine: machine.hide(0, which, hidden)


def send_and_hold(at: int, where: Where, *says: Says) -> Happening:
    return lambda machine: machine.send_and_hold(0, list(says), at, where)


@pytest.mark.parametrize(
    "happenings",
    [
        pytest.param([send(uses("draft"), uses("task_add"))], id="a draft whose family is left in its own turn"),
        pytest.param(
            [
                send_and_hold(1, "before", uses("draft"), uses("task_list")),
                lambda machine: machine.tend(0, "context.clear"),
                lambda machine: machine.let_go(0),
            ],
            id="a draft that is cleared in its own turn",
        ),
        pytest.param(
            [
                send_and_hold(1, "after_calls", uses("draft"), Says(thought=True)),
                lambda machine: machine.tend(0, "context.clear"),
                lambda machine: machine.let_go(0),
            ],
            id="a draft that is cleared before the model is asked the same again",
        ),
        pytest.param([send(uses("draft"), uses("current_state"), uses("draft"))], id="a read of the state from before the newest draft"),
        pytest.param([send(uses("extra_argument"), uses("mended_draft"), uses("draft"))], id="a bad call's draft, mended and superseded"),
        pytest.param([send(uses("odd_argument"), uses("wrong_type")), send()], id="a text in a place of a bad call that receipts show"),
        pytest.param(
            [send_and_hold(0, "in_text", Says(text=True)), lambda machine: machine.restart(crash=True), send()],
            id="a reply that a crash left without its text",
        ),
        pytest.param([send(uses("draft")), regenerate(), send()], id="a draft in hand whose card goes when its turn runs again"),
        pytest.param([send(uses("draft")), send(uses("versions")), regenerate(), send()], id="a draft in hand whose card stays"),
        pytest.param([send(uses("draft", "apply")), send(), edit(1, uses("view")), send()], id="an applied draft whose turn is edited away"),
        pytest.param([send(), regenerate(), choose(1), send(), regenerate(Says(fate="error_500")), choose(2), send()], id="replies that take turns"),
        pytest.param([send(uses("task_list")), regenerate(), choose(1), send(), hide(0), hide(1), send()], id="a receipt that goes and comes"),
        pytest.param(
            [send(Says(text=True, fate="reset")), go_on(uses("draft"), Says(text=True)), send(), edit(0), send()], id="a reply that goes on over a call"
        ),
        pytest.param([send(Says(text=True, fate="reset")), regenerate(Says(text=True, fate="no_done")), go_on(), choose(1), go_on(), send()], id="halves"),
    ],
)
def test_what_once_went_out(machine: type[SterileWindow], happenings: list[Happening]) -> None:
    """Sequences in which a request held what it must not, or an empty message."""
    world = machine()
    try:
        world.start()
        for happening in happenings:
            happening(world)
            world.every_request_is_sterile()
        assert world.fake.requests
    finally:
        world.teardown()
