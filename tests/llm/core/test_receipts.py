"""Receipts: short, in pairs, never a body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.llm.core.receipts import CALL_CHARACTERS, CALLS_KEPT, FAILED, Receipt, decode, encode, messages, pair

LIMIT = 200


def test_a_receipt_is_a_compact_list() -> None:
    content = encode([Receipt("task_add", {"title": "молоко"}, "ok, task 1"), Receipt("task_list", {}, "ok, 1 open")])
    assert content == ('[{"tool":"task_add","arguments":{"title":"молоко"},"outcome":"ok, task 1"},{"tool":"task_list","arguments":{},"outcome":"ok, 1 open"}]')


def test_the_last_four_are_told_and_the_others_counted() -> None:
    content = json.loads(encode([Receipt("task_add", {"title": str(number)}, "ok") for number in range(7)]))
    assert [entry["arguments"]["title"] for entry in content[:-1]] == ["3", "4", "5", "6"]
    assert content[-1] == {"more": 3}
    assert CALLS_KEPT == 4
    sent = messages(json.dumps(content))
    assert len(sent[0]["tool_calls"]) == 4
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "tool", "tool"]


def test_long_texts_are_cut_and_numbers_stay() -> None:
    entry = Receipt("task_update", {"id": 12, "title": "x" * 500}, FAILED + "y" * 500).entry()
    assert entry["arguments"]["id"] == 12
    assert entry["arguments"]["title"].startswith("xxxx")
    assert entry["outcome"].startswith(FAILED)
    assert len(json.dumps(entry, ensure_ascii=False, separators=(",", ":"))) <= LIMIT == CALL_CHARACTERS


def test_a_row_goes_out_as_calls_and_their_results() -> None:
    content = encode([Receipt("task_add", {"title": "a"}, "ok, task 1"), Receipt("task_complete", {"id": 9}, "failed: no task 9")])
    assert messages(content) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"function": {"name": "task_add", "arguments": {"title": "a"}}},
                {"function": {"name": "task_complete", "arguments": {"id": 9}}},
            ],
        },
        {"role": "tool", "tool_name": "task_add", "content": "ok, task 1"},
        {"role": "tool", "tool_name": "task_complete", "content": "failed: no task 9"},
    ]


@pytest.mark.parametrize("content", ["", "tool output of an older program", "{}", "[]", "7", "[7]", '{"tool":"x"}', '[{"tool":"x"}]', "null"])
def test_a_row_that_is_not_ours_gives_nothing(content: str) -> None:
    assert messages(content) == []


def test_pairs_carry_the_text_that_stood_before_the_calls() -> None:
    first, result = pair([("task_list", {}, "nothing")], "Let me look.")
    assert first["content"] == "Let me look."
    assert result == {"role": "tool", "tool_name": "task_list", "content": "nothing"}
    assert pair([], "text") == []


texts = st.text(max_size=100) | st.builds(lambda sign, length: sign * length, st.sampled_from('x"\\\n\x01я'), st.integers(0, 700))
arguments = st.dictionaries(st.sampled_from(["id", "title", "version", "label"]), texts | st.integers(0, 999_999_999) | st.booleans())


@given(st.lists(st.builds(Receipt, st.sampled_from(["task_add", "system_prompt_rollback"]), arguments, texts), max_size=8))
def test_whatever_was_called_a_receipt_is_short_and_goes_out_in_pairs(found: list[Receipt]) -> None:
    content = encode(found)
    entries: list[dict[str, Any]] = json.loads(content)
    for entry in entries:
        assert len(json.dumps(entry, ensure_ascii=False, separators=(",", ":"))) <= LIMIT
    assert [receipt.tool for receipt in decode(content)] == [receipt.tool for receipt in found[-CALLS_KEPT:]]
    sent = messages(content)
    if found:
        assert [call["function"]["name"] for call in sent[0]["tool_calls"]] == [message["tool_name"] for message in sent[1:]]
