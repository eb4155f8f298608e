"""From an older program's database to ours with every row, and from anything else to a refusal that changes nothing."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from backend.errors import StoreError
from backend.store import schema
from backend.store.migrate import migrate
from migrations.older_rows import TITLE_LENGTH, role_of, state_of, time_of, title_of
from tests.store.conftest import run_child

OLDER = """
CREATE TABLE chat_messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, created_at DATETIME DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE session_states (session_id TEXT PRIMARY KEY, state TEXT);
"""

MIGRATE = """
import sys
from pathlib import Path
from backend.errors import StoreError
from backend.store.migrate import migrate
{before}
try:
    migrate(Path(sys.argv[1]))
except StoreError as error:
    print(error.message)
    sys.exit(3)
"""


def make(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def rows(path: Path, sql: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql)]


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refused(path: Path) -> str:
    """Migrate, be refused and see that nothing changed; the message."""
    before, names = digest(path), sorted(file.name for file in path.parent.iterdir())
    with pytest.raises(StoreError) as refusal:
        migrate(path)
    assert digest(path) == before
    assert sorted(file.name for file in path.parent.iterdir() if not file.name.endswith(".bak")) == names
    assert "\n" not in refusal.value.message
    return refusal.value.message


def test_the_newest_version_is_alembics_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [schema.newest_version()]
    assert [script.revision for script in scripts.walk_revisions()][::-1] == schema.known_versions()


def test_a_new_database_has_the_tables_and_our_mark(path: Path) -> None:
    assert schema.version_of(path) == schema.EMPTY
    migrate(path)
    assert schema.version_of(path) == schema.newest_version()
    found = {row["name"]: row["type"] for row in rows(path, "SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")}
    made = {name for name, kind in found.items() if kind in ("table", "index", "trigger")}
    assert made == {*schema.TABLES, *schema.OTHER_NAMES, "alembic_version"} - {"older_messages", "older_states", "_alembic_tmp_chats"}
    assert rows(path, "PRAGMA application_id") == [{"application_id": schema.APPLICATION_ID}]
    assert [file.name for file in path.parent.iterdir()] == [path.name], "there was nothing to back up"


def test_a_file_of_no_bytes_is_a_new_database(path: Path) -> None:
    path.touch()
    migrate(path)
    assert schema.version_of(path) == schema.newest_version()


def test_the_second_migration_is_the_statement_of_the_plan() -> None:
    text = (schema.MIGRATIONS / "versions" / "0002_is_ephemeral.py").read_text()
    assert '"ALTER TABLE chat_messages ADD COLUMN is_ephemeral INTEGER DEFAULT 0"' in text


def test_an_older_database_is_taken_over_with_every_row(path: Path) -> None:
    make(
        path,
        OLDER
        + """
        INSERT INTO chat_messages (id, session_id, role, content, created_at) VALUES
            (3, 'a', 'user', 'What is the capital of France?', '2024-01-02 03:04:05'),
            (7, 'a', 'assistant', 'Paris.', '2024-01-02 03:04:09'),
            (8, 'b', 'human', 'Привет', 1700000000),
            (9, 'b', 'AI', 'Hello', NULL),
            (12, NULL, 'user', 'no session', '2024-05-06T07:08:09+02:00'),
            (13, 'a', 'system', 'be brief', 1700000000123),
            (14, 'a', 'tool', '{"ok": true}', 'yesterday'),
            (15, 17, NULL, NULL, NULL),
            (16, '', 'user', x'ff6869', 1700000000.5),
            (17, 'a', 'user', 'nul' || char(0) || 'l', '2024-01-03 00:00:00');
        INSERT INTO session_states VALUES ('a', '{"tool": "editor", "n": [1]}'), ('only state', 'plain text'), (NULL, '[1, 2]'), ('b', NULL);
        CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
        INSERT INTO users VALUES (1, 'Ada'), (5, 'Grace');
        """,
    )
    users = rows(path, "SELECT * FROM users")
    migrate(path)

    messages = rows(path, "SELECT id, session_id, role, content, is_ephemeral, hidden, status, created_at FROM chat_messages ORDER BY id")
    assert [tuple(row.values()) for row in messages] == [
        (3, "a", "user", "What is the capital of France?", 0, 0, "complete", "2024-01-02T03:04:05.000000Z"),
        (7, "a", "assistant", "Paris.", 0, 0, "complete", "2024-01-02T03:04:09.000000Z"),
        (8, "b", "user", "Привет", 0, 0, "complete", "2023-11-14T22:13:20.000000Z"),
        (9, "b", "assistant", "Hello", 0, 0, "complete", "2023-11-14T22:13:20.000000Z"),
        (12, "older-1", "user", "no session", 0, 0, "complete", "2024-05-06T05:08:09.000000Z"),
        (13, "a", "assistant", "be brief", 0, 1, "complete", "2023-11-14T22:13:20.123000Z"),
        (14, "a", "assistant", '{"ok": true}', 0, 1, "complete", "2023-11-14T22:13:20.123000Z"),
        (15, "17", "assistant", "", 0, 1, "complete", messages[7]["created_at"]),
        (16, "older-1", "user", "\ufffdhi", 0, 0, "complete", "2023-11-14T22:13:20.500000Z"),
        (17, "a", "user", "nul\ufffdl", 0, 0, "complete", "2024-01-03T00:00:00.000000Z"),
    ]
    chats = {row["id"]: row for row in rows(path, "SELECT * FROM chats")}
    assert {chat_id: (row["title"], row["title_by"]) for chat_id, row in chats.items()} == {
        "a": ("What is the capital of France?", "auto"),
        "b": ("Привет", "auto"),
        "older-1": ("no session", "auto"),
        "17": ("", "auto"),
        "only state": ("", "auto"),
    }
    assert (chats["a"]["created_at"], chats["a"]["updated_at"]) == ("2024-01-02T03:04:05.000000Z", "2024-01-03T00:00:00.000000Z")
    states = {row["session_id"]: row for row in rows(path, "SELECT * FROM session_states")}
    assert {session_id: json.loads(row["state"]) for session_id, row in states.items()} == {
        "a": {"tool": "editor", "n": [1]},
        "only state": {"older": "plain text"},
        "older-1": {"older": "[1, 2]"},
        "b": {},
    }
    assert {row["active_tool"] for row in states.values()} == {None}
    assert rows(path, "SELECT * FROM users") == users
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert rows(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_the_backup_is_the_database_as_it_was(path: Path) -> None:
    make(path, OLDER + "INSERT INTO chat_messages VALUES (1, 'a', 'user', 'hello', NULL);")
    path.chmod(0o640)
    before = dump(path)
    migrate(path)
    backup = path.with_name(f"cleanroom.db.before-{schema.newest_version()}.bak")
    assert dump(backup) == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640
    assert {file.name for file in path.parent.iterdir()} == {path.name, backup.name}


def test_a_table_that_has_is_ephemeral_keeps_it(path: Path) -> None:
    make(
        path,
        OLDER
        + """
        ALTER TABLE chat_messages ADD COLUMN is_ephemeral INTEGER DEFAULT 0;
        INSERT INTO chat_messages VALUES (1, 'a', 'user', 'x', NULL, 0), (2, 'a', 'user', 'x', NULL, 1), (3, 'a', 'user', 'x', NULL, NULL);
        """,
    )
    migrate(path)
    assert [row["is_ephemeral"] for row in rows(path, "SELECT is_ephemeral FROM chat_messages ORDER BY id")] == [0, 1, 0]


def test_columns_that_we_do_not_know_are_carried_along(path: Path) -> None:
    make(
        path,
        """
        CREATE TABLE chat_messages (id INTEGER PRIMARY KEY, Session_ID, role, content, model TEXT NOT NULL, "my col" VECTOR(3), Card INT);
        CREATE TABLE session_states (session_id TEXT, state TEXT, owner TEXT);
        INSERT INTO chat_messages VALUES (1, 'a', 'user', 'hi', 'llama', x'0001', 7);
        INSERT INTO session_states VALUES ('a', '{}', 'ada');
        """,
    )
    migrate(path)
    row = rows(path, "SELECT * FROM chat_messages")[0]
    assert (row["older_model"], row["my col"], row["older_Card"]) == ("llama", b"\0\1", 7)
    assert (row["model"], row["card"]) == (None, None)
    assert rows(path, "SELECT owner FROM session_states") == [{"owner": "ada"}]
    make(path, "INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('a', 'user', 'new', '')")


def test_views_indexes_and_triggers_on_the_older_tables_survive(path: Path) -> None:
    make(
        path,
        OLDER
        + """
        INSERT INTO chat_messages VALUES (4, 'a', 'user', 'hello', '2024-01-02 03:04:05');
        CREATE TABLE attachments (message_id INTEGER REFERENCES chat_messages (id), name TEXT);
        INSERT INTO attachments VALUES (4, 'cat.png');
        CREATE TABLE log (content TEXT);
        CREATE INDEX by_date ON chat_messages (created_at);
        CREATE UNIQUE INDEX once ON chat_messages (session_id, created_at);
        CREATE VIEW named AS SELECT m.content, a.name FROM chat_messages m JOIN attachments a ON a.message_id = m.id;
        CREATE VIEW broken_before AS SELECT a FROM nowhere;
        CREATE TRIGGER logged AFTER INSERT ON chat_messages BEGIN INSERT INTO log VALUES (new.content); END;
        """,
    )
    migrate(path)
    assert rows(path, "SELECT * FROM named") == [{"content": "hello", "name": "cat.png"}]
    assert rows(path, "SELECT * FROM log") == [], "copying the rows is no new message"
    assert rows(path, "PRAGMA foreign_key_check") == []
    make(path, "INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('a', 'user', 'new', '')")
    assert rows(path, "SELECT * FROM log") == [{"content": "new"}]
    indexes = {row["name"] for row in rows(path, "PRAGMA index_list(chat_messages)")}
    assert "by_date" in indexes
    assert "once" not in indexes


@pytest.mark.parametrize("table", sorted(schema.OLDER_TABLES))
def test_one_of_the_two_tables_is_enough(path: Path, table: str) -> None:
    other = next(name for name in schema.OLDER_TABLES if name != table)
    make(path, OLDER + f"DROP TABLE {other};")
    migrate(path)
    assert schema.version_of(path) == schema.newest_version()


def test_an_older_database_in_wal_mode_with_rows_only_in_its_log(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.executescript(OLDER)
        writer.execute("INSERT INTO chat_messages VALUES (1, 'a', 'user', 'in the log', NULL)")
        status, output = run_child(MIGRATE.format(before=""), path)
    assert status == 0, output
    assert rows(path, "SELECT content FROM chat_messages") == [{"content": "in the log"}]


@pytest.mark.parametrize("version", schema.OLDER_VERSIONS)
def test_a_database_of_an_earlier_version_is_brought_on(path: Path, version: str) -> None:
    column = ", is_ephemeral INTEGER DEFAULT 0" if version == "0002" else ""
    make(
        path,
        f"""
        CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
        INSERT INTO alembic_version VALUES ('{version}');
        CREATE TABLE chat_messages (id INTEGER NOT NULL PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, created_at TEXT{column});
        CREATE TABLE session_states (session_id TEXT NOT NULL PRIMARY KEY, state TEXT);
        INSERT INTO chat_messages (session_id, role, content) VALUES ('a', 'user', 'hi');
        """,
    )
    assert schema.version_of(path) == version
    migrate(path)
    assert rows(path, "SELECT content, is_ephemeral FROM chat_messages") == [{"content": "hi", "is_ephemeral": 0}]


USED = """
INSERT INTO chats (id, title, title_by, pinned, model, ttl_messages, approval, families_off, client_id, created_at, updated_at)
  VALUES ('c', 'Бюджет', 'person', 1, 'm', 5, 'before', '["data"]', 'k', '2026-01-02', '2026-01-03'),
         ('d', '', 'auto', 0, NULL, NULL, 'after', '[]', NULL, '', '');
