"""The words of deleted messages, which stay in the index until its parts are merged: in steps, since a large index takes seconds.

How far that has come stands in the file's header, as its user version, so that it goes on whatever ends in between.
"""

from __future__ import annotations

from backend.store.connection import Connection

# What is merged at a time: some hundredths of a second, in which nobody else writes. Two of these are the index of ten thousand messages.
STEP_PAGES = 100

_NONE, _WAITING, _MERGING = range(3)


async def mark(tx: Connection) -> None:
    """Note that messages were deleted, in the transaction that deletes them. PostgreSQL's vacuum needs no note."""
    if not tx.is_postgres:
        await _set(tx, _WAITING)


async def are_left(tx: Connection) -> bool:
    return await _stage(tx) != _NONE


async def forget_some(tx: Connection) -> None:
    """Take one step; the first one takes up all parts that the index has by then."""
    stage = await _stage(tx)
    if stage == _NONE:
        return
    await _merge(tx, -STEP_PAGES if stage == _WAITING else STEP_PAGES)  # FTS5 takes a negative number for all parts, however few
    before = await _changes(tx)
    await _merge(tx, STEP_PAGES)
    is_done = await _changes(tx) - before < 2  # the command itself is one
    await _set(tx, _NONE if is_done else _MERGING)


async def _merge(tx: Connection, pages: int) -> None:
    await tx.execute("INSERT INTO message_index (message_index, rank) VALUES ('merge', :pages)", {"pages": pages})


async def _stage(tx: Connection) -> int:
    return int(await tx.fetch_value("PRAGMA user_version"))


async def _set(tx: Connection, stage: int) -> None:
    await tx.execute(f"PRAGMA user_version = {stage}")


async def _changes(tx: Connection) -> int:
    return int(await tx.fetch_value("SELECT total_changes()"))
