"""Two pages on one workspace, pushed about by every command that changes something; after each, what they were told
has to be what a page that is opened now is told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Self

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests import fake_ollama as fake
from tests.fake_ollama import ChatRequest, FakeModel, FakeOllama, Script
from tests.replay import SNAPSHOT_LIMIT, Replica, drop
from tests.server import Client, Json, make_settings, running
from tests.server_machine import Hold, ServerMachine, T, first

MODEL_PARTS = ("models", "default_model", "model_backend", "model_server")
MAX_CHATS = 4
MAX_RESTARTS = 1  # they take longer than all else
# For what is told with a delay. Nothing else happens meanwhile, so only the event that was due makes up for it.
PATIENCE_SECONDS = 3.0

# What a person may be told in place of an ok; anything else is a fault.
REFUSALS = {"conflict", "invalid", "not_found", "turn_running"}


class Page:
    """What one socket was told: the workspace, its chats, their facts. It takes in events as the browser's page does."""

    def __init__(self, client: Client) -> None:
        self.chats: dict[str, Replica] = {}
        self.facts: dict[str, Json] = {}
        self.resumed = 0
        self._connected(client)

    @classmethod
    async def opened(cls, client: Client) -> Self:
        """A page that has just been opened on every chat."""
        page = cls(client)
        await page.take_in()
        return page

    def _connected(self, client: Client) -> None:
        self.client: Client | None = client
        self.taken = 0
        self.listed: dict[str, Json] = {chat["id"]: chat for chat in client.welcome["chats"]}
        self.models: Json = {part: client.welcome[part] for part in MODEL_PARTS}
        self.pulls: dict[str, Json] = {pull["name"]: pull for pull in client.welcome["pulls"]}

    @property
    def socket(self) -> Client:
        assert self.client is not None
        return self.client

    async def come_back(self, client: Client) -> None:
        """Go on from where the last connection ended, as far as the server still knows what came since."""
        self._connected(client)
        self.chats = {chat_id: replica for chat_id, replica in self.chats.items() if chat_id in self.listed}
        for chat_id, replica in self.chats.items():
            await self.open(chat_id, epoch=replica.epoch, after_seq=replica.seq)
        self.facts = {}
        await self.take_in()

    async def open(self, chat_id: str, **position: object) -> Json:
        reply = await self.socket.ok("chat.open", chat_id=chat_id, limit=SNAPSHOT_LIMIT, **position)
        if reply["resumed"]:
            self.resumed += 1
        else:
            self.chats[chat_id] = Replica(reply)
        return reply

    async def take_in(self) -> None:
        """Apply what has come. Frames keep their order, so a reply says that all that was told before it is here."""
        await self.socket.ok("tool.list")
        news, self.taken = self.socket.events[self.taken :], len(self.socket.events)
        for event in news:
            self._apply(event)
        self.chats = {chat_id: replica for chat_id, replica in self.chats.items() if chat_id in self.listed}
        await self._open_new()
        if any(event["type"] == "facts.changed" for event in news):
            self.facts = {}
        await self._read_facts()

    def _apply(self, event: Json) -> None:
        match event["type"]:
            case "chat.created" | "chat.updated":
                self.listed[event["chat"]["id"]] = event["chat"]
            case "chat.deleted":
                del self.listed[event["chat_id"]]
            case "models.updated":
                self.models = {part: event[part] for part in MODEL_PARTS}
            case "model.pull":
                self.pulls[event["pull"]["name"]] = event["pull"]
            case "facts.changed":
                pass
            case _ if event["chat_id"] in self.chats:
                self.chats[event["chat_id"]].apply(event)

    async def _open_new(self) -> None:
        for chat_id in self.listed.keys() - self.chats.keys():
            await self.open(chat_id)

    async def _read_facts(self) -> None:
        """Ask for what is not held. Who holds facts asks again only when they are said to have changed."""
        self.facts = {chat_id: facts for chat_id, facts in self.facts.items() if chat_id in self.chats}
        for chat_id in self.chats.keys() - self.facts.keys():
            reply = await self.socket.ok("facts.get", chat_id=chat_id)
            self.facts[chat_id] = {name: value for name, value in reply.items() if name not in ("type", "ref")}

    def shown(self) -> Json:
        """All that the page could draw, part by part."""
        shown: Json = {"the list of chats": self.listed, "the models": self.models, "the pulls": self.pulls}
        for chat_id, replica in self.chats.items():
            # What a turn under way does to the context is told at its end.
            untold = ("chat", "context") if self.listed[chat_id]["turn_running"] else ("chat",)
            shown |= {f"the {part} of chat {chat_id}": value for part, value in replica.shown.items() if part not in untold}
            shown[f"the facts of chat {chat_id}"] = self.facts[chat_id]
        return shown