INSERT INTO chat_messages
  (id, session_id, role, content, is_ephemeral, hidden, status, turn_id, client_id, family, tool, card, thinking, model, metrics, created_at)
  VALUES (7, 'c', 'user', 'how are Ёлки', 0, 0, 'complete', 't', 'k', NULL, NULL, NULL, NULL, NULL, NULL, '1'),
         (8, 'c', 'tool', '', 1, 0, 'complete', 't', NULL, 'tasks', 'task_add', '{"kind": "notice"}', NULL, NULL, NULL, '2'),
         (9, 'c', 'assistant', 'green', 0, 1, 'interrupted', 't', NULL, NULL, NULL, NULL, 'hm', 'm', '{"num_ctx": 1}', '3'),
         (10, 'c', 'user', 'gone', 0, 0, 'complete', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '4');
DELETE FROM chat_messages WHERE id = 10;
INSERT INTO session_states (session_id, updated_at) VALUES ('c', '4');
INSERT INTO system_prompts (session_id, version, content, status, created_at) VALUES ('c', 1, 'Be brief.', 'applied', '5');
INSERT INTO tasks (title, session_id, created_at, updated_at) VALUES ('milk', 'c', '6', '7');
INSERT INTO notes (title, content, session_id, created_at, updated_at) VALUES ('Plan', 'text', 'c', '8', '9');
INSERT INTO snapshots (session_id, label, content, created_at) VALUES ('c', 'before', '{}', '10');
INSERT INTO context_events (session_id, kind, reason, created_at) VALUES ('c', 'cleared', 'manual', '11');
INSERT INTO deleted_facts (kind, fact_id, content, deleted_at) VALUES ('task', 2, '{"id": 2}', '12');
"""


@pytest.mark.parametrize("version", [version for version in schema.known_versions()[:-1] if version not in schema.OLDER_VERSIONS])
def test_a_used_database_of_our_own_earlier_version_keeps_every_row(path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S06."""
    upgrade = command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, version))
        migrate(path)
    make(path, USED)
    assert schema.version_of(path) == version
    tables = [row["name"] for row in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")]
    kept = [name for name in tables if not name.startswith(("message_index", "sqlite_", "alembic_version"))]
    before, whole = {name: rows(path, f"SELECT * FROM {name}") for name in kept}, dump(path)
    assert sum(map(len, before.values())) >= 10

    migrate(path)

    assert schema.version_of(path) == schema.newest_version()
    for name, were in before.items():
        are = rows(path, f"SELECT * FROM {name}")
        assert [{column: row[column] for column in old} for row, old in zip(are, were, strict=True)] == were, name
    assert rows(path, "SELECT rowid FROM message_index WHERE message_index MATCH 'елки'") == [{"rowid": 7}]
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert rows(path, "SELECT seq FROM sqlite_sequence WHERE name = 'chat_messages'") == [{"seq": 10}], "no id is given twice"
    assert dump(path.with_name(f"cleanroom.db.before-{schema.newest_version()}.bak")) == whole


def test_a_newer_database_is_refused_with_both_versions(path: Path) -> None:
    migrate(path)
    make(path, "UPDATE alembic_version SET version_num = '9999'")
    assert refused(path) == f"cleanroom.db has schema 9999, and this Cleanroom knows {schema.newest_version()} at most; start a newer Cleanroom."


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE songs (title TEXT);",
        "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('0003'); CREATE TABLE songs (title TEXT);",
        "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('ae1027a6acf'); CREATE TABLE songs (title TEXT);",
        "CREATE TABLE chat_messages (uuid TEXT, body TEXT);",
        OLDER.replace("state TEXT)", "value TEXT)"),
        "CREATE TABLE t (id, session_id, role, content); CREATE VIEW chat_messages AS SELECT * FROM t;",
        "PRAGMA journal_mode = WAL; CREATE TABLE songs (title TEXT);",
    ],
)
def test_another_programs_database_is_refused(path: Path, script: str) -> None:
    make(path, script)
    assert refused(path) == "cleanroom.db belongs to another program; set CLEANROOM_DATABASE_URL to another file."


