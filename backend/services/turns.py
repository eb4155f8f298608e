"""Turns: one user message or button press and all that follows from it, one at a time in each chat.

A turn belongs to the server: closing a socket changes nothing, stopping the server interrupts it.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Literal

from backend.errors import Conflict, Invalid, TooLarge, TurnRunning
from backend.llm.core import receipts
from backend.llm.core.receipts import Receipt
from backend.llm.core.registry import Registry
from backend.protocol import ChatEvent, Message, MessageCreated, MessageDeleted, MessageUpdated, TurnStarted
from backend.services.approvals import Approvals
from backend.services.chat_rows import ChatRows, title_from
from backend.services.journal import Journal, Unit
from backend.services.records import Clock, to_message
from backend.services.tool_runs import ToolRuns, TurnRecord
from backend.services.turn_runner import Cut, RunningTurn, TurnRunner
from backend.services.working import WorkingStates
from backend.settings import Settings
from backend.store import chats, messages


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
        runner: TurnRunner,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._chats = chat_rows
        self._tool_runs = tool_runs
        self._registry = registry
        self._approvals = approvals
        self._states = states
        self._runner = runner
        self._clock = clock
        self._running: dict[str, RunningTurn] = {}
        self._is_closing = False

    def running_turn(self, chat_id: str) -> str | None:
        """The id of the turn that runs in a chat."""
        turn = self._running.get(chat_id)
        return turn.record.turn_id if turn else None

    async def send(self, chat_id: str, client_id: str, text: str) -> tuple[Message, str]:
        """Store a person's message and start its turn. The same `client_id` again starts nothing.

        Raises Invalid for a blank text, TooLarge, NotFound, TurnRunning.
        """
        if not text.strip():
            raise Invalid("The message is blank; write something first.", {"text": "must not be blank"})
        limit = self._settings.max_message_bytes
        if (size := len(text.encode())) > limit:
            raise TooLarge(f"The message has {size} bytes and at most {limit} are allowed. Shorten it, or send it in parts.")

        async def store(unit: Unit) -> tuple[Message, str]:
            chat = await self._chats.get(unit.tx, chat_id)
            known = await messages.get_by_client_id(unit.tx, chat_id, client_id)
            if known is not None:
                return to_message(known), known["turn_id"]
            self._refuse_second(chat_id)
            record = TurnRecord(chat_id, uuid.uuid4().hex)
            now = self._clock.now()
            row = await messages.insert(
                unit.tx, session_id=chat_id, role="user", content=text, is_ephemeral=0, status="complete",
                turn_id=record.turn_id, client_id=client_id, created_at=now,
            )  # fmt: skip
            titled = {"title": title_from(text)} if chat["title_by"] == "auto" and not chat["title"] else {}
            await chats.update(unit.tx, chat_id, updated_at=now, **titled)
            message = to_message(row)
            unit.publish(MessageCreated(chat_id=chat_id, message=message))
            await self._start(unit, RunningTurn(record, message.id))
            return message, record.turn_id

        return await self._journal.write(store)

    async def regenerate(self, chat_id: str) -> str:
        """Delete what followed the last user message and run its turn anew. Commits stay made.

        Raises Conflict when there is no such turn or the last one was a button's.
        """

        async def restart(unit: Unit) -> str:
            await self._chats.get(unit.tx, chat_id)
            self._refuse_second(chat_id)
            user = await messages.last_user_message(unit.tx, chat_id)
            if user is None:
                raise Conflict("There is no message yet whose reply could be made anew.")
            later = await messages.list_after(unit.tx, chat_id, user["id"])
            if any(row["turn_id"] != user["turn_id"] for row in later):
                raise Conflict("A tool was used after that message; send a new one instead.")
            record = TurnRecord(chat_id, uuid.uuid4().hex, is_repeated=True)
            await self._clear_later(unit, record, later)
            unit.after_commit(lambda: self._states.forget(chat_id))  # what an Undo would put back is of the run that goes
            asked = await messages.update(unit.tx, user["id"], turn_id=record.turn_id, status="complete", metrics=None)
            assert asked is not None
            unit.publish(MessageUpdated(chat_id=chat_id, message=to_message(asked)))
            await self._start(unit, RunningTurn(record, user["id"]))
            return record.turn_id

        return await self._journal.write(restart)

    async def _clear_later(self, unit: Unit, record: TurnRecord, later: list[dict[str, Any]]) -> None:
        """Delete a turn's rows but the receipts of its commits, which the new run has to know of."""
        gone = []
        for row in later:
            done = [receipt for receipt in receipts.decode(row["content"]) if self._is_commit(receipt)] if _is_receipt(row) else []
            if done:
                record.receipt_id, record.receipts = row["id"], done
                kept = await messages.update(unit.tx, row["id"], content=receipts.encode(done), turn_id=record.turn_id)
                assert kept is not None
                unit.publish(MessageUpdated(chat_id=record.chat_id, message=to_message(kept)))
            else:
                await messages.delete(unit.tx, row["id"])
                gone.append(row["id"])
        if gone:
            unit.publish(MessageDeleted(chat_id=record.chat_id, message_ids=gone))

    def _is_commit(self, receipt: Receipt) -> bool:
        tool = self._registry.get(receipt.tool)
        return tool is not None and tool.effect == "commit" and receipt.succeeded

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
            self._refuse_second(chat_id)
            turn = RunningTurn(TurnRecord(chat_id, uuid.uuid4().hex, client_id), None)
            await chats.update(unit.tx, chat_id, updated_at=self._clock.now())
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
        if turn.task is not None and not turn.record.is_button:
            turn.task.cancel()
        await turn.ended.wait()

    async def close(self) -> None:
        """Interrupt every turn, keeping the text so far, and put aside those that wait; none starts afterwards."""
        self._is_closing = True
        cuts: dict[str, Cut] = {chat_id: "paused" if self._approvals.is_waiting(chat_id) else "interrupted" for chat_id in self._running}
        await asyncio.gather(*(self.stop(chat_id, cut) for chat_id, cut in cuts.items()))

    async def resume_paused(self) -> None:
        """Take up the turns that waited for a person when the process before this one ended."""
        for paused in await self._approvals.paused():
            turn = RunningTurn(paused.record, paused.user_message_id)
            self._running[paused.record.chat_id] = turn
            turn.task = asyncio.create_task(self._runner.run_model(turn, self._free, self._others_run, paused))

    async def answer_call(self, chat_id: str, call_id: str, answer: Literal["allow", "deny"]) -> None:
        """Allow or deny the call that waits; a second answer changes nothing. Raises NotFound."""
        await self._journal.read(lambda tx: self._chats.get(tx, chat_id))
        await self._approvals.answer(chat_id, call_id, answer)

    def keep(self, chat_id: str) -> None:
        """The person pressed Keep: the turn under way counts as related."""
        if turn := self._running.get(chat_id):
            turn.record.kept = True

    def _refuse_second(self, chat_id: str) -> None:
        if self._is_closing:
            raise TurnRunning("The server is stopping; send this again once it is back.")
        if chat_id in self._running:
            raise TurnRunning("A reply is under way in this chat; wait for its end or stop it first.")

    async def _start(self, unit: Unit, turn: RunningTurn) -> None:
        await self._announce(unit, turn)

        def run() -> None:
            turn.task = asyncio.create_task(self._runner.run_model(turn, self._free, self._others_run))

        unit.after_commit(run)

    async def _announce(self, unit: Unit, turn: RunningTurn) -> None:
        chat_id = turn.record.chat_id
        unit.after_commit(lambda: self._running.__setitem__(chat_id, turn))
        unit.publish(TurnStarted(chat_id=chat_id, turn_id=turn.record.turn_id))
        unit.publish(ChatEvent(type="chat.updated", chat=await self._chats.wire(unit.tx, chat_id, turn_running=True)))

    def _others_run(self) -> bool:
        return len(self._running) > 1

    def _free(self, turn: RunningTurn) -> None:
        if self._running.get(turn.record.chat_id) is turn:
            del self._running[turn.record.chat_id]


def _is_receipt(row: dict[str, Any]) -> bool:
    return bool(row["role"] == "tool" and not row["is_ephemeral"])
