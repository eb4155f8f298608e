"""What a model request may hold, kept apart from the server's own code: every text carries a canary, and an
oracle that follows a chat's events knows in which place of which request each canary may stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tests import fake_ollama as fake
from tests.fake_ollama import ChatRequest, Script
from tests.server_machine import Hold

Json = dict[str, Any]

# Where a text stands in a request: before, in and after the history, and in the turn's own calls and results.
Place = Literal["prompt", "history", "state", "new", "turn"]
# What a canary marks. An aside is text that precedes calls, a mistake is what a bad call was given.
Kind = Literal["question", "reply", "aside", "thought", "draft", "title", "mistake"]

# Tools that change what they speak of. A read takes something in hand when its card shows that as its subject.
WRITES = {
    "system_prompt_draft", "system_prompt_apply", "system_prompt_discard", "system_prompt_rollback",
    "task_add", "task_update", "task_complete", "task_delete",
}  # fmt: skip

CANARY = re.compile(r"zq\d{4}zq")
HISTORY_LIMIT, HISTORY_STEP = 12, 6


# ---- What the scripted model is told to do ----

ToolName = Literal[
    "draft", "mended_draft", "view", "view_version", "apply", "apply_version", "discard", "versions", "rollback",
    "task_add", "task_list", "task_update", "task_complete", "task_delete",
    "current_state", "unknown", "extra_argument", "odd_argument", "wrong_type", "no_object",
]  # fmt: skip
Fate = Literal["whole", "as_text", "reset", "no_done", "error_500", "busy_503"]
Where = Literal["before", "in_text", "after_calls"]


@dataclass(frozen=True)
class Use:
    """A tool that is used, by the model or by a button. `number` picks a version or a task."""

    tool: ToolName
    number: int = 1


@dataclass(frozen=True)
class Says:
    """One reply of the scripted model: what stands in it, and how it ends."""

    uses: tuple[Use, ...] = ()
    text: bool = False
    thought: bool = False
    fate: Fate = "whole"


@dataclass(eq=False)
class HeldReply(Hold):
    """A turn's reply that stands still at some place until it is let go."""

    reply: int
    where: Where


@dataclass(frozen=True)
class Call:
    """A call as it goes out."""

    tool: str
    arguments: Any

    @property
    def family(self) -> str:
        return "tasks" if self.tool.startswith("task_") else "system_prompt"


# ---- What the oracle knows ----


@dataclass
class Canary:
    kind: Kind
    chat: Chat
    turn: Turn


@dataclass
class Version:
    """A version of a chat's prompt. The first canary opens the text, a second stands beyond its 40th word."""

    canaries: list[str]
    status: Literal["draft", "applied", "superseded", "discarded"]


@dataclass(frozen=True)
class Material:
    """A message that is the person's only. `takes_in_hand`: its call may have changed what the family holds."""

    family: str | None
    takes_in_hand: bool


@dataclass(eq=False)
class Chat:
    """One chat as its events tell it: its versions, the family that is active, the draft in hand.

    `shown` are the canaries of the questions and replies that the model may be shown, each with its message;
    `replies` are all replies to a question by their numbers, whichever is shown.
    """

    id: str
    versions: dict[int, Version] = field(default_factory=dict)
    active: str | None = None
    held: int | None = None
    undo: tuple[str | None, int | None] | None = None
    transactions: list[str] = field(default_factory=list)
    actions: list[Json] = field(default_factory=list)
    turn: Turn | None = None
    last: Turn | None = None
    seen: int = 0
    titles: set[str] = field(default_factory=set)
    material: dict[int, Material] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    replies: dict[int, dict[int, str]] = field(default_factory=dict)
    prefix: tuple[int, str, list[Json]] | None = None

    def with_status(self, status: str) -> int | None:
        return max((number for number, version in self.versions.items() if version.status == status), default=None)

    def replace(self, old: str, new: Literal["superseded"]) -> None:
        for version in self.versions.values():
            if version.status == old:
                version.status = new

    def add(self, canaries: list[str], status: Literal["draft", "applied"]) -> int:
        number = max(self.versions, default=0) + 1
        self.versions[number] = Version(canaries, status)
        return number


@dataclass(eq=False)
class Asked:
    """A request of a turn and what its answer does."""

    request: ChatRequest
    calls: list[Call] = field(default_factory=list)
    text: str | None = None