@pytest.mark.parametrize("content", [b"not a database at all, but text", b"\0" * 4096, b"SQLite format 3\0" + b"\x07" * 4096])
def test_a_garbage_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "cleanroom.db is not a SQLite database" in refused(path) or content.startswith(b"SQLite")


def test_a_folder_in_the_files_place_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=r"^cleanroom.db can't be read: Is a directory"):
        schema.version_of(path)


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("CREATE TABLE Tasks (id INTEGER, text TEXT);", "table 'tasks'"),
        ("CREATE TABLE t (a); CREATE INDEX chat_messages_by_session ON t (a);", "index 'chat_messages_by_session'"),
        ("CREATE VIEW chats AS SELECT DISTINCT session_id FROM chat_messages;", "view 'chats'"),
    ],
)
def test_a_name_that_is_taken_is_refused(path: Path, script: str, named: str) -> None:
    make(path, OLDER + script)
    assert named in refused(path)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("CREATE TABLE chat_messages (id TEXT, session_id, role, content); INSERT INTO chat_messages VALUES ('x', 'a', 'user', '');", "no whole numbers"),
        ("CREATE TABLE chat_messages (id INT, session_id, role, content); INSERT INTO chat_messages VALUES (1,1,1,1), (1,1,1,1);", "used twice"),
        ("CREATE TABLE chat_messages (id INT, session_id, role, content); INSERT INTO chat_messages VALUES (NULL,1,1,1);", "empty"),
        (
            OLDER + "CREATE TABLE o (x); CREATE VIEW v AS SELECT 1 FROM chat_messages JOIN o WHERE content = hidden_in_o;"
            "ALTER TABLE o ADD COLUMN hidden_in_o; ALTER TABLE o ADD COLUMN hidden; CREATE VIEW w AS SELECT hidden FROM chat_messages JOIN o;",
            "view 'w' would break",
        ),
    ],
)
def test_what_can_not_be_taken_over_stays_as_it_was(path: Path, script: str, reason: str) -> None:
    make(path, script)
    assert reason in refused(path)


