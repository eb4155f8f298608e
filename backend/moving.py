"""The command line of `scripts/move_database`: a whole database brought from SQLite to PostgreSQL, or back."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

from backend.errors import CleanroomError
from backend.settings import Settings, checked_database_url
from backend.store import moving as steps
from backend.store import sqlite_end
from backend.store.engines import is_postgres
from backend.store.postgres import end as postgres_end
from backend.store.sqlite_file import file_path

DESCRIPTION = """\
Copy a database into an empty one of the other kind (or of the same), row by row, then compare every row. Ids stay.
No server may run on either. FROM is only read and stays as it is. A move that was stopped goes on when the same
command is run again, and no server starts on its target before it is finished.

A database is sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE. A password may stand in the URL, but other users
of this machine can see it there: leave it out and set PGPASSWORD, or keep it in ~/.pgpass."""

EPILOG = "exit status: 0 when every row arrived, 1 when refused, stopped or different."

REDRAW_SECONDS = 0.2

End = sqlite_end.SqliteEnd | postgres_end.PostgresEnd


class Meter:
    """How far a step is, on one line of a terminal that is written anew; silent elsewhere."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._rows = 0
        self._began = time.monotonic()
        self._drawn = 0.0

    def __call__(self, table: str, rows: int) -> None:
        self._rows += rows
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            rate = self._rows / max(now - self._began, REDRAW_SECONDS)
            print(f"\r\033[K{self._step} {table}: {self._rows:,} rows, {rate:,.0f} a second", end="", file=sys.stderr, flush=True)

    def end(self) -> int:
        """Wipe the line; how many rows there were."""
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        return self._rows


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    try:
        asyncio.run(move(_checked(options.source), _checked(options.target or Settings.from_environment().database_url)))
    except CleanroomError as error:
        return _refuse(error.message)
    except OSError as error:
        return _refuse(f"{error.filename or 'a file'} can't be used: {error.strerror}.")
    except KeyboardInterrupt:
        return _refuse("stopped; run the same command again to go on.")
    return 0


def _refuse(reason: str) -> int:
    print(f"move_database: {reason}", file=sys.stderr)
    return 1


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/move_database", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM", help="the database that there is")
    parser.add_argument("target", metavar="TO", nargs="?", help="an empty database, or a file to be made (default: CLEANROOM_DATABASE_URL)")
    return parser.parse_args(arguments)


def _checked(url: str) -> str:
    try:
        return checked_database_url(url)
    except ValueError as error:
        raise CleanroomError(f"a database {error}.") from None  # without the URL, which may have a password


async def move(source_url: str, target_url: str) -> None:
    """Move everything between two databases, or go on with it. Raises a CleanroomError."""
    if _identity(source_url) == _identity(target_url):
        raise CleanroomError("FROM and TO are the same database.")
    async with _source(source_url) as source, source.snapshot(), _target(target_url) as target:
        if await steps.begin(source, target):
            print(f"{target.name}: going on with the move that was stopped.")
        for column in await steps.left_behind(source, target):
            print(f"left behind: {column}, a column of an older program that Cleanroom does not read.")
        await _step("copying", steps.copy, source, target)
        replaced = source.replaced
        rows = await _step("comparing", steps.compare, source, target)
        await target.finish()
        if replaced:
            print(f"{replaced:,} texts had characters that can't be stored everywhere; U+FFFD stands in their place.")
        print(f"{target.name}: {rows:,} rows, all compared. Set CLEANROOM_DATABASE_URL to it and start Cleanroom.")


async def _step(name: str, step: steps.Step, source: End, target: End) -> int:
    meter = Meter(name)
    try:
        await step(source, target, meter)
    finally:
        rows = meter.end()
    return rows


def _identity(url: str) -> object:
    if not is_postgres(url):
        return file_path(url)
    parts = urlsplit(url)
    return parts.hostname, parts.port or 5432, parts.path


def _source(url: str) -> AbstractAsyncContextManager[End]:
    return postgres_end.open_source(url) if is_postgres(url) else sqlite_end.open_source(file_path(url))


def _target(url: str) -> AbstractAsyncContextManager[End]:
    return postgres_end.open_target(url) if is_postgres(url) else sqlite_end.open_target(file_path(url))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
