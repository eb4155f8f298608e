"""The script as a person runs it: what it says, refuses, deletes and keeps, and that no deleted text stays in the file."""

from __future__ import annotations

import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backend.store.migrate import migrate
from backend.store.sqlite_file import InstanceLock

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "clear_history.py"

FILLED = """
INSERT INTO chats (id, title, title_by, created_at, updated_at) VALUES ('a', 'canary title', 'auto', '', ''), ('b', 'Budget', 'person', '', '');
INSERT INTO chat_messages (session_id, role, content, card, created_at) VALUES
    ('a', 'user', 'canary question', NULL, ''), ('a', 'assistant', 'canary answer', 'canary card', ''), ('b', 'user', 'canary', NULL, '');
INSERT INTO session_states (session_id, state, updated_at) VALUES ('a', '{"canary": 1}', '');
INSERT INTO context_events (session_id, kind, reason, created_at) VALUES ('a', 'cleared', 'manual', '');
INSERT INTO system_prompts (session_id, version, content, status, created_at) VALUES ('a', 1, 'prompt text', 'applied', '');
INSERT INTO tasks (title, session_id, created_at, updated_at) VALUES ('task text', 'a', '', '');
INSERT INTO notes (title, content, created_at, updated_at) VALUES ('note text', '', '', '');
INSERT INTO snapshots (session_id, label, content, created_at) VALUES ('a', 'snapshot text', '', '');
CREATE TABLE users (name TEXT);
INSERT INTO users VALUES ('Ada');
"""

OLDER = """
CREATE TABLE chat_messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, created_at TEXT);
CREATE TABLE session_states (session_id TEXT PRIMARY KEY, state TEXT);
CREATE TABLE tasks (text TEXT);
INSERT INTO chat_messages VALUES (1, 'a', 'user', 'canary', NULL);
INSERT INTO session_states VALUES ('a', 'canary');
INSERT INTO tasks VALUES ('of another program');
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cleanroom.db"
    migrate(path)
    execute(path, FILLED)
    return path


def execute(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def counts(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
        tables = [name for name in names if not name.startswith(("message_index_", "message_terms"))]  # the index's inner ones
        return {name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables}


def run(*arguments: object, command: tuple[object, ...] = (sys.executable, SCRIPT), **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the script where there is no terminal."""
    words = [str(word) for word in (*command, *arguments)]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, **options)


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.bak"))


def test_the_history_goes_and_the_facts_stay(path: Path) -> None:
    result = run("--yes", "--database", path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "3  chat_messages" in result.stdout
    assert counts(path) == {
        "alembic_version": 1, "chats": 2, "chat_messages": 0, "session_states": 0, "paused_turns": 0, "context_events": 0, "system_prompts": 1,
        "tasks": 1, "notes": 1, "snapshots": 1, "deleted_facts": 0, "message_index": 0, "users": 1, "reply_variants": 0, "model_windows": 0,
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT title FROM chats ORDER BY id").fetchall() == [("",), ("Budget",)]


def test_with_all_everything_of_ours_goes(path: Path) -> None:
    assert run("--yes", "--all", "--database", path).returncode == 0
    assert {name for name, count in counts(path).items() if count} == {"alembic_version", "users"}


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_no_deleted_text_is_left_in_the_file(path: Path, mode: str) -> None:
    execute(path, f"PRAGMA journal_mode = {mode}; INSERT INTO users VALUES (replace(hex(zeroblob(5000)), '00', 'canary'));")
    execute(path, "PRAGMA secure_delete = OFF; DELETE FROM users WHERE length(name) > 100; PRAGMA wal_checkpoint(TRUNCATE);")
    assert path.read_bytes().count(b"canary") > 1000, "what an older program deleted is still in its file"
    result = run("--yes", "--no-backup", "--database", path)
    assert result.returncode == 0, result.stderr
    assert [file.name for file in path.parent.iterdir() if b"canary" in file.read_bytes()] == []


def test_the_backup_holds_it_all_and_is_named(path: Path) -> None:
    before = counts(path)
    result = run("--yes", "--database", path)
    [backup] = backups(path)
    assert counts(backup) == before
    assert f"Backup: {backup}\n" in result.stdout
    assert result.stdout.endswith(f"remove them when you need them no more:\n  {backup}\n")


def test_without_a_terminal_it_wants_yes(path: Path) -> None:
    before = path.read_bytes()
    result = run("--database", path)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "give --yes" in result.stderr
    assert path.read_bytes() == before
    assert backups(path) == []


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("\x04", 1)])
def test_at_a_terminal_it_asks(path: Path, answer: str, status: int) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, SCRIPT, "--database", path], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        os.write(ours, answer.encode())
        output, _ = child.communicate(timeout=30)
    finally:
        child.kill()
        os.close(ours)
        os.close(theirs)
    assert "Delete them? [y/N]" in output
    assert "Traceback" not in output
    assert (child.returncode, counts(path)["chat_messages"]) == (status, 0 if status == 0 else 3)


