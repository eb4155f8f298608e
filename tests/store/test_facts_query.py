"""The read-only door for a model's SQL: rows Q01 to Q10 and Q12 of the acceptance checks, and what a query is for."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path

import pytest

from backend.errors import ToolFailed
from backend.store.connection import Connection
from backend.store.database import Database
from backend.store.engines import facts_query_at
from backend.store.facts_query import ANSWER_SECONDS, CELL_CHARACTERS, FUNCTIONS, MAX_BYTES, MAX_ROWS, SCHEMA, VIEWS, FactsFile, FactsQuery, FactsTable
from backend.store.units import Units
from tests.store.conftest import add_chat, add_message, run_child

pytestmark = pytest.mark.anyio

COUNTING = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {limit})"
DOUBLING = "WITH RECURSIVE n(i, x) AS (SELECT 0, 'a' UNION ALL SELECT i + 1, x || x FROM n LIMIT 21), long(x) AS (SELECT MAX(x) FROM n)"
# One function that SQLite can't interrupt, for some seconds.
ENDLESS = f"{DOUBLING} SELECT length(replace(x, substr(x, 1, 160000) || 'b', '')) FROM long"
# How much longer than the time limit an answer may take here.
GRACE_SECONDS = 2


@pytest.fixture
async def facts(database: Database, path: Path) -> FactsQuery:
    await database.write(add_facts)
    return FactsQuery(FactsFile(f"sqlite:///{path}"))


@pytest.fixture
async def either_facts(either: Units, database_url: str) -> FactsQuery:
    """The same on each engine."""
    await either.write(add_facts)
    return facts_query_at(database_url, either)


async def add_facts(tx: Connection) -> None:
    """The local user's facts, two chats, and another user's; texts that no query of the chat `c` may show hold CANARY."""
    await add_chat(tx, "d")
    for number in range(100):
        await tx.execute(f"INSERT INTO tasks (title, done, session_id, created_at, updated_at) VALUES ('task {number}', {number % 2}, 'c', '', '')")
    await tx.execute("INSERT INTO notes (title, content, created_at, updated_at) VALUES ('milk', 'from the shop', '', '')")
    await tx.execute("INSERT INTO tasks (title, owner, created_at, updated_at) VALUES ('CANARY of ann', 'ann', '', '')")
    await tx.execute("INSERT INTO notes (title, content, owner, created_at, updated_at) VALUES ('CANARY', 'of ann', 'ann', '', '')")
    for chat, content in (("c", "Be brief."), ("d", "CANARY other prompt")):
        await tx.execute(
            "INSERT INTO system_prompts (session_id, version, content, status, created_at) VALUES (:chat, 1, :content, 'applied', '')",
            {"chat": chat, "content": content},
        )
    await add_message(tx, "said in c")
    await add_message(tx, "CANARY other chat", "d")
    for column, value in (("is_ephemeral", 1), ("hidden", 1), ("status", "'streaming'")):
        hidden = await add_message(tx, f"CANARY {column}")
        await tx.execute(f"UPDATE chat_messages SET {column} = {value} WHERE id = {hidden}")


async def refused(facts: FactsQuery, sql: str) -> str:
    with pytest.raises(ToolFailed) as refusal:
        await facts.run("c", sql)
    assert "CANARY" not in refusal.value.message and "/" not in refusal.value.message.replace("and/or", "")
    return refusal.value.message


def digest(path: Path) -> str:
    files = [path, path.with_name(path.name + "-wal")]
    code = "import hashlib, sys; print(*(hashlib.sha256(open(name, 'rb').read()).hexdigest() for name in sys.argv[1:]))"
    return run_child(code, *files)[1]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.rglob("*"))


async def drained(facts: FactsQuery) -> None:
    """Wait until no query's thread is left."""
    async with asyncio.timeout(60):
        while facts._places._value < 2:
            await asyncio.sleep(0.02)


async def test_the_views_show_the_facts_and_this_chats_own(either_facts: FactsQuery) -> None:
    tasks = await either_facts.run("c", "SELECT * FROM tasks ORDER BY id LIMIT 2")
    assert tasks == FactsTable(["id", "title", "done", "created_at", "updated_at"], [[1, "task 0", 0, "", ""], [2, "task 1", 1, "", ""]], False)
    assert (await either_facts.run("c", "SELECT title, content FROM notes")).rows == [["milk", "from the shop"]]
    assert (await either_facts.run("c", "SELECT * FROM prompts")).rows == [[1, "applied", "Be brief.", ""]]
    assert (await either_facts.run("c", "SELECT role, content FROM messages")).rows == [["user", "said in c"]]
    assert (await either_facts.run("x' OR '1'='1", "SELECT * FROM messages")).rows == []


