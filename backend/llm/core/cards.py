"""Cards: the person's face of a tool result, as plain JSON objects of `protocol.md`'s shapes.

`title` and `body` are plain English for any client; `title_key`, `body_key` and `params` let the page say
the same in the person's language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Card = dict[str, Any]
Action = dict[str, Any]
Style = Literal["primary", "default", "danger"]


def action(label: str, tool: str, arguments: dict[str, Any], style: Style = "default", edit: str | None = None) -> Action:
    """A button that calls a tool; `edit` names the argument that the person changes before it is sent."""
    button: Action = {"label": label, "tool": tool, "arguments": arguments, "style": style}
    if edit is not None:
        button["edit"] = edit
    return button


def preview(title: str, body: str, *, text_format: Literal["markdown", "plain"] = "plain", actions: Sequence[Action] = (), **names: Any) -> Card:
    return {"kind": "preview", "title": title, "body": body, "format": text_format, "actions": list(actions), **names}


def diff(title: str, before: str, after: str, *, actions: Sequence[Action] = (), **names: Any) -> Card:
    return {"kind": "diff", "title": title, "before": before, "after": after, "actions": list(actions), **names}


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, actions: Sequence[Action] = (), **names: Any) -> Card:
    return {
        "kind": "table", "title": title, "columns": list(columns), "rows": [list(row) for row in rows],
        "total_rows": len(rows), "actions": list(actions), **names,
    }  # fmt: skip


def item_list(title: str, items: Sequence[dict[str, Any]], *, actions: Sequence[Action] = (), **names: Any) -> Card:
    """Items are `{id, text, done?, actions?}`."""
    return {"kind": "list", "title": title, "items": list(items), "actions": list(actions), **names}


def notice(title: str, body: str, *, actions: Sequence[Action] = (), **names: Any) -> Card:
    return {"kind": "notice", "title": title, "body": body, "actions": list(actions), **names}
