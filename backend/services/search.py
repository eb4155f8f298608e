"""Search over the messages of all chats of a person: what is hidden from the model is found too."""

from __future__ import annotations

from dataclasses import asdict

from backend.protocol import SearchHit
from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal
from backend.store import chat_search
from backend.store.connection import Connection


class Search:
    def __init__(self, journal: Journal, chat_rows: ChatRows) -> None:
        self._journal = journal
        self._rows = chat_rows

    async def search(self, user: str, query: str, chat_id: str | None, limit: int) -> list[SearchHit]:
        """Messages of all the user's chats or of one of them, best first; none for a query without words. Raises NotFound for an unknown chat."""

        async def read(tx: Connection) -> list[SearchHit]:
            if chat_id is not None:
                await self._rows.get(tx, chat_id)
            return [SearchHit(**asdict(hit)) for hit in await chat_search.search(tx, user, query, chat_id, limit)]

        return await self._journal.read(read)
