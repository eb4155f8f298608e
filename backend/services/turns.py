"""Turns: one user message or button press and all that follows from it, one at a time in each chat.

A turn belongs to the server: closing a socket changes nothing, stopping the server interrupts it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.errors import CleanroomError, Conflict, Invalid, ModelError, ModelUnavailable, TooLarge, TurnRunning
from backend.llm.agent import Turn
from backend.llm.backend import BoundModel, ModelBackend
from backend.llm.core import receipts
from backend.llm.core.receipts import Receipt
from backend.llm.core.registry import Registry
from backend.llm.tokens import TokenCounter
from backend.protocol import ChatEvent, Message, MessageCreated, MessageDeleted, MessageUpdated, TurnError, TurnFinished, TurnStarted
from backend.services.approvals import Approvals, PausedTurn
from backend.services.chat_rows import ChatRows, title_from
from backend.services.journal import Journal, Unit
from backend.services.model_turn import ModelTurn
from backend.services.prompting import Prompting
from backend.services.records import Clock, to_message
from backend.services.replies import Replies, StreamingReply
from backend.services.settlement import Outcome, Settlement
from backend.services.tool_runs import ToolRuns, TurnRecord
from backend.services.working import WorkingStates
from backend.settings import Settings
from backend.store import chats, messages

logger = logging.getLogger(__name__)


# Why a turn is cut short: by the person, by the server's end, or by that while it waits for the person.
Cut = Literal["stopped", "interrupted", "paused"]


@dataclass(slots=True)
class RunningTurn:
    """A turn under way. `ended_by` says why it was cut short; None while it goes its own way."""

    record: TurnRecord
    user_message_id: int | None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    ended_by: Cut | None = None


class Turns:
    """All turns under way, by chat."""

    def __init__(
        self,
        *,
        settings: Settings,
        journal: Journal,
        chat_rows: ChatRows,
        tool_runs: ToolRuns,
        prompting: Prompting,
        replies: Replies,
        registry: Registry,
        backend: ModelBackend,
        settlement: Settlement,
        approvals: Approvals,
        states: WorkingStates,
        counter: TokenCounter,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._chats = chat_rows
        self._tool_runs = tool_runs
        self._prompting = prompting
        self._replies = replies
        self._registry = registry
        self._backend = backend
        self._settlement = settlement
        self._approvals = approvals
        self._states = states
        self._counter = counter
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
            turn.task = asyncio.create_task(self._run_button(turn, name, checked))
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
            turn.task = asyncio.create_task(self._run_model(turn, paused))

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
            turn.task = asyncio.create_task(self._run_model(turn))

        unit.after_commit(run)

    async def _announce(self, unit: Unit, turn: RunningTurn) -> None:
        chat_id = turn.record.chat_id
        unit.after_commit(lambda: self._running.__setitem__(chat_id, turn))
        unit.publish(TurnStarted(chat_id=chat_id, turn_id=turn.record.turn_id))
        unit.publish(ChatEvent(type="chat.updated", chat=await self._chats.wire(unit.tx, chat_id, turn_running=True)))

    async def _run_model(self, turn: RunningTurn, paused: PausedTurn | None = None) -> None:
        record, chat_id = turn.record, turn.record.chat_id
        reply = self._replies.begin(record)
        metrics: dict[str, Any] = {}

        async def converse() -> None:
            if paused is not None:
                await self._approvals.answer_to(chat_id)  # until then no model is needed
            chat = await self._journal.read(lambda tx: self._chats.get(tx, chat_id))
            model = await self._backend.bind(chat["model"])
            teller = self._teller(turn, reply, model, chat, paused)
            run = Turn(model, teller, self._clock.monotonic)
            if paused is not None:
                run.rounds, run.unfinished = list(paused.rounds), paused.unfinished
            try:
                await run.run()
            finally:
                metrics.update(self._measure(run, teller, model))

        await self._run(turn, converse, reply, metrics)

    def _teller(self, turn: RunningTurn, reply: StreamingReply, model: BoundModel, chat: dict[str, Any], paused: PausedTurn | None) -> ModelTurn:
        assert turn.user_message_id is not None
        return ModelTurn(
            record=turn.record,
            reply=reply,
            model=model,
            prompting=self._prompting,
            tool_runs=self._tool_runs,
            registry=self._registry,
            states=self._states,
            journal=self._journal,
            approvals=self._approvals,
            others_run=lambda: len(self._running) > 1,
            asks_first=chat["approval"] == "before",
            families_off=frozenset(json.loads(chat["families_off"])),
            user_message_id=turn.user_message_id,
            paused=paused,
        )

    async def _run_button(self, turn: RunningTurn, name: str, arguments: dict[str, Any]) -> None:
        tool = self._registry.get(name)
        assert tool is not None

        async def invoke() -> None:
            try:
                await self._tool_runs.run(turn.record, tool, arguments)
            except CleanroomError as error:
                await self._tool_runs.fail(turn.record, name, arguments, error)
                raise

        await self._run(turn, invoke, None, {})

    async def _run(self, turn: RunningTurn, work: Callable[[], Awaitable[None]], reply: StreamingReply | None, metrics: dict[str, Any]) -> None:
        """Do a turn's work and settle it, whichever way it ends."""
        chat_id = turn.record.chat_id
        try:
            outcome = await self._outcome(turn, work, reply)
            if outcome is None:
                return  # it waits for a person, and goes on when the server is back
            await self._settlement.settle(turn.record, turn.user_message_id, outcome, reply, metrics, lambda: self._free(turn))
        except Exception:
            logger.exception("turn could not be settled chat=%s", chat_id)
            self._free(turn)
            error = TurnError(code="internal", message="The end of this turn could not be saved. Please look at the server's log.")
            self._journal.publish(TurnFinished(chat_id=chat_id, turn_id=turn.record.turn_id, status="failed", error=error))
        finally:
            self._replies.end(chat_id)
            turn.ended.set()

    async def _outcome(self, turn: RunningTurn, work: Callable[[], Awaitable[None]], reply: StreamingReply | None) -> Outcome | None:
        """How the work ended; None when it was put aside by the server's end."""
        try:
            await work()
        except asyncio.CancelledError:
            return None if turn.ended_by == "paused" else Outcome(turn.ended_by or "interrupted")
        except CleanroomError as error:
            if isinstance(error, ModelUnavailable):
                self._backend.look_again()
            broke_off = isinstance(error, ModelError) and reply is not None and reply.has_text
            return Outcome("interrupted" if broke_off else "failed", TurnError(code=error.code, message=error.message))
        except Exception:
            logger.exception("turn failed chat=%s", turn.record.chat_id)
            return Outcome("failed", TurnError(code="internal", message="Something went wrong in the server. Please try again."))
        return Outcome("complete")

    def _measure(self, run: Turn, teller: ModelTurn, model: BoundModel) -> dict[str, Any]:
        """What the page shows under the reply; the server's own count of the prompt corrects our estimates."""
        done, request = run.last_reply.done, teller.newest_request
        metrics: dict[str, Any] = {}
        if run.last_reply.first_token_seconds is not None:
            metrics["first_token_ms"] = round(run.last_reply.first_token_seconds * 1000)
        if request is not None:
            metrics["estimated_prompt_tokens"] = request.total_tokens
            metrics["left_out_messages"] = request.left_out_messages
        if done is not None:
            metrics |= {"prompt_tokens": done.prompt_tokens, "reply_tokens": done.reply_tokens, "done_reason": done.reason}
            if done.reply_tokens and done.reply_ms:
                metrics["tokens_per_second"] = round(done.reply_tokens / done.reply_ms * 1000, 1)
            if done.prompt_tokens and request is not None:
                self._counter.learn(model.name, request.total_tokens, done.prompt_tokens)
        return {name: value for name, value in metrics.items() if value is not None}

    def _free(self, turn: RunningTurn) -> None:
        if self._running.get(turn.record.chat_id) is turn:
            del self._running[turn.record.chat_id]


def _is_receipt(row: dict[str, Any]) -> bool:
    return bool(row["role"] == "tool" and not row["is_ephemeral"])
