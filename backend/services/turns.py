"""Turns: one user message or button press and all that follows from it, one at a time in each chat.

A turn belongs to the server: closing a socket changes nothing, stopping the server interrupts it.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any, Literal

from backend.errors import Conflict, Invalid, NotFound, TooLarge, TurnRunning
from backend.llm.core import receipts
from backend.llm.core.registry import Registry
from backend.protocol import ChatEvent, Message, MessageCreated, MessageUpdated, TurnStarted
from backend.services.approvals import Approvals
from backend.services.chat_rows import ChatRows, title_from
from backend.services.journal import Journal, Unit
from backend.services.peers import Peers
from backend.services.receipt_rows import is_receipt
from backend.services.records import Clock, to_chat, to_message
from backend.services.rewind import Rewind
from backend.services.tool_runs import ToolRuns, TurnRecord
from backend.services.turn_runner import Cut, RunningTurn, TurnRunner
from backend.services.variant_rows import replies_in
from backend.services.working import WorkingStates
from backend.settings import Settings
from backend.store import chats, messages
from backend.store.connection import Connection

Row = dict[str, Any]


class Turns:
    """All turns under way, by chat."""

    def __init__(
        self,
        *,
        settings: Settings,
        journal: Journal,
        chat_rows: ChatRows,
        tool_runs: ToolRuns,
        registry: Registry,
        approvals: Approvals,
        states: WorkingStates,
        rewind: Rewind,
        runner: TurnRunner,
        peers: Peers,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._chats = chat_rows
        self._tool_runs = tool_runs
        self._registry = registry
        self._approvals = approvals
        self._states = states
        self._rewind = rewind
        self._runner = runner
        self._peers = peers
        self._clock = clock
        self._running: dict[str, RunningTurn] = {}
        self._is_closing = False

    def count_running(self) -> int:
        return len(self._running)

    def count_waiting_for_person(self) -> int:
        return sum(map(self._approvals.is_waiting, self._running))

    def count_waiting_for_model(self) -> int:
        """How many turns have asked a model that has not said a word since."""
        return sum(turn.usage.is_waiting for turn in self._running.values())

    def running_turn(self, chat_id: str) -> str | None:
        """The id of the turn that runs in a chat."""
        turn = self._running.get(chat_id)
        return turn.record.turn_id if turn else None

    def is_replying(self, chat_id: str) -> bool:
        """Whether a turn runs in a chat that waits for nobody."""
        return chat_id in self._running and not self._approvals.is_waiting(chat_id)

    async def running_anywhere(self) -> set[str]:
        """The chats in which a turn runs, in whichever process."""
        return await self._peers.running()

    async def send(self, chat_id: str, client_id: str, text: str) -> tuple[Message, str]:
        """Store a person's message and start its turn. The same `client_id` again starts nothing.

        Raises Invalid for a blank text, TooLarge, NotFound, TurnRunning.
        """
        self._check(text)

        async def store(unit: Unit) -> tuple[Message, str]:
            chat = await self._chats.get(unit.tx, chat_id)
            known = await messages.get_by_client_id(unit.tx, chat_id, client_id)
            if known is not None:
                return to_message(known), known["turn_id"]
            self.refuse_second(chat_id)
            record = TurnRecord(chat_id, uuid.uuid4().hex)
            row = await messages.insert(
                unit.tx, session_id=chat_id, role="user", content=text, is_ephemeral=0, status="complete",
                turn_id=record.turn_id, client_id=client_id, created_at=self._clock.now(),
            )  # fmt: skip
            titled = {"title": title_from(text)} if chat["title_by"] == "auto" and not chat["title"] else {}
            message = to_message(row)
            unit.publish(MessageCreated(chat_id=chat_id, message=message))
            await self._start(unit, RunningTurn(record, message.id), **titled)
            return message, record.turn_id

        return await self._journal.write(store)

    async def edit(self, message_id: int, text: str) -> tuple[Message, str]:
        """Put another text in the place of a person's message, delete what followed it and run its turn anew.

        Raises what `send` does, and Conflict for a message that isn't a person's.
        """
        self._check(text)

        async def rewrite(unit: Unit) -> tuple[Message, str]:
            question = await messages.get(unit.tx, message_id)
            if question is None:
                raise NotFound("This message does not exist, or was deleted.")
            self.refuse_second(question["session_id"])
            if question["role"] != "user":
                raise Conflict("Only a message of your own can be edited.")
            record = TurnRecord(question["session_id"], uuid.uuid4().hex, is_repeated=True)
            later = await messages.list_after(unit.tx, record.chat_id, message_id)
            await self._rewind.for_another_question(unit, record, question, later)
            await self._retitle(unit.tx, question, text)
            return await self._ask_again(unit, record, message_id, content=text)

        return await self._journal.write(rewrite)

    async def regenerate(self, chat_id: str) -> str:
        """Run the last turn anew; its reply becomes a variant of the one that is made, and commits stay made.

        Raises Conflict when there is no such turn or the last one was a button's.
        """

        async def restart(unit: Unit) -> str:
            await self._chats.get(unit.tx, chat_id)
            self.refuse_second(chat_id)
            question, later = await self._last_turn(unit.tx, chat_id)
            record = TurnRecord(chat_id, uuid.uuid4().hex, is_repeated=True)
            await self._rewind.for_another_reply(unit, record, question, later)
            _, turn_id = await self._ask_again(unit, record, question["id"])
            return turn_id

        return await self._journal.write(restart)

    async def continue_reply(self, chat_id: str) -> str:
        """Have the last turn's reply go on in its message. Raises Conflict when it was not cut short."""

        async def go_on(unit: Unit) -> str:
            await self._chats.get(unit.tx, chat_id)
            self.refuse_second(chat_id)
            question, later = await self._last_turn(unit.tx, chat_id)
            former = await self._cut_short(unit.tx, question, later)
            record = TurnRecord(chat_id, uuid.uuid4().hex, is_repeated=True, reply_id=former["id"])
            if receipt := next(filter(is_receipt, later), None):
                record.receipt_id, record.receipts = receipt["id"], receipts.decode(receipt["content"])
            await self._stream_again(unit, former["id"])
            await messages.update(unit.tx, question["id"], status="complete", metrics=None)  # a reply that goes on needs no other one
            for row in await messages.give_turn(unit.tx, chat_id, question["id"], record.turn_id):
                unit.publish(MessageUpdated(chat_id=chat_id, message=to_message(row)))
            await self._start(unit, RunningTurn(record, question["id"], former))
            return record.turn_id

        return await self._journal.write(go_on)

    async def _last_turn(self, tx: Connection, chat_id: str) -> tuple[Row, list[Row]]:
        """The chat's newest question and what followed it. Raises Conflict when a button's turn came after it."""
        question = await messages.last_user_message(tx, chat_id)
        if question is None:
            raise Conflict("There is no message yet that a reply could answer.")
        later = await messages.list_after(tx, chat_id, question["id"])
        if any(row["turn_id"] != question["turn_id"] for row in later):
            raise Conflict("A tool was used after that message; send a new one instead.")
        return question, later

    async def _cut_short(self, tx: Connection, question: Row, later: list[Row]) -> Row:
        """The reply that can go on. Raises Conflict when there is none, or when the model would not see what it belongs to."""
        reply = next(iter(replies_in(later)[-1:]), None)
        if reply is None or not reply["content"].strip():
            raise Conflict("There is no text yet that could go on; have the reply made anew instead.")
        if reply["status"] == "complete" and json.loads(reply["metrics"] or "{}").get("done_reason") != "length":
            raise Conflict("The last reply is whole; send a message to hear more.")
        if question["hidden"] or reply["hidden"]:
            raise Conflict("The last turn is hidden from the model; show it again first.")
        if all(row["role"] != "user" for row in await self._states.history(tx, question["session_id"])):
            raise Conflict("The model's history is set too short for the question beside its reply; send a message instead.")
        return reply

    async def _ask_again(self, unit: Unit, record: TurnRecord, question_id: int, **columns: object) -> tuple[Message, str]:
        """Start the turn of a question that is there already. What is asked is seen, whatever was hidden or failed before."""
        question = await messages.update(unit.tx, question_id, turn_id=record.turn_id, status="complete", metrics=None, hidden=0, **columns)
        assert question is not None
        chat = await self._chats.get(unit.tx, record.chat_id)
        unit.publish(MessageUpdated(chat_id=record.chat_id, message=to_message(question)))
        await self._states.publish_snapshot(unit, record.chat_id, chat["ttl_messages"], record.turn_id)
        await self._start(unit, RunningTurn(record, question_id))
        return to_message(question), record.turn_id

    async def _retitle(self, tx: Connection, question: Row, text: str) -> None:
        """A title that was made from the message follows it; a person's own never does."""
        chat = await self._chats.get(tx, question["session_id"])
        was_made_from_it = chat["title_by"] == "auto" and chat["title"] == title_from(question["content"])
        if was_made_from_it and await messages.is_first_question(tx, chat["id"], question["id"]):
            await chats.update(tx, chat["id"], title=title_from(text))

    async def invoke(self, chat_id: str, client_id: str, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool for a person as a turn of its own, to its end. The same `client_id` again starts nothing.

        Raises NotFound and Invalid with nothing stored, TurnRunning. A failure while it runs is a card, and
        the turn ends as failed.
        """
        running = self._running.get(chat_id)
        if running is not None and running.record.client_id == client_id:
            await running.ended.wait()
        tool = self._registry.get(name)
        if tool is None:
            raise self._tool_runs.unknown(name)

        async def start(unit: Unit) -> tuple[str, RunningTurn | None]:
            await self._chats.get(unit.tx, chat_id)
            known = await messages.get_by_client_id(unit.tx, chat_id, client_id)
            if known is not None:
                return known["turn_id"], None
            checked.update(tool.validate(arguments))
            self.refuse_second(chat_id)
            turn = RunningTurn(TurnRecord(chat_id, uuid.uuid4().hex, client_id), None)
            await self._announce(unit, turn)
            return turn.record.turn_id, turn

        checked: dict[str, Any] = {}
        turn_id, turn = await self._journal.write(start)
        if turn is not None:
            turn.task = asyncio.create_task(self._runner.run_button(turn, tool, checked, self._free))
            await asyncio.shield(turn.task)
        return turn_id

    async def stop(self, chat_id: str, reason: Cut = "stopped") -> None:
        """End the chat's turn, if one runs, at the model too, and wait until it is settled."""
        turn = self._running.get(chat_id)
        if turn is None:
            return
        turn.ended_by = turn.ended_by or reason
        if turn.task is not None and not turn.record.is_button and not turn.is_settling:
            turn.task.cancel()
        await turn.ended.wait()

    async def close(self) -> None:
        """End every turn as `interrupt` does; none starts afterwards."""
        self._is_closing = True
        self._runner.close()
        await self.interrupt()

    def lose(self, chat_id: str) -> None:
        """The chat is another process's: end its turn here without a word, at the model too."""
        turn = self._running.pop(chat_id, None)
        if turn is not None:
            turn.ended_by = "lost"
            if turn.task is not None:
                turn.task.cancel()

    async def interrupt(self) -> None:
        """End every turn, keeping the text so far; those that wait for a person are put aside, for whoever has the chat next."""
        cuts: dict[str, Cut] = {chat_id: "paused" if self._approvals.is_waiting(chat_id) else "interrupted" for chat_id in self._running}
        await asyncio.gather(*(self.stop(chat_id, cut) for chat_id, cut in cuts.items()))

    async def resume_paused(self, chat_id: str | None = None) -> None:
        """Take up the turns, or one chat's, that waited for a person when their process ended."""
        for paused in await self._approvals.paused(chat_id):
            former = await self._former(paused.record.reply_id)
            turn = RunningTurn(paused.record, paused.user_message_id, former)
            self._keep(turn)
            turn.task = asyncio.create_task(self._runner.run_model(turn, self._free, self._others_run, paused))

    async def _former(self, reply_id: int | None) -> Row | None:
        """The row of the reply that a paused turn goes on with, which an ended process left interrupted."""
        if reply_id is None:
            return None
        former = await self._journal.read(lambda tx: messages.get(tx, reply_id))
        await self._journal.write(lambda unit: self._stream_again(unit, reply_id))
        return former

    async def _stream_again(self, unit: Unit, reply_id: int) -> None:
        await messages.update(unit.tx, reply_id, status="streaming")

    async def answer_call(self, chat_id: str, call_id: str, answer: Literal["allow", "deny"]) -> None:
        """Allow or deny the call that waits; a second answer changes nothing. Raises NotFound."""
        await self._journal.read(lambda tx: self._chats.get(tx, chat_id))
        await self._approvals.answer(chat_id, call_id, answer)

    def keep(self, chat_id: str) -> None:
        """The person pressed Keep: the turn under way counts as related."""
        if turn := self._running.get(chat_id):
            turn.record.kept = True

    def _check(self, text: str) -> None:
        if not text.strip():
            raise Invalid("The message is blank; write something first.", {"text": "must not be blank"})
        limit = self._settings.max_message_bytes
        if (size := len(text.encode())) > limit:
            raise TooLarge(f"The message has {size} bytes and at most {limit} are allowed. Shorten it, or send it in parts.")

    def refuse_second(self, chat_id: str) -> None:
        """Raises TurnRunning when nothing may be begun in this chat now."""
        if self._is_closing:
            raise TurnRunning("The server is stopping; send this again once it is back.")
        if chat_id in self._running:
            raise TurnRunning("A reply is under way in this chat; wait for its end or stop it first.")

    async def _start(self, unit: Unit, turn: RunningTurn, **columns: object) -> None:
        await self._announce(unit, turn, **columns)

        def run() -> None:
            turn.task = asyncio.create_task(self._runner.run_model(turn, self._free, self._others_run))

        unit.after_commit(run)

    async def _announce(self, unit: Unit, turn: RunningTurn, **columns: object) -> None:
        """Tell that the turn has begun, and that its chat is used now; `columns` of the chat are written with that."""
        chat_id = turn.record.chat_id
        turn.chat = await self._chats.update(unit.tx, chat_id, updated_at=self._clock.now(), **columns)
        unit.after_commit(lambda: self._keep(turn))
        unit.publish(TurnStarted(chat_id=chat_id, turn_id=turn.record.turn_id))
        unit.publish(ChatEvent(type="chat.updated", chat=to_chat(turn.chat, turn_running=True), user=turn.chat["owner"]))

    def _keep(self, turn: RunningTurn) -> None:
        self._running[turn.record.chat_id] = turn
        self._peers.turn_began(turn.record.chat_id, turn.record.turn_id)

    def _others_run(self) -> bool:
        return len(self._running) > 1

    def _free(self, turn: RunningTurn) -> None:
        if self._running.get(turn.record.chat_id) is turn:
            del self._running[turn.record.chat_id]
            self._peers.turn_ended(turn.record.chat_id)
