"""One SELECT of a model's own over named views of the facts, on a connection to SQLite that can do nothing else.

Where the facts come from is a source's matter (`FactsFile` here, `FactsRows` in postgres/); the query, its limits and
its words are the same. A query runs in a thread of its own and is answered at its deadline even when the thread runs
on. Meanwhile it holds neither the writer nor a reader, and knows nothing of tools.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from threading import BoundedSemaphore, Thread
from typing import Any, Protocol

from backend.errors import ToolFailed
from backend.store.sqlite_file import file_path, open_file, store_error

MAX_ROWS = 1_000
MAX_BYTES = 200_000
CELL_CHARACTERS = 10_000
NAME_CHARACTERS = 60

# The statement's own limit, and when the question is answered whatever the thread does: one long function can't be stopped.
DEADLINE_SECONDS = 1.0
ANSWER_SECONDS = 1.1
STEPS_PER_CHECK = 1_000
# Threads that run on are few, so that they can't take the processor from the chats. Fewer than PostgreSQL's readers too:
# a tool that asks has one already, and the source may want another.
QUERIES_AT_ONCE = 2

# A row's memory is its columns times its longest value. The first pair has room for the longest message, the second for any table.
SHAPES = ((16, 1_100_000), (2_000, 10_000))
LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 16,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
# Each may hold a longest value at the same time.
FUNCTION_CALLS = 40
LARGEST_EXACT_INTEGER = 2**53 - 1  # in a browser


@dataclass(frozen=True, slots=True)
class View:
    """What a query sees of a table: some columns of the rows that meet the condition, in which `:chat` is the chat's id."""

    columns: str
    table: str
    condition: str


_CHAT = "session_id = :chat"
_OWNED = "owner = (SELECT owner FROM chats WHERE id = :chat)"
VIEWS = {
    "tasks": View("id, title, done, created_at, updated_at", "tasks", _OWNED),
    "notes": View("id, title, content, created_at, updated_at", "notes", _OWNED),
    "prompts": View("version, status, content, created_at", "system_prompts", _CHAT),
    "messages": View("id, role, content, created_at", "chat_messages", f"{_CHAT} AND is_ephemeral = 0 AND hidden = 0 AND status <> 'streaming'"),
}
SCHEMA = ", ".join(f"{name}({view.columns})" for name, view in VIEWS.items())

# Those that neither grow a value by themselves nor look outside: no printf, zeroblob, load_extension, fts3_tokenizer.
# Nor trim, which would be at two long texts for hours; replace and instr are for seconds.
FUNCTIONS = frozenset(
    """
    abs avg char coalesce count cume_dist date datetime dense_rank first_value glob group_concat hex ifnull iif instr
    json json_array json_array_length json_extract json_group_array json_group_object json_object json_quote json_type
    json_valid julianday lag last_value lead length like lower max min nth_value ntile nullif percent_rank quote
    random rank replace round row_number sign strftime substr substring sum time total typeof unicode
    unixepoch upper -> ->> acos asin atan atan2 ceil ceiling cos degrees exp floor ln log log10 log2 mod pi pow power
    radians sin sqrt tan trunc
    """.split()
)


@dataclass(frozen=True, slots=True)
class Unread:
    """How many of a view's rows, the oldest ones, a query could not see because they are too much."""

    view: str
    rows: int
    total_rows: int

    def __str__(self) -> str:
        return f"the oldest {self.rows} of {self.total_rows} rows of {self.view}"


@dataclass(frozen=True, slots=True)
class FactsTable:
    """A result as plain JSON values. `is_truncated`: rows or parts of long values are missing."""

    columns: list[str]
    rows: list[list[Any]]
    is_truncated: bool
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """One chat's facts, ready to be queried.

    `open` makes a connection in the thread that uses it. `selects` has for each of VIEWS the SELECT of its rows there.
    """

    open: Callable[[], sqlite3.Connection]
    selects: dict[str, str]
    unread: tuple[Unread, ...] = ()


class Source(Protocol):
    async def facts(self, session_id: str) -> Facts:
        """What a query of this chat may see. Raises StoreError."""


class FactsFile:
    """The facts of a SQLite file, which the query itself reads."""

    def __init__(self, url: str) -> None:
        self._path = file_path(url)

    async def facts(self, session_id: str) -> Facts:
        chat = "'{}'".format(session_id.replace("'", "''"))  # a view takes no values
        selects = {name: f"SELECT {view.columns} FROM main.{view.table} WHERE {view.condition.replace(':chat', chat)}" for name, view in VIEWS.items()}
        return Facts(lambda: open_file(self._path, "mode=ro"), selects)


class FactsQuery:
    """Runs queries over the facts of one source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._places = BoundedSemaphore(QUERIES_AT_ONCE)

    async def run(self, session_id: str, sql: str) -> FactsTable:
        """The rows that `sql` selects, as far as they fit. Raises ToolFailed with words that a query can be mended by."""
        if not self._places.acquire(blocking=False):
            raise ToolFailed("Earlier queries are still running; ask again in a few seconds.")
        try:
            query = _Query(await self._source.facts(session_id), sql)
        except BaseException:
            self._places.release()
            raise
        return await self._answer(query)

    async def _answer(self, query: _Query) -> FactsTable:
        """Have a thread run the query; the place is the thread's from now on."""
        outcome = Future[FactsTable]()
        outcome.set_running_or_notify_cancel()
        Thread(target=self._settle, args=(query, outcome), name="facts query", daemon=True).start()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.wrap_future(outcome)
        except TimeoutError:
            raise _too_slow() from None
        finally:
            query.interrupt()

    def _settle(self, query: _Query, outcome: Future[FactsTable]) -> None:
        try:
            result = query.run()
        except BaseException as error:
            self._places.release()
            outcome.set_exception(error)
        else:
            self._places.release()
            outcome.set_result(result)


