"""What a process that ended has left unfinished, and what a process lets go of when another one goes on."""

from __future__ import annotations

from backend.protocol import ChatEvent, MessageCompleted, TurnFinished
from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal, Unit
from backend.services.ownership import PULLS
from backend.services.pulls import Pulls
from backend.services.records import to_message
from backend.services.sent import SentRequests
from backend.services.turns import Turns
from backend.services.variant_rows import VariantRows
from backend.services.working import WorkingStates
from backend.store import chats, messages, paused_turns


class Recovery:
    def __init__(
        self, journal: Journal, chat_rows: ChatRows, variants: VariantRows, states: WorkingStates, sent: SentRequests, turns: Turns, pulls: Pulls
    ) -> None:
        self._journal = journal
        self._rows = chat_rows
        self._variants = variants
        self._states = states
        self._sent = sent
        self._turns = turns
        self._pulls = pulls

    async def recover_all(self) -> None:
        """Finish what is left in every chat; no other process runs on this database."""
        await self._journal.write(lambda unit: messages.interrupt_streaming(unit.tx))
        await self._journal.write(self._variants.recover)
        await self._turns.resume_paused()

    async def hold(self, chat_id: str, server: str) -> None:
        """Have the database know that the chat is this server's: what its last owner still writes is refused."""
        await self._journal.write(lambda unit: chats.hold(unit.tx, chat_id, server))

    async def recover(self, chat_id: str, turn_id: str | None) -> None:
        """Finish what is left in one chat, and tell those who watch it; `turn_id` is the turn that its last owner had begun.

        Pulls are taken up as if they were a chat.
        """
        if chat_id == PULLS:
            await self._pulls.recover()
        else:
            await self._journal.write(lambda unit: self._finish(unit, chat_id, turn_id))
            await self._turns.resume_paused(chat_id)

    async def unfinished(self) -> list[str]:
        """The chats in which a message is not whole, whoever sees to it."""
        return await self._journal.read(messages.unfinished_chats)

    def running_turn(self, chat_id: str) -> str | None:
        """The id of the turn that runs in a chat; PULLS while one runs here."""
        if chat_id == PULLS:
            return PULLS if self._pulls.is_busy else None
        return self._turns.running_turn(chat_id)

    def is_replying(self, chat_id: str) -> bool:
        return self._turns.is_replying(chat_id)

    def forget(self, chat_id: str) -> None:
        """Let go of what is held of a chat in memory; a turn in it ends without writing anything more."""
        if chat_id == PULLS:
            self._pulls.lose()
        self._turns.lose(chat_id)
        self._states.forget(chat_id)
        self._sent.forget(chat_id)

    async def interrupt(self) -> None:
        await self._turns.interrupt()

    async def _finish(self, unit: Unit, chat_id: str, turn_id: str | None) -> None:
        if await chats.get(unit.tx, chat_id) is None:
            return
        for row in await messages.interrupt_streaming(unit.tx, chat_id):
            unit.publish(MessageCompleted(chat_id=chat_id, message=to_message(row)))
        await self._variants.recover(unit, chat_id)
        if await paused_turns.get(unit.tx, chat_id) is not None:
            return  # its turn goes on
        chat = await self._rows.wire(unit.tx, chat_id, turn_running=False)
        await self._states.publish_snapshot(unit, chat_id, chat.ttl_messages, running_turn=None)
        if turn_id is not None:
            unit.publish(TurnFinished(chat_id=chat_id, turn_id=turn_id, status="interrupted"))
            unit.publish(ChatEvent(type="chat.updated", chat=chat, user=chat.owner))
