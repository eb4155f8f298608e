"""What a turn's prompt costs, by the history it holds: tokens that the embedded model computes, and time to the first one.

Each arm plays one and the same conversation on a server of ours of its own, and what its scripted model server was sent
is then read by the embedded model's engine. A reply is the script's, but the engine reads it too, unmeasured, since a
model that has written a reply has it in its cache. Each arm of each round begins with a new engine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files, version
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from backend.embedded.__main__ import BUNDLED_WEIGHTS
from backend.llm import tools
from backend.llm.core.registry import Registry
from backend.llm.core.working_state import SCHEMA as CURRENT_STATE_SCHEMA
from benchmarks.processes import SERVER_CORE, running, stay_on_driver_core
from benchmarks.report import LeftOut, Report
from tests.fake_ollama import FakeModel, FakeOllama, reply
from tests.server import Client, make_settings
from tests.server import running as server_running

TURNS = 30
SMOKE_TURNS = 2
# A draft comes before the message of each of these turns. Its material is cleared after four messages, before the next one comes.
DRAFT_EVERY = 7
# Short, so that a round takes minutes at some 40 tokens a second; what needs no engine is measured with longer ones.
QUESTION_WORDS, REPLY_WORDS, DRAFT_WORDS = 6, 12, 18
LONGER = 4

WORDS = (
    "the a this that our your one two new old good small large early late house garden city river road train letter book "
    "paper table water summer winter morning evening friend teacher question answer plan week price colour number list "
    "is was has makes needs gives takes shows keeps from with about before after without and or but then here there"
).split()

PLAIN = FakeModel("plain", ("completion",))
WITH_TOOLS = FakeModel("with-tools")

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: `arms` by the engine too, `unread` without it."""

    rounds: int
    turns: int
    arms: Sequence[Arm]
    unread: Sequence[Arm]


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its reply; `draft` is a system prompt that was drafted just before."""

    question: str
    reply: str
    draft: str | None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is sent in a turn, and what it answers."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    reply: str

    def text(self) -> str:
        """The request in the order in which templates write it: system prompt, tools, messages."""
        parts = [*self.messages[:1], *self.tools, *self.messages[1:]]
        return "".join(json.dumps(part, ensure_ascii=False) + "\n" for part in parts)


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to choose the history. `step`: by which our window moves. `keeps`: the person presses Keep after each reply.

    `change` makes another request of ours; it is given the turns before it too.
    """

    name: str
    step: int
    keeps: bool = False
    change: Callable[[Prompt, Sequence[Turn]], Prompt] = lambda prompt, _: prompt


def with_everything(prompt: Prompt, earlier: Sequence[Turn]) -> Prompt:
    """The whole conversation, drafts among it and no working state, as programs with one channel send it."""
    history: list[Message] = []
    for turn in earlier:
        history += [*_said_draft(turn), {"role": "user", "content": turn.question}, {"role": "assistant", "content": turn.reply}]
    return Prompt([prompt.messages[0], *history, prompt.messages[-1]], _every_tool() if prompt.tools else [], prompt.reply)


def with_every_tool(prompt: Prompt, _: Sequence[Turn]) -> Prompt:
    """Ours with a list of tools that never changes."""
    return Prompt(prompt.messages, [*_every_tool(), CURRENT_STATE_SCHEMA], prompt.reply)


def _said_draft(turn: Turn) -> list[Message]:
    return [{"role": "user", "content": "Draft a prompt."}, {"role": "assistant", "content": turn.draft}] if turn.draft else []


def _every_tool() -> list[dict[str, Any]]:
    return [tool.schema for tool in Registry.discover(tools) if tool.for_model]


EVERYTHING = Arm("everything", 6, change=with_everything)
SLIDING = Arm("sliding 12", 1)
STEP_6 = Arm("step 6", 6)
KEPT = Arm("step 6, kept", 6, keeps=True)
STEPS = (SLIDING, Arm("step 4", 4), STEP_6, Arm("step 8", 8))
ARMS = (EVERYTHING, *STEPS, KEPT)
# What the engine has no time for.
EVERY_TOOL = Arm("step 6, every tool", 6, change=with_every_tool)
UNREAD_ARMS = (EVERY_TOOL, Arm("step 2", 2), Arm("step 10", 10))


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--turns", type=int, default=TURNS, help="length of the conversation (default: %(default)s)")


def run(options: argparse.Namespace) -> Report:
    weights = embedded_weights()
    size = Size(1, SMOKE_TURNS, [KEPT], [EVERY_TOOL]) if options.smoke else Size(options.rounds, options.turns, ARMS, UNREAD_ARMS)
    report = Report("prompt_cost", "Cost of a turn's prompt", [("step 6", "sliding 12"), ("step 6", "everything"), ("step 6", "step 6, kept")])
    stay_on_driver_core()
    asyncio.run(measure(report, weights, size))
    return report


