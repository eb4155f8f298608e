"""The agent's journal: what a model says and calls becomes messages, cards, receipts and events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from backend.errors import CleanroomError
from backend.llm.agent import CallResult, Unfinished, Usage, WaitReason
from backend.llm.backend import BoundModel
from backend.llm.core.receipts import Receipt
from backend.llm.core.registry import Registry, Tool
from backend.llm.core.tool_injector import Exchange, Request, Round
from backend.llm.core.working_state import CURRENT_STATE
from backend.llm.wire import ToolCall
from backend.protocol import Channel, TurnWaiting
from backend.services.approvals import Approvals, PausedTurn, new_call_id
from backend.services.journal import Journal, Unit
from backend.services.prompting import Prompting
from backend.services.replies import StreamingReply
from backend.services.sent import SentRequest, SentRequests
from backend.services.tool_runs import ToolRuns, TurnRecord
from backend.services.working import WorkingStates
from backend.store.connection import Connection

# What a failed call's own arguments may bring into the window: a model can write more than it holds.
FAILED_ARGUMENTS_CHARACTERS = 2_000


class ModelTurn:
    """One model turn's side of the database and the page."""

    def __init__(
        self,
        *,
        record: TurnRecord,
        reply: StreamingReply,
        usage: Usage,
        model: BoundModel,
        prompting: Prompting,
        sent: SentRequests,
        tool_runs: ToolRuns,
        registry: Registry,
        states: WorkingStates,
        journal: Journal,
        approvals: Approvals,
        others_run: Callable[[], bool],
        asks_first: bool,
        families_off: frozenset[str],
        user_message_id: int,
        paused: PausedTurn | None,
    ) -> None:
        self._record = record
        self._reply = reply
        self._usage = usage
        self._model = model
        self._prompting = prompting
        self._sent = sent
        self._tool_runs = tool_runs
        self._registry = registry
        self._states = states
        self._journal = journal
        self._approvals = approvals
        self._others_run = others_run
        self._asks_first = asks_first
        self._families_off = families_off
        self._user_message_id = user_message_id
        self._paused = paused
        self._history = paused.history if paused else None
        self._rounds: Sequence[Round] = paused.rounds if paused else ()
        self._ends_with_reply = reply.goes_on and paused is None
        self.newest_sent: SentRequest | None = None
        reply.model = model.name

    async def request(self, rounds: Sequence[Round]) -> Request:
        self._rounds = rounds
        request = await self._journal.read(self._assemble)
        self.newest_sent = self._sent.record(self._record.chat_id, self._record.turn_id, self._model, request)
        return request

    async def _assemble(self, tx: Connection) -> Request:
        chat_id, families = self._record.chat_id, frozenset(self._record.families)
        if self._history is None:
            history = await self._prompting.history(tx, chat_id, self._user_message_id)
            self._history = _ending_with(self._reply.begun, history) if self._ends_with_reply else history
        return await self._prompting.request(tx, chat_id, self._model, self._history, self._rounds, families, self._families_off)

    def waiting(self, reason: WaitReason | None) -> None:
        if reason is None:
            reason = "model_busy" if self._others_run() else "model_loading"
        self._journal.publish(TurnWaiting(chat_id=self._record.chat_id, turn_id=self._record.turn_id, reason=reason))

    async def say(self, channel: Channel, piece: str) -> None:
        if self._reply.message is None:
            await self._reply.announce()
        if self._reply.host != self._usage.host:
            self._reply.name_host(self._usage.host)
        self._reply.append(channel, piece)

    async def end_reply(self, *, precedes_calls: bool, calls: Sequence[ToolCall]) -> None:
        """The final reply is completed when the turn is settled."""
        if not precedes_calls:
            return

        async def end(unit: Unit) -> None:
            tool = self._registry.get(calls[0].name)
            working = await self._states.load(unit.tx, self._record.chat_id)
            family = tool.family.name if tool and not tool.family.is_helper else working.active_tool
            await self._reply.end_before_calls(unit, family)

        await self._journal.write(end)
        if self._ends_with_reply:
            self._ends_with_reply, self._history = False, (self._history or [])[:-1]  # the text so far is the round's now

    async def drop_reply(self) -> None:
        await self._journal.write(self._reply.drop)

    async def call(self, call: ToolCall, so_far: Unfinished) -> CallResult:
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        if call.name == CURRENT_STATE:
            return await self._read_state(arguments)
        try:
            tool = self._registry.get(call.name)
            if tool is None or not tool.for_model or tool.family.name in self._families_off:
                raise self._tool_runs.unknown(call.name)
            checked = tool.validate(call.arguments)
            if tool.effect == "commit" and not await self._is_allowed(tool, arguments, so_far):
                return await self._denied(tool, arguments, checked)
            result = await self._tool_runs.run(self._record, tool, checked)
        except CleanroomError as error:
            receipt = await self._tool_runs.fail(self._record, call.name, arguments, error)
            shown = arguments if len(json.dumps(arguments)) <= FAILED_ARGUMENTS_CHARACTERS else {}
            return CallResult(Exchange(call.name[:100], shown, f"Error: {error.message}", receipt), failed=True)
        receipt = Receipt(tool.name, tool.identity(checked), result.outcome)
        for_model = self._prompting.capped(tool, result, self._model)
        return CallResult(Exchange(call.name, arguments, for_model, receipt, result.subject, result.holds), failed=False)

    async def _is_allowed(self, tool: Tool, arguments: dict[str, Any], so_far: Unfinished) -> bool:
        """Whether a commit may be carried out: always, unless the person wants to be asked before."""
        if self._paused is None and not self._asks_first:
            return True
        chat_id = self._record.chat_id
        if self._paused is None:
            paused = PausedTurn(
                call_id=new_call_id(),
                record=self._record,
                user_message_id=self._user_message_id,
                history=self._history or [],
                rounds=list(self._rounds),
                unfinished=so_far,
            )
            await self._approvals.ask(paused, tool.name, arguments)
        self._paused = None  # a resumed turn goes on at the call that waited; the next one is asked for anew
        answer = await self._approvals.answer_to(chat_id)
        await self._journal.write(lambda unit: self._approvals.forget(unit, chat_id))
        return answer == "allow"

    async def _denied(self, tool: Tool, arguments: dict[str, Any], checked: dict[str, Any]) -> CallResult:
        """Tell the model what the person decided; it is no mistake that could be mended."""
        receipt = await self._tool_runs.deny(self._record, tool, checked)
        return CallResult(Exchange(tool.name, arguments, "The person did not allow this. Nothing was changed.", receipt), failed=True)

    async def _read_state(self, arguments: dict[str, Any]) -> CallResult:
        """The model asked for what it is given anyway: read it again, with neither card nor receipt."""
        state = await self._journal.read(lambda tx: self._prompting.working_state(tx, self._record.chat_id))
        receipt = Receipt(CURRENT_STATE, {}, "ok")
        return CallResult(Exchange(CURRENT_STATE, arguments, state, receipt, CURRENT_STATE), failed=False)


def _ending_with(begun: str, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history with the reply that goes on as its last message; the receipt of its own calls may have followed it."""
    index = max(index for index, row in enumerate(history) if row["role"] == "assistant")
    return [*history[:index], *history[index + 1 :], {"role": "assistant", "content": begun}]
