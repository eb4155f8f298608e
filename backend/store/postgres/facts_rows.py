"""The facts of a chat read from PostgreSQL and put into SQLite's memory, where a model's SELECT runs.

No statement of a model's reaches the server: there is one dialect everywhere, and nothing of PostgreSQL's to guard.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from backend.store.connection import Connection
from backend.store.facts_query import VIEWS, Facts, Unread, View
from backend.store.units import Units

# Of each view the newest rows are read until they have so many bytes, so that no view pushes out another. A row without
# text weighs something too: the event loop reads each, and many short ones would hold up the chats.
MAX_VIEW_BYTES = 4_000_000
ROW_BYTES = 500
STATEMENT_MS = 2_000

# As in the SQLite file; every other column is text.
_INTEGERS = {"id": "INTEGER PRIMARY KEY", "done": "INTEGER", "version": "INTEGER"}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one view, oldest first, and how many there are in the database."""

    rows: list[dict[str, object]]
    total: int


class FactsRows:
    """A snapshot of the facts in a database, anew for each query."""

    def __init__(self, database: Units) -> None:
        self._database = database

    async def facts(self, session_id: str) -> Facts:
        read = await self._database.read(lambda tx: _read(tx, session_id))
        unread = tuple(Unread(name, found.total - len(found.rows), found.total) for name, found in read.items() if len(found.rows) < found.total)
        return Facts(lambda: _filled(read), {name: f"SELECT * FROM temp.read_{name}" for name in VIEWS}, unread)


async def _read(tx: Connection, session_id: str) -> dict[str, _Rows]:
    await tx.execute(f"SET LOCAL statement_timeout = {STATEMENT_MS}")
    return {name: await _newest(tx, view, session_id) for name, view in VIEWS.items()}


async def _newest(tx: Connection, view: View, session_id: str) -> _Rows:
    """The newest rows up to the one that crosses the limit, so that the newest is always among them."""
    columns = view.columns.split(", ")
    weight = " + ".join([str(ROW_BYTES), *(f"OCTET_LENGTH({column})" for column in columns if column not in _INTEGERS)])
    found = await tx.fetch_all(
        f"""
        WITH seen AS (SELECT id AS place, {view.columns}, {weight} AS weight FROM {view.table} WHERE {view.condition}),
        weighed AS (SELECT *, SUM(weight) OVER (ORDER BY place DESC) - weight AS newer_bytes, COUNT(*) OVER () AS total FROM seen)
        SELECT {view.columns}, total FROM weighed WHERE newer_bytes < {MAX_VIEW_BYTES} ORDER BY place
        """,
        {"chat": session_id},
    )
    return _Rows(found, found[0]["total"] if found else 0)


def _filled(read: dict[str, _Rows]) -> sqlite3.Connection:
    """A connection with the rows in its temporary schema, where a query may count them: all are the chat's own."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("BEGIN")
    for name, view in VIEWS.items():
        columns = view.columns.split(", ")
        typed = ", ".join(f"{column} {_INTEGERS.get(column, 'TEXT')}" for column in columns)
        connection.execute(f"CREATE TEMP TABLE read_{name} ({typed})")
        connection.executemany(f"INSERT INTO temp.read_{name} VALUES ({', '.join(f':{column}' for column in columns)})", read[name].rows)
    connection.execute("COMMIT")
    return connection
