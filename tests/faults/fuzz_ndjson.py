"""A reply's lines, valid and broken, cut anywhere: what is heard is the same for every cut, and ends well or with a named error.

python -m tests.faults.fuzz_ndjson --minutes 3
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from hypothesis import strategies as st

from backend.errors import CleanroomError, ContextExceeded, ModelError
from backend.llm.model import ModelServer
from backend.llm.wire import Chunk, Done, LineParser, Reason, ToolCall
from tests import fake_ollama as fake
from tests.fake_ollama import FakeModel, FakeOllama, Script
from tests.faults import fuzzing
from tests.faults.fuzzing import ODD, Check
from tests.test_protocol import JSON

PATIENCE_SECONDS = 20
CUT_OFF = Reason("it ended without its last line")

# Separators that are none, characters of every width, pairs and halves of them.
TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\n\r\t\0\u0085\u2028\u2029😀я\ud83d\ude00\ufeff"), max_size=12)
CALL = st.fixed_dictionaries(
    {}, optional={"id": TEXT | ODD, "function": ODD | st.fixed_dictionaries({"name": TEXT | ODD, "arguments": ODD | ODD.map(json.dumps) | TEXT})}
)
MESSAGE = st.fixed_dictionaries({}, optional={"content": TEXT | ODD, "thinking": TEXT | ODD, "tool_calls": ODD | st.lists(CALL | ODD, max_size=3)})
COUNTERS = {name: st.integers(-1, 2**64) | ODD for name in ("prompt_eval_count", "eval_count", "total_duration", "load_duration")}
ITEM = st.fixed_dictionaries({"message": MESSAGE}, optional={"done": st.just(False) | ODD})
DONE = st.fixed_dictionaries({"done": st.just(True)}, optional={"message": MESSAGE, "done_reason": TEXT | ODD, **COUNTERS})
ERROR = st.fixed_dictionaries({"error": TEXT | ODD | st.just('{"error":{"message":"too long: context exceeded","n_prompt_tokens":9,"n_ctx":4}}')})


@st.composite
def encoded(draw: st.DrawFn, items: st.SearchStrategy[object]) -> bytes:
    """An object as one line or another way of writing it; half of a pair as bytes that are no UTF-8."""
    text = json.dumps(draw(items), ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b" \n", b"\n\n"]))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A line with some of its bytes lost or written over."""
    line = draw(encoded(ITEM | DONE))
    start = draw(st.integers(0, len(line)))
    return line[:start] + draw(st.binary(max_size=3)) + line[min(len(line), start + draw(st.integers(0, 3))) :]


NESTED = st.integers(1, 1_500).map(lambda depth: b'{"message":{"tool_calls":[{"function":{"name":"a","arguments":' + b"[" * depth + b"]" * depth + b"}}]}}\n")
LINES = st.lists(
    st.one_of(encoded(ITEM), encoded(ITEM), encoded(ITEM), encoded(DONE), encoded(ERROR), damaged(), st.binary(max_size=20), encoded(JSON), NESTED), max_size=6
)


@st.composite
def cut_bodies(draw: st.DrawFn) -> list[bytes]:
    """A body in pieces, of a byte each or more, that end in the midst of lines and characters."""
    body = b"".join(draw(LINES))
    if draw(st.booleans()):
        body += draw(encoded(DONE))
    if body and draw(st.booleans()):
        body = body[: draw(st.integers(1, len(body)))]
    if len(body) < 300 and draw(st.booleans()):
        return [body[place : place + 1] for place in range(len(body))]
    places = sorted({0, len(body), *draw(st.lists(st.integers(0, len(body)), max_size=12))})
    return [body[start:end] for start, end in pairwise(places)]


@dataclass(frozen=True)
class Heard:
    """What is told of a reply in the end, however it came."""

    text: str
    thinking: str
    tool_calls: tuple[ToolCall, ...]
    done: Done | None

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> Heard:
        known = list(chunks)
        return cls(
            "".join(chunk.text for chunk in known),
            "".join(chunk.thinking for chunk in known),
            tuple(call for chunk in known for call in chunk.tool_calls),
            next((chunk.done for chunk in known if chunk.done), None),
        )


def parsed(pieces: list[bytes]) -> tuple[Heard, Reason | None]:
    """What the parser makes of a body in pieces, and why it failed."""
    parser, chunks = LineParser(), list[Chunk]()
    for piece in pieces:
        if not parser.ended:
            chunks.append(parser.feed(piece))
    if not parser.ended:
        chunks.append(parser.feed(b"", CUT_OFF))
    assert parser.ended
    return Heard.of(chunks), parser.failure


def same_for_every_cut(pieces: list[bytes]) -> None:
    heard, failure = parsed(pieces)
    # repr, since a number may be none that equals itself.
    assert repr((heard, failure)) == repr(parsed([b"".join(pieces)]))
    assert (heard.done is None) == (failure is not None)
    f"{heard.text}{heard.thinking}{heard.tool_calls}".encode()  # nothing in it that couldn't be stored or sent


Ending = Literal["whole", "closed", "reset"]
ENDINGS: dict[Ending, Script] = {"whole": [], "closed": fake.close(), "reset": fake.reset()}


class Client:
    """The real client beside a model server that sends what it is told to."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._fake = FakeOllama([FakeModel()])

    def open(self) -> None:
        self._runner.run(self._fake.start())
        self._server = ModelServer(self._fake.url, "ollama", first_token_seconds=PATIENCE_SECONDS)

    def close(self) -> None:
        self._runner.run(self._server.close())
        self._runner.run(self._fake.stop())
        self._runner.close()

    def hears(self, sent: tuple[list[bytes], Ending]) -> None:
        """Over real sockets: the parser's text, and one of the errors that a person can be told."""
        pieces, ending = sent
        expected, _ = parsed(pieces)
        self._fake.script([[fake.raw(piece) for piece in pieces], ENDINGS[ending]])
        heard, error = self._runner.run(self._listen())
        assert repr(heard) == repr(expected) or (ending == "reset" and is_beginning(heard, expected))
        assert (error is None) == (heard.done is not None)
        assert error is None or isinstance(error, ModelError | ContextExceeded), error

    async def _listen(self) -> tuple[Heard, CleanroomError | None]:
        chunks, error = list[Chunk](), None
        stream = self._server.stream(model="fake:tools", messages=[{"role": "user", "content": "hi"}], tools=[], options={}, think=False)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), aclosing(stream):
                async for chunk in stream:
                    chunks.append(chunk)
        except CleanroomError as refusal:
            error = refusal
        await self._fake.wait_ended()
        return Heard.of(chunks), error


def is_beginning(heard: Heard, expected: Heard) -> bool:
    """A reset may overtake bytes that were sent before it."""
    calls = len(heard.tool_calls)
    has_text = expected.text.startswith(heard.text) and expected.thinking.startswith(heard.thinking)
    return heard.done is None and has_text and repr(expected.tool_calls[:calls]) == repr(heard.tool_calls)


@contextmanager
def target() -> Iterator[dict[str, Check]]:
    client = Client()
    client.open()
    try:
        yield {
            "lines parsed": Check(cut_bodies(), same_for_every_cut),
            "lines over sockets": Check(st.tuples(cut_bodies(), st.sampled_from(list(ENDINGS))), client.hears),
        }
    finally:
        client.close()


if __name__ == "__main__":
    fuzzing.main(target, __doc__)
