"""A server killed at random points of streaming turns that call tools, and what has to be true after each restart.

    python -m tests.faults.kill_points --points 200 --seed 1

Three chats on one database stream side by side; the process is ended by SIGKILL somewhere in between and started
again. What a client saw before is compared with what the database holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backend.settings import PROJECT_FOLDER
from tests import fake_ollama as script
from tests.fake_ollama import ChatRequest, FakeModel, FakeOllama
from tests.server import Client

CHATS = 3
BEFORE = "Let me note that. "
WORDS = [f"word{number} " for number in range(60)]
TOKEN_SECONDS = 0.03
# A turn takes about as long as the longer one, so that the points lie all over it and a little behind; half of them
# lie in its beginning, where a message is stored, the model asked and the tool called.
BEGINNING_SECONDS, LONGEST_SECONDS = 0.15, 2.5
# What may be lost of a reply's text, and the time that a frame may need to the client on a busy machine.
LOST_SECONDS = 1.0
SLACK_SECONDS = 0.4


@dataclass
class Seen:
    """What one client saw of one chat before the server was killed."""

    chat_id: str
    client_id: str
    acknowledged: bool = False
    turn_id: str | None = None
    reply_id: int | None = None
    # When each piece of the reply came, and the reply's length after it.
    lengths: list[tuple[float, int]] = field(default_factory=list)
    finished: bool = False

    def certain_length(self, killed_at: float) -> int:
        """How much of the reply must have been saved."""
        return max((length for moment, length in self.lengths if moment < killed_at - LOST_SECONDS - SLACK_SECONDS), default=0)


@dataclass
class Figures:
    """What a run did."""

    points: int = 0
    in_mid_reply: int = 0
    between_tools: int = 0
    after_the_end: int = 0
    unacknowledged: int = 0
    most_text_lost_seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.points} kills, {CHATS} chats each: {self.in_mid_reply} turns cut in mid-reply, {self.between_tools} before their reply, "
            f"{self.after_the_end} after their end; {self.unacknowledged} messages not acknowledged; "
            f"at most {self.most_text_lost_seconds:.2f} s of text lost"
        )


def answer(request: ChatRequest) -> script.Script:
    """A call first, then, with its result, a slow reply."""
    if request.messages[-1]["role"] == "tool":
        return [*[[script.text(word), script.pause(TOKEN_SECONDS)] for word in WORDS], script.done()]
    return script.call("task_add", {"title": str(request.messages[-1]["content"])}, before=BEFORE)


@asynccontextmanager
async def server(folder: Path, ollama_url: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    environment = os.environ | {
        "CLEANROOM_PORT": "0",
        "CLEANROOM_DATABASE_URL": f"sqlite:///{folder / 'cleanroom.db'}",
        "CLEANROOM_EMBEDDED": "never",
        "OLLAMA_HOST": ollama_url,
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "backend", cwd=PROJECT_FOLDER, env=environment, stdout=pipe)
    try:
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode()
        assert "ready at http://" in said, said
        yield process, said.split("http://")[1].strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run(folder: Path, points: int, seed: int) -> Figures:
    """Kill at `points` random moments; AssertionError names what was broken."""
    chance, figures, before, killed_at = random.Random(seed), Figures(), list[Seen](), 0.0
    async with FakeOllama([FakeModel()], default=answer) as fake:
        for point in range(points + 1):
            async with server(folder, fake.url) as (process, address), Client.connect(address) as client:
                await check(folder, client, before, killed_at, figures)
                check_pairs(fake)
                fake.requests.clear()
                if point == points:
                    break
                chat_ids = [seen.chat_id for seen in before] or [await client.new_chat() for _ in range(CHATS)]
                before, killed_at = await one_kill(client, process, chat_ids, chance)
                for seen in before:
                    seen.lengths = [(moment, length) for moment, length in seen.lengths if moment <= killed_at]
                figures.points += 1
                _note(figures, before)
    return figures


async def one_kill(client: Client, process: asyncio.subprocess.Process, chat_ids: list[str], chance: random.Random) -> tuple[list[Seen], float]:
    """Send one message to each chat and kill the server somewhere in what follows."""
    seen = [Seen(chat_id, uuid.uuid4().hex) for chat_id in chat_ids]
    watching = asyncio.create_task(watch(client, {one.chat_id: one for one in seen}))
    sending = [asyncio.create_task(send(client, one)) for one in seen]
    await asyncio.sleep(chance.uniform(0, chance.choice((BEGINNING_SECONDS, LONGEST_SECONDS))))
    process.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    await process.wait()
    for task in (watching, *sending):
        task.cancel()
    await asyncio.gather(watching, *sending, return_exceptions=True)
    return seen, killed_at


async def send(client: Client, seen: Seen) -> None:
    reply = await client.ok("message.send", chat_id=seen.chat_id, client_id=seen.client_id, text=f"note {seen.client_id}")
    seen.acknowledged, seen.turn_id = True, reply["turn_id"]


async def watch(client: Client, by_chat: dict[str, Seen]) -> None:
    """Note what comes, and when."""
    done = 0
    while True:
        await client.until(lambda: len(client.events) > done)  # noqa: B023 - asked within this round only
        for event in client.events[done:]:
            note(by_chat.get(event.get("chat_id", "")), event)
        done = len(client.events)


def note(seen: Seen | None, event: dict[str, Any]) -> None:
    if seen is None:
        return
    if event["type"] == "message.delta" and event["channel"] == "content":
        if seen.reply_id != event["message_id"]:
            seen.reply_id, seen.lengths = event["message_id"], []
        seen.lengths.append((time.monotonic(), event["offset"] + len(event["text"])))
    elif event["type"] == "turn.finished":
        seen.finished = True


async def check(folder: Path, client: Client, before: list[Seen], killed_at: float, figures: Figures) -> None:
    """What the restarted server, and its file, say of the turns that were cut."""
    with closing(sqlite3.connect(folder / "cleanroom.db")) as database:
        database.row_factory = sqlite3.Row
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        streaming = database.execute("SELECT COUNT(*) FROM chat_messages WHERE status = 'streaming'").fetchone()[0]
        assert streaming == 0, f"{streaming} messages are left streaming"
        for seen in before:
            check_chat(database, seen)
            check_text(database, seen, killed_at, figures)
    for seen in before:
        opened = await client.ok("chat.open", chat_id=seen.chat_id)
        assert opened["chat"]["turn_running"] is False
    figures.unacknowledged += sum(not seen.acknowledged for seen in before)


def check_chat(database: sqlite3.Connection, seen: Seen) -> None:
    asked = database.execute("SELECT * FROM chat_messages WHERE session_id = ? AND client_id = ?", (seen.chat_id, seen.client_id)).fetchall()
    assert len(asked) == 1 or not (asked or seen.acknowledged), f"an acknowledged message is there {len(asked)} times"
    if not asked:
        return
    turn = database.execute("SELECT * FROM chat_messages WHERE turn_id = ? ORDER BY id", (asked[0]["turn_id"],)).fetchall()
    tasks = database.execute("SELECT COUNT(*) FROM tasks WHERE title = ?", (f"note {seen.client_id}",)).fetchone()[0]
    cards = [row for row in turn if row["role"] == "tool" and row["card"]]
    receipts = [call for row in turn if row["role"] == "tool" and not row["is_ephemeral"] for call in json.loads(row["content"])]
    assert tasks == len(cards) == len(receipts), f"{tasks} tasks, {len(cards)} cards, {len(receipts)} receipts of one call"
    replies = [row for row in turn if row["role"] == "assistant" and row["id"] == seen.reply_id]
    if seen.finished:
        assert replies and replies[0]["content"] == "".join(WORDS), "a finished reply is not whole"
    elif replies:
        begun = [text.startswith(replies[0]["content"]) for text in (BEFORE, "".join(WORDS))]
        assert any(begun), "a reply's text is not the beginning of what was sent"


def check_pairs(fake: FakeOllama) -> None:
    """Every call in every request is followed by its result, and no result stands alone."""
    for request in fake.requests:
        waiting = 0
        for message in request.messages:
            if message["role"] == "tool":
                assert waiting > 0, "a result without its call was sent"
                waiting -= 1
            else:
                assert waiting == 0, "a call without its result was sent"
                waiting = len(message.get("tool_calls") or [])
        assert waiting == 0, "a call without its result was sent"


def check_text(database: sqlite3.Connection, seen: Seen, killed_at: float, figures: Figures) -> None:
    """At most a second of the text is lost."""
    row = database.execute("SELECT content FROM chat_messages WHERE id = ?", (seen.reply_id,)).fetchone()
    if row is None:
        assert seen.certain_length(killed_at) == 0, "a reply that was seen is gone"
        return
    kept = len(row[0])
    assert kept >= seen.certain_length(killed_at), f"{kept} characters kept, {seen.certain_length(killed_at)} were there more than a second before"
    lost = [moment for moment, length in seen.lengths if length > kept]
    if lost:
        figures.most_text_lost_seconds = max(figures.most_text_lost_seconds, killed_at - lost[0])


def _note(figures: Figures, before: list[Seen]) -> None:
    figures.after_the_end += sum(seen.finished for seen in before)
    figures.in_mid_reply += sum(bool(seen.lengths) and not seen.finished for seen in before)
    figures.between_tools += sum(not seen.lengths and not seen.finished for seen in before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        print(asyncio.run(run(Path(folder), options.points, options.seed)))


if __name__ == "__main__":
    main()
