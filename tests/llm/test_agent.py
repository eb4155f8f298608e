"""The turn loop from the outside: a real server, a scripted model server, and what each side got."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backend.llm import agent
from tests import fake_ollama as script
from tests.fake_ollama import ChatRequest, FakeModel, FakeOllama
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio


def open_tasks(folder: Path) -> list[str]:
    return [row["title"] for row in rows(folder, "SELECT title FROM tasks ORDER BY id")]


def cards(messages: list[Json]) -> list[Json]:
    return [message for message in messages if message.get("card")]


def copy_database(source: Path, target: Path) -> None:
    """What a process killed now would leave."""
    for name in ("cleanroom.db", "cleanroom.db-wal"):
        shutil.copy(source / name, target)


def exchanges(request: ChatRequest) -> list[tuple[str, Any, str]]:
    """The calls of a request that aren't the program's own, each with its result: name, arguments, content."""
    found: list[tuple[str, Any, str]] = []
    waiting: list[tuple[str, Any]] = []
    for message in request.messages:
        if message["role"] == "tool":
            name, arguments = waiting.pop(0)
            assert message["tool_name"] == name
            found.append((name, arguments, message["content"]))
        else:
            assert not waiting, "a call without its result"
            waiting = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    assert not waiting
    return [exchange for exchange in found if exchange[0] != "current_state"]


@pytest.mark.parametrize("on_done_line", [False, True])
async def test_a_call_is_carried_out_in_both_shapes_of_the_wire(client: Client, fake: FakeOllama, tmp_path: Path, on_done_line: bool) -> None:
    fake.script(script.call("task_add", {"title": "milk"}, before="I'll note it.", on_done_line=on_done_line), script.reply("Noted."))
    chat = await client.new_chat()
    assert (await client.say(chat, "buy milk"))["status"] == "complete"
    assert open_tasks(tmp_path) == ["milk"]
    assert exchanges(fake.requests[1]) == [("task_add", {"title": "milk"}, "Task 1 added: milk")]
    assert [(m["role"], m["content"], m["is_ephemeral"], m.get("tool")) for m in await client.messages(chat)] == [
        ("user", "buy milk", 0, None),
        ("assistant", "I'll note it.", 1, None),
        ("tool", "Task 1 added: milk", 1, "task_add"),
        ("tool", '[{"tool":"task_add","arguments":{"title":"milk"},"outcome":"ok, task 1"}]', 0, None),
        ("assistant", "Noted.", 0, None),
    ]


@pytest.mark.parametrize("one_line", [True, False])
async def test_parallel_calls_are_carried_out_in_order(client: Client, fake: FakeOllama, tmp_path: Path, one_line: bool) -> None:
    titles = ["one", "two", "three"]
    fake.script(script.calls(*(script.tool_call("task_add", {"title": title}) for title in titles), one_line=one_line), script.reply("ok"))
    await client.say(await client.new_chat(), "three tasks")
    assert open_tasks(tmp_path) == titles
    assert [arguments["title"] for _, arguments, _ in exchanges(fake.requests[1])] == titles


async def test_of_many_parallel_calls_the_first_ones_are_carried_out(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.calls(*(script.tool_call("task_add", {"title": f"task {number}"}) for number in range(20))), script.reply("ok"))
    assert (await client.say(await client.new_chat(), "many"))["status"] == "complete"
    expected = [f"task {number}" for number in range(agent.MAX_CALLS_A_ROUND)]
    assert open_tasks(tmp_path) == [arguments["title"] for _, arguments, _ in exchanges(fake.requests[1])] == expected


async def test_calling_for_ever_ends_after_eight_rounds(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.default = lambda _: script.call("task_add", {"title": f"number {len(fake.requests)}"})
    chat = await client.new_chat()
    ended = await client.say(chat, "go")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")
    assert "8 rounds" in ended["error"]["message"]
    assert (len(fake.requests), len(open_tasks(tmp_path))) == (9, 8)
    fake.default = lambda _: script.reply("calm again")
    assert (await client.say(chat, "and now?"))["status"] == "complete"


async def test_the_same_call_three_times_ends_the_turn(client: Client, fake: FakeOllama) -> None:
    fake.default = lambda _: script.call("task_list", {})
    ended = await client.say(await client.new_chat(), "go")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")
    assert "task_list" in ended["error"]["message"]
    assert len(fake.requests) == 3


async def test_two_calls_in_turn_for_ever_end_too(client: Client, fake: FakeOllama) -> None:
    fake.default = lambda _: script.call("task_list" if len(fake.requests) % 2 else "system_prompt_view", {})
    assert (await client.say(await client.new_chat(), "go"))["status"] == "failed"
    assert len(fake.requests) <= agent.MAX_TOOL_ROUNDS + 1


async def test_stop_ends_a_model_that_calls_for_ever(client: Client, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    fake.script(script.call("task_add", {"title": "a"}), [script.hold(gate), script.call("task_add", {"title": "b"})])
    chat = await client.new_chat()
    reply = await client.ok("message.send", chat_id=chat, client_id="1", text="go")
    await fake.wait_for_requests(2)
    await client.ok("turn.stop", chat_id=chat)
    assert (await client.finished(reply["turn_id"]))["status"] == "stopped"
    gate.set()
    assert (await client.say(chat, "still there?"))["status"] == "complete"


async def test_the_same_failing_call_again_ends_clearly(client: Client, fake: FakeOllama) -> None:
    fake.default = lambda _: script.call("task_complete", {"id": 99})
    chat = await client.new_chat()
    ended = await client.say(chat, "go")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_failed")
    assert "There is no task 99" in ended["error"]["message"]
    assert len(fake.requests) == 2
    assert [message["status"] for message in cards(await client.messages(chat))] == ["failed", "failed"]


async def test_a_bad_call_can_be_mended(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.call("task_add", {"titel": "milk"}), script.call("task_add", {"title": "milk"}), script.reply("Noted."))
    chat = await client.new_chat()
    assert (await client.say(chat, "buy milk"))["status"] == "complete"
    ((_, _, told),) = exchanges(fake.requests[1])
    assert told.startswith("Error: ") and "title" in told and "titel" in told
    assert exchanges(fake.requests[2])[1] == ("task_add", {"title": "milk"}, "Task 1 added: milk")
    metrics = (await client.messages(chat))[-1]["metrics"]
    assert (metrics["changes"], metrics["failed_calls"], "nothing_changed" in metrics) == (1, 1, False)


async def test_calls_that_fail_side_by_side_can_be_mended_too(client: Client, fake: FakeOllama) -> None:
    wrong = [script.tool_call("task_complete", {"id": number}) for number in (97, 98, 99)]
    fake.script(script.calls(*wrong), script.reply("There are no such tasks."))
    assert (await client.say(await client.new_chat(), "go"))["status"] == "complete"
    assert [told for _, _, told in exchanges(fake.requests[1])] == [
        f"Error: There is no task {number}; task_list shows the numbers." for number in (97, 98, 99)
    ]


async def test_mending_is_tried_twice_at_most(client: Client, fake: FakeOllama) -> None:
    fake.default = lambda _: script.call("task_complete", {"id": 90 + len(fake.requests)})
    assert (await client.say(await client.new_chat(), "go"))["status"] == "failed"
    assert len(fake.requests) == 3


async def test_an_unknown_tool_is_told_to_the_model_and_the_person(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.call("delete_everything", {}), script.reply("ok"))
    chat = await client.new_chat()
    assert (await client.say(chat, "go"))["status"] == "complete"
    ((name, _, told),) = exchanges(fake.requests[1])
    assert name == "delete_everything"
    assert "no tool 'delete_everything'" in told and "task_add" in told and "system_prompt_draft" in told
    shown = await client.messages(chat)
    assert len(cards(shown)) == 1
    assert "delete_everything" in json.dumps(cards(shown)[0])
    assert shown[-1]["content"] == "ok"
    assert not [message for message in shown if message["role"] == "tool" and not message["is_ephemeral"]]


@pytest.mark.parametrize(
    "arguments",
    ["x", '"x"', "[1]", "", ["x"], None, {"title": "x", "more": 1}, {"title": 5}, {"title": None}, {"title": ["x"]}, {"title": ""}, {"title": "  "}, {}],
    ids=repr,
)
async def test_arguments_that_do_not_fit_execute_nothing(client: Client, fake: FakeOllama, tmp_path: Path, arguments: object) -> None:
    fake.script(script.call("task_add", arguments), script.reply("sorry"))
    chat = await client.new_chat()
    assert (await client.say(chat, "go"))["status"] == "complete"
    ((_, _, told),) = exchanges(fake.requests[1])
    assert told.startswith("Error: ")
    assert open_tasks(tmp_path) == []
    metrics = (await client.messages(chat))[-1]["metrics"]
    assert (metrics["changes"], metrics["failed_calls"], metrics["nothing_changed"]) == (0, 1, True)


async def test_arguments_longer_than_the_window_are_told_as_an_error(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.call("task_add", {"title": "x" * 2_000_000}), script.reply("sorry"))
    assert (await client.say(await client.new_chat(), "go"))["status"] == "complete"
    assert fake.requests[1].messages[-1]["content"].startswith("Error: Wrong arguments for task_add: title")
    assert open_tasks(tmp_path) == []


async def test_a_result_longer_than_the_window_is_cut_for_the_model(client: Client, fake: FakeOllama) -> None:
    """P06: the card has it whole, the model its beginning and how much there is."""
    long = "слово " * 8000
    chat = await client.new_chat()
    await client.press(chat, "system_prompt_draft", content=long)
    fake.script(script.call("system_prompt_view", {}), script.reply("It is long."))
    assert (await client.say(chat, "show it"))["status"] == "complete"
    told = fake.requests[1].messages[-1]["content"]
    assert "слово слово" in told
    assert len(told) < len(long) and f"of {len('Version 1, draft:') + 1 + len(long)} characters" in told
    shown = next(message for message in await client.messages(chat) if message.get("tool") == "system_prompt_view")
    assert shown["card"]["after"] == long


async def test_a_tool_for_buttons_is_unknown_to_a_model(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.call("task_restore", {"id": 7, "title": "forged"}), script.reply("hm"))
    await client.say(await client.new_chat(), "go")
    told = fake.requests[1].messages[-1]["content"]
    assert "no tool 'task_restore'" in told
    assert "task_restore" not in told.replace("'task_restore'", "")
    assert open_tasks(tmp_path) == []


async def test_an_object_written_as_a_string_is_an_object(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.call("task_add", '{"title": "milk"}'), script.reply("ok"))
    await client.say(await client.new_chat(), "go")
    assert open_tasks(tmp_path) == ["milk"]


@pytest.mark.parametrize("identifier", [2**63, 10**40, -1, 0], ids=str)
async def test_numbers_that_no_table_holds_are_refused(client: Client, fake: FakeOllama, identifier: int) -> None:
    fake.script(script.call("task_complete", {"id": identifier}), script.reply("sorry"))
    await client.say(await client.new_chat(), "go")
    ((_, _, told),) = exchanges(fake.requests[1])
    assert told.startswith("Error: ")
    assert "failed inside" not in told


async def test_a_call_written_as_text_is_carried_out_and_never_shown(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script(script.call_as_text("task_add", {"title": 'молоко {"x"}'}, pieces=12), script.reply("Записал."))
    chat = await client.new_chat()
    assert (await client.say(chat, "купи молоко"))["status"] == "complete"
    assert open_tasks(tmp_path) == ['молоко {"x"}']
    assert "".join(delta["text"] for delta in client.of("message.delta")) == "Записал."
    assert [m["content"] for m in await client.messages(chat) if m["role"] == "assistant"] == ["Записал."]
    assert exchanges(fake.requests[1])[0][:2] == ("task_add", {"title": 'молоко {"x"}'})


async def test_a_call_sent_as_text_and_as_a_call_happens_once(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    written = json.dumps({"name": "task_add", "arguments": {"title": "milk"}})
    fake.script([script.text(written[:9], written[9:]), script.tool_calls(script.tool_call("task_add", {"title": "milk"})), script.done()], script.reply("ok"))
    await client.say(await client.new_chat(), "go")
    assert open_tasks(tmp_path) == ["milk"]
    assert "".join(delta["text"] for delta in client.of("message.delta")) == "ok"


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "delete_everything", "parameters": {}}',
        '{"name": "task_add", "parameters": {"title": "x"}} I did that.',
        'Here: {"name": "task_add", "parameters": {"title": "x"}}',
        '```json\n{"name": "task_add", "parameters": {"title": "x"}}\n```',
        '[{"name": "task_add", "parameters": {"title": "x"}}]',
        '{"name": "task_add", "parameters": {"title": "x"}',
        '{"city": "Paris"}',
    ],
)
async def test_other_json_is_text_and_shown_whole(client: Client, fake: FakeOllama, tmp_path: Path, text: str) -> None:
    fake.script([script.text(text[:7], text[7:30], text[30:]), script.done()])
    chat = await client.new_chat()
    assert (await client.say(chat, "go"))["status"] == "complete"
    assert "".join(delta["text"] for delta in client.of("message.delta")) == text
    assert (await client.messages(chat))[-1]["content"] == text
    assert open_tasks(tmp_path) == []


async def test_json_that_can_be_no_call_streams_at_once(client: Client, fake: FakeOllama) -> None:
    gate = asyncio.Event()
    fake.script([script.text('{"name": "Ann', 'a", '), script.hold(gate), script.text('"age": 7}'), script.done()])
    chat = await client.new_chat()
    reply = await client.ok("message.send", chat_id=chat, client_id="1", text="Anna as JSON")
    assert (await client.event("message.delta"))["text"].startswith('{"name": "Ann')
    gate.set()
    await client.finished(reply["turn_id"])


async def test_a_persons_message_that_quotes_a_call_executes_nothing(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    quoted = '{"name":"task_add","parameters":{"title":"x"}}'
    chat = await client.new_chat()
    await client.say(chat, quoted)
    assert open_tasks(tmp_path) == []
    assert fake.requests[0].messages[-1] == {"role": "user", "content": quoted}


async def test_odd_signs_in_a_written_call_are_cleaned(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    fake.script([script.text('{"name":"task_add","parameters":{"title":"a\\ud83db\\u0000c"}}'), script.done()], script.reply("ok"))
    assert (await client.say(await client.new_chat(), "go"))["status"] == "complete"
    assert open_tasks(tmp_path) == ["a�b�c"]


async def test_numbers_that_json_lacks_never_go_out_again(client: Client, fake: FakeOllama) -> None:
    fake.script([script.text('{"name":"task_add","parameters":{"title":NaN}}'), script.done()], script.reply("ok"))
    assert (await client.say(await client.new_chat(), "go"))["status"] == "complete"
    assert b"NaN" not in fake.requests[1].raw


async def test_a_known_tool_that_was_not_offered_opens_its_family(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    await client.press(await client.new_chat(), "task_add", title="from another chat")
    fake.script(script.call("task_complete", {"id": 1}), script.reply("ok"), script.reply("later"))
    chat = await client.new_chat()
    await client.say(chat, "done with task 1")
    assert "task_complete" not in fake.requests[0].tool_names
    assert {"task_complete", "task_update", "task_delete"} <= set(fake.requests[1].tool_names)
    assert "system_prompt_apply" not in fake.requests[1].tool_names
    assert rows(tmp_path, "SELECT done FROM tasks") == [{"done": 1}]
    await client.say(chat, "next")
    assert "task_complete" in fake.requests[2].tool_names
    assert (await client.context(chat))["active_tool"] == "tasks"


async def test_a_failed_call_opens_its_family_within_the_turn(client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("task_complete", {"id": 5}), script.reply("no such task"), script.reply("hm"))
    chat = await client.new_chat()
    await client.say(chat, "done with 5")
    assert "task_update" in fake.requests[1].tool_names
    await client.say(chat, "and?")
    assert "task_update" not in fake.requests[2].tool_names  # nothing succeeded: no family is active
    assert (await client.context(chat))["active_tool"] is None


async def test_the_state_read_by_the_model_leaves_no_trace(client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("current_state", {}), script.reply("Nothing there."))
    chat = await client.new_chat()
    assert (await client.say(chat, "what is there?"))["status"] == "complete"
    assert [m["role"] for m in await client.messages(chat)] == ["user", "assistant"]
    made, asked = [m for m in fake.requests[1].messages if m.get("tool_name") == "current_state"]
    assert made["content"] or asked["content"]
    assert "tasks: 0 open of 0" in asked["content"]


async def test_text_before_calls_is_working_material(client: Client, fake: FakeOllama) -> None:
    fake.script(script.call("task_add", {"title": "x"}, before="CANARY-before"), script.reply("final words"), script.reply("more"))
    chat = await client.new_chat()
    await client.say(chat, "one")
    await client.say(chat, "two")
    assert "CANARY-before" in fake.requests[1].raw.decode()
    assert "CANARY-before" not in fake.requests[2].raw.decode()
    later = [(m["role"], m["content"]) for m in fake.requests[2].messages[1:] if m["content"]]
    assert ("assistant", "final words") in later
    assert exchanges(fake.requests[2]) == [("task_add", {"title": "x"}, "ok, task 1")]
    roles = [m["role"] for m in fake.requests[2].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "assistant", "tool", "user"]  # receipt, reply, state, new


async def test_a_think_tag_in_ordinary_text_is_text(client: Client, fake: FakeOllama) -> None:
    fake.script([script.text("The `<th", "ink>` tag opens", " reasoning."), script.done()])
    chat = await client.new_chat()
    await client.say(chat, "What does `<think>` do?")
    user, reply = await client.messages(chat)
    assert (user["content"], reply["content"]) == ("What does `<think>` do?", "The `<think>` tag opens reasoning.")
    assert reply.get("thinking") is None


async def test_a_model_without_tools_gets_none_of_them(tmp_path: Path, fake: FakeOllama) -> None:
    fake.models = [FakeModel("plain:1b", ("completion",))]
    async with running(make_settings(tmp_path, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.say(chat, "hi")
        await client.press(chat, "system_prompt_draft", content="Speak like a pirate.")
        fake.script([script.text('{"name":"task_add",', '"parameters":{"title":"x"}}'), script.done()])
        await client.say(chat, "what do you think of it?")
    assert rows(tmp_path, "SELECT 1 FROM tasks") == []
    first, second = fake.requests
    for request in fake.requests:
        assert "tools" not in request.body
        assert not [m for m in request.messages if m["role"] == "tool" or "tool_calls" in m]
    assert [m["role"] for m in first.messages] == ["system", "user"]  # nothing in hand: no state
    assert [m["role"] for m in second.messages] == ["system", "user", "assistant", "system", "user"]
    assert "Speak like a pirate." in second.messages[-2]["content"]


async def test_what_the_turn_did_is_counted(client: Client, fake: FakeOllama) -> None:
    fake.script(
        script.calls(script.tool_call("task_add", {"title": "a"}), script.tool_call("task_list", {}), script.tool_call("no_such", {})),
        script.reply("done"), script.reply("I did it!"), script.call("task_list", {}), script.reply("read"),
    )  # fmt: skip
    chat = await client.new_chat()
    for text in ("one", "two", "three"):
        await client.say(chat, text)
    first, second, third = (m["metrics"] for m in await client.messages(chat) if m["role"] == "assistant")
    assert (first["changes"], first["failed_calls"], first.get("nothing_changed")) == (1, 1, None)
    assert (second["changes"], second["failed_calls"], second["nothing_changed"]) == (0, 0, True)
    assert (third["changes"], third["failed_calls"], third["nothing_changed"]) == (0, 0, True)


async def test_a_crash_between_call_and_reply_poisons_nothing(tmp_path: Path, fake: FakeOllama) -> None:
    """A16: a call, its card and its receipt are there together or not at all."""
    before, after = tmp_path / "before", tmp_path / "after"
    after.mkdir()
    fake.script(script.call("task_add", {"title": "x"}, before="CANARY-before"), script.hang_before_headers())
    async with running(make_settings(before, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.ok("message.send", chat_id=chat, client_id="1", text="go")
        await fake.wait_for_requests(2)
        copy_database(before, after)
    async with running(make_settings(after, fake)) as address, Client.connect(address) as client:
        await client.messages(chat)
        assert (await client.say(chat, "hi"))["status"] == "complete"
    assert exchanges(fake.requests[2]) == [("task_add", {"title": "x"}, "ok, task 1")]
    assert "CANARY-before" not in fake.requests[2].raw.decode()


async def test_a_reply_killed_before_its_first_words_teaches_nothing(tmp_path: Path, fake: FakeOllama) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    after.mkdir()
    fake.script([script.thinking("hm"), script.hang()])
    async with running(make_settings(before, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        await client.ok("message.send", chat_id=chat, client_id="1", text="go")
        await client.event("message.delta")
        copy_database(before, after)
    async with running(make_settings(after, fake)) as address, Client.connect(address) as client:
        await client.messages(chat)
        assert (await client.say(chat, "hi"))["status"] == "complete"
    assert [message["role"] for message in fake.requests[1].messages if not message["content"] and "tool_calls" not in message] == []


async def test_calls_and_results_are_never_parted_by_a_small_window(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, num_ctx=1700)) as address, Client.connect(address) as client:
        chat = await client.new_chat()
        for number in range(6):
            fake.script(script.call("task_add", {"title": f"task {number} " + "x" * 60}), script.reply("word " * 40))
            await client.say(chat, f"message {number} " + "y" * (number * 40))
    for request in fake.requests:
        exchanges(request)
    assert "message 0" not in fake.requests[-2].raw.decode()
