"""Tool calls inside a turn: a change, its card, its receipt and the working state are one transaction."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from backend.errors import CleanroomError, Conflict, Invalid, NotFound
from backend.llm.core import receipts
from backend.llm.core.cards import Card, notice
from backend.llm.core.receipts import Receipt
from backend.llm.core.registry import Registry, Tool, ToolContext, ToolResult
from backend.logs import fields
from backend.protocol import FactsChanged, MessageCreated, MessageUpdated
from backend.services import context_policy
from backend.services.journal import Journal, Unit
from backend.services.records import Clock, to_message
from backend.services.working import Working, WorkingStates, card_json
from backend.store import chats, messages
from backend.store.connection import Connection
from backend.store.facts_query import FactsQuery

logger = logging.getLogger(__name__)

# What a call is counted as when there is no such tool: the model made its name up.
UNKNOWN_TOOL = "unknown"


@dataclass(slots=True)
class TurnRecord:
    """What a turn did so far. `client_id` is set for a button's turn: its receipt carries it.

    `reply_id` is the message that the turn goes on with. `calls` are the tools used, each with `ok`, `denied` or its
    error's code.
    """

    chat_id: str
    turn_id: str
    client_id: str | None = None
    receipts: list[Receipt] = field(default_factory=list)
    receipt_id: int | None = None
    families: set[str] = field(default_factory=set)
    changes: int = 0
    failed_calls: int = 0
    transaction: dict[str, Any] | None = None
    completing_card_id: int | None = None
    kept: bool = False
    is_repeated: bool = False
    reply_id: int | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_button(self) -> bool:
        return self.client_id is not None


class ToolRuns:
    """Carries out calls for models and buttons alike."""

    def __init__(self, registry: Registry, working_states: WorkingStates, journal: Journal, clock: Clock, facts: FactsQuery) -> None:
        self._registry = registry
        self._states = working_states
        self._journal = journal
        self._clock = clock
        self._facts = facts

    async def run(self, record: TurnRecord, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
        """Run a tool with checked arguments. Raises a CleanroomError, with nothing of the call kept."""
        try:
            if tool.effect != "read":
                return await self._journal.write(lambda unit: self._run(unit, record, tool, arguments))
            # A read may take its time: the writers don't wait for it, only for what is kept of it.
            result = await self._journal.read(lambda tx: self._call(tx, record, tool, arguments))
            return await self._journal.write(lambda unit: self._keep(unit, record, tool, arguments, result))
        except CleanroomError:
            raise
        except Exception:
            logger.exception("tool failed", extra=fields(tool=tool.name, chat_id=record.chat_id))
            raise CleanroomError(f"{tool.name} failed inside; nothing was changed.") from None

    async def fail(self, record: TurnRecord, name: str, arguments: dict[str, Any], error: CleanroomError) -> Receipt:
        """Show a call that was refused or failed, and leave its receipt when the tool is one of ours."""
        tool = self._registry.get(name)
        receipt = Receipt(name, tool.identity(arguments) if tool else {}, receipts.FAILED + error.message)
        if isinstance(error, Invalid):  # a body may stand where a number should, or as an argument's name
            receipt = Receipt(name, {}, receipts.FAILED + "wrong arguments")
        await self._journal.write(lambda unit: self._fail(unit, record, tool, name, error, receipt))
        return receipt

    async def deny(self, record: TurnRecord, tool: Tool, arguments: dict[str, Any]) -> Receipt:
        """Leave the receipt of a call that the person did not allow."""
        receipt = Receipt(tool.name, tool.identity(arguments), receipts.FAILED + "not allowed by the person")
        await self._journal.write(lambda unit: self._leave_receipt(unit, record, receipt))
        record.failed_calls += 1
        record.calls.append((tool.name, "denied"))
        return receipt

    def unknown(self, name: str) -> NotFound:
        """The error for a tool that does not exist, with the names of those that do."""
        names = ", ".join(tool.name for tool in self._registry if tool.for_model)
        return NotFound(f"There is no tool '{name[:100]}'. The tools are: {names}.")

    async def _run(self, unit: Unit, record: TurnRecord, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
        result = await self._call(unit.tx, record, tool, arguments)
        return await self._keep(unit, record, tool, arguments, result)

    async def _call(self, tx: Connection, record: TurnRecord, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
        working = await self._states.load(tx, record.chat_id)
        held = working.held if working.active_tool == tool.family.name else {}
        return await tool.run(ToolContext(tx, record.chat_id, self._clock.now(), dict(held), self._facts), arguments)

    async def _keep(self, unit: Unit, record: TurnRecord, tool: Tool, arguments: dict[str, Any], result: ToolResult) -> ToolResult:
        """Write what a call that succeeded leaves: its card, its receipt and the working state."""
        chat_id, family = record.chat_id, tool.family
        working = await self._states.load(unit.tx, chat_id)
        await self._take_over(unit, chat_id, tool, working, result)
        transaction_id = None
        if result.completes is not None:
            transaction_id = await self._states.complete(unit, chat_id, working, tool.name, result.completes, record.turn_id)
        await self._states.save(unit.tx, chat_id, working)
        card = result.card
        if result.subject is not None:
            await self._supersede(unit, chat_id, result.subject)
            card = {**card, "subject": result.subject}
        card_id = await self._add_card(unit, record, working, tool.name, card, result.for_model, transaction_id)
        if tool.effect != "read":
            unit.publish(FactsChanged(families=[family.name], user=await chats.owner_of(unit.tx, chat_id)))
        receipt = Receipt(tool.name, tool.identity(arguments), result.outcome)
        await self._leave_receipt(unit, record, receipt)

        def done() -> None:
            record.families.add(family.name)
            record.calls.append((tool.name, "ok"))
            record.changes += tool.effect != "read"
            if transaction_id is not None:
                record.transaction, record.completing_card_id = working.pending, card_id

        unit.after_commit(done)
        return result

    async def _take_over(self, unit: Unit, chat_id: str, tool: Tool, working: Working, result: ToolResult) -> None:
        """Make the tool's family the active one; another family's material goes first."""
        family = tool.family
        activity, clearing = context_policy.tool_succeeded(working.activity, family.name, is_helper=family.is_helper)
        if clearing is not None:
            await self._states.clear(unit, chat_id, working, clearing.reason, clearing.keep)
        working.follow(activity)
        if result.holds is not None and working.active_tool == family.name:
            working.held = result.holds

    async def _supersede(self, unit: Unit, chat_id: str, subject: str) -> None:
        """Take the buttons off the cards that show an earlier state of the same thing."""
        for row in await messages.list_ephemeral(unit.tx, chat_id):
            card = json.loads(row["card"]) if row["card"] else {}
            tool = self._registry.get(row["tool"]) if row["tool"] else None
            if card.get("subject") != subject or card.get("superseded") or tool is None:
                continue
            if tool.effect == "commit":
                continue  # what was done stays done, and its Undo with it
            updated = await messages.update(unit.tx, row["id"], card=card_json({**card, "actions": [], "superseded": True}))
            assert updated is not None
            unit.publish(MessageUpdated(chat_id=chat_id, message=to_message(updated)))

    async def _fail(self, unit: Unit, record: TurnRecord, tool: Tool | None, name: str, error: CleanroomError, receipt: Receipt) -> None:
        working = await self._states.load(unit.tx, record.chat_id)
        card = error.card if isinstance(error, Conflict) and error.card else _failure_card(name, error)
        family = working.active_tool or (tool.family.name if tool else None)
        row = await messages.insert(
            unit.tx, session_id=record.chat_id, role="tool", content=error.message, is_ephemeral=1, status="failed",
            turn_id=record.turn_id, family=family, tool=name[:100], card=card_json(card), created_at=self._clock.now(),
        )  # fmt: skip
        unit.publish(MessageCreated(chat_id=record.chat_id, message=to_message(row)))
        if tool is not None:
            await self._leave_receipt(unit, record, receipt)

        def done() -> None:
            record.failed_calls += 1
            record.calls.append((tool.name if tool else UNKNOWN_TOOL, error.code))
            if tool is not None:
                record.families.add(tool.family.name)

        unit.after_commit(done)

    async def _add_card(self, unit: Unit, record: TurnRecord, working: Working, tool: str, card: Card, content: str, transaction_id: str | None) -> int:
        row = await messages.insert(
            unit.tx, session_id=record.chat_id, role="tool", content=content, is_ephemeral=1, status="complete",
            turn_id=record.turn_id, family=working.active_tool, tool=tool, card=card_json(card),
            transaction_id=transaction_id if record.is_button else None, created_at=self._clock.now(),
        )  # fmt: skip
        unit.publish(MessageCreated(chat_id=record.chat_id, message=to_message(row)))
        return int(row["id"])

    async def _leave_receipt(self, unit: Unit, record: TurnRecord, receipt: Receipt) -> None:
        """Add to the turn's one receipt row, which stands before the final reply."""
        content = receipts.encode([*record.receipts, receipt])
        unit.after_commit(lambda: record.receipts.append(receipt))
        if record.receipt_id is not None:
            row = await messages.update(unit.tx, record.receipt_id, content=content)
            if row is not None:
                unit.publish(MessageUpdated(chat_id=record.chat_id, message=to_message(row)))
            return
        row = await messages.insert(
            unit.tx, session_id=record.chat_id, role="tool", content=content, is_ephemeral=0, status="complete",
            turn_id=record.turn_id, client_id=record.client_id, created_at=self._clock.now(),
        )  # fmt: skip
        unit.publish(MessageCreated(chat_id=record.chat_id, message=to_message(row)))
        receipt_id = int(row["id"])
        unit.after_commit(lambda: setattr(record, "receipt_id", receipt_id))


def _failure_card(name: str, error: CleanroomError) -> Card:
    return notice(f"{name[:100]} failed", error.message, title_key="card.tool_failed", params={"tool": name[:100]})