ORDINARY: list[tuple[str, list[list[object]]]] = [
    ("SELECT done, COUNT(*) FROM tasks GROUP BY done", [[0, 50], [1, 50]]),
    ("SELECT COUNT(*) FROM tasks, notes", [[100]]),
    ("WITH open AS (SELECT * FROM tasks WHERE NOT done) SELECT COUNT(*) FROM open -- a comment", [[50]]),
    ("select Title from TASKS where ID = 7;", [["task 6"]]),
    ("SELECT t.title FROM temp.tasks AS t JOIN notes n ON n.id = t.id WHERE EXISTS (SELECT 1 FROM messages)", [["task 0"]]),
    ("SELECT SUM(i) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10) SELECT i FROM n)", [[55]]),
    ("SELECT id, RANK() OVER (ORDER BY id DESC) FROM tasks WHERE id > 98 UNION SELECT 0, 0", [[0, 0], [99, 2], [100, 1]]),
    ("SELECT lower('Отчёт'), upper('ё'), lower(5), lower(NULL)", [["отчёт", "Ё", "5", None]]),
    ("SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]'), '[3]' -> 0, date('2024-02-28', '+2 days'), round(2.5)", [[2, "3", "2024-03-01", 3.0]]),
    ("VALUES (1, 'a')", [[1, "a"]]),
]


async def test_ordinary_queries_work(either_facts: FactsQuery) -> None:
    for sql, rows in ORDINARY:
        assert (await either_facts.run("c", sql)).rows == rows, sql


WRITING = [
    "INSERT INTO tasks (title) VALUES ('x')", "UPDATE tasks SET title = 'x'", "DELETE FROM tasks", "DELETE FROM main.tasks RETURNING *",
    "DROP TABLE tasks", "DROP VIEW tasks", "REPLACE INTO tasks (id) VALUES (1)", "WITH x AS (SELECT 1) INSERT INTO tasks (title) SELECT 'x' FROM x",
    "/* a */ -- b\nDELETE FROM tasks", "SELECT 1; DELETE FROM tasks", 'WITH "select" AS (SELECT 1) DELETE FROM tasks', "EXPLAIN DELETE FROM tasks",
    "CREATE TABLE x (a)", "CREATE TEMP TABLE x AS SELECT 1", "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE VIRTUAL TABLE temp.x USING fts5vocab(main, message_index, row)", "BEGIN", "BEGIN IMMEDIATE", "COMMIT", "SAVEPOINT a", "REINDEX", "ANALYZE",
    "", "  ", "-- nothing", "hello",
]  # fmt: skip
OPENING = [
    "ATTACH '{folder}/other.db' AS o", "ATTACH 'file:{folder}/new.db?mode=rwc' AS o", "ATTACH ':memory:' AS o", "DETACH main",
    "VACUUM", "VACUUM INTO '{folder}/copy.db'",
]  # fmt: skip
TELLING = [
    "PRAGMA query_only = OFF", "PRAGMA writable_schema = ON", "PRAGMA table_info(tasks)", "PRAGMA journal_mode = DELETE",
    "SELECT * FROM pragma_database_list", "SELECT file FROM pragma_database_list()", "SELECT COUNT(*) FROM pragma_table_info('tasks')",
]  # fmt: skip
CALLING = [
    "SELECT load_extension('x')", "SELECT readfile('/etc/passwd')", "SELECT writefile('{folder}/w', 'x')", "SELECT fts3_tokenizer('simple')",
    "SELECT sqlite_compileoption_get(1)", "SELECT sqlite_version()", "SELECT randomblob(1000000000)", "SELECT trim('a', 'b')",
]  # fmt: skip


@pytest.mark.parametrize("statements", [WRITING, OPENING, TELLING, CALLING], ids=["Q01", "Q02 and Q03", "Q04", "Q05"])
async def test_anything_but_a_select_is_refused_and_nothing_changes(facts: FactsQuery, path: Path, tmp_path: Path, statements: list[str]) -> None:
    """Q01 to Q05: no statement writes, opens or tells more; each refusal says what is possible."""
    before, files = digest(path), names(tmp_path)
    for sql in statements:
        assert SCHEMA in await refused(facts, sql.replace("{folder}", str(tmp_path))), sql
        assert names(tmp_path) == files, sql
    assert digest(path) == before


