"""The script that every arm plays: conversations of people's messages, with what each asks for, in `script.LANGUAGE.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Language = Literal["en", "ru"]
Table = Literal["tasks", "notes", "prompts"]

LANGUAGES: tuple[Language, ...] = ("en", "ru")
FOLDER = Path(__file__).parent


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(_Entry):
    """A tool with its arguments."""

    tool: str
    arguments: dict[str, Any] = {}


class Deed(_Entry):
    """What a message asks to be done, as the database shows it: a row that holds all the words and is as `where` says.

    `gone`: no such row is left.
    """

    table: Table
    holds: list[str] = []
    where: dict[str, str | int] = {}
    gone: bool = False


class Fact(_Entry):
    """What a message asks for: a value that has overwritten others, which a form of history may still show."""

    current: str
    stale: list[str] = Field(min_length=1)


class Turn(_Entry):
    """A message of the person. `elsewhere` is done by the person in another chat before it; `play` is how an able model calls."""

    say: str
    elsewhere: list[Call] = []
    deed: Deed | None = None
    fact: Fact | None = None
    play: list[Call] = []


class Conversation(_Entry):
    """`before` is done by the person in another chat, so its facts have known numbers."""

    name: str
    language: Language
    before: list[Call] = []
    turns: list[Turn]


def load() -> list[Conversation]:
    """All conversations, the languages by turns, so that a run that is stopped has seen both."""
    by_language = [_load(language) for language in LANGUAGES]
    return [conversation for pair in zip(*by_language, strict=True) for conversation in pair]


def _load(language: Language) -> list[Conversation]:
    content = tomllib.loads((FOLDER / f"script.{language}.toml").read_text(encoding="utf-8"))
    return [Conversation(language=language, **entry) for entry in content["conversation"]]
