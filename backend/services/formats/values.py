"""Reads what other programs wrote: each function takes any JSON value and makes the best of it. Pure.

Only named fields are ever read, so that no other key of a file has an effect.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from backend.protocol import MAX_NESTING, Parameters
from backend.services.formats.transcript import Unreadable
from backend.services.records import iso
from backend.text import clean_text

# More than a chat of years; each costs a row and a place in the index.
MAX_MESSAGES = 50_000
MAX_TITLE_CHARACTERS = 10_000
# Seconds of our time are smaller than this for thousands of years, milliseconds are larger since 1973.
_MILLISECONDS = 1e11


def text(value: Any) -> str:
    """A text, clean; empty when it is none."""
    return clean_text(value) if isinstance(value, str) else ""


def title(value: Any) -> str:
    return text(value).strip()[:MAX_TITLE_CHARACTERS]


def record(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def moment(value: Any, otherwise: str, latest: str) -> str:
    """A time as we write it, from seconds, milliseconds or ISO 8601; never later than `latest`."""
    try:
        found = _moment(value)
    except (ValueError, OverflowError, OSError):
        found = None
    if found is None:
        return otherwise
    return min(iso(found.astimezone(UTC)), latest)


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        parsed = datetime.fromisoformat(value)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
    return None


def metrics(value: Any) -> dict[str, Any] | None:
    """The figures of a reply, and the error of a question: plain values, and plain values one level down."""
    found = _plain(record(value))
    for name, inner in record(value).items():
        if isinstance(inner, dict) and name != "__proto__":
            found[clean_text(name)] = _plain(inner)
    return found or None


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {
        clean_text(name): clean_text(inner) if isinstance(inner, str) else inner
        for name, inner in value.items()
        if name != "__proto__" and isinstance(inner, str | int | float | bool) and not (isinstance(inner, float) and not math.isfinite(inner))
    }


def parameters(value: Any) -> dict[str, Any]:
    """Those of a chat's parameters that are ours."""
    found: dict[str, Any] = {}
    for name in Parameters.model_fields:
        try:
            found |= Parameters.model_validate({name: record(value).get(name)}).model_dump()
        except ValueError:
            continue  # pydantic's ValidationError is one
    return found


def nesting_limited(value: Any, depth: int = 0) -> None:
    """Raises Unreadable for a conversation that nests deeper than any program writes."""
    if depth > MAX_NESTING:
        raise Unreadable("It nests too deep to be a conversation.")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        nesting_limited(inner, depth + 1)