DRAFT = fake.call("system_prompt_draft", {"content": "Be brief."}, before="Let me draft. ")
APPLY = fake.call("system_prompt_apply", {})
# What the model says to a message: one script a round, the last one said again and again.
ANSWERS: dict[str, Callable[[Hold], list[Script]]] = {
    "text": lambda _: [fake.reply("One, два, 🙂 three.")],
    "thought": lambda _: [fake.thinking_then_text("Hm, ну", "Да.")],
    "draft": lambda _: [DRAFT, fake.reply("Drafted.")],
    "apply": lambda _: [DRAFT, APPLY, fake.reply("Applied.")],
    "two families": lambda _: [fake.calls(fake.tool_call("task_add", {"title": "milk"}), fake.tool_call("note_save", {"title": "a", "content": "b"}))],
    "no such tool": lambda _: [fake.call("no_such_tool", {}), fake.reply("So not.")],
    "failed": lambda _: [fake.err_first()],
    "broken off": lambda _: [fake.reset_mid("half ")],
    "cut short": lambda _: [fake.length_stop("Half of ")],
    "nothing": lambda _: [fake.thinking_only(), fake.thinking_only()],
    "held before": lambda hold: [[hold.step, fake.reply("Late.")]],
    "held in text": lambda hold: [[fake.thinking("so"), fake.text("one "), hold.step, fake.text("two"), fake.done()]],
    "held after a call": lambda hold: [DRAFT, [hold.step, fake.reply("Drafted late.")]],
}
BUTTONS: dict[str, Json] = {
    "system_prompt_draft": {"content": "Be polite."},
    "system_prompt_apply": {},
    "system_prompt_discard": {},
    "system_prompt_rollback": {"version": 1},
    "task_add": {"title": "milk"},
    "task_list": {},
    "task_complete": {"id": 1},
    "task_delete": {"id": 1},
    "task_restore": {"id": 1},
    "note_save": {"title": "note", "content": "text"},
    "note_delete": {"id": 1},
    "snapshot_take": {"label": "now"},
    "snapshot_restore": {"id": 1},
    "data_query": {"sql": "SELECT 1"},
}
CHANGES: list[Json] = [
    {"pinned": True}, {"ttl_messages": 3}, {"ttl_messages": None}, {"model": "fake:plain"}, {"model": None}, {"approval": "before"}, {"approval": "after"},
    {"families_off": ["tasks", "notes"]}, {"families_off": []}, {"parameters": {"temperature": 1.5, "think": "off"}}, {"temporary": False}, {},
]  # fmt: skip
PULLS = ["new:1b", "newer", "held:1b", "unknown:1b"]

PICK = st.integers(0, 9)


Rests = Callable[[Json], bool]


def turn_rests(field: str, value: str) -> Rests:
    """Whether an event ends the turn, or has it wait for a person."""
    return lambda event: event.get(field) == value and (event["type"] == "turn.finished" or event.get("reason") == "approval")


def pull_rests(name: str) -> Rests:
    return lambda event: event["type"] == "model.pull" and event["pull"]["name"] == name and event["pull"]["status"] != "running"


def nth(number: int, things: Iterable[T]) -> T:
    choices = list(things)
    return choices[number % len(choices)]


