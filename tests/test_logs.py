"""The log: a line for each turn, errors without their words, and nothing of what anyone wrote (N09)."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sqlite3
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from backend.errors import Conflict, StoreError
from backend.logs import FRAMES_TOLD, JsonLines, configure, fields, report_loop_error
from backend.services.prompting import Prompting
from backend.services.search import Search
from backend.store import notes
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.raw_http import ask
from tests.server import Client, Json, make_settings, running
from tests.test_process import END_SECONDS, started

pytestmark = pytest.mark.anyio

TOKEN = "zq-access-token-zq"
SECRET = "zq-secret-zq"


class Log:
    """What was logged, as written and line by line."""

    def __init__(self, stream: StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[Json]:
        return parsed(self.text)

    def of(self, message: str) -> list[Json]:
        return [line for line in self.lines if line["message"] == message]


def parsed(text: str) -> list[Json]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    """What goes to stderr at level info, from the server in this process."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(quotes_errors=False))
    ours = logging.getLogger("backend")
    before = ours.level
    ours.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    yield Log(stream)
    logging.getLogger().removeHandler(handler)
    ours.setLevel(before)


def logged(error: BaseException, *, quotes_errors: bool = False) -> Json:
    """The line of an error that was raised and caught."""
    record = logging.LogRecord("backend.x", logging.ERROR, __file__, 1, "it failed", None, (type(error), error, error.__traceback__))
    line = JsonLines(quotes_errors=quotes_errors).format(record)
    assert "\n" not in line
    return dict(json.loads(line))


def raised(error: Exception, origin: Exception | None = None) -> Exception:
    try:
        raise error from origin
    except Exception as caught:
        return caught


# --- a line


def test_a_line_says_when_where_and_what_with_its_fields() -> None:
    record = logging.LogRecord("backend.x", logging.INFO, __file__, 1, "two\nlines of %s", ("ключ",), None)
    record.created = 1_800_000_000.25
    record.__dict__.update(fields(chat_id="c", seconds=0.5, model=None))
    line = JsonLines(quotes_errors=False).format(record)
    assert "\n" not in line and line.isascii()
    assert list(json.loads(line).items()) == [
        ("time", "2027-01-15T08:00:00.250Z"), ("level", "info"), ("logger", "backend.x"), ("message", "two\nlines of ключ"),
        ("chat_id", "c"), ("seconds", 0.5), ("model", None),
    ]  # fmt: skip


def test_an_error_has_its_type_and_stack_and_no_words() -> None:
    told = logged(raised(sqlite3.InterfaceError(f"parameter {SECRET}"), raised(KeyError(SECRET))))
    assert [error["type"] for error in told["errors"]] == ["sqlite3.InterfaceError", "KeyError"]
    module, line, function = told["errors"][0]["stack"][-1].split(":")
    assert (module, function) == (__name__, "raised") and int(line) > 0
    assert SECRET not in json.dumps(told)


def test_errors_of_a_group_and_those_behind_one_are_told() -> None:
    try:
        try:
            raise ValueError(SECRET)
        except ValueError:
            raise ExceptionGroup(SECRET, [raised(OSError(SECRET)), raised(Conflict(SECRET))])  # noqa: B904
    except ExceptionGroup as group:
        told = logged(group)
    assert [error["type"] for error in told["errors"]] == ["ExceptionGroup", "OSError", "backend.errors.Conflict", "ValueError"]
    assert SECRET not in json.dumps(told)
    hidden = logged(raised(OSError(SECRET)))
    assert len(hidden["errors"]) == 1


def test_an_error_that_is_its_own_cause_is_told_once() -> None:
    error = KeyError("x")
    assert len(logged(raised(error, error))["errors"]) == 1


def test_what_the_store_says_of_its_file_is_kept() -> None:
    assert logged(raised(StoreError("The disk is full.")))["errors"][0]["message"] == "The disk is full."


def test_level_debug_quotes_errors() -> None:
    assert logged(raised(KeyError(SECRET)), quotes_errors=True)["errors"][0]["message"] == repr(SECRET)


def test_an_endless_recursion_is_a_short_line() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert len(logged(caught.value)["errors"][0]["stack"]) == FRAMES_TOLD


async def test_the_loops_own_errors_are_logged_without_what_they_held(log: Log) -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(report_loop_error)
    try:
        loop.call_soon(fail, SECRET)
        await asyncio.sleep(0)
        loop.call_exception_handler({"message": "socket.send() raised exception"})
    finally:
        loop.set_exception_handler(before)
    first, second = log.lines
    assert first["errors"][0]["type"] == "ValueError" and "fail" in first["errors"][0]["stack"][-1]
    assert second["message"] == "socket.send() raised exception"
    assert SECRET not in log.text


# --- a server's log


async def test_a_turn_has_a_line_with_its_figures(client: Client, fake: FakeOllama, log: Log) -> None:
    wrong = script.tool_call("task_complete", {"id": 9})
    right = script.tool_call("task_add", {"title": "milk"})
    fake.script(
        [script.tool_calls(right, wrong), script.done(prompt_eval_count=100, eval_count=7)], script.reply("Added.", prompt_eval_count=130, eval_count=3)
    )
    chat = await client.new_chat()
    ended = await client.say(chat, "add milk")
    (line,) = log.of("turn ended")
    times = [line.pop(name) for name in ("time", "seconds", "first_token_seconds")]
    assert times[1] >= times[2] > 0
    assert line == {
        "level": "info", "logger": "backend.services.turn_runner", "message": "turn ended", "chat_id": chat, "turn_id": ended["turn_id"],
        "model": "fake:tools", "host": None, "outcome": "complete", "prompt_tokens": 230, "reply_tokens": 10, "rounds": 2, "tool_calls": 2, "failed_calls": 1,
        "error": None, "model_error": None,
    }  # fmt: skip