WAYS_IN = [
    "SELECT * FROM {table}", "SELECT COUNT(*) FROM {table}", "SELECT 1 FROM {table}", "SELECT content FROM {table} AS tasks",
    "SELECT m.id FROM messages m JOIN {table} x ON x.id = m.id", "SELECT (SELECT MAX(content) FROM {table})",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM {table})", "SELECT * FROM (SELECT content FROM {table}) AS messages", "SELECT 1 UNION SELECT content FROM {table}",
    # SQLite takes the name of a WITH clause for that of a view: one that is called like a view must not get in.
    "WITH messages AS (SELECT content FROM {table}) SELECT * FROM messages", "WITH messages AS (SELECT COUNT(*) AS n FROM {table}) SELECT n FROM messages",
    "WITH tasks(a) AS (SELECT content FROM {table} UNION ALL SELECT a FROM tasks) SELECT * FROM tasks",
    "WITH a AS (WITH messages AS (SELECT * FROM {table}) SELECT content FROM messages) SELECT * FROM a, messages",
]  # fmt: skip


@pytest.mark.parametrize("table", ["chat_messages", "CHAT_MESSAGES", '"chat_messages"', "[chat_messages]", "`Chat_Messages`", "main.chat_messages"])
async def test_a_hidden_table_is_hidden_in_every_form(facts: FactsQuery, table: str) -> None:
    """Q06."""
    for sql in WAYS_IN:
        assert "can't be used" in await refused(facts, sql.replace("{table}", table)), sql


async def test_every_other_table_is_hidden_too(either_facts: FactsQuery) -> None:
    """Q06: the schema, the index of messages with its shadow tables, SQLite's built-in tables."""
    hidden = """
        sqlite_master sqlite_schema sqlite_temp_master temp.sqlite_master main.sqlite_master sqlite_sequence chats session_states system_prompts
        deleted_facts alembic_version message_index message_index_data message_index_docsize message_terms dbstat sqlite_stmt json_each('[1]')
        json_tree('[1]') pragma_table_list
    """.split()
    for table in hidden:
        for sql in ("SELECT * FROM {table}", "SELECT COUNT(*) FROM {table}", "WITH tasks AS (SELECT * FROM {table}) SELECT * FROM tasks"):
            await refused(either_facts, sql.replace("{table}", table))


async def test_a_facts_table_itself_shows_no_column(either_facts: FactsQuery) -> None:
    """Q06: main.tasks has the view's name; columns that the view leaves out stay out."""
    for table in ("tasks", "notes"):
        for sql in ("SELECT * FROM main.{}", "SELECT COUNT(*) FROM main.{}", "SELECT 1 FROM MAIN.{}", "SELECT title FROM main.{}"):
            await refused(either_facts, sql.format(table))
        await refused(either_facts, f"SELECT session_id FROM {table}")
        await refused(either_facts, f"WITH messages AS (SELECT COUNT(*) AS n FROM main.{table}) SELECT n FROM messages")


@pytest.mark.parametrize(
    "sql",
    [
        f"{COUNTING.replace(' LIMIT {limit}', '')} SELECT COUNT(*) FROM n",
        "SELECT COUNT(*) FROM tasks a, tasks b, tasks c, tasks d",
        f"{COUNTING.format(limit=10_000_000)} SELECT i FROM n ORDER BY random()",
        ENDLESS,
    ],
    ids=["recursion", "join", "sort", "function"],
)
async def test_a_query_ends_at_its_time_limit_and_the_loop_goes_on(facts: FactsQuery, sql: str) -> None:
    """Q07 and Q08: also one long function, which nothing can interrupt, is answered for in time."""
    started, turns = time.monotonic(), 0
    query = asyncio.create_task(facts.run("c", sql))
    while not query.done():
        await asyncio.wait([query], timeout=0.005)
        turns += 1
    assert time.monotonic() - started < ANSWER_SECONDS + GRACE_SECONDS
    with pytest.raises(ToolFailed, match="time limit"):
        query.result()
    assert turns > 40, "other tasks had their turns meanwhile"
    await drained(facts)


