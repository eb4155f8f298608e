"""Tool calls that a model writes as JSON into its text, because its template or server missed them.

The whole trimmed text of a round being one object that names an offered tool is a call; anything else is
text, and never both.
"""

from __future__ import annotations

from collections.abc import Collection

from backend.llm.wire import ToolCall, json_object, tool_call

# Where such an object may put the tool's name, and what may stand before it.
_NAME_OPENINGS = ('{"name":"', '{"tool":"', '{"function":"', '{"function":{"name":"')
_OTHER_OPENINGS = ('{"type":"function"', '{"parameters":', '{"arguments":', '{"function":{"arguments":', '{"function":{"parameters":')
# Longer than every opening, with room for the white space between its signs.
_OPENING_CHARACTERS = 400


def call_openings(offered: Collection[str]) -> tuple[str, ...]:
    """How the text of a call may begin, without its white space; nothing when no tool is offered."""
    named = tuple(f'{opening}{name}"' for opening in _NAME_OPENINGS for name in offered)
    return named + _OTHER_OPENINGS if offered else ()


def may_become_call(text: str, openings: Collection[str]) -> bool:
    """Whether a round's text so far could still be a call, so that it must not be shown yet."""
    compact = "".join(text.lstrip()[:_OPENING_CHARACTERS].split())
    return any(compact.startswith(opening) or opening.startswith(compact) for opening in openings)


def parse_call(text: str, offered: Collection[str]) -> ToolCall | None:
    """Return the call that the whole text is, or None when it is text."""
    value = json_object(text) if text.lstrip().startswith("{") else None
    if value is not None and isinstance(value.get("function"), dict):
        value = value["function"]
    if value is None:
        return None
    name = value.get("name") or value.get("tool") or value.get("function")
    if not isinstance(name, str) or name not in offered:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    try:
        return tool_call({"function": {"name": name, "arguments": arguments}})
    except RecursionError:  # nested deeper than it can be walked
        return None
