"""Plays the script with every arm and seed, keeps the transcripts and fills the report."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from backend.embedded.process import EmbeddedProcess
from backend.errors import ModelError
from backend.llm import tools
from backend.llm.core.registry import Registry
from backend.llm.model import ModelServer
from backend.llm.wire import ModelInfo
from backend.settings import Settings
from benchmarks.context.arms import ARMS, DEFAULT_ARMS, Arm
from benchmarks.context.play import Model, Played, Server, play
from benchmarks.context.rehearsal import able
from benchmarks.context.script import Conversation, load
from benchmarks.context.tally import Score, Tally, score
from benchmarks.report import LeftOut, Report
from tests.fake_ollama import FakeOllama
from tests.server import make_settings, running

TRANSCRIPTS = "context-transcripts"
EMBEDDED = "embedded"

SMOKE_TURNS = 5


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", help=f"the model of Ollama (OLLAMA_HOST) that is asked, or '{EMBEDDED}'; needed unless --smoke")
    group.add_argument("--seeds", type=int, default=3, help="how often each conversation is played, with seeds from 1 (default: %(default)s)")
    group.add_argument("--conversations", type=int, default=12, help="how many of the script are played, languages by turns (default: all %(default)s)")
    group.add_argument("--arms", default=",".join(DEFAULT_ARMS), help=f"of {', '.join(ARMS)}; the first is compared with (default: %(default)s)")
    group.add_argument("--temperature", type=float, default=0.7, help="at 0 all seeds say the same (default: %(default)s)")
    group.add_argument("--num-ctx", type=int, default=16_384, help="the window in tokens, large enough for the full history (default: %(default)s)")


def run(options: argparse.Namespace) -> Report:
    if not options.smoke and not options.model:
        raise LeftOut("it asks a model of yours, and none was named: --model NAME")
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> Report:
    conversations = load()[: options.conversations]
    names = options.arms.split(",")
    if unknown := [name for name in names if name not in ARMS]:
        raise LeftOut(f"there is no arm {', '.join(unknown)}; there are {', '.join(ARMS)}")
    arms, seeds = [ARMS[name] for name in names], range(1, options.seeds + 1)
    if options.smoke:
        conversations, seeds = [conversations[0].model_copy(update={"turns": conversations[0].turns[:SMOKE_TURNS]})], range(1, 2)
    with TemporaryDirectory() as unwritten:
        folder = Path(unwritten) if options.smoke else options.results / TRANSCRIPTS
        folder.mkdir(parents=True, exist_ok=True)
        async with asked(options, conversations) as model:
            name = f"context-{re.sub(r'[^a-z0-9.]+', '-', model.name.lower()).strip('-')}"
            size = f"{len(conversations)} conversations, {len(seeds)} seeds, temperature {model.temperature:g}, a window of {model.num_ctx:,} tokens"
            report = Report(name, f"Does a sterile window help? {model.name}: {size}")
            with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as transcripts:
                tally = await compare(conversations, arms, seeds, model, cleanroom, transcripts)
    tally.fill(report, arms[0].name)
    return report


@asynccontextmanager
async def asked(options: argparse.Namespace, conversations: Sequence[Conversation]) -> AsyncIterator[Model]:
    """The model that is asked, on a server that runs. Raises LeftOut when there is none."""
    async with AsyncExitStack() as stack:
        settings, name = Settings.from_environment(), options.model
        url = settings.ollama_url
        try:
            if options.smoke:
                url = (await stack.enter_async_context(FakeOllama(default=able(conversations)))).url
                name = None
            elif options.model == EMBEDDED:
                embedded = EmbeddedProcess(settings.embedded_model)
                stack.push_async_callback(embedded.close)
                url, name = await embedded.url(), None
            found = await _find(name, url, settings.first_token_seconds)
        except ModelError as error:
            raise LeftOut(error.message) from error
        yield Model(found.name, url, min(options.num_ctx, found.context_length or options.num_ctx), options.temperature)


async def _find(wanted: str | None, url: str, first_token_seconds: float) -> ModelInfo:
    """The server's model of that name, or its first. Raises LeftOut when it has none, ModelError when it doesn't answer."""
    server = ModelServer(url, "ollama", first_token_seconds=first_token_seconds)
    try:
        models = await server.list_models()
    finally:
        await server.close()
    found = next((model for model in models if wanted is None or model.name in (wanted, f"{wanted}:latest")), None)
    if found is None:
        raise LeftOut(f"there is no model '{wanted}' at {url}; 'ollama pull {wanted}' fetches it")
    if "tools" not in found.capabilities:
        print(f"{found.name} can't call tools: its figures say nothing about histories, only that the benchmark runs.", flush=True)
    return found


async def compare(
    conversations: Sequence[Conversation], arms: Sequence[Arm], seeds: Sequence[int], model: Model, server: Server, transcripts: IO[str]
) -> Tally:
    """Play everything: of a conversation and a seed all arms in turn, each of them first as often as the others."""
    tally, reading = Tally(conversations), [tool.name for tool in Registry.discover(tools) if tool.effect == "read"]
    # Not scored: the model is loaded by it.
    await play(conversations[0].model_copy(update={"turns": conversations[0].turns[:1]}), arms[0], 0, model, server)
    number = 0
    for seed in seeds:
        for conversation in conversations:
            first = number % len(arms)
            for arm in [*arms[first:], *arms[:first]]:
                played = await play(conversation, arm, seed, model, server)
                scores = score(played, reading)
                tally.add(arm.name, conversation.name, scores)
                for turn, (one, its_score) in enumerate(zip(played, scores, strict=True), 1):
                    place = {"model": model.name, "arm": arm.name, "seed": seed, "conversation": conversation.name, "turn": turn}
                    transcripts.write(json.dumps({**place, **_line(one, its_score)}, ensure_ascii=False) + "\n")
                transcripts.flush()
            number += 1
    return tally


def _line(played: Played, its_score: Score) -> dict[str, object]:
    """A turn as the transcripts keep it: every request as it went out, every answer as it came."""
    return {
        "say": played.turn.say,
        "status": played.status,
        "reply": played.reply,
        "score": asdict(its_score),
        "rounds": [asdict(one) for one in played.rounds],
        "facts_after": played.after,
    }


@asynccontextmanager
async def cleanroom(folder: Path, model_url: str) -> AsyncIterator[str]:
    """Cleanroom's server, whole, with its default settings whatever the environment says."""
    async with running(make_settings(folder, ollama_url=model_url)) as address:
        yield f"http://{address}"
