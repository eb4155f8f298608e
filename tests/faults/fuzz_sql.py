"""Random SQL through a model's read-only door: it writes nothing, shows nothing that is hidden, ends, and is refused in words.

python -m tests.faults.fuzz_sql --minutes 3
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from hypothesis import strategies as st

from backend.errors import ToolFailed
from backend.store.facts_query import FUNCTIONS, MAX_BYTES, MAX_ROWS, QUERIES_AT_ONCE, SHAPES, VIEWS, FactsFile, FactsQuery, FactsTable
from tests.faults import fuzzing
from tests.faults.fuzzing import Check
from tests.server import migrated_database
from tests.store import test_facts_query as known

T = TypeVar("T")

# Far beyond the time limit: a query that is not answered by then never is.
PATIENCE_SECONDS = 20
# A thread that can't be interrupted goes on for a while after its answer.
DRAIN_SECONDS = 60

# In every place that no query of chat `c` may show; no query can write it by itself.
CANARY = "qzcanaryqz"
FACTS = f"""
INSERT INTO chats (id, title, created_at, updated_at) VALUES ('c', '{CANARY}', '{CANARY}', ''), ('d', '{CANARY}', '', '');
INSERT INTO tasks (title, done, session_id, created_at, updated_at) VALUES ('milk', 0, 'c', '', ''), ('bread', 1, NULL, '', '');
INSERT INTO notes (title, content, session_id, created_at, updated_at) VALUES ('shop', 'from the shop', 'd', '', '');
INSERT INTO system_prompts (session_id, version, content, status, created_at) VALUES ('c', 1, 'Be brief.', 'applied', ''), ('d', 1, '{CANARY}', 'applied', '');
INSERT INTO session_states (session_id, active_tool, state, updated_at) VALUES ('c', '{CANARY}', '"{CANARY}"', '');
INSERT INTO chat_messages (session_id, role, content, is_ephemeral, hidden, status, created_at) VALUES
    ('c', 'user', 'said in c', 0, 0, 'complete', ''), ('c', 'tool', '{CANARY}', 1, 0, 'complete', ''), ('c', 'user', '{CANARY}', 0, 1, 'complete', ''),
    ('c', 'assistant', '{CANARY}', 0, 0, 'streaming', ''), ('d', 'user', '{CANARY}', 0, 0, 'complete', '');
"""
TABLES_SQL = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"

with closing(sqlite3.connect(":memory:")) as _empty:
    _empty.deserialize(migrated_database())
    HIDDEN = sorted({row[0] for row in _empty.execute(TABLES_SQL)} - VIEWS.keys())

# The names that a source has, by its own; hidden ones are asked for what they may have.
COLUMNS = {name: view.columns.split(", ") for name, view in VIEWS.items()}
HIDDEN_COLUMNS = ["content", "title", "session_id", "name", "sql", "rowid", "is_ephemeral", "state", "message_index"]
BUILT_IN = ["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_sequence", "dbstat", "pragma_database_list", "json_each('[1]')"]
ALLOWED = sorted(FUNCTIONS - {"->", "->>"})
REFUSED = """
    printf format zeroblob randomblob load_extension readfile writefile fts3_tokenizer sqlite_version snippet highlight matchinfo trim likelihood
""".split()
LITERALS = ["1", "'x'", "NULL", "0", "-1", "''", "x'00ff'", "1e999", "9223372036854775807", '"content"', "?", ":a", "CURRENT_TIMESTAMP"]
OPERATORS = ["=", "||", "<>", "<", "+", "*", "AND", "OR", "LIKE", "GLOB", "IS", "->", "->>", "%", "<<", "MATCH", "COLLATE"]
ALIASES = ["a", "b", "tasks", "messages", "chat_messages"]


class Tape:
    """Choices out of random bytes: the first of each once they are used up, which therefore has to be the simplest."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[next(self._bytes, 0) % len(choices)]

    def chance(self, of: int) -> bool:
        return next(self._bytes, 0) % of == 1


