"""What becomes of all that followed a message when its turn runs anew.

What was done for good stays, and the receipts of it: the new run has to know. Everything else goes.
"""

from __future__ import annotations

import json
from typing import Any

from backend.llm.core.receipts import Receipt
from backend.llm.core.registry import Registry
from backend.protocol import MessageDeleted
from backend.services.context_policy import Activity
from backend.services.journal import Unit
from backend.services.receipt_rows import ReceiptRows, is_receipt
from backend.services.replies import PARAGRAPH
from backend.services.tool_runs import TurnRecord
from backend.services.variant_rows import VariantRows, replies_in
from backend.services.working import Working, WorkingStates
from backend.store import messages

Row = dict[str, Any]


class Rewind:
    """Takes turns back inside the caller's transaction."""

    def __init__(self, registry: Registry, states: WorkingStates, receipt_rows: ReceiptRows, variant_rows: VariantRows) -> None:
        self._registry = registry
        self._states = states
        self._receipts = receipt_rows
        self._variants = variant_rows

    async def for_another_reply(self, unit: Unit, record: TurnRecord, question: Row, later: list[Row]) -> None:
        """Take back the question's turn; its reply becomes a variant."""
        reads = await self._take_back(unit, record, question, later)
        if replies := replies_in(later):  # one, but in a chat that another program made
            whole = {**replies[-1], "content": PARAGRAPH.join(row["content"] for row in replies)}
            await self._variants.set_aside(unit, question, whole, reads)

    async def for_another_question(self, unit: Unit, record: TurnRecord, question: Row, later: list[Row]) -> None:
        """Take back the question's turn and all later ones, and what else was replied to the question."""
        await self._take_back(unit, record, question, later)
        await self._variants.forget(unit, question["id"])

    async def _take_back(self, unit: Unit, record: TurnRecord, question: Row, later: list[Row]) -> list[Receipt]:
        """Delete what followed the question; the receipts of what its turns read."""
        kept, reads = await self._keep_commits(unit, record, [row for row in later if is_receipt(row)])
        gone = await messages.delete_after(unit.tx, record.chat_id, question["id"], kept)
        if gone:
            unit.publish(MessageDeleted(chat_id=record.chat_id, message_ids=gone))
        working = await self._states.load(unit.tx, record.chat_id)
        await self._put_down(unit, working, [question, *later])
        await self._states.save(unit.tx, record.chat_id, working)
        unit.after_commit(lambda: self._states.forget(record.chat_id))  # what Undo would put back is of the turns that go
        return reads

    async def _keep_commits(self, unit: Unit, record: TurnRecord, rows: list[Row]) -> tuple[int | None, list[Receipt]]:
        """Gather the receipts of commits in one row, which the new run adds to; its id, and the receipts of what was read."""
        commits: list[Receipt] = []
        reads: list[Receipt] = []
        for row in rows:
            done, read = self._receipts.split(row["content"])
            commits += done
            reads += read
        if not commits:
            return None, reads
        record.receipt_id, record.receipts = rows[0]["id"], commits
        await self._receipts.rewrite(unit, rows[0], commits, turn_id=record.turn_id, hidden=0)
        return record.receipt_id, reads

    async def _put_down(self, unit: Unit, working: Working, turns: list[Row]) -> None:
        """Nothing that no card shows any more stays in hand, and no question about a turn that goes stays open."""
        pending = working.pending
        if pending and any(pending["turn_id"] == row["turn_id"] or pending["transaction_id"] == row["transaction_id"] for row in turns):
            await self._states.close_transaction(unit, turns[0]["session_id"], working, "expired")
        left = await messages.list_ephemeral(unit.tx, turns[0]["session_id"])
        if not any(row["family"] == working.active_tool for row in left):
            working.follow(Activity())
        elif any(row["family"] == working.active_tool and self._took_in_hand(row) for row in turns):
            working.held = {}

    def _took_in_hand(self, row: Row) -> bool:
        """Whether a card's call may have changed what the family holds: it showed the thing whole, or wrote it."""
        tool = self._registry.get(row["tool"]) if row["tool"] else None
        if tool is None or row["status"] != "complete":
            return False
        return tool.effect != "read" or "subject" in json.loads(row["card"] or "{}")
