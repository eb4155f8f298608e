"""How a turn's work is done and settled, whichever way it ends; what starts and stops turns is in turns.py."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from backend.errors import CleanroomError, ModelError, ModelUnavailable, StoreError
from backend.llm.agent import Turn, Usage
from backend.llm.backend import BoundModel, ModelBackend
from backend.llm.core.registry import Registry, Tool
from backend.llm.tokens import TokenCounter
from backend.logs import fields
from backend.protocol import TurnError, TurnFinished, TurnWaiting
from backend.services.approvals import Approvals, PausedTurn
from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal
from backend.services.model_turn import ModelTurn
from backend.services.observer import Observer, TurnReport
from backend.services.prompting import Prompting
from backend.services.records import Clock
from backend.services.replies import Replies, StreamingReply
from backend.services.sent import SentRequests
from backend.services.settlement import Outcome, Settlement
from backend.services.tool_runs import ToolRuns, TurnRecord
from backend.services.working import WorkingStates

logger = logging.getLogger(__name__)

SETTLE_AGAIN_SECONDS = 1.0


# Why a turn is cut short: by the person, by the server's end, by that while it waits for the person, or because
# another process has its chat.
Cut = Literal["stopped", "interrupted", "paused", "lost"]


@dataclass(slots=True)
class RunningTurn:
    """A turn under way. `former` is the row of the reply that it goes on with, as it was; `chat` is its chat's row as
    the turn began, None for a turn that was taken up again.

    `model` is the name of the one that it asks, once that is known. `ended_by` says why it was cut short; None while it goes its own way.
    `is_settling` once nothing is left but to write its end.
    """

    record: TurnRecord
    user_message_id: int | None
    former: dict[str, Any] | None = None
    chat: dict[str, Any] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    ended_by: Cut | None = None
    is_settling: bool = False


# Opens the chat for its next turn.
Free = Callable[[RunningTurn], None]


class TurnRunner:
    """Runs turns to their settlement."""

    def __init__(
        self,
        *,
        journal: Journal,
        chat_rows: ChatRows,
        tool_runs: ToolRuns,
        prompting: Prompting,
        sent: SentRequests,
        replies: Replies,
        registry: Registry,
        backend: ModelBackend,
        settlement: Settlement,
        approvals: Approvals,
        states: WorkingStates,
        counter: TokenCounter,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._journal = journal
        self._chats = chat_rows
        self._tool_runs = tool_runs
        self._prompting = prompting
        self._sent = sent
        self._replies = replies
        self._registry = registry
        self._backend = backend
        self._settlement = settlement
        self._approvals = approvals
        self._states = states
        self._counter = counter
        self._clock = clock
        self._observer = observer
        self._is_closing = False

    def close(self) -> None:
        """From now on an end that can't be written is given up; the next start calls that turn interrupted."""
        self._is_closing = True

    async def run_model(self, turn: RunningTurn, free: Free, others_run: Callable[[], bool], paused: PausedTurn | None = None) -> None:
        """Have the chat's model answer; a paused turn goes on where it waited."""
        record, chat_id = turn.record, turn.record.chat_id
        reply = self._replies.resume(record, turn.former, after_calls=paused is not None) if turn.former else self._replies.begin(record)
        metrics: dict[str, Any] = {}

        async def converse() -> None:
            if paused is not None:
                await self._approvals.answer_to(chat_id)  # until then no model is needed
            chat = turn.chat
            if chat is None:
                chat = await self._journal.read(lambda tx: self._chats.get(tx, chat_id))
            model = await self._backend.bind(chat_id, chat["model"], json.loads(chat["parameters"]))
            teller = self._teller(turn, reply, model, chat, others_run, paused)
            turn.model = model.name
            run = Turn(model, teller, self._clock.monotonic, begun=reply.begun, usage=turn.usage)
            if paused is not None:
                run.rounds, run.unfinished, run.begun = list(paused.rounds), paused.unfinished, ""
            try:
                await run.run()
            finally:
                metrics.update(self._measure(run, teller, model))

        await self._run(turn, converse, reply, metrics, free)

    def _teller(
        self, turn: RunningTurn, reply: StreamingReply, model: BoundModel, chat: dict[str, Any], others_run: Callable[[], bool], paused: PausedTurn | None
    ) -> ModelTurn:
        assert turn.user_message_id is not None
        return ModelTurn(
            record=turn.record,
            reply=reply,
            usage=turn.usage,
            model=model,
            prompting=self._prompting,
            sent=self._sent,
            tool_runs=self._tool_runs,
            registry=self._registry,
            states=self._states,
            journal=self._journal,
            approvals=self._approvals,
            others_run=others_run,
            asks_first=chat["approval"] == "before",
            families_off=frozenset(json.loads(chat["families_off"])),
            user_message_id=turn.user_message_id,
            paused=paused,
        )

    async def run_button(self, turn: RunningTurn, tool: Tool, arguments: dict[str, Any], free: Free) -> None:
        """Run a tool for a person; no model takes part."""

        async def invoke() -> None:
            try:
                await self._tool_runs.run(turn.record, tool, arguments)
            except CleanroomError as error:
                await self._tool_runs.fail(turn.record, tool.name, arguments, error)
                raise

        await self._run(turn, invoke, None, {}, free)

    async def _run(self, turn: RunningTurn, work: Callable[[], Awaitable[None]], reply: StreamingReply | None, metrics: dict[str, Any], free: Free) -> None:
        """Do a turn's work and settle it, whichever way it ends."""
        chat_id, began = turn.record.chat_id, self._clock.monotonic()

        def end(outcome: Outcome) -> None:
            free(turn)
            self._tell(_report(turn, outcome, self._clock.monotonic() - began))

        try:
            outcome = await self._outcome(turn, work, reply)
            if outcome is None or turn.ended_by == "lost":
                return  # it goes on when the server is back, or is another process's
            await self._settle(turn, partial(self._settlement.settle, turn.record, turn.user_message_id, outcome, reply, metrics, partial(end, outcome)))
        except asyncio.CancelledError:
            if turn.ended_by != "lost":
                raise
        except Exception:
            logger.exception("turn could not be settled", extra=fields(chat_id=chat_id))
            error = TurnError(code="internal", message="The end of this turn could not be saved. Please look at the server's log.")
            end(Outcome("failed", error))
            self._journal.publish(TurnFinished(chat_id=chat_id, turn_id=turn.record.turn_id, status="failed", error=error))
        finally:
            self._replies.end(chat_id)
            turn.ended.set()

    async def _settle(self, turn: RunningTurn, settle: Callable[[], Awaitable[None]]) -> None:
        """Write the turn's end. While the database takes nothing, a full disk say, try again: the reply is nowhere else."""
        turn.is_settling, is_told = True, False
        while True:
            try:
                return await settle()
            except StoreError:
                if self._is_closing:
                    raise
                if not is_told:
                    is_told = True
                    logger.exception("the end of a turn waits to be saved", extra=fields(chat_id=turn.record.chat_id))
                    self._journal.publish(TurnWaiting(chat_id=turn.record.chat_id, turn_id=turn.record.turn_id, reason="storage"))
                await asyncio.sleep(SETTLE_AGAIN_SECONDS)

    async def _outcome(self, turn: RunningTurn, work: Callable[[], Awaitable[None]], reply: StreamingReply | None) -> Outcome | None:
        """How the work ended; None when it is not over, or not this process's to end."""
        try:
            await work()
        except asyncio.CancelledError:
            return None if turn.ended_by == "paused" or turn.ended_by == "lost" else Outcome(turn.ended_by or "interrupted")
        except CleanroomError as error:
            if isinstance(error, ModelUnavailable):
                self._backend.look_again()
            broke_off = isinstance(error, ModelError) and reply is not None and reply.has_grown
            kind = type(error).__name__ if isinstance(error, ModelError) else None
            return Outcome("interrupted" if broke_off else "failed", TurnError(code=error.code, message=error.message), kind)
        except Exception:
            logger.exception("turn failed", extra=fields(chat_id=turn.record.chat_id))
            return Outcome("failed", TurnError(code="internal", message="Something went wrong in the server. Please try again."))
        return Outcome("complete")

    def _tell(self, report: TurnReport) -> None:
        """Before the page hears of the end, so that who has heard of it finds it counted."""
        logger.info("turn ended", extra=fields(**report.for_log()))
        self._observer.turn_ended(report)

    def _measure(self, run: Turn, teller: ModelTurn, model: BoundModel) -> dict[str, Any]:
        """What the page shows under the reply; the server's own count of the prompt corrects our estimates."""
        done, sent = run.last_reply.done, teller.newest_sent
        metrics: dict[str, Any] = {"num_ctx": model.num_ctx}
        if run.last_reply.first_token_seconds is not None:
            metrics["first_token_ms"] = round(run.last_reply.first_token_seconds * 1000)
        if run.usage.host is not None:
            metrics["host"] = run.usage.host
        if run.last_reply.thinking_seconds is not None:
            metrics["thinking_ms"] = round(run.last_reply.thinking_seconds * 1000)
        if sent is not None:
            metrics["estimated_prompt_tokens"] = sent.request.total_tokens
            metrics["left_out_messages"] = sent.request.left_out_messages
        if done is not None:
            metrics |= {"prompt_tokens": done.prompt_tokens, "reply_tokens": done.reply_tokens, "done_reason": done.reason}
            if done.reply_tokens and done.reply_ms:
                metrics["tokens_per_second"] = round(done.reply_tokens / done.reply_ms * 1000, 1)
            if done.prompt_tokens and sent is not None:
                if self._sent.counted(sent, done.prompt_tokens) == "whole":
                    self._counter.learn(model.name, sent.request.total_tokens, done.prompt_tokens)
                metrics["prompt_cut"] = sent.prompt_cut or None
        return {name: value for name, value in metrics.items() if value is not None}


def _report(turn: RunningTurn, outcome: Outcome, seconds: float) -> TurnReport:
    record, usage = turn.record, turn.usage
    return TurnReport(
        chat_id=record.chat_id,
        turn_id=record.turn_id,
        outcome=outcome.status,
        seconds=seconds,
        model=turn.model,
        host=usage.host,
        rounds=usage.requests,
        first_token_seconds=usage.first_token_seconds,
        prompt_tokens=usage.prompt_tokens,
        reply_tokens=usage.reply_tokens,
        calls=tuple(record.calls),
        error=outcome.error.code if outcome.error else None,
        model_error=outcome.model_error,
    )
