"""The forms of history that are compared. Each is made of a request of Cleanroom's, and differs from it in nothing else.

Pure: requests in, requests out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.llm.core.working_state import CURRENT_STATE

Message = dict[str, Any]

# The newest messages that "last 12 of everything" sends, the new one among them, as Cleanroom counts its own.
LAST = 12


@dataclass(frozen=True, slots=True)
class Sent:
    """The messages of a request of Cleanroom's by their part; `turn` begins with the newest question."""

    prompt: list[Message]
    history: list[Message]
    state: list[Message]
    turn: list[Message]


@dataclass(slots=True)
class Everything:
    """All that a model has said, called and been told in a chat, whole, whatever Cleanroom made of it later."""

    earlier: list[Message] = field(default_factory=list)
    turn: list[Message] = field(default_factory=list)

    def follow(self, turn: Sequence[Message]) -> None:
        """Take what a further request of the turn adds. What it repeats may have shrunk to a receipt by then."""
        self.turn += turn[len(self.turn) :]

    def end_turn(self, reply: str) -> None:
        """`reply`: the final one, empty when there was none."""
        self.earlier += [*self.turn, *([{"role": "assistant", "content": reply}] if reply else [])]
        self.turn = []


History = Callable[[Sent, list[Message]], list[Message]]


@dataclass(frozen=True, slots=True)
class Arm:
    """A form of history: made of Cleanroom's own and of everything before the turn."""

    name: str
    history: History
    with_state: bool = True

    def messages(self, sent: Sent, earlier: list[Message]) -> list[Message]:
        state = sent.state if self.with_state else []
        return [*sent.prompt, *self.history(sent, earlier), *state, *sent.turn]

    def tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Without a working state there is no tool that reads it, as in other programs."""
        return tools if self.with_state else [tool for tool in tools if tool["function"]["name"] != CURRENT_STATE]


def cut(messages: Sequence[Message]) -> Sent:
    """Cut a request of Cleanroom's into its parts."""
    question = max(index for index, message in enumerate(messages) if message["role"] == "user")
    state = question - _state_length(messages[1:question])
    return Sent(list(messages[:1]), list(messages[1:state]), list(messages[state:question]), list(messages[question:]))


def _state_length(before: Sequence[Message]) -> int:
    """How many of the messages before the question are the working state: a call and its result, or a system message."""
    if not before:
        return 0
    if before[-1].get("tool_name") == CURRENT_STATE:
        return 2
    return int(before[-1]["role"] == "system")


def _full(_: Sent, earlier: list[Message]) -> list[Message]:
    return earlier


def _last(_: Sent, earlier: list[Message]) -> list[Message]:
    """A result whose call is cut off goes with it: no template knows what to make of one."""
    kept = earlier[-(LAST - 1) :]
    orphans = next((index for index, message in enumerate(kept) if message["role"] != "tool"), len(kept))
    return kept[orphans:]


def _sterile(sent: Sent, _: list[Message]) -> list[Message]:
    return sent.history


def _without_receipts(sent: Sent, _: list[Message]) -> list[Message]:
    return [message for message in sent.history if message["role"] != "tool" and not message.get("tool_calls")]


FULL = Arm("full history", _full)
LAST_12 = Arm("last 12 of everything", _last)
WITHOUT_RECEIPTS = Arm("sterile without receipts", _without_receipts)
STERILE = Arm("sterile with receipts", _sterile)
ARMS = {
    "full": FULL,
    "last12": LAST_12,
    "sterile-bare": WITHOUT_RECEIPTS,
    "sterile": STERILE,
    "full-stateless": Arm("full history, no state", _full, with_state=False),
    "last12-stateless": Arm("last 12, no state", _last, with_state=False),
}
# The four that differ in nothing but the history; the others are what most programs send, without our working state.
DEFAULT_ARMS = ("full", "last12", "sterile-bare", "sterile")
