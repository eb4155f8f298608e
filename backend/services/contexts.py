"""What a person does to a chat's context: keep, clear, undo, answer, and look at what the model sees."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

from backend.errors import CleanroomError, Conflict, NotFound
from backend.llm.backend import BoundModel, ModelBackend
from backend.llm.core import receipts
from backend.llm.core.registry import Registry
from backend.llm.core.tool_injector import Request
from backend.llm.tokens import TokenCounter
from backend.protocol import Answer, ContextState, Message, MessageUpdated
from backend.services import context_policy
from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal, Unit
from backend.services.prompting import Prompting
from backend.services.receipt_rows import is_receipt
from backend.services.records import to_message
from backend.services.sent import SentRequests
from backend.services.turns import Turns
from backend.services.working import Working, WorkingStates
from backend.store import messages
from backend.store.connection import Connection

# Stands for the message that isn't written yet.
PLACEHOLDER = {"role": "user", "content": "…"}

# Of what is withheld, the newest messages for each reason are told with the head of their texts.
TOLD_MESSAGES = 100
HEAD_CHARACTERS = 80


class Contexts:
    def __init__(
        self,
        journal: Journal,
        chat_rows: ChatRows,
        states: WorkingStates,
        turns: Turns,
        prompting: Prompting,
        sent: SentRequests,
        backend: ModelBackend,
        registry: Registry,
        counter: TokenCounter,
    ) -> None:
        self._journal = journal
        self._rows = chat_rows
        self._states = states
        self._turns = turns
        self._prompting = prompting
        self._sent = sent
        self._backend = backend
        self._registry = registry
        self._counter = counter

    async def close(self) -> None:
        """Let go of what could be put back, and tell those who watch at other servers."""
        for chat_id in self._states.chats_with_undo():
            self._states.forget(chat_id)
            with suppress(CleanroomError):  # a full disk, say: a snapshot tells it too
                await self._journal.write(partial(self._published, chat_id=chat_id))

    async def get(self, chat_id: str) -> ContextState:
        return await self._journal.read(lambda tx: self._snapshot(tx, chat_id))

    async def keep(self, chat_id: str) -> ContextState:
        """Start the TTL counter again."""

        async def write(unit: Unit) -> ContextState:
            working = await self._states.load(unit.tx, chat_id)
            working.follow(context_policy.kept(working.activity))
            await self._states.save(unit.tx, chat_id, working)
            unit.after_commit(lambda: self._turns.keep(chat_id))
            return await self._published(unit, chat_id)

        return await self._journal.write(write)

    async def clear(self, chat_id: str) -> ContextState:
        """Clear the chat's material now; one with nothing to clear stays as it is."""

        async def write(unit: Unit) -> ContextState:
            working = await self._states.load(unit.tx, chat_id)
            if working != Working() or await messages.list_ephemeral(unit.tx, chat_id):
                await self._states.clear(unit, chat_id, working, "manual")
                await self._states.save(unit.tx, chat_id, Working())
            return await self._published(unit, chat_id)

        return await self._journal.write(write)

    async def undo(self, chat_id: str) -> ContextState:
        """Put back what the last clearing took. Raises Conflict when nothing is held."""

        async def write(unit: Unit) -> ContextState:
            await self._rows.get(unit.tx, chat_id)
            if not await self._states.restore(unit, chat_id):
                raise Conflict("There is nothing to put back: it was confirmed, is too long ago, is back already, or was held by a server that is gone.")
            return await self._published(unit, chat_id)

        return await self._journal.write(write)

    async def answer(self, chat_id: str, transaction_id: str, answer: Answer) -> ContextState:
        """Answer a transaction once; a second answer gets the first one's outcome. Raises NotFound."""

        async def write(unit: Unit) -> ContextState:
            await self._rows.get(unit.tx, chat_id)
            if await self._states.outcome(unit.tx, chat_id, transaction_id) is not None:
                return await self._snapshot(unit.tx, chat_id)
            working = await self._states.load(unit.tx, chat_id)
            if working.pending is None or working.pending["transaction_id"] != transaction_id:
                raise NotFound("There is no such question in this chat.")
            await self._states.close_transaction(unit, chat_id, working, answer)
            if answer == "yes":
                await self._states.clear(unit, chat_id, working, "confirmed")
                working = Working()
            else:
                working.follow(context_policy.kept(working.activity))
            await self._states.save(unit.tx, chat_id, working)
            return await self._published(unit, chat_id)

        return await self._journal.write(write)

    async def hide(self, message_id: int, hidden: bool) -> Message:
        """Take a message out of the LLM channel or put it back in; a reply's receipt goes along.

        Raises NotFound, or Conflict for what can't be hidden by itself.
        """

        async def write(unit: Unit) -> Message:
            row = await messages.get(unit.tx, message_id)
            if row is None:
                raise NotFound("There is no such message; it may have been deleted.")
            _check_hideable(row)
            for changed in [row, *await self._receipts_of(unit.tx, row)]:
                if bool(changed["hidden"]) != hidden:
                    updated = await messages.update(unit.tx, changed["id"], hidden=int(hidden))
                    assert updated is not None
                    unit.publish(MessageUpdated(chat_id=row["session_id"], message=to_message(updated)))
            await self._published(unit, row["session_id"])
            return to_message({**row, "hidden": hidden})

        return await self._journal.write(write)

    async def _receipts_of(self, tx: Connection, row: dict[str, Any]) -> list[dict[str, Any]]:
        """What goes along with a reply: a reply whose calls are not seen teaches the model to claim deeds."""
        return await messages.receipts_of_turn(tx, row["session_id"], row["turn_id"]) if row["role"] == "assistant" else []

    async def sent(self, chat_id: str) -> dict[str, Any] | None:
        """The last request that went out in the chat, in the form of `inspect`; None when there was none, or it isn't kept any more.

        Raises NotFound.
        """
        await self._journal.read(lambda tx: self._rows.get(tx, chat_id))
        sent = self._sent.get(chat_id)
        if sent is None:
            return None
        return {
            "turn_id": sent.turn_id,
            "model": sent.model,
            "num_ctx": sent.num_ctx,
            "at": sent.at,
            **self._describe(sent.request, sent.model),
            "left_out_messages": sent.request.left_out_messages,
            "prompt_tokens": sent.prompt_tokens,
            "prompt_cut": sent.prompt_cut,
        }

    async def inspect(self, chat_id: str) -> dict[str, Any]:
        """Exactly what the model would be sent now, part by part, and what is withheld and why.

        Raises NotFound, or a ModelError when no model answers.
        """
        chat = await self._journal.read(lambda tx: self._rows.get(tx, chat_id))
        model = await self._backend.bind(chat_id, chat["model"], json.loads(chat["parameters"]))
        off = frozenset(json.loads(chat["families_off"]))
        return await self._journal.read(lambda tx: self._inspect(tx, chat_id, model, off))

    async def _inspect(self, tx: Connection, chat_id: str, model: BoundModel, off: frozenset[str]) -> dict[str, Any]:
        history = await self._states.history(tx, chat_id, upcoming=1)
        request = await self._prompting.request(tx, chat_id, model, [*history, PLACEHOLDER], families_off=off)
        described = self._describe(request, model.name)
        return {
            **described,
            "families": await self._families(tx, chat_id, described["tools"], off),
            "num_ctx": model.num_ctx,
            "model": model.name,
            "context": await self._snapshot(tx, chat_id),
            "withheld": await self._withheld(tx, chat_id, len(history), request),
        }

    def _describe(self, request: Request, model: str) -> dict[str, Any]:
        parts = zip(request.messages, request.parts, request.tokens, strict=True)
        return {
            "messages": [{**message, "part": part, "tokens": tokens} for message, part, tokens in parts],
            "tools": [self._describe_tool(schema, model) for schema in request.tools],
            "tools_tokens": request.tools_tokens,
            "total_tokens": request.total_tokens,
        }

    def _describe_tool(self, schema: dict[str, Any], model: str) -> dict[str, Any]:
        function = schema["function"]
        tokens = self._counter.json(schema, model)
        return {"name": function["name"], "description": function["description"], "schema": schema, "tokens": tokens}

    async def _families(self, tx: Connection, chat_id: str, tools: list[dict[str, Any]], off: frozenset[str]) -> list[dict[str, Any]]:
        """Each family: whether it is on, open, and what its offered tools cost."""
        active = (await self._states.load(tx, chat_id)).active_tool
        costs = {tool["name"]: tool["tokens"] for tool in tools}
        return [
            {
                "name": family.name,
                "is_helper": family.is_helper,
                "on": family.name not in off,
                "open": family.name == active,
                "tokens": sum(costs.get(tool.name, 0) for tool in family.tools),
            }
            for family in self._registry.families.values()
        ]

    async def _withheld(self, tx: Connection, chat_id: str, window_messages: int, request: Request) -> list[dict[str, Any]]:
        """Each message that stays out, newest first, with the reason; thinking is counted for those that go."""
        found: list[dict[str, Any]] = []
        told: Counter[str] = Counter()
        permanent = 0
        for row in await messages.withheld(tx, chat_id):
            reason = None
            if row["is_ephemeral"]:
                reason = "temporary"
            elif row["hidden"]:
                reason = "hidden"
            else:
                permanent += 1
                if permanent > window_messages:
                    reason = "beyond_limit"
                elif permanent > window_messages - request.left_out_messages:
                    reason = "beyond_window"
            tokens = self._states.tokens_of(row)
            if reason is None and row["thinking"]:
                reason, tokens = "thinking", self._counter.text(row["thinking"])
            if reason is not None:
                told[reason] += 1
                details = _told(row, reason) if told[reason] <= TOLD_MESSAGES else {}
                found.append({"message_id": row["id"], "reason": reason, "tokens": tokens, **details})
        return found

    async def _snapshot(self, tx: Connection, chat_id: str) -> ContextState:
        chat = await self._rows.get(tx, chat_id)
        return await self._states.snapshot(tx, chat_id, chat["ttl_messages"], self._turns.running_turn(chat_id))

    async def _published(self, unit: Unit, chat_id: str) -> ContextState:
        chat = await self._rows.get(unit.tx, chat_id)
        return await self._states.publish_snapshot(unit, chat_id, chat["ttl_messages"], self._turns.running_turn(chat_id))


def _check_hideable(row: dict[str, Any]) -> None:
    if row["is_ephemeral"]:
        raise Conflict("This is temporary: the model does not get it anyway.")
    if row["status"] == "streaming":
        raise Conflict("The reply is under way; stop it or wait for its end, then hide it.")
    if row["role"] == "tool":
        raise Conflict("A receipt says what was really done. It is hidden together with the reply to it, not by itself.")


def _told(row: dict[str, Any], reason: str) -> dict[str, Any]:
    """What a list shows of a withheld message."""
    text = row["thinking"] if reason == "thinking" else row["content"]
    if is_receipt(row):
        text = "; ".join(f"{receipt.tool}: {receipt.outcome}" for receipt in receipts.decode(text)) or text
    return {"role": row["role"], "head": text[:HEAD_CHARACTERS], "family": row["family"], "tool": row["tool"], "created_at": row["created_at"]}
