"""Calls that wait for a person's Allow or Deny; the wait outlives a restart of the server."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from backend.errors import NotFound
from backend.llm.agent import Unfinished
from backend.llm.core.cards import Card, notice
from backend.llm.core.tool_injector import Round
from backend.protocol import MessageCreated, MessageUpdated, TurnWaiting
from backend.services.journal import Journal, Unit
from backend.services.records import Clock, to_message
from backend.services.tool_runs import TurnRecord
from backend.services.working import card_json
from backend.store import messages, paused_turns, states

ApprovalState = Literal["waiting", "allowed", "denied"]

_STATES: dict[str, ApprovalState] = {"allow": "allowed", "deny": "denied"}


@dataclass(slots=True)
class PausedTurn:
    """All that a turn needs to go on at the call that waits: the first of `unfinished` without a result."""

    call_id: str
    record: TurnRecord
    user_message_id: int
    history: list[dict[str, Any]]
    rounds: list[Round]
    unfinished: Unfinished


_paused_turn: TypeAdapter[PausedTurn] = TypeAdapter(PausedTurn)


class Approvals:
    """Asks, waits, and keeps the answer."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._answers: dict[str, asyncio.Future[str]] = {}

    def is_waiting(self, chat_id: str) -> bool:
        return chat_id in self._answers

    async def ask(self, paused: PausedTurn, tool: str, arguments: dict[str, Any]) -> None:
        """Show the call as a card with Allow and Deny, and keep the turn as it stands."""

        async def write(unit: Unit) -> None:
            chat_id, turn_id = paused.record.chat_id, paused.record.turn_id
            state = await states.get(unit.tx, chat_id)
            row = await messages.insert(
                unit.tx, session_id=chat_id, role="tool", content=f"{tool} waits to be allowed.", is_ephemeral=1, status="streaming",
                turn_id=turn_id, family=state["active_tool"] if state else None, tool=tool,
                card=card_json(_card(paused.call_id, tool, arguments)), created_at=self._clock.now(),
            )  # fmt: skip
            await paused_turns.insert(unit.tx, chat_id, turn_id, paused.call_id, _paused_turn.dump_json(paused).decode())
            unit.publish(MessageCreated(chat_id=chat_id, message=to_message(row)))
            unit.publish(TurnWaiting(chat_id=chat_id, turn_id=turn_id, reason="approval"))

        await self._journal.write(write)

    async def answer_to(self, chat_id: str) -> str:
        """Wait for the answer to the call that waits in a chat: `allow` or `deny`."""
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[chat_id] = waiting
        try:
            # Looked up once the wait has begun: an answer that comes in between wakes it.
            row = await self._journal.read(lambda tx: paused_turns.get(tx, chat_id))
            if row is not None and row["answer"] is not None:
                self._wake(chat_id, row["answer"])
            return await waiting
        finally:
            del self._answers[chat_id]

    async def answer(self, chat_id: str, call_id: str, answer: Literal["allow", "deny"]) -> None:
        """Take a person's answer; a second one changes nothing. Raises NotFound for a call that never waited."""

        async def write(unit: Unit) -> None:
            row = await paused_turns.get(unit.tx, chat_id)
            if row is not None and row["call_id"] == call_id:
                if row["answer"] is None:
                    await paused_turns.set_answer(unit.tx, chat_id, answer)
                    await self._mark(unit, chat_id, call_id, _STATES[answer])
                    unit.after_commit(lambda: self._wake(chat_id, answer))
            elif await self._card_row(unit, chat_id, call_id) is None:
                raise NotFound("There is no such call in this chat.")

        await self._journal.write(write)

    async def forget(self, unit: Unit, chat_id: str) -> None:
        """The wait is over: the call is carried out or refused, or its turn has ended."""
        row = await paused_turns.get(unit.tx, chat_id)
        if row is None:
            return
        if row["answer"] is None:
            await self._mark(unit, chat_id, row["call_id"], "denied")
        await paused_turns.delete(unit.tx, chat_id)

    async def paused(self, chat_id: str | None = None) -> list[PausedTurn]:
        """The turns, or one chat's, that an ended process left waiting."""
        rows = await self._journal.read(lambda tx: paused_turns.list_all(tx, chat_id))
        return [_paused_turn.validate_json(row["state"]) for row in rows]

    def _wake(self, chat_id: str, answer: str) -> None:
        waiting = self._answers.get(chat_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def _mark(self, unit: Unit, chat_id: str, call_id: str, state: ApprovalState) -> None:
        row = await self._card_row(unit, chat_id, call_id)
        if row is None:
            return
        card = json.loads(row["card"])
        card["approval"]["state"] = state
        updated = await messages.update(unit.tx, row["id"], card=card_json(card), status="complete")
        assert updated is not None
        unit.publish(MessageUpdated(chat_id=chat_id, message=to_message(updated)))

    async def _card_row(self, unit: Unit, chat_id: str, call_id: str) -> dict[str, Any] | None:
        for row in await messages.list_ephemeral(unit.tx, chat_id):
            card = json.loads(row["card"]) if row["card"] else {}
            if card.get("approval", {}).get("call_id") == call_id:
                return row
        return None


def new_call_id() -> str:
    return uuid.uuid4().hex


def _card(call_id: str, tool: str, arguments: dict[str, Any]) -> Card:
    body = json.dumps(arguments, ensure_ascii=False, indent=2) if arguments else ""
    card = notice(f"{tool} waits to be allowed", body, title_key="card.approval", params={"tool": tool})
    return {**card, "approval": {"call_id": call_id, "tool": tool, "arguments": arguments, "state": "waiting"}}
