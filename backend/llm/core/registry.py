"""Tools and their families: what can be called, with which arguments, and what it means for the working state.

A tool is a typed async function with a docstring; its JSON schema comes from its signature, in the
signature's order, so that the bytes that open every request stay the same from process to process.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from backend.errors import Invalid
from backend.llm.core.cards import Card
from backend.store.connection import Connection
from backend.store.facts_query import FactsQuery

Effect = Literal["read", "draft", "commit"]

# What is told of a bad call: names in it are the caller's own, as many and as long as it likes.
MISTAKES_TOLD = 5
NAME_CHARACTERS = 60
# Numbers of versions and facts; a database has no room for every number that a model can write.
LARGEST_NUMBER = 999_999_999


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is given: an open transaction, a snapshot alone for one that reads, and where it stands.

    `held` is what the family holds in hand (`session_states.state`), empty when it isn't active. `facts` runs
    queries beside the transaction; the working state is read without it.
    """

    tx: Connection
    session_id: str
    now: str
    held: dict[str, Any]
    facts: FactsQuery | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's outcome with its two faces, made at the source.

    `for_model` is short and factual, `card` is the person's. `outcome` is what the receipt says.
    `subject` names the thing that this is the current copy of: an earlier result of the turn with the same
    subject goes on to the model as its receipt only. `holds` replaces what the family holds in hand, None
    leaves it. `completes` sums up a finished piece of work, which then asks the person for a Yes or No.
    `starts_at` is for a tool that reads a long text by `offset`: which of its characters `for_model` begins with.
    """

    for_model: str
    card: Card
    outcome: str
    subject: str | None = None
    holds: dict[str, Any] | None = None
    completes: str | None = None
    starts_at: int | None = None


@dataclass(frozen=True, slots=True)
class StateSection:
    """A part of the working state. The lower ranks stand first; the thing in hand has the highest.

    `text` is cut when the whole doesn't fit, and `reader` is the tool that reads the rest. `subject` is the
    thing in hand, by the name that its results have (see ToolResult).
    """

    rank: int
    heading: str
    text: str
    reader: str
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    family: Family
    description: str
    effect: Effect
    is_entry: bool
    for_model: bool
    identified_by: tuple[str, ...]
    arguments: type[BaseModel]
    parameters: dict[str, Any]
    """The arguments as a JSON schema, made once: every request needs it."""
    function: Callable[..., Awaitable[ToolResult]]

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as a model server expects it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def reads_on(self) -> bool:
        """Whether a long result can be read in parts."""
        return {"offset", "limit"} <= self.arguments.model_fields.keys()

    def validate(self, arguments: object) -> dict[str, Any]:
        """Check a call's arguments. Raises Invalid with a sentence that a model can mend its call by."""
        if not isinstance(arguments, dict):
            raise Invalid(f"{self.name} takes its arguments as one JSON object, not {type(arguments).__name__}.")
        try:
            checked = self.arguments.model_validate(arguments)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False, include_input=False)[:MISTAKES_TOLD]
            fields = {".".join(str(part) for part in item["loc"])[:NAME_CHARACTERS]: item["msg"] for item in errors}
            named = "; ".join(f"{name}: {reason}" for name, reason in fields.items())
            raise Invalid(f"Wrong arguments for {self.name}: {named}.", fields) from None
        return {name: getattr(checked, name) for name in checked.model_fields_set}

    def identity(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that identify the thing, never a body: what a receipt may show."""
        return {name: arguments[name] for name in self.identified_by if arguments.get(name) is not None}

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return await self.function(context, **arguments)


StateReader = Callable[[ToolContext], Awaitable[list[StateSection]]]
CountReader = Callable[[ToolContext], Awaitable[str]]


@dataclass(eq=False)
class Family:
    """Tools that share working material. A module of the tools folder makes one and names it `family`.

    A helper's cards belong to the family that is active beside it.
    """

    name: str
    is_helper: bool = False
    tools: list[Tool] = field(default_factory=list)
    sections: StateReader | None = None
    count: CountReader | None = None

    def tool(
        self, effect: Effect, *, entry: bool = False, for_model: bool = True, identified_by: tuple[str, ...] = ()
    ) -> Callable[[Callable[..., Awaitable[ToolResult]]], Callable[..., Awaitable[ToolResult]]]:
        """Declare a tool. An `entry` is offered to the model always, the rest while the family is active.

        `for_model=False` keeps it to buttons and commands; `identified_by` names the arguments that receipts show.
        """

        def declare(function: Callable[..., Awaitable[ToolResult]]) -> Callable[..., Awaitable[ToolResult]]:
            name = function.__name__
            description = inspect.getdoc(function)
            if not description:
                raise ValueError(f"the tool {name} needs a docstring: the model reads it")
            arguments = _arguments_of(function)
            tool = Tool(
                name=name, family=self, description=description, effect=effect, is_entry=entry, for_model=for_model,
                identified_by=identified_by, arguments=arguments, parameters=_plain_schema(arguments.model_json_schema()), function=function,
            )  # fmt: skip
            self.tools.append(tool)
            return function

        return declare

    def working_state(self, function: StateReader) -> StateReader:
        """Declare what the working state says of this family while any family is active."""
        self.sections = function
        return function

    def counts(self, function: CountReader) -> CountReader:
        """Declare what the one line says of this family while none is active."""
        self.count = function
        return function


class Registry:
    """All families by name and all tools by name, in a fixed order."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = {family.name: family for family in sorted(families, key=lambda family: family.name)}
        self._tools = {tool.name: tool for family in self.families.values() for tool in family.tools}

    @classmethod
    def discover(cls, package: ModuleType) -> Registry:
        """Gather the family of every module in `package`."""
        names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
        modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
        return cls(module.family for module in modules)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def offered(self, open_families: Collection[str], off: Collection[str] = ()) -> list[Tool]:
        """What a model may choose from: every entry tool, and all tools of the open families; none of a family that is `off`."""
        return [tool for tool in self if tool.for_model and tool.family.name not in off and (tool.is_entry or tool.family.name in open_families)]


def _arguments_of(function: Callable[..., Any]) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out what small models stumble over: titles, null types and null defaults."""
    properties = {name: _plain_property(value) for name, value in schema.get("properties", {}).items()}
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


def _plain_property(value: dict[str, Any]) -> dict[str, Any]:
    choices = [choice for choice in value.get("anyOf", []) if choice.get("type") != "null"]
    merged = {**choices[0], **value} if len(choices) == 1 else value
    dropped = {"title", "default"} | ({"anyOf"} if len(choices) == 1 else set())
    return {name: item for name, item in merged.items() if name not in dropped}
