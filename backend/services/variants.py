"""Which of the replies to a message is shown: what a person chooses among them."""

from __future__ import annotations

from backend.errors import Conflict, Invalid, NotFound
from backend.protocol import Message, MessageUpdated
from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal, Unit
from backend.services.records import to_message
from backend.services.turns import Turns
from backend.services.variant_rows import VariantRows
from backend.services.working import WorkingStates
from backend.store import messages


class Variants:
    def __init__(self, journal: Journal, chat_rows: ChatRows, variant_rows: VariantRows, turns: Turns, states: WorkingStates) -> None:
        self._journal = journal
        self._chats = chat_rows
        self._variants = variant_rows
        self._turns = turns
        self._states = states

    async def show(self, message_id: int, index: int) -> Message:
        """Show another variant in the place of this reply. Raises NotFound, TurnRunning, Conflict when it has none, Invalid."""

        async def write(unit: Unit) -> Message:
            shown = await messages.get(unit.tx, message_id)
            if shown is None:
                raise NotFound("This message does not exist, or was deleted.")
            chat_id = shown["session_id"]
            self._turns.refuse_second(chat_id)
            if not shown["variants"]:
                raise Conflict("There is only this one reply; make another one first.")
            if shown["variant"] == index:
                return to_message(shown)
            question = await messages.question_of(unit.tx, chat_id, message_id)
            row = await self._variants.swap(unit, question, shown, index)
            if row is None:
                raise Invalid(f"There are {shown['variants']} replies to choose from, and {index} is none of them.", {"index": "no such variant"})
            unit.publish(MessageUpdated(chat_id=chat_id, message=to_message(row)))
            chat = await self._chats.get(unit.tx, chat_id)
            await self._states.publish_snapshot(unit, chat_id, chat["ttl_messages"], running_turn=None)
            return to_message(row)

        return await self._journal.write(write)