@pytest.mark.parametrize("at_call", [1, 3000, 5500])
def test_a_migration_that_is_killed_leaves_the_database_as_it_was(path: Path, at_call: int) -> None:
    make(path, OLDER + "CREATE TABLE users (name TEXT); INSERT INTO users VALUES ('Ada');")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO chat_messages VALUES (?, ?, 'user', ?, NULL)", ((n, f"s{n % 7}", "x" * 1500) for n in range(3000)))
    before = dump(path)
    kill = f"""
import os, signal
from itertools import count
from migrations import older_rows
calls, time_of = count(1), older_rows.time_of
def killing(value):
    if next(calls) == {at_call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return time_of(value)
older_rows.time_of = killing
"""
    status, output = run_child(MIGRATE.format(before=kill), path)
    assert status == -9, output
    if at_call == 5500:
        assert path.with_name("cleanroom.db-journal").stat().st_size > 0, "the kill must come when pages were written"
    assert dump(path) == before
    migrate(path)
    assert rows(path, "SELECT COUNT(*) AS n FROM chat_messages") == [{"n": 3000}]


def test_a_migration_that_fails_leaves_every_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, OLDER + "INSERT INTO chat_messages VALUES (1, 'a', 'user', 'hello', NULL);")
    monkeypatch.setattr("migrations.older_rows.state_of", None)
    before = digest(path)
    make(path.with_name("other.db"), OLDER + "INSERT INTO session_states VALUES ('a', 'x');")
    with pytest.raises(TypeError):
        migrate(path.with_name("other.db"))
    monkeypatch.setattr("migrations.older_rows.title_of", None)
    with pytest.raises(TypeError):
        migrate(path)
    assert digest(path) == before
    assert schema.version_of(path) == schema.OLDER_PROGRAM


