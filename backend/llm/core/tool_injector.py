"""What the model is sent: prompt, tool schemas, history, working state, the new message, this turn's calls.

Pure: it is given rows and texts and returns the request. Nothing that changes from turn to turn stands
before the history, so that a model server finds the prefix that it has read already.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.errors import ContextExceeded
from backend.llm.core import receipts
from backend.llm.core.registry import Registry
from backend.llm.core.working_state import CURRENT_STATE
from backend.llm.core.working_state import SCHEMA as CURRENT_STATE_SCHEMA
from backend.llm.tokens import TokenCounter

Message = dict[str, Any]
Part = Literal["prompt", "history", "state", "new", "turn"]

DEFAULT_PROMPT = (
    "You are a helpful assistant. Answer in the language of the question. "
    "Facts and drafts live in a database: read and change them with the tools, "
    "and say that something is done only when a tool's result says so."
)
# A small model without tools is confused by talk of tools.
DEFAULT_PROMPT_WITHOUT_TOOLS = "You are a helpful assistant."

# Room that is left for the reply.
REPLY_TOKENS = 1_024


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call of this turn and its result. `subject`, `holds`: see ToolResult."""

    name: str
    arguments: dict[str, Any]
    for_model: str
    receipt: receipts.Receipt
    subject: str | None = None
    holds: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One model request of this turn that ended in tool calls."""

    text: str
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the database says for this request. `history` is oldest first; its newest user message may be followed
    by the receipt of what an earlier run of the turn has done, and by the reply that the model is to go on with.

    `prompt` is None when none was applied; `state` is None when no working state goes out. `held` is what the
    active family holds in hand.
    """

    prompt: str | None
    history: Sequence[dict[str, Any]]
    state: str | None
    open_families: frozenset[str] = frozenset()
    families_off: frozenset[str] = frozenset()
    held: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """The messages and tools of one model request, each message with the part that it belongs to."""

    messages: list[Message]
    parts: list[Part]
    tools: list[dict[str, Any]]
    tokens: list[int] = field(default_factory=list)
    tools_tokens: int = 0
    left_out_messages: int = 0

    @property
    def total_tokens(self) -> int:
        return sum(self.tokens) + self.tools_tokens