class _Query:
    """One query on a connection of its own; belongs to the thread that runs it, but for `interrupt`."""

    def __init__(self, facts: Facts, sql: str) -> None:
        self._facts = facts
        self._sql = sql
        self._deadline = time.monotonic() + DEADLINE_SECONDS
        self._connection: sqlite3.Connection | None = None
        self._door = f"door_{secrets.token_hex(16)}"
        self._hidden: set[str] = set()
        self._function_calls = 0
        self._refused: str | None = None

    def interrupt(self) -> None:
        """End the statement where it can be ended; nothing happens when it is over."""
        if self._connection is not None:
            with suppress(sqlite3.ProgrammingError):  # closed meanwhile
                self._connection.interrupt()

    def run(self) -> FactsTable:
        with self._opened() as connection:
            for columns, value_bytes in SHAPES:
                connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, columns)
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
                try:
                    return self._fetch(connection)
                except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
                    if (columns, value_bytes) != SHAPES[-1] and "too many columns" in str(error):
                        continue
                    raise self._explain(error) from None
        raise AssertionError("the last shape returns or raises")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with closing(self._facts.open()) as connection:
            self._connection = connection
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            self._hidden = {row[0].lower() for row in connection.execute("SELECT name FROM sqlite_master")} - VIEWS.keys()
            self._make_views(connection)
            for name, change in (("lower", str.lower), ("upper", str.upper)):  # SQLite's own know ASCII alone
                connection.create_function(name, 1, _on_text(change), deterministic=True)
            for limit, value in LIMITS.items():
                connection.setlimit(limit, value)
            connection.set_progress_handler(lambda: time.monotonic() > self._deadline, STEPS_PER_CHECK)
            connection.set_authorizer(self._authorize)
            yield connection

    def _make_views(self, connection: sqlite3.Connection) -> None:
        """Make the views in the connection's temporary schema.

        SQLite tells the authorizer the name of the view that reads a table, but also that of a WITH clause: one
        that is called like a view would get in. So the views that read have names that no query can know.
        """
        for name, select in self._facts.selects.items():
            connection.execute(f"CREATE TEMP VIEW {self._door}_{name} AS {select}")
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM {self._door}_{name}")

    def _authorize(self, action: int, first: str | None, second: str | None, database: str | None, accessor: str | None) -> int:
        """SQLite asks at every access of a statement. What isn't named here is refused."""
        match action:
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                allowed = True
            case sqlite3.SQLITE_FUNCTION:
                self._function_calls += 1
                allowed = str(second).lower() in FUNCTIONS and self._function_calls <= FUNCTION_CALLS
            case sqlite3.SQLITE_READ:
                allowed = self._may_read(str(first).lower(), second, database, accessor)
            case _:
                allowed = False
        if not allowed and self._refused is None:
            self._refused = "That"
            if action == sqlite3.SQLITE_FUNCTION:
                self._refused = f"The function {second}" if self._function_calls <= FUNCTION_CALLS else f"More than {FUNCTION_CALLS} function calls"
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    def _may_read(self, table: str, column: str | None, database: str | None, accessor: str | None) -> bool:
        if (accessor is not None and accessor.startswith(self._door)) or table.startswith(self._door):
            return True
        if column == "":  # none of its columns is used, as in count(*); the query's own WITH clauses are asked for so too
            # Here the schema is what the query wrote, if it wrote any: main.tasks are everybody's.
            return (database or "temp").lower() == "temp" and table not in self._hidden and not table.startswith("sqlite_")
        return table in VIEWS and database == "temp"

    def _fetch(self, connection: sqlite3.Connection) -> FactsTable:
        self._function_calls = 0
        cursor = connection.execute(self._sql)
        if cursor.description is None:
            raise ToolFailed(f"That is no SELECT. {_offer()}")
        names = [_cut(column[0], NAME_CHARACTERS) for column in cursor.description]
        rows: list[list[Any]] = []
        size, is_truncated = 0, False
        for row in cursor:
            values = [_plain(value) for value in row]
            size += len(json.dumps(values, ensure_ascii=False).encode())
            if len(rows) == MAX_ROWS or size > MAX_BYTES:
                is_truncated = True
                break
            is_truncated |= any(isinstance(value, str) and len(value) > CELL_CHARACTERS for value in row)
            rows.append(values)
        return FactsTable(names, rows, is_truncated, self._facts.unread)

    def _explain(self, error: Exception) -> Exception:
        """What the asker is told. SQLite's words on a statement name what the asker wrote, and no path."""
        if self._refused is not None:
            return ToolFailed(f"{self._refused} can't be used. {_offer()}")
        if isinstance(error, MemoryError):
            return ToolFailed("The query needs too much memory; select less.")
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return _too_slow()
        known = store_error(error) if isinstance(error, sqlite3.Error) else None
        return known or ToolFailed(f"{_cut(str(error).rstrip('.'), 200)}. {_offer()}")


def _on_text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: change(str(value)) if isinstance(value, str | int | float) else value


def _plain(value: Any) -> Any:
    """A value of SQLite's as one of JSON's that a browser reads back as it was."""
    match value:
        case bytes():
            return f"(binary, {len(value)} bytes)"
        case str():
            return _cut(value, CELL_CHARACTERS)
        case int() if abs(value) > LARGEST_EXACT_INTEGER:
            return str(value)
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]} … ({len(text)} characters)"


def _offer() -> str:
    return f"One SELECT over these is possible: {SCHEMA}."


def _too_slow() -> ToolFailed:
    return ToolFailed(f"The query took longer than its time limit of {DEADLINE_SECONDS:g} s; narrow it by WHERE, or join less.")
