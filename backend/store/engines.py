"""Which engine a URL names. PostgreSQL's driver is imported where it is needed: most workspaces are one file."""

from __future__ import annotations

from backend.store.database import Database
from backend.store.facts_query import FactsFile, FactsQuery
from backend.store.units import Units

POSTGRES_SCHEME = "postgresql://"


def is_postgres(url: str) -> bool:
    return url.startswith(POSTGRES_SCHEME)


def database_at(url: str) -> Units:
    if is_postgres(url):
        from backend.store.postgres.database import PostgresDatabase

        return PostgresDatabase(url)
    return Database(url)


def facts_query_at(url: str, database: Units) -> FactsQuery:
    """Queries over the facts of `database`, which `url` names."""
    if is_postgres(url):
        from backend.store.postgres.facts_rows import FactsRows

        return FactsQuery(FactsRows(database))
    return FactsQuery(FactsFile(url))