def window_start(count: int, limit: int, step: int) -> int:
    """How many of `count` messages of the history stand before the window.

    The start moves by `step` at a time and only when the window would grow past `limit`, so that the
    prefix of one request is the prefix of the next ones too. Three messages stay: the newest question may be
    followed by a receipt and by a reply that goes on.
    """
    if count <= limit:
        return 0
    step = min(step, max(1, limit - 2))
    return -(-(count - limit) // step) * step


def window(rows: Sequence[dict[str, Any]], count: int, limit: int, step: int) -> list[dict[str, Any]]:
    """Cut the newest rows (at most `limit`, oldest first) of a history of `count` messages to the window."""
    length = count - window_start(count, limit, step)
    return list(rows[-length:]) if length else []


def assemble(
    facts: Facts,
    rounds: Sequence[Round],
    registry: Registry,
    *,
    with_tools: bool,
    num_ctx: int,
    counter: TokenCounter,
    model: str | None,
) -> Request:
    """Build the request, and leave out the oldest history that doesn't fit `num_ctx` tokens.

    Raises ContextExceeded when what can't be left out is too long by itself.
    """
    offered = registry.offered(facts.open_families, facts.families_off)
    own = [CURRENT_STATE_SCHEMA] if facts.state is not None else []
    schemas = [tool.schema for tool in offered] + own if with_tools else []
    default = DEFAULT_PROMPT if with_tools else DEFAULT_PROMPT_WITHOUT_TOOLS
    opening = [{"role": "system", "content": facts.prompt or default}]
    earlier, newest, done_before = _split(facts.history)
    history = [_history_messages(row, with_tools) for row in earlier]
    state = _state_messages(facts.state, with_tools)
    turn = [message for row in done_before for message in _history_messages(row, with_tools)] + _turn_messages(rounds, facts)
    fixed = _count([*opening, *state, newest, *turn], counter, model) + counter.json(schemas, model)
    room = num_ctx - min(REPLY_TOKENS, num_ctx // 4)
    if fixed > room:
        raise ContextExceeded(
            f"The message needs about {fixed} tokens with the prompt and the tools, and the model's window has room for {room}. "
            "Shorten it, or choose a model with a larger context."
        )
    kept = _fitting(history, room - fixed, counter, model)
    left_out = len(history) - len(kept)
    groups: list[tuple[Part, list[Message]]] = [
        ("prompt", opening),
        ("history", [message for group in kept for message in group]),
        ("state", state),
        ("new", [{"role": newest["role"], "content": newest["content"]}]),
        ("turn", turn),
    ]
    messages = [message for _, group in groups for message in group]
    return Request(
        messages=messages,
        parts=[part for part, group in groups for _ in group],
        tools=schemas,
        tokens=[_count([message], counter, model) for message in messages],
        tools_tokens=counter.json(schemas, model),
        left_out_messages=left_out,
    )


def _split(history: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], dict[str, Any], Sequence[dict[str, Any]]]:
    """What stands before the newest user message, that message, and what stands after it."""
    newest = max(index for index, row in enumerate(history) if row["role"] == "user")
    return history[:newest], history[newest], history[newest + 1 :]


def _history_messages(row: dict[str, Any], with_tools: bool) -> list[Message]:
    """A row as it goes out: a receipt becomes its calls and results, which are never parted."""
    if row["role"] == "tool":
        return receipts.messages(row["content"]) if with_tools else []
    return [{"role": row["role"], "content": row["content"]}]


def _state_messages(state: str | None, with_tools: bool) -> list[Message]:
    if state is None:
        return []
    if with_tools:
        return receipts.pair([(CURRENT_STATE, {}, state)])
    return [{"role": "system", "content": state}]


def _turn_messages(rounds: Sequence[Round], facts: Facts) -> list[Message]:
    """This turn's calls and results; what is over goes out as its receipt, and a read of the state is one of now."""
    exchanges = [exchange for turn_round in rounds for exchange in turn_round.exchanges]
    over = {id(exchange) for index, exchange in enumerate(exchanges) if _is_over(exchange, exchanges[index + 1 :], facts.held)}
    messages: list[Message] = []
    for turn_round in rounds:
        calls = []
        for exchange in turn_round.exchanges:
            if exchange.name == CURRENT_STATE and facts.state is not None:
                calls.append((exchange.name, exchange.arguments, facts.state))
            elif id(exchange) in over:
                calls.append((exchange.name, exchange.receipt.arguments, exchange.receipt.outcome))
            else:
                calls.append((exchange.name, exchange.arguments, exchange.for_model))
        messages += receipts.pair(calls, turn_round.text)
    return messages


def _is_over(exchange: Exchange, later: Sequence[Exchange], held: dict[str, Any]) -> bool:
    """Whether a later one speaks of the same thing, its thing is out of hand, or its mistake was mended."""
    if exchange.subject is not None and any(other.subject == exchange.subject for other in later):
        return True
    if exchange.holds and not exchange.holds.keys() <= held.keys():
        return True
    return not exchange.receipt.succeeded and any(other.name == exchange.name and other.receipt.succeeded for other in later)


def _fitting(history: list[list[Message]], room: int, counter: TokenCounter, model: str | None) -> list[list[Message]]:
    kept: list[list[Message]] = []
    for group in reversed(history):
        room -= _count(group, counter, model)
        if room < 0:
            break
        kept.insert(0, group)
    return kept


def _count(messages: Sequence[Message], counter: TokenCounter, model: str | None) -> int:
    return sum(counter.message(_text(message), model) for message in messages)


def _text(message: Message) -> str:
    calls = message.get("tool_calls")
    return str(message["content"]) + (json.dumps(calls, ensure_ascii=False) if calls else "")
