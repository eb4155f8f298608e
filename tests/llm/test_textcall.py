"""Calls written as text: what is one, what is none, and what may be shown meanwhile."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.llm.textcall import call_openings, may_become_call, parse_call

OFFERED = ["task_add", "task_list"]
OPENINGS = call_openings(OFFERED)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"task_add","parameters":{"title":"x"}}',
        '{"name":"task_add","arguments":{"title":"x"}}',
        '{"name":"task_add","arguments":"{\\"title\\": \\"x\\"}"}',
        ' \n{ "name" : "task_add" ,\n "parameters" : {"title":"x"} }\n ',
        '{"function":{"name":"task_add","arguments":{"title":"x"}}}',
        '{"type":"function","function":{"name":"task_add","parameters":{"title":"x"}}}',
        '{"function":"task_add","arguments":{"title":"x"}}',
        '{"tool":"task_add","parameters":{"title":"x"}}',
        '{"parameters":{"title":"x"},"name":"task_add"}',
        '{"function":{"arguments":{"title":"x"},"name":"task_add"}}',
    ],
)
def test_shapes_of_a_call(text: str) -> None:
    call = parse_call(text, OFFERED)
    assert call is not None
    assert (call.name, call.arguments) == ("task_add", {"title": "x"})
    assert all(may_become_call(text[:length], OPENINGS) for length in range(len(text) + 1)), "half shown"


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{}", "[]", "null", "7", '"task_add"', '{"name":"task_add"', '{"name":"rm","parameters":{}}', '{"name":["task_add"]}', '{"name":null}',
        '{"name":"task_add"} {"name":"task_add"}', 'call {"name":"task_add"}', '{"name":"task_add"}.', '[{"name":"task_add"}]', "[" * 5000, '{"name":' * 5000,
        '{"function":[]}', '{"function":{}}', '{"name":"task_add","arguments":' + "[" * 900 + "]" * 900 + "}",
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_what_is_no_call(text: str) -> None:
    assert parse_call(text, OFFERED) is None


def test_arguments_that_are_no_object_are_for_the_tool_to_refuse() -> None:
    for written, read in (("[1]", [1]), ("null", None), ('"x"', "x")):
        call = parse_call(f'{{"name":"task_add","arguments":{written}}}', OFFERED)
        assert call is not None
        assert call.arguments == read


@pytest.mark.parametrize("text", ["Hello", "{x", '{"city', '{"name":"Ann', '{"name":"task_added', '{"name":7', "[{", '{"function":{"name":"rm"', "```json"])
def test_text_that_can_be_no_call_any_more_is_shown(text: str) -> None:
    assert not may_become_call(text, OPENINGS)


@pytest.mark.parametrize("text", ["", " ", "\n" * 1000, "{", ' { "na', '{"name":"task_', '{"type"', '{"param'])
def test_text_that_may_be_a_call_waits(text: str) -> None:
    assert may_become_call(text, OPENINGS)


def test_without_tools_nothing_waits_and_nothing_is_a_call() -> None:
    assert not may_become_call("{", call_openings([]))
    assert parse_call('{"name":"task_add","parameters":{}}', []) is None


@given(st.sampled_from(OFFERED), st.dictionaries(st.text(), st.text()), st.sampled_from(["arguments", "parameters"]), st.sampled_from([None, 1]))
def test_every_written_call_waits_from_its_first_sign_to_its_last(name: str, arguments: dict[str, str], key: str, indent: int | None) -> None:
    text = json.dumps({"name": name, key: arguments}, ensure_ascii=True, indent=indent)
    assert all(may_become_call(text[:length], OPENINGS) for length in range(len(text) + 1))
    call = parse_call(text, OFFERED)
    assert call is not None
    assert call.name == name


@given(st.text())
def test_any_text_at_all_is_survived(text: str) -> None:
    assert parse_call(text, OFFERED) is None
    may_become_call(text, OPENINGS)