def embedded_weights() -> Path:
    """The file of the bundled model. Raises LeftOut."""
    try:
        version("xllamacpp")
        return next(Path(str(file.locate())) for file in files(BUNDLED_WEIGHTS) or [] if file.suffix == ".gguf")
    except PackageNotFoundError as missing:
        raise LeftOut(f"the embedded model's package {missing.name} is not installed") from missing


def script(count: int, longer: int = 1) -> list[Turn]:
    """So many turns, always the same ones; their texts are `longer` times as long as the engine has time for."""
    random = Random(count)

    def say(words: int) -> str:
        return " ".join(random.choices(WORDS, k=words * longer)).capitalize() + "."

    return [Turn(say(QUESTION_WORDS), say(REPLY_WORDS), say(DRAFT_WORDS) if number % DRAFT_EVERY == 1 else None) for number in range(count)]


async def measure(report: Report, weights: Path, size: Size) -> None:
    prompts = {arm.name: await play(arm, script(size.turns), PLAIN) for arm in size.arms}
    for name, sent in prompts.items():
        compare(report, "no tools, short messages", name, sent)
    for arm in (*size.arms, *size.unread):
        compare(report, "tools, longer messages", arm.name, await play(arm, script(size.turns, LONGER), WITH_TOOLS))
    for _ in range(size.rounds):
        for name, sent in prompts.items():
            await read(report, weights, name, sent)


async def play(arm: Arm, turns: Sequence[Turn], model: FakeModel) -> list[Prompt]:
    """Play the conversation with the product; what the model server was sent, a prompt a turn, as the arm has it.

    Raises RuntimeError when a turn doesn't end well.
    """
    with TemporaryDirectory() as folder:
        async with (
            FakeOllama([model]) as fake,
            server_running(make_settings(Path(folder), fake, history_step=arm.step)) as address,
            Client.connect(address) as client,
        ):
            chat = await client.new_chat()
            for turn in turns:
                if turn.draft:
                    await client.press(chat, "system_prompt_draft", content=turn.draft)
                fake.script(reply(turn.reply))
                if (ended := await client.say(chat, turn.question))["status"] != "complete":
                    raise RuntimeError(f"a turn ended as {ended}")
                if arm.keeps:
                    await client.ok("context.keep", chat_id=chat)
    sent = [Prompt(request.messages, request.tools, turn.reply) for request, turn in zip(fake.requests, turns, strict=True)]
    return [arm.change(prompt, turns[:number]) for number, prompt in enumerate(sent)]


def compare(report: Report, case: str, name: str, sent: Sequence[Prompt]) -> None:
    """What each request repeats of the one before, in bytes: what the cache of any model server can spare."""
    texts = [prompt.text().encode() for prompt in sent]
    kept = [shared(*pair) for pair in pairwise(texts)]
    report.add("request per turn", "bytes", case, name, mean(map(len, texts)))
    report.add("of it new", "bytes", case, name, mean(len(text) - same for text, same in zip(texts[1:], kept, strict=True)))
    report.add("prefix kept of the request before", "%", case, name, mean(same / len(text) * 100 for text, same in zip(texts[:-1], kept, strict=True)))
    report.add("fewest messages sent once there are twelve", "messages", case, name, min(map(said, sent[-12:])))


def shared(former: bytes, latter: bytes) -> int:
    """The length of what both begin with."""
    pairs = enumerate(zip(former, latter, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(former), len(latter)))


def said(prompt: Prompt) -> int:
    """How many of a prompt's messages somebody said, the new one among them."""
    return sum(message["role"] == "user" or (message["role"] == "assistant" and not message.get("tool_calls")) for message in prompt.messages)


async def read(report: Report, weights: Path, name: str, sent: Sequence[Prompt]) -> None:
    """Have a new engine read the prompts of a conversation one after the other."""
    with running([sys.executable, "-m", "benchmarks.prompt_reader", str(weights)], core=SERVER_CORE) as engine:
        async with aiohttp.ClientSession(engine.url, timeout=aiohttp.ClientTimeout(total=None)) as session:
            costs = []
            for prompt in sent:
                costs.append(await _cost(session, prompt.messages))
                await _cost(session, [*prompt.messages, {"role": "assistant", "content": prompt.reply}])
    case = f"{len(sent)} turns"
    report.add("prompt per turn", "tokens", case, name, mean(cost["prompt_tokens"] for cost in costs))
    report.add("computed per turn", "tokens", case, name, mean(cost["computed_tokens"] for cost in costs))
    report.add("time to first token, mean", "ms", case, name, mean(cost["first_token_ms"] for cost in costs))
    report.add("time to first token, longest", "ms", case, name, max(cost["first_token_ms"] for cost in costs))


async def _cost(session: aiohttp.ClientSession, messages: list[Message]) -> dict[str, float]:
    async with session.post("/", json=messages) as answer:
        answer.raise_for_status()
        costs: dict[str, float] = await answer.json()
        return costs