def test_it_refuses_while_a_server_has_the_database(path: Path) -> None:
    lock = InstanceLock(path)
    lock.acquire()
    try:
        refused = run("--yes", "--database", path)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert f"in use by a running Cleanroom (process {os.getpid()})" in refused.stderr
        assert counts(path)["chat_messages"] == 3
        assert run("--yes", "--force", "--database", path).returncode == 0
    finally:
        lock.release()
    assert counts(path)["chat_messages"] == 0


def test_a_reader_in_the_way_is_told_and_a_second_run_finishes(path: Path) -> None:
    execute(path, "PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM chats").fetchone()
        blocked = run("--yes", "--no-backup", "--database", path)
        assert blocked.returncode == 1
        assert "the rows are deleted, but" in blocked.stderr
    again = run("--yes", "--no-backup", "--database", path)
    assert again.returncode == 0, again.stderr
    assert [file.name for file in path.parent.iterdir() if b"canary" in file.read_bytes()] == []


@pytest.mark.parametrize("everything", [(), ("--all",)])
def test_an_older_programs_database_loses_its_history_alone(tmp_path: Path, everything: tuple[str, ...]) -> None:
    path = tmp_path / "older.db"
    execute(path, OLDER.replace("tasks", "users"))
    result = run("--yes", "--no-backup", *everything, "--database", path)
    assert result.returncode == 0, result.stderr
    assert counts(path) == {"chat_messages": 0, "session_states": 0, "users": 1}
    assert b"canary" not in path.read_bytes()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (OLDER, "has a table 'tasks' of its own"),
        ("CREATE TABLE songs (title TEXT)", "belongs to another program"),
    ],
)
def test_another_programs_database_is_refused(tmp_path: Path, script: str, reason: str) -> None:
    path = tmp_path / "other.db"
    execute(path, script)
    before = path.read_bytes()
    result = run("--yes", "--all", "--database", path)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert reason in result.stderr
    assert path.read_bytes() == before


def test_a_missing_database_is_not_made(tmp_path: Path) -> None:
    result = run("--yes", "--database", tmp_path / "none.db")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert list(tmp_path.iterdir()) == []


def test_it_takes_the_database_from_the_environment_and_runs_by_itself_from_anywhere(path: Path) -> None:
    result = run("--yes", command=(SCRIPT,), cwd=path.parent, env={"PATH": os.environ["PATH"], "CLEANROOM_DATABASE_URL": f"sqlite:///{path}"})
    assert result.returncode == 0, result.stderr
    assert counts(path)["chat_messages"] == 0


def test_a_bad_setting_is_one_line(tmp_path: Path) -> None:
    result = run("--yes", env={"CLEANROOM_DATABASE_URL": "mysql://x"})
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "CLEANROOM_DATABASE_URL can't be used" in result.stderr


def test_help_names_every_option() -> None:
    result = run("--help")
    assert result.returncode == 0
    for option in ("--all", "--yes", "--no-backup", "--force", "--database", "exit status"):
        assert option in result.stdout
