"""A model that knows the script: calls what each message asks for and answers with the current values.

Not measured: it shows that the script can be played to its end, and that the scoring finds nothing to blame in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benchmarks.context.script import Conversation
from tests.fake_ollama import ChatRequest, Script, call, reply

DONE = {"en": "Done.", "ru": "Готово."}


def able(conversations: Iterable[Conversation]) -> Callable[[ChatRequest], Script]:
    """What a scripted model server answers by default."""
    turns = {turn.say: (turn, DONE[conversation.language]) for conversation in conversations for turn in conversation.turns}

    def answer(request: ChatRequest) -> Script:
        question = max(index for index, message in enumerate(request.messages) if message["role"] == "user")
        turn, done = turns[request.messages[question]["content"]]
        called = sum(len(message.get("tool_calls") or []) for message in request.messages[question:])
        if called < len(turn.play):
            return call(turn.play[called].tool, turn.play[called].arguments)
        return reply(turn.fact.current if turn.fact else done if turn.deed else "OK.")

    return answer