async def test_turns_of_other_ends_have_their_lines_too(client: Client, fake: FakeOllama, log: Log) -> None:
    chat = await client.new_chat()
    fake.script([script.header("X-Served-By", "gpu-2"), script.err_mid()])
    await client.say(chat, "hi")
    await client.press(chat, "task_complete", id=9)
    broken, button = log.of("turn ended")
    assert (broken["outcome"], broken["error"], broken["model_error"]) == ("interrupted", "model_unavailable", "BrokenStream")
    assert (broken["host"], button["host"]) == ("gpu-2", None)
    assert (button["outcome"], button["error"], button["model_error"]) == ("failed", "tool_failed", None)
    assert (button["model"], button["rounds"], button["first_token_seconds"], button["failed_calls"]) == (None, 0, None, 1)


async def test_no_word_of_anyone_is_in_the_log(tmp_path: Path, fake: FakeOllama, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """N09: a run in which all that can be written is a canary, and what can break breaks with one on its lips."""
    said: list[str] = []

    def canary(what: str) -> str:
        said.append(f"zq-{what}-zq")
        return said[-1]

    crash = "zq-crash-zq"

    async def crashing(*arguments: object, **_: object) -> None:
        raise sqlite3.InterfaceError(f"{crash}: error binding {arguments!r}")

    async with running(make_settings(tmp_path, fake, access_token=TOKEN)) as address:
        await ask(address, f"/js/{canary('path')}", f"Authorization: Bearer {canary('guess')}", f"Cookie: {canary('cookie')}")
        async with Client.connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            chat = await client.new_chat()
            await client.ok("chat.rename", chat_id=chat, title=canary("title"))
            fake.script(
                script.call("task_add", {"title": canary("argument")}, before=canary("aside"), thought=canary("thought")),
                script.call(canary("tool"), {canary("name"): canary("value")}),
                script.reply(canary("reply")),
            )
            assert (await client.say(chat, canary("message")))["status"] == "complete"
            await client.press(chat, "note_save", title=canary("note-title"), content=canary("note"))
            fake.script(script.err_mid(canary("server"), canary("broken")), script.err_first(500, canary("refusal")))
            for status in ("interrupted", "failed"):
                assert (await client.say(chat, canary("faulty")))["status"] == status
            await client.command("message.send", chat_id=chat, client_id=canary("client"), text=" ")
            await client.command(canary("command"), text=canary("field"))
            with monkeypatch.context() as patched:
                patched.setattr(notes, "insert", crashing)
                patched.setattr(Search, "search", crashing)
                fake.script(script.call("note_save", {"title": canary("lost-title"), "content": canary("lost")}), script.reply("Sorry."))
                assert (await client.say(chat, canary("crashing")))["status"] == "complete"
                assert (await client.press(chat, "note_save", title=canary("pressed-title"), content=canary("pressed")))["status"] == "failed"
                await client.refused("internal", "chat.search", query=canary("query"))
            with monkeypatch.context() as patched:
                patched.setattr(Prompting, "request", crashing)
                assert (await client.say(chat, canary("fatal")))["error"]["code"] == "internal"
            heard = json.dumps([*client.events, *await client.messages(chat)])

    assert [word for word in [*said, TOKEN, crash] if word in log.text] == []
    assert [(line["outcome"], line["error"]) for line in log.of("turn ended")] == [
        ("complete", None), ("complete", None), ("interrupted", "model_unavailable"), ("failed", "model_unavailable"),
        ("complete", None), ("failed", "internal"), ("failed", "internal"),
    ]  # fmt: skip
    faults = [line for line in log.lines if line["level"] == "error"]
    assert [line["message"] for line in faults] == ["tool failed", "tool failed", "command failed", "turn failed"]
    assert {line["errors"][0]["type"] for line in faults} == {"sqlite3.InterfaceError"}
    assert all(line["errors"][0]["stack"][-1].endswith("crashing") for line in faults)
    # Nor does a fault's inside reach the page.
    assert crash not in heard and "Traceback" not in heard and "InterfaceError" not in heard


# --- a process's log


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["backend debug", "backend info", "backend warning", "backend error", "library warning", "library error"]),
        ("info", ["backend info", "backend warning", "backend error", "library warning", "library error"]),
        ("warning", ["backend warning", "backend error", "library warning", "library error"]),
        ("error", ["backend error", "library error"]),
    ],
)
def test_who_is_heard_from_which_level_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str, heard: list[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("backend")
    before = root.level, ours.level
    monkeypatch.setattr(root, "handlers", [])
    try:
        configure(level)
        for name in ("backend", "library"):
            for kind in ("debug", "info", "warning", "error"):
                getattr(logging.getLogger(f"{name}.x"), kind)("%s %s", name, kind)
    finally:
        logging.captureWarnings(False)
        root.setLevel(before[0])
        ours.setLevel(before[1])
    assert [line["message"] for line in parsed(capsys.readouterr().err)] == heard


async def test_a_process_logs_lines_of_json_and_no_library_its_frames(tmp_path: Path, fake: FakeOllama) -> None:
    async with started(tmp_path, fake, CLEANROOM_NOTHING="x", CLEANROOM_LOG_LEVEL="debug") as process:
        async with Client.connect(await process.ready()) as client:
            await client.say(await client.new_chat(), SECRET)
        process.tell(signal.SIGTERM)
        assert await process.ended(END_SECONDS) == 0
        said = await process.said()
    told, turn = parsed(said)
    assert told["level"] == "warning" and told["message"].startswith("CLEANROOM_NOTHING is no setting")
    assert (turn["level"], turn["message"], turn["outcome"]) == ("info", "turn ended", "complete")
    assert SECRET not in said