def expression(tape: Tape, columns: list[str]) -> str:
    def again() -> str:
        return expression(tape, columns)

    forms: list[Callable[[], str]] = [
        lambda: tape.pick(columns),
        lambda: tape.pick(LITERALS),
        lambda: f"{tape.pick(ALLOWED)}({again()})",
        lambda: f"({again()} {tape.pick(OPERATORS)} {again()})",
        lambda: "count(*)",
        lambda: f"{tape.pick(ALLOWED)}({again()}, {again()})",
        lambda: f"({select(tape)})",
        lambda: f"EXISTS ({select(tape)})",
        lambda: f"{again()} IN ({select(tape)})",
        lambda: f"{again()} IN {source(tape)[0]}",
        lambda: f"CASE WHEN {again()} THEN {again()} END",
        lambda: f"CAST({again()} AS {tape.pick(['TEXT', 'BLOB', 'INTEGER'])})",
        lambda: f"{tape.pick(['count', 'max', 'lag', 'group_concat'])}({again()}) OVER (ORDER BY {again()})",
        lambda: f"{tape.pick(REFUSED)}({again()})",
    ]
    return tape.pick(forms)()


def source(tape: Tape) -> tuple[str, list[str]]:
    """Where rows come from, and what columns they may have."""
    match tape.pick(range(9)):
        case 0 | 1 | 2:
            name = tape.pick(list(VIEWS))
            return in_some_writing(tape, name), COLUMNS[name]
        case 3 | 4:
            return f"{tape.pick(['', '', 'main.', 'temp.', 'other.'])}{in_some_writing(tape, tape.pick(HIDDEN))}", HIDDEN_COLUMNS
        case 5:
            return tape.pick(BUILT_IN), HIDDEN_COLUMNS
        case 6:
            name = tape.pick(list(VIEWS))
            return f"main.{name} AS {tape.pick(ALIASES)}", [*COLUMNS[name], "session_id", "is_ephemeral", "rowid"]
        case 7:
            return f"({select(tape)}) AS {tape.pick(ALIASES)}", ["1", "content", "title", "id"]
        case _:
            (left, columns), (right, more) = source(tape), source(tape)
            return f"{left} {tape.pick([',', 'JOIN', 'LEFT JOIN', 'NATURAL JOIN'])} {right}", columns + more


def in_some_writing(tape: Tape, name: str) -> str:
    """A name in the ways in which SQLite reads it."""
    return tape.pick([name, name, name.upper(), f'"{name}"', f"[{name}]", f"`{name}`", f"'{name}'", f"/**/{name}"])


def select(tape: Tape) -> str:
    """One that is mostly well formed, so that it gets past the parser."""
    rows, columns = source(tape)
    if tape.chance(4):
        rows, columns = tape.pick(ALIASES), ["*", "content", "n"]
    shown: list[Callable[[], str]] = [
        lambda: tape.pick(columns),
        lambda: "*",
        lambda: expression(tape, columns),
        lambda: "count(*)",
        lambda: f"hex({tape.pick(columns)})",
    ]
    sql = f"SELECT {tape.pick(shown)()} FROM {rows}"
    tail = tape.pick(["", "", "", "WHERE", "GROUP BY", "ORDER BY", "INDEXED BY"])
    if tail == "INDEXED BY":
        sql += f" INDEXED BY {tape.pick(HIDDEN)}"
    elif tail:
        sql += f" {tail} {expression(tape, columns)}"
    if tape.chance(5):
        sql += f" {tape.pick(['UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT'])} {select(tape)}"
    if tape.chance(4):
        head = f"{tape.pick(ALIASES)}{tape.pick(['', '(content)', '(n)'])} AS {tape.pick(['', 'MATERIALIZED '])}({select(tape)})"
        sql = f"WITH {tape.pick(['', 'RECURSIVE '])}{head} {sql}"
    return sql


def other_statement(tape: Tape) -> str:
    table, columns = source(tape)
    forms: list[Callable[[], str]] = [
        lambda: f"INSERT INTO {table} {select(tape)}",
        lambda: f"UPDATE {table} SET {tape.pick(columns)} = '' RETURNING {expression(tape, columns)}",
        lambda: f"DELETE FROM {table}",
        lambda: f"WITH a AS ({select(tape)}) DELETE FROM {table}",
        lambda: f"CREATE {tape.pick(['TABLE x', 'TEMP TABLE x', 'VIEW x', 'TEMP VIEW messages'])} AS {select(tape)}",
        lambda: f"CREATE TEMP TRIGGER x AFTER INSERT ON {table} BEGIN DELETE FROM tasks; END",
        lambda: f"EXPLAIN {tape.pick(['', 'QUERY PLAN '])}{select(tape)}",
        lambda: f"DROP {tape.pick(['TABLE', 'VIEW', 'INDEX'])} {table}",
        lambda: f"PRAGMA {tape.pick(['query_only = OFF', 'writable_schema = ON', 'table_list', 'user_version = 5', 'journal_mode = DELETE'])}",
        lambda: f"{select(tape)}; {tape.pick(known.WRITING)}",
    ]
    return tape.pick(forms)()


