"""Frames become commands or one named refusal, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import protocol
from backend.errors import Invalid
from backend.protocol import BadFrame, Command, UnknownCommand, decode_command, encode_error, encode_ok, ref_of

COMMANDS: list[type[Command]] = [*protocol.Command.__subclasses__(), *protocol.ChatCommand.__subclasses__()]
TYPES = sorted(str(kind.model_fields["type"].annotation.__args__[0]) for kind in COMMANDS if "type" in kind.model_fields)  # type: ignore[union-attr]

VERBS = {
    "chat": ["create", "rename", "update", "delete", "open", "close", "history", "search", "export", "import", "fork"],
    "message": ["send", "edit", "hide", "variant"],
    "turn": ["stop", "regenerate", "continue"],
    "tool": ["invoke", "answer", "list"],
    "facts": ["get"],
    "transaction": ["answer"],
    "context": ["get", "inspect", "sent", "keep", "clear", "undo"],
    "models": ["refresh"],
    "model": ["update", "pull", "pull_cancel"],
}

BAD_FRAMES = {
    "empty": "",
    "spaces": "  ",
    "not JSON": "hello",
    "half": '{"type": "tool.list"',
    "two values": '{"type": "tool.list"} {}',
    "a list": '["tool.list"]',
    "a number": "1",
    "a text": '"tool.list"',
    "null": "null",
    "no type": '{"ref": "r"}',
    "type is null": '{"type": null}',
    "type is a number": '{"type": 7}',
    "type is an object": '{"type": {"a": 1}}',
    "NaN": '{"type": "tool.list", "x": NaN}',
    "Infinity": '{"type": "tool.list", "x": -Infinity}',
    "1e999": '{"type": "tool.list", "x": 1e999}',
    "5000 digits": '{"type": "tool.list", "x": ' + "9" * 5000 + "}",
    "a key twice": '{"type": "tool.list", "type": "tool.list"}',
    "a deep key twice": '{"type": "tool.invoke", "arguments": {"a": {"b": 1, "b": 2}}}',
    "__proto__": '{"type": "tool.list", "__proto__": {"admin": true}}',
    "deep __proto__": '{"type": "tool.invoke", "arguments": {"a": [{"__proto__": 1}]}}',
    "nested 1000": '{"type": "tool.list", "x": ' + "[" * 1000 + "]" * 1000 + "}",
    "nested 200,000": "[" * 200_000,
    "objects nested 200,000": '{"a":' * 200_000,
    "byte order mark": '\ufeff{"type": "tool.list"}',
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_frame_that_is_no_command_is_named_so(frame: str) -> None:
    with pytest.raises(BadFrame) as refusal:
        decode_command(frame)
    assert "'type'" in str(refusal.value)


def test_every_command_of_the_protocol_is_there() -> None:
    assert sorted(f"{noun}.{verb}" for noun, verbs in VERBS.items() for verb in verbs) == TYPES


@pytest.mark.parametrize("kind", ["", "chat", "chat.Open", "chat.open ", "welcome", "__class__", "message.delta"])
def test_an_unknown_type_is_named(kind: str) -> None:
    with pytest.raises(UnknownCommand) as refusal:
        decode_command(json.dumps({"type": kind}))
    assert str(refusal.value) == kind


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({"type": "chat.open"}, "chat_id"),
        ({"type": "chat.open", "chat_id": None}, "chat_id"),
        ({"type": "chat.open", "chat_id": 5}, "chat_id"),
        ({"type": "chat.open", "chat_id": ""}, "chat_id"),
        ({"type": "chat.open", "chat_id": "x" * 201}, "chat_id"),
        ({"type": "chat.open", "chat_id": "c", "limit": 0}, "limit"),
        ({"type": "chat.open", "chat_id": "c", "limit": 501}, "limit"),
        ({"type": "chat.open", "chat_id": "c", "limit": "5"}, "limit"),
        ({"type": "chat.history", "chat_id": "c"}, "before_id"),
        ({"type": "chat.history", "chat_id": "c", "before_id": -1}, "before_id"),
        ({"type": "chat.history", "chat_id": "c", "before_id": 2**63}, "before_id"),
        ({"type": "chat.rename", "chat_id": "c", "title": " \n"}, "title"),
        ({"type": "chat.rename", "chat_id": "c", "title": "x" * 10_001}, "title"),
        ({"type": "chat.create", "title": ""}, "title"),
        ({"type": "chat.update", "chat_id": "c", "pinned": 1}, "pinned"),
        ({"type": "chat.update", "chat_id": "c", "pinned": None}, "pinned"),
        ({"type": "chat.update", "chat_id": "c", "approval": None}, "approval"),
        ({"type": "chat.update", "chat_id": "c", "approval": "never"}, "approval"),
        ({"type": "chat.update", "chat_id": "c", "ttl_messages": 2}, "ttl_messages"),
        ({"type": "chat.update", "chat_id": "c", "ttl_messages": 6}, "ttl_messages"),
        ({"type": "chat.update", "chat_id": "c", "ttl_messages": 4.0}, "ttl_messages"),
        ({"type": "chat.create", "temporary": 1}, "temporary"),
        ({"type": "chat.update", "chat_id": "c", "temporary": True}, "temporary"),
        ({"type": "chat.update", "chat_id": "c", "parameters": {"temperature": 2.1}}, "parameters.temperature"),
        ({"type": "chat.update", "chat_id": "c", "parameters": {"think": True}}, "parameters.think"),
        ({"type": "chat.update", "chat_id": "c", "parameters": {"keep_alive": 5}}, "parameters.keep_alive"),
        ({"type": "chat.update", "chat_id": "c", "parameters": None}, "parameters"),
        ({"type": "chat.search", "query": "x" * 1001}, "query"),
        ({"type": "chat.search", "query": None}, "query"),
        ({"type": "chat.search", "query": "x", "limit": 501}, "limit"),
        ({"type": "chat.search", "query": "x", "chat_id": ""}, "chat_id"),
        ({"type": "chat.export", "chat_id": "c", "format": "pdf"}, "format"),
        ({"type": "chat.import", "content": {}}, "content"),
        ({"type": "chat.fork", "chat_id": "c"}, "message_id"),
        ({"type": "chat.fork", "chat_id": "c", "message_id": 2**53}, "message_id"),
        ({"type": "message.edit", "message_id": 1}, "text"),
        ({"type": "message.hide", "message_id": 1, "hidden": 1}, "hidden"),
        ({"type": "message.variant", "message_id": 1, "index": 0}, "index"),
        ({"type": "model.update", "name": "m"}, "num_ctx"),
        ({"type": "model.update", "name": "m", "num_ctx": 255}, "num_ctx"),
        ({"type": "model.pull", "name": " "}, "name"),
        ({"type": "message.send", "chat_id": "c", "text": "x"}, "client_id"),
        ({"type": "message.send", "chat_id": "c", "client_id": "1", "text": ["x"]}, "text"),
        ({"type": "tool.invoke", "chat_id": "c", "client_id": "1", "tool": "t", "arguments": "{}"}, "arguments"),
        ({"type": "tool.invoke", "chat_id": "c", "client_id": "1", "tool": "t", "arguments": None}, "arguments"),
        ({"type": "transaction.answer", "chat_id": "c", "transaction_id": "t", "answer": "maybe"}, "answer"),
        ({"type": "transaction.answer", "chat_id": "c", "transaction_id": "t", "answer": "Yes"}, "answer"),
        ({"type": "tool.list", "ref": 5}, "ref"),
    ],
)
def test_a_wrong_field_is_named(command: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        decode_command(json.dumps(command))
    assert list(refusal.value.fields) == [field]
    assert field in refusal.value.message


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(Invalid) as refusal:
        decode_command('{"type": "message.send", "client_id": 1}')
    assert sorted(refusal.value.fields) == ["chat_id", "client_id", "text"]


def test_fields_of_a_later_version_are_ignored() -> None:
    command = decode_command('{"type": "chat.open", "chat_id": "c", "colour": "red", "type_of": [[[]]]}')
    assert command == protocol.ChatOpen(type="chat.open", chat_id="c")


def test_text_is_cleaned_wherever_it_stands() -> None:
    frame = r'{"type": "tool.invoke", "ref": "\ud800", "chat_id": "c", "client_id": "1", "tool": "t", "arguments": {"k\u0000": ["\udfff\u0000"]}}'
    command = decode_command(frame)
    assert isinstance(command, protocol.ToolInvoke)
    assert (command.ref, command.arguments) == ("\ufffd", {"k\ufffd": ["\ufffd\ufffd"]})


def test_nesting_is_allowed_as_deep_as_arguments_need() -> None:
    frame = '{"type": "tool.invoke", "chat_id": "c", "client_id": "1", "tool": "t", "arguments": {"x": %s}}'
    assert decode_command(frame % ("[" * 60 + "]" * 60))
    with pytest.raises(BadFrame):
        decode_command(frame % ("[" * 70 + "]" * 70))


@pytest.mark.parametrize(
    ("frame", "ref"),
    [
        ('{"ref": "r"}', "r"),
        ('{"ref": "r", "ref": "s"}', "s"),
        ('{"ref": "r", "x": NaN}', "r"),
        (r'{"ref": "\ud800"}', "\ufffd"),
        ('{"ref": 5}', None),
        ('{"ref": null}', None),
        ("{}", None),
        ("[1]", None),
        ('"ref"', None),
        ("nonsense", None),
        ("[" * 200_000, None),
    ],
)
def test_a_refused_frames_ref_is_found_where_it_can_be(frame: str, ref: str | None) -> None:
    assert ref_of(frame) == ref


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted({name for kind in COMMANDS for name in kind.model_fields} - {"type"})
COMMAND_LIKE = st.fixed_dictionaries({"type": st.sampled_from(TYPES)}, optional=dict.fromkeys(FIELDS, JSON))


@given(st.one_of(st.text(), JSON.map(json.dumps), COMMAND_LIKE.map(json.dumps)))
@settings(max_examples=100, deadline=None)
def test_any_frame_is_a_command_or_one_of_three_refusals(frame: str) -> None:
    try:
        command = decode_command(frame)
    except (BadFrame, UnknownCommand, Invalid):
        reply = json.loads(encode_error(ref_of(frame), "invalid", "no"))
        assert reply["ref"] is None or isinstance(reply["ref"], str)
    else:
        command.model_dump_json().encode()  # nothing in it that couldn't be stored or sent


def test_replies_hold_what_the_protocol_fixes() -> None:
    model = protocol.TurnError(code="internal", message="x")
    assert json.loads(encode_ok("r", {"a": [model]})) == {"type": "ok", "ref": "r", "a": [{"code": "internal", "message": "x"}]}
    assert json.loads(encode_ok(None, {})) == {"type": "ok", "ref": None}
    assert json.loads(encode_error("r", "conflict", "m")) == {"type": "error", "ref": "r", "code": "conflict", "message": "m"}
    assert json.loads(encode_error(None, "invalid", "m", {"f": "why"}))["fields"] == {"f": "why"}


def test_objects_leave_out_what_they_do_not_have() -> None:
    message = protocol.Message(
        id=1, chat_id="c", role="user", content="", is_ephemeral=0, hidden=False, status="complete", created_at="t", turn_id=None
    )  # fmt: skip
    assert set(json.loads(message.model_dump_json())) == {"id", "chat_id", "role", "content", "is_ephemeral", "hidden", "status", "created_at", "turn_id"}
    delta = protocol.MessageDelta(chat_id="c", message_id=1, channel="content", offset=0, text="x")
    assert "first_seq" not in json.loads(delta.model_dump_json())


def test_a_delta_is_read_back_whole_whatever_a_newer_version_adds() -> None:
    delta = protocol.MessageDelta(chat_id="c", message_id=1, channel="thinking", offset=2, text='\u2028"\\ж', seq=7, first_seq=5)
    frame = delta.model_dump_json()
    assert protocol.delta_in(frame) == delta
    assert protocol.delta_in(frame[:-1] + ',"newer":1}') == delta
    assert protocol.delta_in(protocol.TurnStarted(chat_id="c", turn_id="t").model_dump_json()) is None