async def test_threads_that_run_on_are_few(facts: FactsQuery) -> None:
    outcomes = await asyncio.gather(*(facts.run("c", ENDLESS) for _ in range(4)), return_exceptions=True)
    told = sorted(str(outcome) for outcome in outcomes)
    assert [text.split()[0] for text in told] == ["Earlier", "Earlier", "The", "The"]
    assert "still running" in await refused(facts, "SELECT 1")
    await drained(facts)
    assert (await facts.run("c", "SELECT 1")).rows == [[1]]


async def test_a_caller_that_is_cancelled_ends_its_query(facts: FactsQuery) -> None:
    query = asyncio.create_task(facts.run("c", "SELECT COUNT(*) FROM tasks a, tasks b, tasks c, tasks d"))
    await asyncio.sleep(0)  # it has begun
    started = time.monotonic()
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    await drained(facts)
    assert time.monotonic() - started < ANSWER_SECONDS + GRACE_SECONDS


MEMORY = """
import asyncio, resource, sys, time
from backend.errors import ToolFailed
from backend.store.facts_query import FactsFile, FactsQuery

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main():
    facts = FactsQuery(FactsFile("sqlite:///" + sys.argv[1]))
    await facts.run("c", "SELECT 1")
    before = peak()
    for sql in sys.argv[2:]:
        started = time.monotonic()
        try:
            told = len((await facts.run("c", sql)).rows)
        except ToolFailed as error:
            told = error.message
        print(f"{time.monotonic() - started:.2f}", peak() - before, told, sep="\\t")

asyncio.run(main())
"""


async def test_a_query_has_little_memory(facts: FactsQuery, database: Database, path: Path) -> None:
    """Q08, in a process of its own: a peak that was reached before hides none."""
    await database.write(lambda tx: add_message(tx, "я" * 520_000))
    statements = [
        "SELECT printf('%.*c', 900000000, 'x')",
        "SELECT hex(zeroblob(400000000))",
        "SELECT hex(hex(hex(content))) FROM messages",
        "SELECT group_concat(m.content || t.title) FROM messages m, tasks t, tasks u",
        "SELECT json_group_array(m.content) FROM messages m, tasks t",
        "WITH RECURSIVE n(x) AS (SELECT 'ab' UNION ALL SELECT replace(x, 'a', 'aaaaaaaaaaaaaaaaaaaa') FROM n) SELECT max(x) FROM n",
        "WITH RECURSIVE n(x) AS (SELECT 'ab' UNION ALL SELECT x || x FROM n) SELECT max(x) FROM n",
        f"SELECT {', '.join(['content'] * 16)} FROM messages",
        f"SELECT {', '.join(['content'] * 900)} FROM messages",
        f"SELECT {' + '.join(['length(hex(content))'] * 39)} FROM messages",
        f"SELECT {' + '.join(['length(group_concat(content))'] * 200)} FROM messages",
        f"SELECT '{'x' * 100_000}'",
        "SELECT a.content FROM messages a, messages b, tasks c, tasks d ORDER BY random()",
    ]
    status, output = await asyncio.to_thread(run_child, MEMORY, path, *statements)
    assert status == 0, output
    lines = [line.split("\t") for line in output.splitlines()]
    assert len(lines) == len(statements)
    assert max(float(seconds) for seconds, _, _ in lines) < ANSWER_SECONDS + GRACE_SECONDS, output
    assert int(lines[-1][1]) < 50, output


async def test_a_literal_of_ten_megabytes_is_refused_at_once(facts: FactsQuery) -> None:
    assert "too large" in await refused(facts, f"SELECT '{'x' * 10_000_000}'")


async def test_of_a_million_rows_a_thousand_come(facts: FactsQuery) -> None:
    """Q09."""
    found = await facts.run("c", f"{COUNTING.format(limit=1_000_000)} SELECT i FROM n")
    assert (len(found.rows), found.is_truncated) == (MAX_ROWS, True)
    exactly = await facts.run("c", f"{COUNTING.format(limit=MAX_ROWS)} SELECT i FROM n")
    assert (len(exactly.rows), exactly.is_truncated) == (MAX_ROWS, False)


