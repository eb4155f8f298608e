"""A chat's working state in the database, and how it is cleared, confirmed and put back."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from backend.llm.core import working_state
from backend.llm.core.registry import Registry
from backend.llm.core.tool_injector import window
from backend.llm.tokens import TokenCounter
from backend.protocol import (
    ClearReason,
    ContextCleared,
    ContextRestored,
    ContextState,
    ContextStateChanged,
    PendingTransaction,
    TransactionClosed,
)
from backend.services.context_policy import Activity
from backend.services.journal import Unit
from backend.services.observer import Observer
from backend.services.records import Clock, to_message
from backend.settings import Settings
from backend.store import messages, states
from backend.store.connection import Connection

# How long what was cleared can be put back; it is held in memory only.
UNDO_SECONDS = 600


@dataclass(slots=True)
class Working:
    """A chat's row of `session_states`. `held` is what the active family holds in hand."""

    active_tool: str | None = None
    held: dict[str, Any] = field(default_factory=dict)
    unrelated_count: int = 0
    pending: dict[str, Any] | None = None

    @property
    def activity(self) -> Activity:
        return Activity(self.active_tool, self.unrelated_count)

    def follow(self, activity: Activity) -> None:
        """Take over what the policy decided; another family starts with empty hands."""
        if activity.family != self.active_tool:
            self.held = {}
        self.active_tool, self.unrelated_count = activity.family, activity.unrelated_count


@dataclass(frozen=True, slots=True)
class Cleared:
    """What a clearing took, to be put back."""

    rows: list[dict[str, Any]]
    working: Working
    until: str
    expires: asyncio.TimerHandle


