"""What statements are run on.

They go to the driver's connection below that of `databases`, whose own way of running one costs four thread switches
and a compilation more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

Row = Mapping[str, Any]


class Connection:
    """What a unit of work is given. Values are named: `:name` in the SQL, `name` in `values`; more may be given than used."""

    is_postgres: ClassVar[bool] = False

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    async def fetch_all(self, sql: str, values: Row | None = None) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._driver.execute_fetchall(sql, values or {})]

    async def fetch_one(self, sql: str, values: Row | None = None) -> dict[str, Any] | None:
        """The first row, or None. The statement runs to its end, so that INSERT … RETURNING can be read with it."""
        rows = await self.fetch_all(sql, values)
        return rows[0] if rows else None

    async def fetch_value(self, sql: str, values: Row | None = None) -> Any:
        """The first column of the first row; None when there is no row."""
        rows = await self._driver.execute_fetchall(sql, values or {})
        return rows[0][0] if rows else None

    async def execute(self, sql: str, values: Row | None = None) -> int:
        """Run a statement that returns no rows; how many rows it changed (-1 when it is no INSERT, UPDATE or DELETE)."""
        cursor = await self._driver.execute(sql, values or {})
        return int(cursor.rowcount)

    async def execute_many(self, sql: str, rows: Iterable[Row]) -> None:
        """Run one statement with each of the rows' values."""
        await self._driver.executemany(sql, rows)