async def test_a_result_has_a_size(facts: FactsQuery, database: Database) -> None:
    """Q09: rows end where the bytes end, and a long value is cut; both are said."""
    await database.write(lambda tx: add_message(tx, "я" * 500_000))
    found = await facts.run("c", "SELECT content FROM messages ORDER BY length(content) DESC LIMIT 1")
    assert found.rows == [["я" * CELL_CHARACTERS + " … (500000 characters)"]] and found.is_truncated
    found = await facts.run("c", "SELECT substr(m.content, 1, 9000) FROM messages m, tasks WHERE length(m.content) > 9000")
    assert 0 < len(found.rows) < 20 and found.is_truncated
    assert len(json.dumps(found.rows, ensure_ascii=False).encode()) <= MAX_BYTES + 1000
    short = await facts.run("c", "SELECT substr(content, 1, 9000) FROM messages ORDER BY id")
    assert not short.is_truncated


async def test_two_thousand_columns_and_no_more(facts: FactsQuery) -> None:
    """Q09."""
    found = await facts.run("c", "SELECT " + ",".join("1" * 2000))
    assert [len(found.columns), len(found.rows[0])] == [2000, 2000]
    assert "too many columns" in await refused(facts, "SELECT " + ",".join("1" * 2001))


async def test_every_value_is_valid_json(either_facts: FactsQuery) -> None:
    """Q09: what JSON or a browser can't hold is told in words."""
    found = await either_facts.run(
        "c", "SELECT x'00ff', NULL, 1e999, -1e999, 1e999 - 1e999, 9007199254740991, 9007199254740993, CAST(x'eda080' AS TEXT), 'a' || char(0) || 'b', 1.5"
    )
    assert json.loads(json.dumps(found.rows, allow_nan=False)) == [
        ["(binary, 2 bytes)", None, "Infinity", "-Infinity", None, 9007199254740991, "9007199254740993", "\ufffd\ufffd\ufffd", "a\0b", 1.5]
    ]
    long_name = await either_facts.run("c", f"SELECT 1 AS {'x' * 500}")
    assert len(long_name.columns[0]) < 100


async def test_a_long_read_blocks_no_writer_and_leaves_the_log_short(facts: FactsQuery, database: Database, path: Path) -> None:
    """Q10."""
    query = asyncio.create_task(facts.run("c", "SELECT COUNT(*) FROM messages a, tasks b, tasks c, tasks d, tasks e"))
    slowest = writes = 0.0
    while not query.done():
        started = time.monotonic()
        await database.write(lambda tx: add_message(tx, "x" * 1000))
        slowest = max(slowest, time.monotonic() - started)
        writes += 1
    with pytest.raises(ToolFailed, match="time limit"):
        query.result()
    assert slowest < 1 and writes > 10
    await drained(facts)
    assert await database.scrub()
    assert path.with_name(path.name + "-wal").stat().st_size == 0


async def test_no_query_shows_what_is_not_this_chats_and_permanent(either_facts: FactsQuery) -> None:
    """Q12, and a chat's view of another's prompts."""
    shown = [await either_facts.run("c", f"SELECT * FROM {view}") for view in VIEWS]
    assert "CANARY" not in str(shown)
    assert (await either_facts.run("c", "SELECT COUNT(*) FROM messages")).rows == [[1]]
    assert "CANARY other chat" in str(await either_facts.run("d", "SELECT content FROM messages"))


MISTAKES = [
    ("SELECT colour FROM tasks", "no such column: colour"),
    ("SELECT * FROM nowhere", "no such table: nowhere"),
    ("SELEC 1", 'near "SELEC": syntax error'),
    ("SELECT ?", "too many SQL variables"),
    ("SELECT 'a\0'", "null character"),
    ("SELECT 1; SELECT 2", "one statement"),
    ("SELECT printf('x')", "The function printf can't be used"),
    (f"SELECT {' + '.join(['abs(1)'] * 50)}", "More than 40 function calls can't be used"),
]


async def test_a_mistake_is_told_so_that_it_can_be_mended(either_facts: FactsQuery) -> None:
    for sql, told in MISTAKES:
        message = await refused(either_facts, sql)
        assert told in message and SCHEMA in message and len(message) < 500, sql


def test_functions_that_grow_or_look_outside_are_not_among_the_allowed() -> None:
    risky = "printf format zeroblob randomblob load_extension fts3_tokenizer readfile writefile edit eval sqlite_version sqlite_source_id trim likelihood"
    assert not FUNCTIONS & set(risky.split())


def test_the_digest_sees_a_change(path: Path) -> None:
    """The check above would be worth nothing if it didn't."""
    path.write_bytes(b"a")
    path.with_name(path.name + "-wal").write_bytes(b"")
    before = digest(path)
    path.write_bytes(b"b")
    assert digest(path) != before and hashlib.sha256(b"b").hexdigest() in digest(path)
