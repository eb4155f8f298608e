"""The end of a turn: its reply, its effect on the working state, its transaction, in one database transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backend.protocol import ChatEvent, MessageUpdated, TransactionCompleted, TurnError, TurnFinished, TurnStatus
from backend.services import context_policy
from backend.services.approvals import Approvals
from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal, Unit
from backend.services.records import to_chat, to_message
from backend.services.replies import StreamingReply
from backend.services.tool_runs import TurnRecord
from backend.services.variant_rows import VariantRows
from backend.services.working import Working, WorkingStates
from backend.store import messages


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended. `model_error` is the kind of ModelError that ended it."""

    status: TurnStatus
    error: TurnError | None = None
    model_error: str | None = None


class Settlement:
    """Settles turns, whichever way they ended."""

    def __init__(self, journal: Journal, chat_rows: ChatRows, states: WorkingStates, approvals: Approvals, variants: VariantRows) -> None:
        self._variants = variants
        self._approvals = approvals
        self._journal = journal
        self._chats = chat_rows
        self._states = states

    async def settle(
        self,
        record: TurnRecord,
        user_message_id: int | None,
        outcome: Outcome,
        reply: StreamingReply | None,
        metrics: dict[str, Any],
        free: Callable[[], None],
    ) -> None:
        """Write and publish the turn's end; `free` opens the chat for the next command just before the last event.

        Raises StoreError when it can't be written; then it may be tried again.
        """

        async def end(unit: Unit) -> None:
            chat_id = record.chat_id
            chat = await self._chats.get(unit.tx, chat_id)
            await self._approvals.forget(unit, chat_id)
            working = await self._states.load(unit.tx, chat_id)
            announced = record.transaction if record.transaction and working.pending == record.transaction else None
            if reply is not None and user_message_id is not None:
                await self._end_reply(unit, record, user_message_id, working, outcome, reply, metrics, announced)
                if outcome.status == "failed" and not reply.goes_on:
                    await self._mark_failed(unit, chat_id, user_message_id, outcome)
            counts = user_message_id is not None and not record.is_repeated
            await self._age(unit, record, working, chat["ttl_messages"], is_user_message=counts)
            await self._states.save(unit.tx, chat_id, working)
            if announced is not None and working.pending is not None:
                unit.publish(
                    TransactionCompleted(
                        chat_id=chat_id,
                        transaction_id=announced["transaction_id"],
                        tool=announced["tool"],
                        summary=announced["summary"],
                    )
                )
            await self._states.publish_snapshot(unit, chat_id, chat["ttl_messages"], running_turn=None)
            unit.after_commit(free)
            unit.publish(TurnFinished(chat_id=chat_id, turn_id=record.turn_id, status=outcome.status, error=outcome.error))
            unit.publish(ChatEvent(type="chat.updated", chat=to_chat(chat, turn_running=False), user=chat["owner"]))

        await self._journal.write(end)

    async def _end_reply(
        self,
        unit: Unit,
        record: TurnRecord,
        question_id: int,
        working: Working,
        outcome: Outcome,
        reply: StreamingReply,
        metrics: dict[str, Any],
        announced: dict[str, Any] | None,
    ) -> None:
        """Complete the final reply with the turn's flag; without a reply the flag is the card's.

        A reply to a question that has some becomes another variant; one without text makes room for the newest of them.
        """
        place = {} if reply.goes_on else await self._variants.place_of_next(unit.tx, question_id)
        is_nothing = not reply.has_text and (outcome.status == "failed" or bool(place) or not reply.thinking)
        if outcome.error is not None:
            metrics = {**metrics, "error": outcome.error.model_dump()}
        facts = {"changes": record.changes, "failed_calls": record.failed_calls}
        if not record.changes and (record.failed_calls or working.active_tool):
            facts["nothing_changed"] = True
        transaction_id = announced["transaction_id"] if announced else None
        flag = {"transaction_id": transaction_id} if announced and reply.has_text else {}
        status = "interrupted" if outcome.status == "failed" else outcome.status
        is_dropped = is_nothing and await reply.drop(unit)
        row = None if is_dropped else await reply.complete(unit, status=status, metrics={**metrics, **facts}, **flag, **place)
        if row is None:
            await self._variants.show_newest(unit, question_id)
        if announced and not (row and row["transaction_id"]) and record.completing_card_id is not None:
            card = await messages.update(unit.tx, record.completing_card_id, transaction_id=transaction_id)
            if card is not None:
                unit.publish(MessageUpdated(chat_id=record.chat_id, message=to_message(card)))

    async def _mark_failed(self, unit: Unit, chat_id: str, user_message_id: int, outcome: Outcome) -> None:
        """Keep the error at the person's message, for the reload too."""
        error = outcome.error.model_dump() if outcome.error else None
        row = await messages.update(unit.tx, user_message_id, status="failed", metrics=json.dumps({"error": error}))
        if row is not None:
            unit.publish(MessageUpdated(chat_id=chat_id, message=to_message(row)))

    async def _age(self, unit: Unit, record: TurnRecord, working: Working, ttl_messages: int, *, is_user_message: bool) -> None:
        """Count the turn as related or not, and clear what has expired."""
        touched = bool(record.families)
        related = record.kept or (working.active_tool in record.families if working.active_tool else touched)
        has_material = bool(await messages.list_ephemeral(unit.tx, record.chat_id))
        activity, clearing = context_policy.turn_ended(
            working.activity, is_user_message=is_user_message, related=related, has_material=has_material, ttl_messages=ttl_messages
        )
        if clearing is not None:
            await self._states.clear(unit, record.chat_id, working, clearing.reason, clearing.keep)
        working.follow(activity)
