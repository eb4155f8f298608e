"""The benchmark of histories, played with the product itself and a scripted model server."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.context import run
from benchmarks.context.arms import ARMS, DEFAULT_ARMS, FULL, LAST_12, STERILE, WITHOUT_RECEIPTS, Arm, Everything, Message, cut
from benchmarks.context.compare import cleanroom, compare
from benchmarks.context.play import Model, Played, play
from benchmarks.context.rehearsal import able
from benchmarks.context.scoring import is_done
from benchmarks.context.script import Conversation, load
from benchmarks.context.tally import score
from benchmarks.report import LeftOut, Report
from tests.fake_ollama import ChatRequest, FakeOllama, Script, call_as_text, err_first, reply

pytestmark = pytest.mark.anyio

CONVERSATIONS = {conversation.name: conversation for conversation in load()}
# Between them: each kind of deed, a fact that changes elsewhere, both languages.
QUICK = ("en-trip", "ru-clinic", "ru-bakery")
OFFICE = CONVERSATIONS["en-office"]
FIVE_TURNS = OFFICE.model_copy(update={"turns": OFFICE.turns[:5]})
READING = ["note_read", "note_list", "task_list"]


def model(fake: FakeOllama) -> Model:
    return Model(fake.models[0].name, fake.url, num_ctx=8192, temperature=0.5)


async def played(conversation: Conversation, arm: Arm, fake: FakeOllama) -> list[Played]:
    fake.default = able([conversation])
    return await play(conversation, arm, 3, model(fake), cleanroom)


def test_the_script_has_both_languages_and_asks_each_thing_once() -> None:
    says = [turn.say for conversation in CONVERSATIONS.values() for turn in conversation.turns]
    assert len(says) == len(set(says))
    for language in ("en", "ru"):
        turns = [conversation.turns for conversation in CONVERSATIONS.values() if conversation.language == language]
        assert len(turns) >= 6 and all(6 <= len(found) <= 10 for found in turns)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in CONVERSATIONS])
async def test_an_able_model_is_found_to_do_everything_right(name: str, fake: FakeOllama) -> None:
    """So every deed of the script can be done, and the database shows it then and not before."""
    turns = await played(CONVERSATIONS[name], STERILE, fake)
    for turn, its_score in zip(turns, score(turns, READING), strict=True):
        assert turn.turn.deed is None or not is_done(turn.turn.deed, turn.before), turn.turn.say
        assert its_score.is_done in (None, True), turn.turn.say
        assert its_score.named in (None, "current"), turn.turn.say
        assert not (its_score.is_claimed or its_score.is_unasked or its_score.is_failed or its_score.is_needless), turn.turn.say
        assert its_score.prompt_tokens and its_score.reply_tokens and its_score.first_token_ms


@pytest.mark.parametrize("name", ["en-office", "ru-chores"])
async def test_a_model_that_only_talks_is_found_to_do_nothing_right(name: str, fake: FakeOllama) -> None:
    conversation = CONVERSATIONS[name]
    stale = {turn.say: turn.fact.stale[0] for turn in conversation.turns if turn.fact}
    done = "Готово, сделано." if conversation.language == "ru" else "I've done it."
    fake.default = lambda request: reply(stale.get(request.messages[-1]["content"], done))
    turns = await play(conversation, STERILE, 1, model(fake), cleanroom)
    for turn, its_score in zip(turns, score(turns, READING), strict=True):
        assert (its_score.is_done, its_score.is_claimed) == ((False, True) if turn.turn.deed else (None, None))
        assert its_score.named == ("stale" if turn.turn.fact else None)


async def last_request(arm: Arm, fake: FakeOllama) -> ChatRequest:
    """The first request of the last turn of a conversation in which a note was read and replaced."""
    await played(FIVE_TURNS, arm, fake)
    return next(request for request in fake.requests if request.messages[-1] == {"role": "user", "content": FIVE_TURNS.turns[-1].say})


def roles(messages: list[Message]) -> list[str]:
    return [message["role"] for message in messages]


async def test_the_arms_send_the_histories_that_their_names_say() -> None:
    sent = {}
    for arm in [FULL, LAST_12, WITHOUT_RECEIPTS, STERILE, ARMS["full-stateless"]]:
        async with FakeOllama() as fake:
            request = await last_request(arm, fake)
            sent[arm.name] = cut(request.messages)
            assert (request.options["seed"], request.options["temperature"], request.options["num_ctx"]) == (3, 0.5, 8192)
            assert ("current_state" in request.tool_names) == arm.with_state
    full, last, bare, sterile = (sent[arm.name] for arm in (FULL, LAST_12, WITHOUT_RECEIPTS, STERILE))
    assert all(found.turn == sterile.turn and found.prompt == sterile.prompt for found in sent.values())
    assert full.state == last.state == bare.state == sterile.state != []
    assert sent["full history, no state"].state == []

    questions = [message["content"] for message in full.history if message["role"] == "user"]
    assert questions == [turn.say for turn in FIVE_TURNS.turns[:-1]]
    results = {message["tool_name"]: message["content"] for message in full.history if message["role"] == "tool"}
    assert "4471" in results["note_read"]
    assert roles(full.history[:4]) == ["user", "assistant", "tool", "assistant"]
    assert sent["full history, no state"].history == full.history

    assert len(full.history) > 12 and last.history == full.history[-len(last.history) :]
    assert 9 <= len(last.history) <= 11 and last.history[0]["role"] != "tool"

    receipts = [message for message in sterile.history if message["role"] == "tool"]
    assert receipts and all(message["content"].startswith("ok") for message in receipts)
    assert "4471" not in json.dumps(sterile.history)
    assert bare.history == [message for message in sterile.history if message["role"] != "tool" and "tool_calls" not in message]


def test_the_last_twelve_count_the_new_message_and_begin_with_no_result_without_its_call() -> None:
    prompt, question, answer = {"role": "system", "content": "p"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "task_list", "arguments": {}}}]}
    result = {"role": "tool", "tool_name": "task_list", "content": "none"}
    sent = cut([prompt, question])
    assert LAST_12.messages(sent, [question, answer] * 6) == [prompt, answer, *[question, answer] * 5, question]
    assert LAST_12.messages(sent, [call, result, result, *[question, answer] * 5]) == [prompt, *[question, answer] * 5, question]
    assert LAST_12.messages(sent, [call, result, answer]) == [prompt, call, result, answer, question]


def test_a_result_that_shrinks_within_its_turn_stays_whole_in_the_full_history() -> None:
    question = {"role": "user", "content": "Draft it"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "draft", "arguments": {"content": "whole"}}}]}
    shrunk = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "draft", "arguments": {}}}]}
    result = {"role": "tool", "tool_name": "draft", "content": "saved"}
    everything = Everything()
    everything.follow([question])
    everything.follow([question, call, result])
    everything.follow([question, shrunk, result, call, result])
    everything.end_turn("Here it is.")
    assert everything.earlier == [question, call, result, call, result, {"role": "assistant", "content": "Here it is."}]
    everything.follow([question])
    everything.end_turn("")
    assert everything.earlier[-1] == question


def test_a_request_without_a_working_state_is_cut_too() -> None:
    prompt, question = {"role": "system", "content": "p"}, {"role": "user", "content": "q"}
    assert (cut([prompt, question]).state, cut([prompt, question]).history) == ([], [])
    state = {"role": "system", "content": "A draft"}
    found = cut([prompt, question, {"role": "assistant", "content": "a"}, state, question])
    assert (found.state, len(found.history), found.turn) == ([state], 2, [question])


async def test_a_call_written_as_text_and_a_refusal_are_told_as_what_they_are(fake: FakeOllama) -> None:
    conversation = OFFICE.model_copy(update={"turns": OFFICE.turns[:2]})
    fake.script(call_as_text("task_add", {"title": "Order 3 chairs"}), reply("Done."), err_first(500))
    first, second = await play(conversation, FULL, 1, model(fake), cleanroom)
    assert [[call.name for call in one.calls] for one in first.rounds] == [["task_add"], []]
    assert (first.reply, first.rounds[0].text) == ("Done.", "")
    assert (second.status, second.reply, second.rounds[0].prompt_tokens) == ("failed", "", None)
    assert second.rounds[0].error
    done, failed = score([first, second], READING)
    assert done.is_done and done.is_needless is False
    assert failed.is_failed and failed.prompt_tokens is None


def half_careless(request: ChatRequest) -> Script:
    """Does what it should while it sees its earlier calls, and else only says so: what small models were seen to do."""
    sees_calls = any(message.get("tool_calls") for message in cut(request.messages).history)
    return able([OFFICE])(request) if sees_calls or len(request.messages) < 5 else reply("Done. 4471, shelf 14.")


async def test_the_report_tells_the_arms_apart_with_intervals_and_keeps_the_transcripts(fake: FakeOllama) -> None:
    fake.default = half_careless
    transcripts = io.StringIO()
    tally = await compare([FIVE_TURNS], [FULL, WITHOUT_RECEIPTS], [1, 2], model(fake), cleanroom, transcripts)
    report = Report("context", "Histories")
    tally.fill(report, FULL.name)

    claims = report.measures["claims of a deed not done"]
    assert claims.samples["all"] == {FULL.name: [0, 0], WITHOUT_RECEIPTS.name: [0, 1]}, "two deeds, each over two seeds one sample"
    assert report.measures["wrong fact after an overwrite"].samples["all"] == {FULL.name: [0], WITHOUT_RECEIPTS.name: [1]}
    assert claims.samples["English"] == claims.samples["all"]
    difference = report.measures["difference to full history"].samples
    assert difference["claims of a deed not done"] == {WITHOUT_RECEIPTS.name: [50]}
    assert difference["asked deeds done"] == {WITHOUT_RECEIPTS.name: [-50]}
    assert 0 < report.measures["ratio to full history"].samples["prompt tokens per turn"][WITHOUT_RECEIPTS.name][0] < 1
    assert "50 (9.45–90.5)" in report.table()

    lines = [json.loads(line) for line in transcripts.getvalue().splitlines()]
    assert len(lines) == 2 * 2 * 5
    assert {(line["seed"], line["arm"]) for line in lines} == {(seed, arm.name) for seed in (1, 2) for arm in (FULL, WITHOUT_RECEIPTS)}
    read = next(line for line in lines if line["arm"] == FULL.name and line["turn"] == 3)
    assert read["rounds"][0]["messages"][-1]["content"] == FIVE_TURNS.turns[2].say
    assert read["facts_after"]["notes"][0]["content"].startswith("Door code: 5893")
    assert read["rounds"][0]["calls"][0]["name"] == "note_save"


def options(**values: object) -> Namespace:
    defaults = {"smoke": False, "model": "some", "arms": ",".join(DEFAULT_ARMS), "seeds": 1, "conversations": 1, "temperature": 0, "num_ctx": 8192}
    return Namespace(**(defaults | values))


def test_it_is_left_out_when_no_model_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "context"])
    assert bench.main() == 1
    assert "context is left out" in capsys.readouterr().out


def test_it_is_left_out_when_the_model_or_the_arm_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    with pytest.raises(LeftOut, match=r"127\.0\.0\.1:9"):
        run(options(results=tmp_path))
    with pytest.raises(LeftOut, match="no arm half"):
        run(options(results=tmp_path, arms="full,half"))