def test_a_disk_that_is_full_during_the_migration_leaves_the_database_as_it_was(path: Path) -> None:
    make(path, OLDER)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO chat_messages VALUES (?, 'a', 'user', ?, NULL)", ((n, "x" * 1500) for n in range(3000)))
    before = dump(path)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({path.stat().st_size + 100_000},) * 2)"
    status, output = run_child(MIGRATE.format(before=limit), path)
    assert (status, output) == (3, "cleanroom.db can't be read or written; check the disk and the space left on it.\n")
    assert dump(path) == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("writable", ["folder", "nothing"])
def test_without_the_right_to_write_the_start_is_refused(open_folder: Path, writable: str) -> None:
    path = open_folder / "cleanroom.db"
    migrate(path)
    before = digest(path)
    path.chmod(0o444)
    open_folder.chmod(0o777 if writable == "folder" else 0o555)
    code = """
import asyncio, concurrent.futures.thread, os, sys
import databases.backends.sqlite
from backend.errors import StoreError
from backend.store.database import Database
if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
try:
    asyncio.run(Database("sqlite:///" + sys.argv[1]).connect())
except StoreError as error:
    print(error.message)
"""
    status, output = run_child(code, path)
    open_folder.chmod(0o755)
    assert status == 0, output
    expected = {
        "folder": "cleanroom.db can't be written; make the file and its folder writable for this user.\n",
        "nothing": "The folder of cleanroom.db can't be written: Permission denied. Make it writable for this user.\n",
    }
    assert output == expected[writable]
    assert digest(path) == before


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-01-02 03:04:05", "2024-01-02T03:04:05.000000Z"),
        ("2024-01-02T03:04:05.678Z", "2024-01-02T03:04:05.678000Z"),
        ("2024-01-02T03:04:05+03:00", "2024-01-02T00:04:05.000000Z"),
        (1700000000, "2023-11-14T22:13:20.000000Z"),
        ("1700000000", "2023-11-14T22:13:20.000000Z"),
        (1700000000123, "2023-11-14T22:13:20.123000Z"),
        (1700000000123456789, "2023-11-14T22:13:20.123457Z"),
        (0, "1970-01-01T00:00:00.000000Z"),
        (None, None),
        ("", None),
        ("yesterday", None),
        ("nan", None),
        ("inf", None),
        ("0001-01-01T00:00:00+14:00", None),
        (b"2024-01-02", "2024-01-02T00:00:00.000000Z"),
    ],
)
def test_times(value: Any, expected: str | None) -> None:
    assert time_of(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("user", ("user", 0)), ("Human ", ("user", 0)), ("assistant", ("assistant", 0)), ("model", ("assistant", 0)),
        ("system", ("assistant", 1)), ("tool", ("assistant", 1)), ("function", ("assistant", 1)), (None, ("assistant", 1)), (3, ("assistant", 1)),
    ],
)  # fmt: skip
def test_roles(value: Any, expected: tuple[str, int]) -> None:
    assert role_of(value) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("  Hello\n\tworld ", "Hello world"),
        ("x" * TITLE_LENGTH, "x" * TITLE_LENGTH),
        ("x" * 500, "x" * (TITLE_LENGTH - 1) + "…"),
        ("word " * 50, " ".join(["word"] * 12) + "…"),
        ("", ""),
    ],
)
def test_titles(content: str, expected: str) -> None:
    assert title_of(content) == expected
    assert len(expected) <= TITLE_LENGTH


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (['{"a": 1}'], {"a": 1}),
        ([None], {}),
        (["", None], {"older": ""}),
        (["[1]"], {"older": "[1]"}),
        (['{"a": NaN}'], {"older": '{"a": NaN}'}),
        (["[" * 5000], {"older": "[" * 5000}),
        (['{"a": 1}', "b"], {"older": ['{"a": 1}', "b"]}),
        ([5], {"older": "5"}),
    ],
)
def test_states(values: list[Any], expected: dict[str, Any]) -> None:
    assert json.loads(state_of(values)) == expected
