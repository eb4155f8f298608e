"""Statements with named values on PostgreSQL, which numbers them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from backend.store.connection import Connection, Row

# Strings and casts are passed over.
_NAMED = re.compile(r"'(?:[^']|'')*'|::|:([a-z_]\w*)")


@lru_cache(maxsize=1000)
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1` for the first name that stands in it, and the names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return found.group()
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _NAMED.sub(number, sql), tuple(names)


class PostgresConnection(Connection):
    """Waits so long for an answer to a statement; None: as long as the driver was told to."""

    is_postgres = True

    def __init__(self, driver: Any, answer_seconds: float | None = None) -> None:
        super().__init__(driver)
        self._answer_seconds = answer_seconds

    async def fetch_all(self, sql: str, values: Row | None = None) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._driver.fetch(*_arguments(sql, values), timeout=self._answer_seconds)]

    async def fetch_value(self, sql: str, values: Row | None = None) -> Any:
        return await self._driver.fetchval(*_arguments(sql, values), timeout=self._answer_seconds)

    async def execute(self, sql: str, values: Row | None = None) -> int:
        outcome = (await self._driver.execute(*_arguments(sql, values), timeout=self._answer_seconds)).split()  # such as INSERT 0 1, UPDATE 3
        return int(outcome[-1]) if outcome[-1].isdigit() else -1

    async def execute_many(self, sql: str, rows: Iterable[Row]) -> None:
        statement, names = numbered(sql)
        await self._driver.executemany(statement, [[row[name] for name in names] for row in rows], timeout=self._answer_seconds)


def _arguments(sql: str, values: Row | None) -> list[Any]:
    statement, names = numbered(sql)
    return [statement, *((values or {})[name] for name in names)]
