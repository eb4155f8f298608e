"""A turn's receipt row when the turn is run again or another reply is shown: what was done for good stays, what was read goes."""

from __future__ import annotations

from typing import Any

from backend.llm.core import receipts
from backend.llm.core.receipts import Receipt
from backend.llm.core.registry import Registry
from backend.protocol import MessageCreated, MessageDeleted, MessageUpdated
from backend.services.journal import Unit
from backend.services.records import Clock, to_message
from backend.store import messages


class ReceiptRows:
    """Reads and writes receipt rows inside the caller's transaction."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    def is_commit(self, receipt: Receipt) -> bool:
        """Whether the call changed something for good."""
        tool = self._registry.get(receipt.tool)
        return tool is not None and tool.effect == "commit" and receipt.succeeded

    def split(self, content: str) -> tuple[list[Receipt], list[Receipt]]:
        """The receipts of commits, and the others, which belong to one reply."""
        found = receipts.decode(content)
        return [receipt for receipt in found if self.is_commit(receipt)], [receipt for receipt in found if not self.is_commit(receipt)]

    async def exchange(self, unit: Unit, question: dict[str, Any], reply: dict[str, Any], own: str) -> str:
        """Put the receipts `own` of the reply that is shown now in the place of the former one's, which are returned.

        The row's commits stay. It stands between the question and the reply, where a row that is new takes a free id.
        """
        turn = await messages.list_after(unit.tx, question["session_id"], question["id"])
        row = next((row for row in turn if row["id"] < reply["id"] and is_receipt(row)), None)
        commits, former = self.split(row["content"]) if row else ([], [])
        content = [*receipts.decode(own), *commits]
        if row is None and content:
            await self._add(unit, question, reply, content)
        elif row is not None and content:
            await self.rewrite(unit, row, content)
        elif row is not None:
            await messages.delete(unit.tx, row["id"])
            unit.publish(MessageDeleted(chat_id=row["session_id"], message_ids=[row["id"]]))
        return receipts.encode(former)

    async def _add(self, unit: Unit, question: dict[str, Any], reply: dict[str, Any], content: list[Receipt]) -> None:
        free = await messages.free_id(unit.tx, question["id"], reply["id"])
        if free is None:  # no row of this turn was ever deleted: another program made it
            return
        row = await messages.insert(
            unit.tx, id=free, session_id=question["session_id"], role="tool", content=receipts.encode(content), is_ephemeral=0,
            hidden=reply["hidden"], status="complete", turn_id=question["turn_id"], created_at=self._clock.now(),
        )  # fmt: skip
        unit.publish(MessageCreated(chat_id=row["session_id"], message=to_message(row)))

    async def rewrite(self, unit: Unit, row: dict[str, Any], content: list[Receipt], **columns: object) -> None:
        updated = await messages.update(unit.tx, row["id"], content=receipts.encode(content), **columns)
        assert updated is not None
        unit.publish(MessageUpdated(chat_id=row["session_id"], message=to_message(updated)))


def is_receipt(row: dict[str, Any]) -> bool:
    return bool(row["role"] == "tool" and not row["is_ephemeral"])
