"""The request as it goes out: order, window, schemas, pairs, and what is left out when it doesn't fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import ContextExceeded
from backend.llm import tools
from backend.llm.core.receipts import Receipt, encode
from backend.llm.core.registry import Registry
from backend.llm.core.tool_injector import DEFAULT_PROMPT, DEFAULT_PROMPT_WITHOUT_TOOLS, Exchange, Facts, Request, Round, assemble, window, window_start
from backend.llm.tokens import TokenCounter

REGISTRY = Registry.discover(tools)


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def receipt(*found: Receipt) -> dict[str, Any]:
    return {"role": "tool", "content": encode(list(found))}


def request(facts: Facts, rounds: Sequence[Round] = (), *, with_tools: bool = True, num_ctx: int = 8192) -> Request:
    return assemble(facts, rounds, REGISTRY, with_tools=with_tools, num_ctx=num_ctx, counter=TokenCounter(), model="m")


def exchange(name: str, arguments: dict[str, Any], told: str, subject: str | None = None) -> Exchange:
    return Exchange(name, arguments, told, Receipt(name, {}, f"outcome of {name}"), subject)


def test_prompt_history_state_new_message_and_the_turns_own_calls_in_this_order() -> None:
    facts = Facts("Be brief.", [say("one"), receipt(Receipt("task_add", {"title": "a"}, "ok, task 1")), answer("Done."), say("two")], "STATE")
    sent = request(facts, [Round("Let me see.", (exchange("task_list", {}, "1 [ ] a"),))])
    assert list(zip(sent.parts, [(m["role"], m["content"]) for m in sent.messages], strict=True)) == [
        ("prompt", ("system", "Be brief.")),
        ("history", ("user", "one")),
        ("history", ("assistant", "")),
        ("history", ("tool", "ok, task 1")),
        ("history", ("assistant", "Done.")),
        ("state", ("assistant", "")),
        ("state", ("tool", "STATE")),
        ("new", ("user", "two")),
        ("turn", ("assistant", "Let me see.")),
        ("turn", ("tool", "1 [ ] a")),
    ]
    assert sent.messages[5]["tool_calls"] == [{"function": {"name": "current_state", "arguments": {}}}]
    assert sent.total_tokens == sum(sent.tokens) + sent.tools_tokens


def test_what_an_earlier_run_of_the_turn_did_stands_after_the_message() -> None:
    facts = Facts(None, [say("one"), receipt(Receipt("task_add", {"title": "a"}, "ok, task 1"))], "STATE")
    assert request(facts).parts == ["prompt", "state", "state", "new", "turn", "turn"]


def test_without_a_prompt_of_its_own_a_chat_gets_the_default() -> None:
    assert request(Facts(None, [say("x")], None)).messages[0]["content"] == DEFAULT_PROMPT
    assert request(Facts(None, [say("x")], None), with_tools=False).messages[0]["content"] == DEFAULT_PROMPT_WITHOUT_TOOLS


def test_schemas_follow_the_open_families_and_end_with_the_states() -> None:
    closed = [tool["function"]["name"] for tool in request(Facts(None, [say("x")], "STATE")).tools]
    assert closed[-3:] == ["task_add", "task_list", "current_state"]
    assert not {"task_update", "note_read", "snapshot_restore", "system_prompt_apply"} & set(closed)
    opened = [tool["function"]["name"] for tool in request(Facts(None, [say("x")], "STATE", frozenset({"tasks"}))).tools]
    assert opened == [*closed[:-1], "task_update", "task_complete", "task_delete", "current_state"]
    without_state = [tool["function"]["name"] for tool in request(Facts(None, [say("x")], None)).tools]
    assert without_state == closed[:-1]


def test_a_model_without_tools_gets_no_trace_of_them() -> None:
    facts = Facts(None, [say("one"), receipt(Receipt("task_add", {}, "ok")), answer("Done."), say("two")], "STATE", frozenset({"tasks"}))
    sent = request(facts, with_tools=False)
    assert sent.tools == []
    assert [(m["role"], m["content"]) for m in sent.messages[1:]] == [("user", "one"), ("assistant", "Done."), ("system", "STATE"), ("user", "two")]
    assert not any("tool_calls" in message for message in sent.messages)


def test_of_several_results_on_one_subject_only_the_last_is_whole() -> None:
    first = Round("", (exchange("system_prompt_draft", {"content": "OLD"}, "draft 1 saved", "draft"), exchange("task_list", {}, "none")))
    second = Round("", (exchange("system_prompt_draft", {"content": "NEW"}, "draft 2 saved", "draft"),))
    sent = json.dumps(request(Facts(None, [say("x")], None), [first, second]).messages)
    assert "OLD" not in sent
    assert "draft 1 saved" not in sent
    assert "outcome of system_prompt_draft" in sent
    assert "NEW" in sent and "draft 2 saved" in sent and "none" in sent


def test_the_oldest_messages_are_left_out_and_counted() -> None:
    history = [say(f"message {number} " + "x" * 1600) for number in range(8)]
    sent = request(Facts(None, history, None), num_ctx=4096)
    texts = [message["content"] for message in sent.messages[1:]]
    assert texts[-1] == history[-1]["content"]
    assert texts == [row["content"] for row in history[-len(texts) :]]
    assert sent.left_out_messages == len(history) - len(texts) > 0
    assert sent.total_tokens <= 4096 - 1024


def test_a_call_and_its_result_are_left_out_together() -> None:
    rows = [receipt(*(Receipt("task_add", {"title": "x" * 60}, "ok, task 1") for _ in range(4))), answer("word " * 300), say("now")]
    sizes = set()
    for num_ctx in range(1300, 2400, 20):
        sent = request(Facts(None, rows, None), num_ctx=num_ctx)
        calls = sum(len(message.get("tool_calls", [])) for message in sent.messages)
        assert calls == sum(message["role"] == "tool" for message in sent.messages)
        sizes.add(calls)
    assert sizes == {0, 4}


def test_a_message_too_long_by_itself_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextExceeded) as caught:
        request(Facts(None, [say("old"), say("x" * 40_000)], None), num_ctx=8192)
    assert "7168" in caught.value.message
    assert sum(word.strip(",.").isdigit() for word in caught.value.message.split()) == 2


@given(st.integers(0, 400), st.integers(1, 12), st.integers(1, 12))
def test_the_window_moves_in_steps_and_never_holds_more_than_its_limit(count: int, limit: int, step: int) -> None:
    length = count - window_start(count, limit, step)
    assert min(count, 2, limit) <= length <= min(count, limit)  # a message and the receipt behind it stay together
    assert window_start(count, limit, step) <= window_start(count + 1, limit, step)
    rows = [{"number": number} for number in range(count)]
    assert window(rows[-limit:], count, limit, step) == rows[count - length :]


def test_twelve_and_six_give_seven_to_twelve_messages() -> None:
    lengths = [count - window_start(count, 12, 6) for count in range(1, 60)]
    assert lengths[:12] == list(range(1, 13))
    assert set(lengths[12:]) == {7, 8, 9, 10, 11, 12}
    assert [count - window_start(count, 12, 1) for count in range(12, 40)] == [12] * 28


def test_one_requests_messages_begin_the_next_ones_while_the_window_stands() -> None:
    """O18: what a model server has read already stays the beginning of what it reads next."""
    history: list[dict[str, Any]] = []
    requests: list[list[dict[str, Any]]] = []
    starts: list[int] = []
    for number in range(20):
        history += [say(f"question {number}")]
        facts = Facts("P", window(history[-12:], len(history), 12, 6), "STATE")
        requests.append(request(facts).messages)
        starts.append(window_start(len(history), 12, 6))
        history += [receipt(Receipt("task_list", {}, "ok")), answer(f"answer {number}")] if number % 2 else [answer(f"answer {number}")]
    kept = 0
    for (old, old_start), (new, new_start) in pairwise(zip(requests, starts, strict=True)):
        if old_start == new_start:
            kept += 1
            until_state = [message for message in old if message["content"] != "STATE"][:-2]
            assert new[: len(until_state)] == until_state
    assert kept >= 12
