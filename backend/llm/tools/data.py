"""The family `data`: the model reads the facts by SQL, from views that hide what is none of its business."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from backend.llm.core.cards import table
from backend.llm.core.registry import Family, ToolContext, ToolResult
from backend.store.facts_query import FactsTable

family = Family("data", is_helper=True)

# The person has the whole table; the model asks for more when it needs more.
SLICE_CHARACTERS = 1_000
CELL_CHARACTERS = 200

Sql = Annotated[str, Field(min_length=1, max_length=10_000, description="One SQLite SELECT.")]


@family.tool("read", entry=True, identified_by=("sql",))
async def data_query(context: ToolContext, sql: Sql) -> ToolResult:
    """Read facts by one SELECT over tasks(id, title, done, created_at, updated_at),
    notes(id, title, content, created_at, updated_at), prompts(version, status, content, created_at)
    and messages(id, role, content, created_at) of this chat."""
    assert context.facts is not None
    found = await context.facts.run(context.session_id, sql)
    count, truncated = len(found.rows), found.is_truncated
    card = table(
        _counted(found), found.columns, found.rows, title_key="card.data.result", params={"count": count}, sql=sql, truncated=truncated,
        total_rows=count + truncated,  # of a result that was cut it is known that there is more, not how much
        unread=[asdict(unread) for unread in found.unread],
    )  # fmt: skip
    return ToolResult(for_model=_slice(found) + _unread(found), card=card, outcome=f"ok, {_counted(found)}")


def _slice(found: FactsTable) -> str:
    """The first rows as lines of tab-separated JSON values, about as many as SLICE_CHARACTERS hold."""
    if not found.rows and found.is_truncated:
        return "A row is longer than a result may be; select fewer columns, or parts of texts by substr()."
    lines = [_line(found.columns)]
    room = SLICE_CHARACTERS - len(lines[0])
    for row in found.rows:
        line = _line(row)
        room -= len(line)
        if room < 0 and len(lines) > 1:
            break
        lines.append(line)
    shown = len(lines) - 1
    text = f"{_counted(found)}\n" + "\n".join(lines)[: 2 * SLICE_CHARACTERS]
    if shown == len(found.rows) and not found.is_truncated:
        return text
    return f"{text}\n[rows 1 to {shown} are above, the person sees {len(found.rows)}; for more select fewer columns, or add LIMIT {shown} OFFSET {shown}]"


def _unread(found: FactsTable) -> str:
    return f"\n[too much to read, so not in the result: {', '.join(map(str, found.unread))}]" if found.unread else ""


def _counted(found: FactsTable) -> str:
    rows = "1 row" if len(found.rows) == 1 else f"{len(found.rows)} rows"
    return f"the first {rows}" if found.is_truncated else rows


def _line(values: list[Any]) -> str:
    return "\t".join(_short(value) for value in values)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= CELL_CHARACTERS:
        return text
    return f"{text[:CELL_CHARACTERS]}… ({len(str(value))} characters; substr() reads parts)"
