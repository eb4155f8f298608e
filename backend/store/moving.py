"""The steps of a move from one database to another: which rows go, in which order, and whether all of them came.

Knows no engine. What was moved is read off the target itself: it is filled in the order of the keys, a batch at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from backend.errors import StoreError
from backend.store import schema

Row = tuple[Any, ...]
Key = str | int
# Called with a table's name and how many of its rows were moved or compared since the last time.
Progress = Callable[[str, int], None]

# Parents first, so that no row refers to one that is not there yet.
TABLES = tuple(reversed(schema.TABLES))
# All other tables are keyed by a number that the database gives.
TEXT_KEYS = {"chats": "id", "session_states": "session_id", "paused_turns": "session_id", "model_windows": "model"}

# A batch ends with whichever comes first, so that long texts don't fill the memory.
BATCH_ROWS = 5_000
BATCH_CHARACTERS = 8_000_000


class End(Protocol):
    """One end of a move: a database of the newest schema. `rows` come in the order of the key, text by code points."""

    name: str

    async def columns(self, table: str) -> list[str]: ...

    def rows(self, table: str, columns: list[str], after: Key | None = None) -> AsyncIterator[Row]: ...

    async def count(self, table: str) -> int: ...

    async def greatest_key(self, table: str) -> Key | None: ...

    async def last_number(self, table: str) -> int:
        """The last number that the table's sequence gave, also to a row that is gone; 0 when none."""

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        """Until the block ends all reads see one state."""


class Target(End, Protocol):
    """The end that rows come to. From `begin` to `finish` no server starts on it."""

    async def source(self) -> str | None:
        """The fingerprint that an unfinished move began with; None when there is no such move."""

    async def begin(self, source: str) -> None: ...

    async def add(self, table: str, columns: list[str], rows: list[Row]) -> None:
        """Store all the rows or none. Raises StoreError for a row that can't be stored."""

    async def number_after(self, table: str, last: int) -> None:
        """Give numbers greater than `last` to new rows."""

    async def finish(self) -> None: ...


# `copy` or `compare`.
Step = Callable[[End, Target, Progress], Awaitable[None]]


def key_of(table: str) -> str:
    return TEXT_KEYS.get(table, "id")


async def begin(source: End, target: Target) -> bool:
    """Make the target ready, which is empty or holds a part of this very move; whether it was the latter. Raises StoreError."""
    fingerprint = await _fingerprint(source)
    begun = await target.source()
    if begun is None:
        await _refuse_rows(target)
        await target.begin(fingerprint)
    elif begun != fingerprint:
        raise StoreError(
            f"{target.name} holds a part of another move, or of this one before {source.name} changed or Cleanroom was updated; begin with an empty target."
        )
    return begun is not None


async def copy(source: End, target: Target, progress: Progress) -> None:
    """Bring the rows that are not in the target yet."""
    for table in TABLES:
        columns = await shared_columns(source, target, table)
        after = await target.greatest_key(table)
        progress(table, await target.count(table))
        async for batch in _batches(source.rows(table, columns, after)):
            await target.add(table, columns, batch)
            progress(table, len(batch))
            await asyncio.sleep(0)  # or Ctrl+C would not come through between two files
        if table not in TEXT_KEYS:
            await target.number_after(table, max(await source.last_number(table), await target.last_number(table)))


async def compare(source: End, target: Target, progress: Progress) -> None:
    """Read both ends side by side. Raises StoreError naming the first row that differs."""
    async with target.snapshot():
        for table in TABLES:
            columns = await shared_columns(source, target, table)
            arrived = target.rows(table, columns)
            place = columns.index(key_of(table))
            async for batch in _batches(source.rows(table, columns)):
                for row in batch:
                    if (other := await anext(arrived, None)) != row:
                        raise _difference(target, table, min(found[place] for found in (row, other) if found))
                progress(table, len(batch))
                await asyncio.sleep(0)
            if (surplus := await anext(arrived, None)) is not None:
                raise _difference(target, table, surplus[place])


async def shared_columns(source: End, target: End, table: str) -> list[str]:
    there = set(await target.columns(table))
    return [column for column in await source.columns(table) if column in there]


async def left_behind(source: End, target: End) -> list[str]:
    """The columns, as table.column, that an older program had in the source: Cleanroom reads none of them."""
    return [
        f"{table}.{column}"
        for table in TABLES
        for column in sorted(set(await source.columns(table)) - set(await shared_columns(source, target, table)))
    ]  # fmt: skip


async def _fingerprint(source: End) -> str:
    """Tells one source from another, and most changes of it; what it does not see the comparison does."""
    state = [schema.newest_version(), *[(table, await source.count(table), await source.greatest_key(table)) for table in TABLES]]
    return hashlib.sha256(repr(state).encode()).hexdigest()


async def _refuse_rows(target: Target) -> None:
    for table in TABLES:
        if await target.count(table):
            raise StoreError(f"{target.name} is not empty, it has rows in {table}; name an empty one. Nothing was changed.")


def _difference(target: Target, table: str, key: Key) -> StoreError:
    return StoreError(f"{target.name} differs from the source in {table}, {key_of(table)} {key!r}; move again, to an empty target.")


async def _batches(rows: AsyncIterator[Row]) -> AsyncIterator[list[Row]]:
    batch: list[Row] = []
    characters = 0
    async for row in rows:
        batch.append(row)
        characters += sum(len(value) for value in row if isinstance(value, str))
        if len(batch) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
