"""The family `history`: what was said in this chat, also long before the window that the model is sent."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from backend.errors import ToolFailed
from backend.llm.core.cards import table
from backend.llm.core.registry import Family, ToolContext, ToolResult
from backend.store import message_search
from backend.store.message_search import Hit
from backend.store.stems import words_of

family = Family("history", is_helper=True)

# The person looks through more than a model's window has room for.
HITS_FOR_MODEL = 5
HITS_SHOWN = 20

Query = Annotated[str, Field(min_length=1, max_length=500, description="Words to look for, in any form.")]


@family.tool("read", entry=True, identified_by=("query",))
async def history_search(context: ToolContext, query: Query) -> ToolResult:
    """Search all earlier messages of this chat, also those that are not shown to you."""
    if not words_of(query):
        raise ToolFailed("The query has no words; give some of what was said.")
    hits = await message_search.search(context.tx, context.session_id, query, HITS_SHOWN)
    title = f"Found in this chat: {len(hits)}"
    rows = [[hit.message_id, hit.role, hit.created_at, hit.snippet] for hit in hits]
    params = {"count": len(hits), "query": query}
    card = table(title, ["id", "role", "created_at", "content"], rows, title_key="card.history.found", params=params)
    said = "\n".join(map(_line, hits[:HITS_FOR_MODEL])) or "No message of this chat has these words."
    return ToolResult(for_model=said, card=card, outcome=f"ok, {len(hits)} found")


def _line(hit: Hit) -> str:
    return f"Message {hit.message_id}, {hit.role}, {hit.created_at[:10]}: {hit.snippet}"
