"""Tool calls that a model writes as JSON into its text, because its template or server missed them.

The whole trimmed text of a round being one object that names an offered tool is a call; anything else is
text, and never both.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from backend.llm.wire import ToolCall

# The keys by which such objects begin.
CALL_KEYS = ("name", "function", "tool", "parameters", "arguments", "type")
_OPENINGS = tuple('{"' + key + '"' for key in CALL_KEYS)


def may_become_call(text: str) -> bool:
    """Whether a round's text so far could still be such a call, so that it must not be shown yet."""
    compact = "".join(text[:200].split())
    return any(compact.startswith(opening) or opening.startswith(compact) for opening in _OPENINGS)


def parse_call(text: str, offered: Collection[str]) -> ToolCall | None:
    """Return the call that the whole text is, or None when it is text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        return None
    name = value.get("name") or value.get("tool") or value.get("function")
    if not isinstance(name, str) or name not in offered:
        return None
    return ToolCall(name, value.get("arguments", value.get("parameters", {})))
