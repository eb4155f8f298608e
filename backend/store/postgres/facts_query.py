"""A model's SELECT on PostgreSQL: refused, since no connection there can do nothing else."""

from __future__ import annotations

from backend.errors import ToolFailed
from backend.store.facts_query import FactsQuery, FactsTable


class PostgresFactsQuery(FactsQuery):
    def __init__(self, url: str) -> None:
        self._url = url

    async def run(self, session_id: str, sql: str) -> FactsTable:
        raise ToolFailed("Facts can't be read by SQL while they are kept in PostgreSQL; use the tools for tasks, notes and history.")