class Delivery(ServerMachine):
    """A server with a scripted model and two pages, of which one at a time may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: set[str] = set()
        self.scripts: deque[Script] = deque()
        self.holds: dict[str, Hold] = {}
        self.pages: list[Page] = []
        self.commands = self.names = 0
        self.restarts = 0

    # ---- the world ----

    async def _start(self) -> None:
        models = [FakeModel(), FakeModel("fake:plain", ("completion",))]
        self.fake = await self.stack.enter_async_context(FakeOllama(models, default=self._answer))
        self.fake.default_pull = self._pull
        await self._serve()
        self.pages = [await Page.opened(await self._connect()) for _ in range(2)]
        await self._ask("chat.create", title="first")

    def _answer(self, _: ChatRequest) -> Script:
        return self.scripts.popleft() if self.scripts else fake.reply("Fine.")

    def _pull(self, request: fake.Request) -> Script:
        if request.model.startswith("unknown"):
            return fake.unknown_model()
        hold: Script = self.holds[request.model].step if request.model in self.holds else []
        return [fake.progress("pulling manifest"), hold, self.fake.whole_pull(request.model)]

    async def _serve(self) -> None:
        self.address = await self.server.enter_async_context(running(make_settings(self.root, self.fake)))

    async def _connect(self) -> Client:
        return await self.server.enter_async_context(Client.connect(self.address))

    @invariant()
    def both_pages_show_what_a_new_one_shows(self) -> None:
        if self.pages:
            self.run(self._compare())

    async def _compare(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while differences := await self._differences():
            assert loop.time() < deadline, "\n".join(differences)
            await asyncio.sleep(0.02)

    async def _differences(self) -> list[str]:
        async with Client.connect(self.address) as socket:
            new = (await Page.opened(socket)).shown()
        differences = []
        for name, page in enumerate(self.pages):
            if page.client is not None:
                await page.take_in()
                told = page.shown()
                differences += [f"{part}: page {name} was told {told.get(part)}, a new one {value}" for part, value in new.items() if told.get(part) != value]
                differences += [f"{part} is known to page {name} alone" for part in told.keys() - new.keys()]
        return differences

    # ---- asking ----

    @property
    def page(self) -> Page:
        """Whose turn it is to do something."""
        here = [page for page in self.pages if page.client is not None]
        return here[self.commands % len(here)]

    async def _ask(self, kind: str, **fields: object) -> Json:
        return await self._ask_and_rest(kind, fields)

    async def _ask_and_rest(self, kind: str, fields: Json, rests: Rests | None = None, hold: Hold | None = None) -> Json:
        """Send a command from one page or the other, and wait until what follows from it has come to rest."""
        self.commands += 1
        socket, before = self.page.socket, len(self.page.socket.events)
        reply = await socket.command(kind, **fields)
        if reply["type"] == "error":
            assert reply["code"] in REFUSALS, reply
            return reply
        self.accepted.add(kind)
        if "turn_id" in reply:
            rests = turn_rests("turn_id", reply["turn_id"])
        if rests is not None:
            await self._rest(socket, before, rests, hold)
        return reply

    async def _rest(self, socket: Client, before: int, rests: Rests, hold: Hold | None = None) -> None:
        """Until an event says that it is over or waits for a person, or until it stands at its hold."""
        at_hold = [hold.reached.wait()] if hold else []
        await first(socket.until(lambda: any(map(rests, socket.events[before:]))), *at_hold)

    def _waiting(self, chat_id: str) -> list[str]:
        """The calls that wait for a person in a chat."""
        cards = [message.get("card") or {} for message in self.messages(chat_id)]
        asked = [card["approval"] for card in cards if "approval" in card]
        return [approval["call_id"] for approval in asked if approval["state"] == "waiting"]

    async def _begin(self, answer: str, chat_id: str, kind: str, /, **fields: object) -> Json:
        """Ask for a turn, and have the model say `answer` in it; one that goes on in the chat keeps its own words."""
        hold = Hold()
        if chat_id not in self.holds and not self._waiting(chat_id):
            self.scripts = deque(ANSWERS[answer](hold))
        reply = await self._ask_and_rest(kind, fields, hold=hold)
        if hold.reached.is_set():
            self.holds[chat_id] = hold
        return reply

    # ---- choosing ----

    def chat(self, number: int) -> str:
        return nth(number, sorted(self.page.chats, key=lambda chat_id: self.page.listed[chat_id]["created_at"]))

    def messages(self, chat_id: str) -> list[Json]:
        return list(self.page.chats[chat_id].shown["messages"])

    def message(self, number: int, chat_id: str, *roles: str) -> int:
        """The id of one of the newest messages; of none when there is none."""
        found = [message["id"] for message in self.messages(chat_id) if message["role"] in roles]
        return int(nth(number, reversed(found))) if found else 0

    def new_name(self) -> str:
        self.names += 1
        return f"name {self.names}"

    # ---- chats ----

    @precondition(lambda self: len(self.page.chats) < MAX_CHATS)
    @rule(titled=st.booleans(), temporary=st.booleans())
    def create(self, titled: bool, temporary: bool) -> None:
        title = {"title": self.new_name()} if titled else {}
        created = [self.run(self._ask("chat.create", client_id=f"chat {self.names}", temporary=temporary, **title)) for _ in range(2)]
        assert created[0]["chat"]["id"] == created[1]["chat"]["id"]
        self.names += 1

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK)
    def rename(self, number: int) -> None:
        self.run(self._ask("chat.rename", chat_id=self.chat(number), title=self.new_name()))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, change=st.sampled_from(CHANGES))
    def update(self, number: int, change: Json) -> None:
        self.run(self._ask("chat.update", chat_id=self.chat(number), **change))

    @precondition(lambda self: len(self.page.chats) > 1)
    @rule(number=PICK)
    def delete(self, number: int) -> None:
        chat_id = self.chat(number)
        self.run(self._ask("chat.delete", chat_id=chat_id))
        self.holds.pop(chat_id, None)

    @precondition(lambda self: 0 < len(self.page.chats) < MAX_CHATS)
    @rule(number=PICK, which=PICK)
    def fork(self, number: int, which: int) -> None:
        chat_id = self.chat(number)
        self.run(self._ask("chat.fork", chat_id=chat_id, message_id=self.message(which, chat_id, "user", "assistant")))

    @precondition(lambda self: 0 < len(self.page.chats) < MAX_CHATS)
    @rule(said=st.integers(1, 4))
    def take_in_a_file(self, said: int) -> None:
        """An export of another program, the same conversation each time, longer or shorter."""
        turns = [{"role": nth(number, ("user", "assistant")), "content": f"said {number}"} for number in range(said)]
        messages = {str(number): {"id": str(number), "parentId": str(number - 1) if number else None, **turn} for number, turn in enumerate(turns)}
        history = {"messages": messages, "currentId": str(said - 1)}
        file = [{"id": "one", "title": "Taken in", "chat": {"title": "Taken in", "history": history, "messages": list(messages.values())}}]
        self.run(self._ask("chat.import", content=fake.go_json(file).decode()))

    # ---- messages and turns ----

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, answer=st.sampled_from(list(ANSWERS)), again=st.booleans())
    def send(self, number: int, answer: str, again: bool) -> None:
        """A message, maybe sent a second time by the other page."""
        chat_id = self.chat(number)
        message = {"chat_id": chat_id, "client_id": self.new_name(), "text": "первая\nsecond line"}
        reply = self.run(self._begin(answer, chat_id, "message.send", **message))
        if again and reply["type"] == "ok":
            repeated = self.run(self._repeat("message.send", message))
            assert (repeated["turn_id"], repeated["message"]["id"]) == (reply["turn_id"], reply["message"]["id"])

    async def _repeat(self, kind: str, fields: Json) -> Json:
        self.commands += 1
        return await self.page.socket.ok(kind, **fields)

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, which=PICK, answer=st.sampled_from(list(ANSWERS)))
    def edit(self, number: int, which: int, answer: str) -> None:
        chat_id = self.chat(number)
        message_id = self.message(which, chat_id, "user")
        self.run(self._begin(answer, chat_id, "message.edit", message_id=message_id, text=self.new_name()))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, which=PICK, hidden=st.booleans())
    def hide(self, number: int, which: int, hidden: bool) -> None:
        message_id = self.message(which, self.chat(number), "user", "assistant")
        self.run(self._ask("message.hide", message_id=message_id, hidden=hidden))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, which=PICK, index=st.integers(1, 3))
    def choose_a_variant(self, number: int, which: int, index: int) -> None:
        self.run(self._ask("message.variant", message_id=self.message(which, self.chat(number), "assistant"), index=index))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, answer=st.sampled_from(list(ANSWERS)))
    def regenerate(self, number: int, answer: str) -> None:
        chat_id = self.chat(number)
        self.run(self._begin(answer, chat_id, "turn.regenerate", chat_id=chat_id))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, answer=st.sampled_from(list(ANSWERS)))
    def go_on(self, number: int, answer: str) -> None:
        chat_id = self.chat(number)
        self.run(self._begin(answer, chat_id, "turn.continue", chat_id=chat_id))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK)
    def stop(self, number: int) -> None:
        """The turn of a chat, if one stands still there."""
        chat_id = self.chat(number)
        self.run(self._ask("turn.stop", chat_id=chat_id))
        self.holds.pop(chat_id, None)

    @precondition(lambda self: self.holds)
    @rule(number=PICK)
    def let_go(self, number: int) -> None:
        self.run(self._let_go(nth(number, sorted(self.holds))))

    async def _let_go(self, name: str) -> None:
        socket, before = self.page.socket, len(self.page.socket.events)
        self.holds.pop(name).let_go.set()
        await self._rest(socket, before, pull_rests(name) if name in PULLS else turn_rests("chat_id", name))

    # ---- tools, answers, context ----

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, tool=st.sampled_from(list(BUTTONS)))
    def press(self, number: int, tool: str) -> None:
        self.run(self._press(self.chat(number), tool, BUTTONS[tool]))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, which=PICK)
    def press_a_cards_button(self, number: int, which: int) -> None:
        chat_id = self.chat(number)
        actions = [action for message in self.messages(chat_id) for action in (message.get("card") or {}).get("actions", [])]
        if actions:
            action = nth(which, reversed(actions))
            self.run(self._press(chat_id, action["tool"], action["arguments"]))

    async def _press(self, chat_id: str, tool: str, arguments: Json) -> None:
        await self._ask("tool.invoke", chat_id=chat_id, client_id=self.new_name(), tool=tool, arguments=arguments)

    @precondition(lambda self: any(map(self._waiting, self.page.chats)))
    @rule(number=PICK, answer=st.sampled_from(["allow", "deny"]))
    def answer_a_call(self, number: int, answer: str) -> None:
        chat_id = nth(number, sorted(filter(self._waiting, self.page.chats)))
        fields = {"chat_id": chat_id, "call_id": self._waiting(chat_id)[0], "answer": answer}
        self.run(self._ask_and_rest("tool.answer", fields, turn_rests("chat_id", chat_id)))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, answer=st.sampled_from(["yes", "no"]))
    def answer_a_transaction(self, number: int, answer: str) -> None:
        """In a chat that asks; in any other one there is nothing to answer."""
        asking = [chat_id for chat_id, replica in self.page.chats.items() if replica.context["pending_transaction"]]
        chat_id = nth(number, asking) if asking else self.chat(number)
        pending = self.page.chats[chat_id].context["pending_transaction"] or {"transaction_id": "none"}
        for _ in range(2):
            self.run(self._ask("transaction.answer", chat_id=chat_id, transaction_id=pending["transaction_id"], answer=answer))

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, kind=st.sampled_from(["context.keep", "context.clear", "context.undo"]))
    def tend(self, number: int, kind: str) -> None:
        self.run(self._ask(kind, chat_id=self.chat(number)))

    # ---- models ----

    @rule(is_known=st.booleans())
    def look_for_models(self, is_known: bool) -> None:
        if not is_known:
            self.fake.models.append(FakeModel(f"fake:{len(self.fake.models)}"))
        self.run(self._ask("models.refresh"))

    @rule(name=st.sampled_from(["fake:tools", "fake:plain", "nowhere"]), num_ctx=st.sampled_from([None, 2048, 4096]))
    def set_a_window(self, name: str, num_ctx: int | None) -> None:
        self.run(self._ask("model.update", name=name, num_ctx=num_ctx))

    @rule(name=st.sampled_from(PULLS))
    def pull(self, name: str) -> None:
        """One that is under way is joined, and rests where it stands."""
        hold = self.holds.setdefault(name, Hold()) if name.startswith("held") else None
        self.run(self._ask_and_rest("model.pull", {"name": name}, pull_rests(name), hold))

    @rule(name=st.sampled_from(PULLS))
    def cancel_a_pull(self, name: str) -> None:
        self.run(self._ask("model.pull_cancel", name=name))
        self.holds.pop(name, None)

    # ---- sockets that go and come ----

    @precondition(lambda self: all(page.client for page in self.pages))
    @rule()
    def leave(self) -> None:
        """A page loses its connection, with no close frame."""
        self.commands += 1
        page = self.page
        drop(page.socket)
        page.client = None

    @precondition(lambda self: not all(page.client for page in self.pages))
    @rule()
    def come_back(self) -> None:
        for page in self.pages:
            if page.client is None:
                self.run(self._come_back(page))

    async def _come_back(self, page: Page) -> None:
        await page.come_back(await self._connect())

    @precondition(lambda self: self.page.chats)
    @rule(number=PICK, beyond=st.sampled_from([0, 1, 1_000_000, None]), own_epoch=st.booleans())
    def open_again(self, number: int, beyond: int | None, own_epoch: bool) -> None:
        """Close a chat and open it from where it was, from a position in the future, or from one of another epoch."""
        page, chat_id = self.page, self.chat(number)
        replica = page.chats[chat_id]
        position = {"after_seq": None if beyond is None else replica.seq + beyond, "epoch": replica.epoch if own_epoch else "another"}
        self.run(page.socket.ok("chat.close", chat_id=chat_id))
        opened = self.run(page.open(chat_id, **position))
        assert opened["resumed"] == (beyond == 0 and own_epoch)

    @precondition(lambda self: self.restarts < MAX_RESTARTS)
    @rule()
    def restart(self) -> None:
        """Another process, another epoch: what both pages had does not go on."""
        self.restarts += 1
        self.run(self._restart())

    async def _restart(self) -> None:
        await self.server.aclose()
        self.holds = {}
        await self._serve()
        for page in self.pages:
            await page.come_back(await self._connect())
