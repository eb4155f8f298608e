"""The last request of each chat that went out, for the person to look at: in memory only, of the chats used last."""

from __future__ import annotations

from dataclasses import dataclass

from backend.llm.backend import BoundModel
from backend.llm.core.tool_injector import Request
from backend.llm.prompt_counts import PromptCounts, Reading
from backend.services.records import Clock

KEPT_CHATS = 64


@dataclass(slots=True)
class SentRequest:
    """A request as it went out. `fresh_tokens` are those that the chat's request before it did not begin with as well.

    `prompt_tokens` is the server's own count, None until it says one.
    """

    turn_id: str
    model: str
    num_ctx: int
    at: str
    request: Request
    fresh_tokens: int
    prompt_tokens: int | None = None
    prompt_cut: bool = False


class SentRequests:
    def __init__(self, counts: PromptCounts, clock: Clock) -> None:
        self._counts = counts
        self._clock = clock
        self._by_chat: dict[str, SentRequest] = {}

    def record(self, chat_id: str, turn_id: str, model: BoundModel, request: Request) -> SentRequest:
        """Keep a request that goes out now in the place of the chat's former one."""
        former = self._by_chat.pop(chat_id, None)
        fresh = _fresh_tokens(request, former.request if former and former.model == model.name else None)
        sent = SentRequest(turn_id, model.name, model.num_ctx, self._clock.now(), request, fresh)
        self._by_chat[chat_id] = sent
        if len(self._by_chat) > KEPT_CHATS:
            del self._by_chat[next(iter(self._by_chat))]
        return sent

    def counted(self, sent: SentRequest, prompt_tokens: int) -> Reading:
        """Note the server's own count of a request, and say what it means."""
        estimated = sent.request.total_tokens
        reading = self._counts.read(sent.model, num_ctx=sent.num_ctx, estimated=estimated, fresh=sent.fresh_tokens, counted=prompt_tokens)
        sent.prompt_tokens, sent.prompt_cut = prompt_tokens, reading == "cut"
        return reading

    def get(self, chat_id: str) -> SentRequest | None:
        return self._by_chat.get(chat_id)

    def forget(self, chat_id: str) -> None:
        """Let go of a deleted chat's texts."""
        self._by_chat.pop(chat_id, None)


def _fresh_tokens(request: Request, former: Request | None) -> int:
    """The tokens after what both begin with. Tools stand near a prompt's top: other ones leave nothing in common."""
    if former is None or former.tools != request.tools:
        return request.total_tokens
    pairs = enumerate(zip(request.messages, former.messages, strict=False))
    common = next((index for index, (message, known) in pairs if message != known), min(len(request.messages), len(former.messages)))
    return sum(request.tokens[common:])