# The statements of the acceptance checks.
SEEDS = [
    *known.WRITING, *known.OPENING, *known.TELLING, *known.CALLING,
    *(way.replace("{table}", table) for way in known.WAYS_IN for table in HIDDEN),
    *(sql for sql, _ in known.ORDINARY), *(sql for sql, _ in known.MISTAKES if len(sql) < 200),
]  # fmt: skip
TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
WORDS = [
    *VIEWS,
    *HIDDEN,
    *ALLOWED,
    *REFUSED,
    *HIDDEN_COLUMNS,
    *LITERALS,
    *OPERATORS,
    *"();,.'-*\0я\n",
    "SELECT",
    "FROM",
    "WITH",
    "/*",
    "*/",
    "--",
    "main",
    "temp",
]


def mutated(tape: Tape) -> str:
    """A statement with a few words lost, doubled or put in, or with another one in their place."""
    words = TOKEN.findall(tape.pick(SEEDS[tape.pick(range(256)) :: 256] or SEEDS))
    for _ in range(1 + tape.pick(range(4))):
        start = tape.pick(range(len(words) + 1))
        end = min(len(words), start + tape.pick(range(4)))
        put_in = [tape.pick(WORDS), " "]
        words[start:end] = tape.pick([[], words[start:end] * 2, put_in, ["(", tape.pick(SEEDS), ")"], [select(tape)]])
    return "".join(words)


def statement(data: bytes) -> str:
    tape = Tape(data)
    return tape.pick([select, select, select, mutated, mutated, other_statement])(tape)


TAPES = st.binary(max_size=20) | st.binary(min_size=20, max_size=60) | st.binary(min_size=60, max_size=200)
QUERIES = st.one_of(TAPES.map(statement), TAPES.map(statement), TAPES.map(statement), st.text())


class Door:
    """A query over a database in a folder of its own, which has to stay as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "cleanroom.db"
        self._runner = asyncio.Runner()
        self._path.write_bytes(migrated_database())
        with closing(sqlite3.connect(self._path)) as database:
            database.executescript(FACTS)
            other = folder / "other.db"
            database.execute(f"VACUUM INTO '{other}'")
        self._query = FactsQuery(FactsFile(f"sqlite:///{self._path}"))
        self._before = self._digest()

    def close(self) -> None:
        self._runner.close()

    def is_safe(self, sql: str) -> None:
        sql = sql.replace("{folder}", str(self._folder))
        self._runner.run(self._ask(sql))
        assert self._digest() == self._before, "a file was written"

    def _digest(self) -> dict[str, str]:
        """Every file's content, but for those in which readers tell each other of themselves."""
        files = [file for file in sorted(self._folder.iterdir()) if not file.name.endswith("-shm") and file.stat().st_size > 0]
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    async def _ask(self, sql: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await self._query.run("c", sql)
        except ToolFailed as refusal:
            told = refusal.message
        else:
            told = _checked(found)
        assert CANARY not in told.lower() and CANARY.encode().hex() not in told.lower(), "a query showed what is hidden"
        # A refusal repeats the place of a mistake.
        assert str(self._folder) not in told or str(self._folder) in sql
        async with asyncio.timeout(DRAIN_SECONDS):
            while self._query._places._value < QUERIES_AT_ONCE:
                await asyncio.sleep(0.001)


def _checked(found: FactsTable) -> str:
    """The result as a text that can be sent; it has a size."""
    assert len(found.rows) <= MAX_ROWS and len(found.columns) <= SHAPES[-1][0]
    assert len(json.dumps(found.rows, ensure_ascii=False).encode()) <= MAX_BYTES + 10_000
    return json.dumps([found.columns, found.rows], ensure_ascii=False, allow_nan=False)


@contextmanager
def target() -> Iterator[dict[str, Check]]:
    with TemporaryDirectory() as folder:
        door = Door(Path(folder))
        try:
            yield {"statements": Check(QUERIES, door.is_safe)}
        finally:
            door.close()


if __name__ == "__main__":
    fuzzing.main(target, __doc__)
