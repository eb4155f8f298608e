"""How an older program's values become ours. Pure functions; belongs to migration 0003 and stays as it is with it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

TITLE_LENGTH = 60

_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "bot": "assistant", "model": "assistant"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A number this large can't be seconds (they would lie after the year 5000): it counts milli-, micro- or nanoseconds.
_SECONDS_LIMIT = 1e11


def text_of(value: Any) -> str:
    """Text that can be stored and sent anywhere: bytes decoded, NUL replaced."""
    if value is None:
        return ""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.replace("\0", "\ufffd")


def role_of(value: Any) -> tuple[str, int]:
    """Our role, and whether the row stays out of the model's history (1) since its role has no place there.

    An older program's tool results are no receipts of ours, so they are among these.
    """
    role = _ROLES.get(text_of(value).strip().lower())
    return (role, 0) if role else ("assistant", 1)


def time_of(value: Any) -> str | None:
    """The moment in our form, ISO 8601 in UTC with microseconds; None when `value` says none."""
    try:
        moment = _moment(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _moment(value: Any) -> datetime:
    text = text_of(value).strip()
    try:
        number = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)  # SQLite's CURRENT_TIMESTAMP is UTC
    if not math.isfinite(number):
        raise ValueError(text)
    while abs(number) > _SECONDS_LIMIT:
        number /= 1000
    return _EPOCH + timedelta(seconds=number)


def title_of(content: str) -> str:
    """The beginning of a message on one line, at most TITLE_LENGTH characters, cut at a word where one ends."""
    line = " ".join(content[: TITLE_LENGTH * 20].split())
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    return (head[: head.rfind(" ")] if " " in head[TITLE_LENGTH // 2 :] else head[:-1]) + "…"


def state_of(values: list[Any]) -> str:
    """The working state: an object as it was, anything else (and more than one) kept whole under the key `older`."""
    texts = [text_of(value) for value in values if value is not None]
    if not texts:
        return "{}"
    if len(texts) == 1 and _is_object(texts[0]):
        return texts[0]
    return json.dumps({"older": texts[0] if len(texts) == 1 else texts}, ensure_ascii=False)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity are no JSON, though Python reads them