@dataclass(eq=False)
class Turn:
    """One turn: what it is going to say, what it was asked, what it has carried out.

    `begun` are the canaries of the reply that it goes on with; None when it makes one of its own.
    """

    chat: Chat
    question: str
    says: list[Says] = field(default_factory=list)
    hold: HeldReply | None = None
    turn_id: str = ""
    message_id: int = 0
    runs_again: bool = False
    begun: set[str] | None = None
    asked: list[Asked] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    checked: int = 0
    cards: int = 0
    cards_due: int = 0
    in_hand: int | None = None
    read: set[int] = field(default_factory=set)
    read_state: bool = False
    read_tasks: bool = False
    mistake: list[str] = field(default_factory=list)


class Oracle:
    """Mints canaries, plays the model, follows events, and judges requests."""

    def __init__(self) -> None:
        self.canaries: dict[str, Canary] = {}
        self.turns: dict[str, Turn] = {}

    # -- canaries and calls

    def mint(self, kind: Kind, turn: Turn) -> str:
        canary = f"zq{len(self.canaries):04}zq"
        self.canaries[canary] = Canary(kind, turn.chat, turn)
        return canary

    def begin(self, chat: Chat, says: Iterable[Says], hold: HeldReply | None = None) -> Turn:
        """A turn with a question of its own."""
        turn = Turn(chat, "", list(says), hold)
        turn.question = self.mint("question", turn)
        self.turns[turn.question] = turn
        return turn

    def begin_again(self, old: Turn, says: Iterable[Says], *, goes_on: bool = False) -> Turn:
        """A turn that takes the place of another one with the same question, or goes on with its reply."""
        turn = Turn(old.chat, old.question, list(says), message_id=old.message_id, runs_again=True)
        if goes_on:
            turn.begun = {canary for canary, message_id in old.chat.shown.items() if message_id > old.message_id}
        self.turns[turn.question] = turn
        return turn

    def take_back(self, turn: Turn) -> None:
        """All that followed a question has gone from the messages."""
        chat = turn.chat
        chat.shown = {canary: message_id for canary, message_id in chat.shown.items() if message_id < turn.message_id}
        chat.undo = None

    def call(self, use: Use, turn: Turn) -> Call:
        """The call that a use is, every text in it marked."""
        number = use.number
        match use.tool:
            case "draft":
                return Call("system_prompt_draft", {"content": self._body("draft", turn)})
            case "mended_draft" if turn.mistake:
                return Call("system_prompt_draft", {"content": _long(turn.mistake)})
            case "view" | "mended_draft":
                return Call("system_prompt_view", {})
            case "view_version":
                return Call("system_prompt_view", {"version": number})
            case "apply":
                return Call("system_prompt_apply", {})
            case "apply_version":
                return Call("system_prompt_apply", {"version": number})
            case "discard":
                return Call("system_prompt_discard", {})
            case "versions":
                return Call("system_prompt_versions", {})
            case "rollback":
                return Call("system_prompt_rollback", {"version": number - 1})
            case "task_add":
                return Call("task_add", {"title": self.mint("title", turn)})
            case "task_update":
                return Call("task_update", {"id": number, "title": self.mint("title", turn)})
            case "task_complete" | "task_delete":
                return Call(use.tool, {"id": number})
            case "task_list" | "current_state":
                return Call(use.tool, {})
            case "unknown":
                return Call("delete_everything", {"text": self._body("mistake", turn)})
            case "extra_argument":
                return Call("system_prompt_draft", {"content": self._body("mistake", turn), "force": True})
            case "odd_argument":
                return Call("system_prompt_draft", {"content": "short", self._body("mistake", turn): True})
            case "wrong_type":
                return Call("system_prompt_apply", {"version": self._body("mistake", turn)})
            case "no_object":
                return Call("system_prompt_draft", self._body("mistake", turn))

    def _body(self, kind: Literal["draft", "mistake"], turn: Turn) -> str:
        """A text of more than 40 words with a canary at both ends."""
        canaries = [self.mint(kind, turn), self.mint(kind, turn)]
        if kind == "mistake":
            turn.mistake = canaries
        return _long(canaries)

    # -- the scripted model

    def answer(self, request: ChatRequest) -> Script:
        """Play the next reply of the turn that asks."""
        turn = self.turns[newest_question(request)]
        said = turn.says.pop(0) if turn.says else Says(text=True)
        asked = Asked(request)
        turn.asked.append(asked)
        hold = turn.hold if turn.hold and turn.hold.reply == len(turn.asked) - 1 else None
        calls = [self.call(use, turn) for use in said.uses] if request.tools else []
        if said.fate == "as_text" and calls and not hold:
            return self._as_text(calls[0], asked, turn)
        is_whole = said.fate in ("whole", "as_text")
        asked.calls = calls if is_whole else []
        turn.calls += asked.calls
        script = self._script(said, calls, asked, turn, hold)
        if said.fate == "error_500":
            return fake.err_first()
        if said.fate == "busy_503":
            return fake.busy_503()
        ending: dict[Fate, Script] = {"reset": fake.reset(), "no_done": []}
        return [script, ending.get(said.fate, fake.done())]

    def _script(self, said: Says, calls: list[Call], asked: Asked, turn: Turn, hold: HeldReply | None) -> Script:
        where: Where | None = hold.where if hold else None
        gate: Script = hold.step if hold else []
        script: list[Script] = [gate if where == "before" else []]
        if said.thought:
            script.append(fake.thinking(f"{self.mint('thought', turn)} let me think"))
        if said.text or where == "in_text" or not request_has_tools(asked) or not (said.uses or said.thought):
            asked.text = self.mint("aside" if asked.calls and turn.begun is None else "reply", turn)
            script.append(fake.text(f"{asked.text} ", "is what I say."))
        script.append(gate if where == "in_text" else [])
        if calls:
            script.append(fake.tool_calls(*(fake.tool_call(call.tool, call.arguments, index=index) for index, call in enumerate(calls))))
        return [*script, gate if where == "after_calls" else []]

    def _as_text(self, call: Call, asked: Asked, turn: Turn) -> Script:
        """A call written as text; it is just text when the tool was not offered, or in the midst of a reply."""
        is_in_reply = turn.begun is not None and len(turn.asked) == 1
        if call.tool in asked.request.tool_names and not is_in_reply:
            asked.calls = [call]
            turn.calls.append(call)
        else:
            for canary in found_in(call.arguments):
                self.canaries[canary].kind = "reply"
        return fake.call_as_text(call.tool, call.arguments)

    def keep(self, turn: Turn) -> None:
        """The turn was not begun again after all."""
        self.turns[turn.question] = turn

    def restarted(self, chat: Chat, active: str | None) -> None:
        """The server was started again: a turn under way was cut off, and what was held for Undo is lost."""
        if chat.turn is not None:
            self.cut_off(chat.turn)
        if active is None:  # the turn's end was one message too many
            chat.held = None
        assert active in (None, chat.active)
        chat.active, chat.undo, chat.turn, chat.seen = active, None, None, 0

    def cut_off(self, turn: Turn) -> None:
        """The turn ended under its newest reply, which thereby is its last: its text is permanent, its calls never were."""
        if turn.asked and (text := turn.asked[-1].text):
            self.canaries[text].kind = "reply"

    # -- events

    def follow_start(self, chat: Chat, events: list[Json], turn_id: str) -> None:
        """Take in what happened before a turn that runs again was started."""
        while not (events[chat.seen]["type"] == "turn.started" and events[chat.seen]["turn_id"] == turn_id):
            if events[chat.seen].get("chat_id") == chat.id:
                self._take_in(chat, events[chat.seen])
            chat.seen += 1

    def follow(self, chat: Chat, events: list[Json], cards_due: int | None = None) -> None:
        """Take in the chat's events; with `cards_due` only until its turn has shown that many cards."""
        turn = chat.turn
        while chat.seen < len(events) and (cards_due is None or (turn is not None and turn.cards < cards_due)):
            event = events[chat.seen]
            chat.seen += 1
            if event.get("chat_id") == chat.id:
                self._take_in(chat, event)
        assert cards_due is None or (turn is not None and turn.cards == cards_due), "a call left no card"

    def _take_in(self, chat: Chat, event: Json) -> None:
        self._follow_material(chat, event)
        match event["type"]:
            case "message.created" if event["message"]["role"] == "tool":
                if event["message"]["is_ephemeral"]:
                    self._card(chat, event["message"])
            case "context.cleared":
                chat.undo = None if event["reason"] == "confirmed" else (chat.active, chat.held)
                chat.active = chat.held = None
            case "context.restored":
                assert chat.undo is not None
                (chat.active, chat.held), chat.undo = chat.undo, None
            case "context.state":
                assert event["context"]["active_tool"] == chat.active
            case "transaction_completed":
                chat.transactions.append(event["transaction_id"])

    def _follow_material(self, chat: Chat, event: Json) -> None:
        """What the person alone sees; when what is in hand is shown by no card any more, it is put down."""
        match event["type"]:
            case "message.created" | "message.updated" | "message.completed":
                self._put_material(chat, event["message"])
            case "context.restored":
                for message in event["messages"]:
                    self._put_material(chat, message)
            case "context.cleared":
                for message_id in event["message_ids"]:
                    chat.material.pop(message_id, None)
            case "message.deleted":
                gone = [chat.material.pop(message_id) for message_id in event["message_ids"] if message_id in chat.material]
                if gone and all(left.family != chat.active for left in chat.material.values()):
                    chat.active = chat.held = None
                elif any(one.family == chat.active and one.takes_in_hand for one in gone):
                    chat.held = None

    def _put_material(self, chat: Chat, message: Json) -> None:
        if message["is_ephemeral"]:
            takes = message.get("tool") in WRITES or "subject" in message.get("card", {})
            chat.material[message["id"]] = Material(message.get("family"), takes and message["status"] == "complete")

    def _card(self, chat: Chat, message: Json) -> None:
        """The next call of the turn was carried out, or failed."""
        turn = chat.turn
        assert turn is not None
        calls = [call for call in turn.calls if call.tool != "current_state"]
        call = calls[turn.cards]
        turn.cards += 1
        assert message["tool"] == call.tool
        chat.titles |= set(found_in(call.arguments))
        chat.actions = message["card"].get("actions") or chat.actions
        if message["status"] == "complete":
            if chat.active != call.family:
                chat.active, chat.held = call.family, None
            self._effect(chat, turn, call)

    def _effect(self, chat: Chat, turn: Turn, call: Call) -> None:
        draft, version = chat.with_status("draft"), call.arguments.get("version")
        match call.tool:
            case "system_prompt_draft":
                chat.replace("draft", "superseded")
                turn.in_hand = chat.held = chat.add(found_in(call.arguments), "draft")
                for canary in found_in(call.arguments):
                    self.canaries[canary].kind = "draft"
            case "system_prompt_view":
                shown = version or (draft if draft is not None and draft == chat.held else chat.with_status("applied"))
                if shown is not None and shown == draft:
                    turn.in_hand = chat.held = draft
                elif shown is not None and shown == chat.with_status("applied"):
                    turn.read.add(shown)
            case "system_prompt_apply" | "system_prompt_discard":
                assert draft is not None
                if call.tool == "system_prompt_apply":
                    chat.replace("applied", "superseded")
                chat.versions[draft].status = "applied" if call.tool == "system_prompt_apply" else "discarded"
                turn.in_hand = chat.held = None
            case "system_prompt_rollback":
                chat.replace("applied", "superseded")
                if version:
                    chat.add(chat.versions[version].canaries, "applied")

    # -- judgement

    def places(self, canary: str, turn: Turn) -> set[Place]:
        """Where a canary may stand in a request of a turn, as things are now."""
        known, chat = self.canaries[canary], turn.chat
        if known.kind == "title":  # tasks are the whole workspace's
            return self._title_places(canary, turn)
        if known.chat is not chat:
            return set()
        match known.kind:
            case "question" if canary == turn.question:
                return {"new"}
            case "reply" if turn.begun is not None and (canary in turn.begun or known.turn is turn):
                return {"turn"}
            case "question" | "reply":
                return {"history"} if canary in chat.shown else set()
            case "aside" | "mistake":
                return {"turn"} if known.turn is turn else set()
            case "draft":
                return self._draft_places(canary, turn)
        return set()

    def _title_places(self, canary: str, turn: Turn) -> set[Place]:
        places: set[Place] = {"history"} if canary in turn.chat.titles else set()
        if turn.chat.active:
            places.add("state")
        if turn.read_tasks or (turn.read_state and turn.chat.active):
            places.add("turn")
        if turn.runs_again and "history" in places:  # the receipt of what the earlier run did for good
            places.add("turn")
        return places

    def _draft_places(self, canary: str, turn: Turn) -> set[Place]:
        chat, places = turn.chat, set[Place]()
        for number, version in chat.versions.items():
            if canary not in version.canaries:
                continue
            opens = canary == version.canaries[0]
            if version.status == "applied":
                places |= {"prompt", "state"} if opens and chat.active else {"prompt"}
            if version.status == "draft" and chat.active == "system_prompt" and chat.held == number:
                places |= {"state", "turn"} if turn.in_hand == number else {"state"}
            if number in turn.read:
                places.add("turn")
        if turn.read_state and "state" in places:
            places.add("turn")
        return places

    def judge(self, turn: Turn, request: ChatRequest) -> None:
        """Every canary stands where it may, and what must be there is."""
        parts = list(placed(request.messages))
        for place, message in parts:
            for canary in found_in(message):
                allowed = self.places(canary, turn)
                assert place in allowed, f"{self.canaries[canary].kind} {canary} stands in {place}, not in {allowed or 'no request'}: {message}"
        assert not found_in(request.tools)
        assert "title_key" not in request.raw.decode(), "a card's face went out"
        text = {place: json.dumps([message for where, message in parts if where == place]) for place, _ in parts}
        assert turn.question in text["new"]
        if (applied := turn.chat.with_status("applied")) is not None:
            assert turn.chat.versions[applied].canaries[0] in text["prompt"]
        draft = turn.chat.with_status("draft")
        if draft is not None and draft == turn.chat.held:
            assert turn.chat.versions[draft].canaries[0] in text["state"], "the model does not see the draft in hand"

    def told(self, turn: Turn, asked: Asked) -> None:
        """A request was judged; what its reply called is carried out before the next one."""
        turn.checked += 1
        for call in asked.calls:
            turn.read_state |= call.tool == "current_state"
            turn.read_tasks |= call.tool.startswith("task_")
            turn.cards_due += call.tool != "current_state"