class WorkingStates:
    """Reads and changes working states inside the caller's transaction."""

    def __init__(self, settings: Settings, registry: Registry, counter: TokenCounter, clock: Clock, observer: Observer) -> None:
        self._settings = settings
        self._registry = registry
        self._counter = counter
        self._clock = clock
        self._observer = observer
        self._cleared: dict[str, Cleared] = {}

    async def load(self, tx: Connection, chat_id: str) -> Working:
        return _working(await states.get(tx, chat_id))

    async def save(self, tx: Connection, chat_id: str, working: Working) -> None:
        """Write the state; one that says nothing has no row."""
        if working == Working():
            await states.delete(tx, chat_id)
            return
        await states.save(
            tx,
            chat_id,
            active_tool=working.active_tool,
            state=working.held,
            unrelated_count=working.unrelated_count,
            pending_transaction=working.pending,
            now=self._clock.now(),
        )

    async def clear(self, unit: Unit, chat_id: str, working: Working, reason: ClearReason, keep_family: str | None = None) -> None:
        """Delete the chat's material but that of `keep_family`; the caller saves the state that follows.

        An unanswered transaction ends with it. What went is held for Undo, but for `confirmed`.
        """
        rows = await messages.delete_ephemeral(unit.tx, chat_id, keep_family)
        tokens = sum(self.tokens_of(row) for row in rows)
        family = working.active_tool
        await states.record_event(unit.tx, chat_id, kind="cleared", reason=reason, family=family, messages=len(rows), tokens=tokens, now=self._clock.now())
        before = Working(family, dict(working.held), working.unrelated_count)
        await self.close_transaction(unit, chat_id, working, "expired")
        undo_until = None if reason == "confirmed" else self._clock.later(UNDO_SECONDS)
        unit.after_commit(lambda: self._hold(chat_id, rows, before, undo_until))
        unit.after_commit(lambda: self._observer.cleared(reason))
        unit.publish(
            ContextCleared(
                chat_id=chat_id,
                reason=reason,
                family=family,
                message_ids=[row["id"] for row in rows],
                messages=len(rows),
                tokens=tokens,
                undo_until=undo_until,
            )
        )

    async def restore(self, unit: Unit, chat_id: str) -> bool:
        """Put back what the last clearing took, ids and state included; False when nothing is held."""
        cleared = self._cleared.get(chat_id)
        if cleared is None:
            return False
        rows = [await messages.insert(unit.tx, **row) for row in cleared.rows]
        current = await self.load(unit.tx, chat_id)
        restored = Working(cleared.working.active_tool, dict(cleared.working.held), 0, current.pending)
        await self.save(unit.tx, chat_id, restored)
        tokens, now = sum(self.tokens_of(row) for row in rows), self._clock.now()
        await states.record_event(unit.tx, chat_id, kind="restored", reason="undo", family=restored.active_tool, messages=len(rows), tokens=tokens, now=now)
        unit.after_commit(lambda: self.forget(chat_id))
        unit.publish(ContextRestored(chat_id=chat_id, messages=[to_message(row) for row in rows]))
        return True

    async def complete(self, unit: Unit, chat_id: str, working: Working, tool: str, summary: str, turn_id: str) -> str:
        """Note a finished operation that awaits the person's answer; it takes the place of another. Its id."""
        await self.close_transaction(unit, chat_id, working, "expired")
        working.pending = {"transaction_id": uuid.uuid4().hex, "tool": tool, "summary": summary, "turn_id": turn_id}
        return str(working.pending["transaction_id"])

    async def close_transaction(self, unit: Unit, chat_id: str, working: Working, answer: str) -> None:
        """End the pending transaction, if there is one, with its one outcome."""
        if working.pending is None:
            return
        transaction_id = working.pending["transaction_id"]
        working.pending = None
        await states.record_event(
            unit.tx,
            chat_id,
            kind="transaction",
            reason=answer,
            family=working.active_tool,
            messages=0,
            tokens=0,
            now=self._clock.now(),
            transaction_id=transaction_id,
        )
        unit.publish(TransactionClosed.model_validate({"chat_id": chat_id, "transaction_id": transaction_id, "answer": answer}))

    async def outcome(self, tx: Connection, chat_id: str, transaction_id: str) -> str | None:
        """How a transaction ended; None when it has not, or never was."""
        return await states.transaction_outcome(tx, chat_id, transaction_id)

    def chats_with_undo(self) -> list[str]:
        """The chats of which something is held."""
        return list(self._cleared)

    def forget(self, chat_id: str) -> None:
        """Let go of what was held for Undo."""
        cleared = self._cleared.pop(chat_id, None)
        if cleared is not None:
            cleared.expires.cancel()

    async def snapshot(self, tx: Connection, chat_id: str, ttl_messages: int, running_turn: str | None) -> ContextState:
        """The state as the person sees it. A transaction is announced when its turn is over, not before."""
        state = await states.get(tx, chat_id)
        working = _working(state)
        ephemeral = await messages.list_ephemeral(tx, chat_id)
        ephemeral_tokens = sum(self.tokens_of(row) for row in ephemeral)
        history = await self.history(tx, chat_id)
        pending = working.pending if working.pending and working.pending["turn_id"] != running_turn else None
        return ContextState(
            active_tool=working.active_tool,
            unrelated_count=working.unrelated_count,
            ttl_messages=ttl_messages,
            ephemeral_messages=len(ephemeral),
            ephemeral_tokens=ephemeral_tokens,
            history_messages=len(history),
            history_tokens=sum(self._counter.message(row["content"]) for row in history),
            pending_transaction=PendingTransaction.model_validate(pending) if pending else None,
            undo_until=self._undo_until(chat_id),
            saved_tokens=ephemeral_tokens + await states.cleared_tokens(tx, chat_id),
            in_hand=await self._in_hand(tx, chat_id, state),
        )

    async def publish_snapshot(self, unit: Unit, chat_id: str, ttl_messages: int, running_turn: str | None) -> ContextState:
        context = await self.snapshot(unit.tx, chat_id, ttl_messages, running_turn)
        unit.after_commit(lambda: setattr(context, "undo_until", self._undo_until(chat_id)))  # this unit may clear or restore
        unit.publish(ContextStateChanged(chat_id=chat_id, context=context))
        return context

    async def history(self, tx: Connection, chat_id: str, upcoming: int = 0) -> list[dict[str, Any]]:
        """The window of the LLM channel, oldest first, with room for `upcoming` messages that aren't stored."""
        limit = self._settings.history_limit
        rows = await messages.db_get_chat_history(tx, chat_id, limit)
        count = await messages.count_history(tx, chat_id)
        placeholders = [{"role": "user", "content": ""}] * upcoming
        cut = window([*rows, *placeholders], count + upcoming, limit, self._settings.history_step)
        return cut[: len(cut) - upcoming]

    def tokens_of(self, row: dict[str, Any]) -> int:
        """What a message would cost a window: its text, or a card's whole rendering."""
        return self._counter.message(row["content"] + (row["card"] or ""))

    async def _in_hand(self, tx: Connection, chat_id: str, state: dict[str, Any] | None) -> list[str]:
        if self._settings.working_state_tokens == 0:
            return []  # no working state goes out
        return await working_state.in_hand(self._registry, tx, chat_id, state, self._clock.now())

    def _undo_until(self, chat_id: str) -> str | None:
        cleared = self._cleared.get(chat_id)
        return cleared.until if cleared else None

    def _hold(self, chat_id: str, rows: list[dict[str, Any]], working: Working, until: str | None) -> None:
        self.forget(chat_id)
        if until is not None:
            expires = asyncio.get_running_loop().call_later(UNDO_SECONDS, self.forget, chat_id)
            self._cleared[chat_id] = Cleared(rows, working, until, expires)


def _working(row: dict[str, Any] | None) -> Working:
    if row is None:
        return Working()
    return Working(row["active_tool"], row["state"], row["unrelated_count"], row["pending_transaction"])


def card_json(card: dict[str, Any]) -> str:
    return json.dumps(card, ensure_ascii=False)
