"""Reads the facts of a request from the database and hands them to the injector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.llm.backend import BoundModel
from backend.llm.core import working_state
from backend.llm.core.registry import Registry, Tool, ToolResult
from backend.llm.core.result_cap import capped
from backend.llm.core.tool_injector import Facts, Request, Round, assemble
from backend.llm.tokens import TokenCounter
from backend.services.records import Clock
from backend.services.working import WorkingStates
from backend.settings import Settings
from backend.store import messages, prompts, states
from backend.store.connection import Connection

# The part of a window that one tool's result may take: there are others beside it.
WINDOW_PART = 4


class Prompting:
    """Assembles requests; what it reads is as true as the caller's transaction."""

    def __init__(self, settings: Settings, registry: Registry, states: WorkingStates, counter: TokenCounter, clock: Clock) -> None:
        self._settings = settings
        self._registry = registry
        self._states = states
        self._counter = counter
        self._clock = clock

    async def history(self, tx: Connection, chat_id: str, question_id: int) -> list[dict[str, Any]]:
        """The window of the LLM channel as a turn begins. Its question is in it, also when it was hidden the moment it was asked."""
        history = await self._states.history(tx, chat_id)
        question = await messages.get(tx, question_id)
        hidden = [{"role": "user", "content": question["content"]}] if question and question["hidden"] else []
        return [*history, *hidden]

    async def request(
        self,
        tx: Connection,
        chat_id: str,
        model: BoundModel,
        history: Sequence[dict[str, Any]],
        rounds: Sequence[Round] = (),
        families: frozenset[str] = frozenset(),
        families_off: frozenset[str] = frozenset(),
    ) -> Request:
        """The request as of now: the prompt in force, the given history, the working state, the turn's rounds.

        `families` were used in this turn and are open besides the active one; `families_off` are not offered
        at all. Raises ContextExceeded.
        """
        applied = await prompts.get_with_status(tx, chat_id, "applied")
        state = await states.get(tx, chat_id)
        active = state["active_tool"] if state else None
        facts = Facts(
            prompt=applied["content"] if applied else None,
            history=history,
            state=await self.working_state(tx, chat_id) if self._sends_state(active, model) else None,
            open_families=families | ({active} if active else frozenset()),
            families_off=families_off,
            held=working_state.held(state, active) if active else {},
        )
        return assemble(
            facts,
            rounds,
            self._registry,
            with_tools=model.can_call_tools,
            num_ctx=model.num_ctx,
            counter=self._counter,
            model=model.name,
        )

    async def working_state(self, tx: Connection, chat_id: str) -> str:
        """The working state as the model reads it."""
        state = await states.get(tx, chat_id)
        limit = self._settings.working_state_tokens
        return await working_state.read(self._registry, tx, chat_id, state, self._clock.now(), limit, self._counter)

    def capped(self, tool: Tool, result: ToolResult, model: BoundModel) -> str:
        """What the model is given of a result: in a small window less than the setting allows."""
        limit = min(self._settings.tool_result_tokens, model.num_ctx // WINDOW_PART)
        name = tool.name if tool.reads_on else ""
        return capped(result.for_model, limit, self._counter, model=model.name, tool=name, starts_at=result.starts_at)

    def _sends_state(self, active: str | None, model: BoundModel) -> bool:
        """A model without tools can't look things up either: counts alone would only puzzle it."""
        return self._settings.working_state_tokens > 0 and (model.can_call_tools or active is not None)