def _long(canaries: list[str]) -> str:
    return f"{canaries[0]} {'speak plainly ' * 22}{canaries[1]}"


# ---- Looking into requests ----


def found_in(value: object) -> list[str]:
    """The canaries in a text or a JSON value, in their order."""
    return CANARY.findall(json.dumps(value))


def newest_question(request: ChatRequest) -> str:
    """The canary of the newest user message, which names the turn."""
    return found_in([message for message in request.messages if message["role"] == "user"][-1])[0]


def request_has_tools(asked: Asked) -> bool:
    return bool(asked.request.tools)


def state_start(messages: list[Json]) -> int:
    """Where the working state begins, or the newest user message when there is none."""
    newest = max(index for index, message in enumerate(messages) if message["role"] == "user")
    before = messages[newest - 2 : newest]
    if len(before) == 2 and [call["function"]["name"] for call in before[0].get("tool_calls", ())] == ["current_state"]:
        return newest - 2
    return newest - 1 if newest > 1 and messages[newest - 1]["role"] == "system" else newest


def placed(messages: list[Json]) -> Iterator[tuple[Place, Json]]:
    """The messages of a request, each with the place in which it stands."""
    start = state_start(messages)
    newest = max(index for index, message in enumerate(messages) if message["role"] == "user")
    for index, message in enumerate(messages):
        if index == 0:
            yield "prompt", message
        elif index < start:
            yield "history", message
        elif index < newest:
            yield "state", message
        else:
            yield ("new" if index == newest else "turn"), message


def history_rows(messages: list[Json]) -> list[list[Json]]:
    """The history's messages by the rows they came from: a receipt's calls and results are one."""
    rows: list[list[Json]] = []
    for place, message in placed(messages):
        if place == "history":
            if message["role"] == "tool":
                rows[-1].append(message)
            else:
                rows.append([message])
    return rows


def check_form(messages: list[Json]) -> None:
    """Calls and results in pairs, one system prompt in front, nothing empty, nothing but what the wire knows."""
    assert messages[0]["role"] == "system" and messages[0]["content"]
    due: list[str] = []
    for message in messages:
        assert set(message) <= {"role", "content", "tool_calls", "tool_name"}
        if message["role"] == "tool":
            assert due and message["tool_name"] == due.pop(0), "a result without its call"
            continue
        assert not due, f"calls without results: {due}"
        due = [call["function"]["name"] for call in message.get("tool_calls", ())]
        assert message["content"].strip() or due, f"an empty message: {message}"
    assert not due, f"calls without results: {due}"
