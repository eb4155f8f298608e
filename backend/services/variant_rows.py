"""Variants of a reply: the one that is shown is a message, the others wait outside the history.

Numbers count from 1 in the order in which the replies were made; a reply that is the only one has none.
"""

from __future__ import annotations

from typing import Any

from backend.llm.core import receipts
from backend.llm.core.receipts import Receipt
from backend.protocol import MessageCreated
from backend.services.journal import Unit
from backend.services.receipt_rows import ReceiptRows
from backend.services.records import to_message
from backend.store import messages, variants
from backend.store.connection import Connection

# What a reply is, whichever row holds it.
_REPLY = ("content", "status", "thinking", "model", "metrics", "created_at")


class VariantRows:
    """Moves replies between the messages and the variants, inside the caller's transaction."""

    def __init__(self, receipt_rows: ReceiptRows) -> None:
        self._receipts = receipt_rows

    async def set_aside(self, unit: Unit, question: dict[str, Any], reply: dict[str, Any], reads: list[Receipt]) -> None:
        """Keep a reply that goes from the messages, with the receipts of what it read."""
        await self._keep(unit, question, reply, reply["variant"] or 1, receipts.encode(reads))

    async def place_of_next(self, tx: Connection, question_id: int) -> dict[str, int]:
        """The columns of a reply that joins the variants; none when it is the first."""
        known = await variants.count(tx, question_id)
        return {"variant": known + 1, "variants": known + 1} if known else {}

    async def show_newest(self, unit: Unit, question_id: int) -> None:
        """Show the newest variant, if there is one: the reply that was to take its place came to nothing."""
        count = await variants.count(unit.tx, question_id)
        taken = await variants.take(unit.tx, question_id, count)
        question = await messages.get(unit.tx, question_id)
        if taken is None or question is None:
            return
        place = {"variant": count, "variants": count} if count > 1 else {}
        row = await messages.insert(
            unit.tx, session_id=question["session_id"], role="assistant", is_ephemeral=0, turn_id=question["turn_id"],
            **_reply_in(taken), **place,
        )  # fmt: skip
        await self._receipts.exchange(unit, question, row, taken["receipts"])
        unit.publish(MessageCreated(chat_id=question["session_id"], message=to_message(row)))

    async def swap(self, unit: Unit, question: dict[str, Any], shown: dict[str, Any], index: int) -> dict[str, Any] | None:
        """Show another variant in the row of the shown one; the row, or None when there is none at that number."""
        taken = await variants.take(unit.tx, question["id"], index)
        if taken is None:
            return None
        reads = await self._receipts.exchange(unit, question, shown, taken["receipts"])
        await self._keep(unit, question, shown, shown["variant"], reads)
        return await messages.update(unit.tx, shown["id"], variant=index, **_reply_in(taken))

    async def recover(self, unit: Unit, chat_id: str | None = None) -> None:
        """Finish what an ended process had begun, in all chats or in one: number the reply that it left, or show the newest variant."""
        for question in await variants.without_shown(unit.tx, chat_id):
            later = await messages.list_after(unit.tx, question["session_id"], question["id"])
            if left := replies_in(later):
                await messages.update(unit.tx, left[-1]["id"], **await self.place_of_next(unit.tx, question["id"]))
            else:
                await self.show_newest(unit, question["id"])

    async def forget(self, unit: Unit, question_id: int) -> None:
        """The question is another one now: what was replied to the old one goes."""
        await variants.delete_all(unit.tx, question_id)

    async def _keep(self, unit: Unit, question: dict[str, Any], reply: dict[str, Any], position: int, reads: str) -> None:
        place = {"session_id": question["session_id"], "user_message_id": question["id"], "position": position}
        await variants.insert(unit.tx, **place, receipts=reads, **_reply_in(reply))


def replies_in(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The replies among the rows that follow a question: what an assistant said for good."""
    return [row for row in rows if row["role"] == "assistant" and not row["is_ephemeral"]]


def _reply_in(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _REPLY}
