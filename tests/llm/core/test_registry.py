"""Tools as they are declared, offered and checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from backend.errors import Invalid
from backend.llm import tools
from backend.llm.core.cards import notice
from backend.llm.core.registry import Family, Registry, Tool, ToolContext, ToolResult

PROJECT = Path(__file__).resolve().parents[3]

PRINT_SCHEMAS = """
import json
from backend.llm import tools
from backend.llm.core.registry import Registry
registry = Registry.discover(tools)
print(json.dumps([tool.schema for tool in registry.offered(set(registry.families))]))
"""


def real() -> Registry:
    return Registry.discover(tools)


def get(name: str) -> Tool:
    tool = real().get(name)
    assert tool is not None
    return tool


def test_families_and_tools_of_the_design() -> None:
    registry = real()
    assert list(registry.families) == sorted(registry.families) == ["data", "history", "notes", "snapshots", "system_prompt", "tasks"]
    assert [name for name, family in registry.families.items() if family.is_helper] == ["data", "history"]
    effects = {tool.name: tool.effect for tool in registry}
    assert effects == {
        "data_query": "read", "history_search": "read",
        "note_save": "commit", "note_list": "read", "note_read": "read", "note_delete": "commit", "note_restore": "commit",
        "snapshot_take": "draft", "snapshot_list": "read", "snapshot_diff": "read", "snapshot_restore": "commit",
        "system_prompt_view": "read", "system_prompt_draft": "draft", "system_prompt_apply": "commit", "system_prompt_discard": "draft",
        "system_prompt_versions": "read", "system_prompt_rollback": "commit",
        "task_add": "commit", "task_list": "read", "task_update": "commit", "task_complete": "commit", "task_delete": "commit", "task_restore": "commit",
    }  # fmt: skip


def test_entry_tools_are_offered_always_and_the_rest_while_a_family_is_open() -> None:
    registry = real()
    entries = [
        "data_query", "history_search", "note_save", "note_list", "snapshot_take", "system_prompt_view", "system_prompt_draft", "task_add", "task_list",
    ]  # fmt: skip
    assert [tool.name for tool in registry.offered(set())] == entries
    assert {tool.name for tool in registry.offered({"tasks"})} - set(entries) == {"task_update", "task_complete", "task_delete"}
    everything = [tool.name for tool in registry.offered(set(registry.families))]
    assert sorted(everything) == sorted(tool.name for tool in registry if tool.name not in ("note_restore", "task_restore"))  # those are buttons only


def test_schemas_are_the_same_bytes_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PRINT_SCHEMAS], cwd=PROJECT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    assert [schema["function"]["name"] for schema in json.loads(outputs.pop())][:2] == ["data_query", "history_search"]


def test_a_schema_is_plain_and_in_the_order_of_the_signature() -> None:
    family = Family("demo")

    @family.tool("read")
    async def demo(
        context: ToolContext,
        zebra: Annotated[str, Field(description="Last letter.")],
        kind: Literal["b", "a"],
        tags: list[str] | None = None,
        amount: int | None = None,
        strict: bool = False,
    ) -> ToolResult:
        """Try it."""
        return ToolResult(for_model="", card=notice("", ""), outcome="ok")

    (tool,) = family.tools
    assert tool.schema == {
        "type": "function",
        "function": {
            "name": "demo",
            "description": "Try it.",
            "parameters": {
                "type": "object",
                "properties": {
                    "zebra": {"description": "Last letter.", "type": "string"},
                    "kind": {"enum": ["b", "a"], "type": "string"},
                    "tags": {"items": {"type": "string"}, "type": "array"},
                    "amount": {"type": "integer"},
                    "strict": {"type": "boolean"},
                },
                "required": ["zebra", "kind"],
            },
        },
    }
    assert list(tool.parameters["properties"]) == ["zebra", "kind", "tags", "amount", "strict"]


def test_a_tool_needs_words_for_the_model() -> None:
    family = Family("demo")

    async def silent(context: ToolContext) -> ToolResult:
        return ToolResult(for_model="", card=notice("", ""), outcome="ok")

    with pytest.raises(ValueError, match="silent needs a docstring"):
        family.tool("read")(silent)


@pytest.mark.parametrize("arguments", ["x", ["x"], None, 7, True])
def test_arguments_have_to_be_an_object(arguments: object) -> None:
    with pytest.raises(Invalid, match="one JSON object"):
        get("task_list").validate(arguments)


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({}, ["title"]),
        ({"title": None}, ["title"]),
        ({"title": 7}, ["title"]),
        ({"title": "x", "colour": "red"}, ["colour"]),
        ({"titel": "x"}, ["title", "titel"]),
        ({"title": "x" * 501}, ["title"]),
    ],
)
def test_what_is_wrong_is_named(arguments: dict[str, object], fields: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        get("task_add").validate(arguments)
    assert list(caught.value.fields) == fields
    assert all(field in caught.value.message for field in ["task_add", *fields])


def test_a_reason_stays_short_whatever_was_sent() -> None:
    with pytest.raises(Invalid) as caught:
        get("task_add").validate({f"{number}" + "x" * 10_000: 1 for number in range(100)})
    assert len(caught.value.message) < 1000


def test_defaults_are_the_tools_own_and_what_was_given_passes() -> None:
    assert get("task_update").validate({"id": "7", "done": False}) == {"id": 7, "done": False}
    assert get("system_prompt_apply").validate({}) == {}


def test_an_identity_names_the_thing_and_holds_no_body() -> None:
    assert get("system_prompt_draft").identity({"content": "a whole prompt"}) == {}
    assert get("task_update").identity({"id": 3, "title": "new", "done": True}) == {"id": 3, "title": "new"}
    assert get("system_prompt_apply").identity({"version": None}) == {}
    for tool in real():
        assert "content" not in tool.identified_by
