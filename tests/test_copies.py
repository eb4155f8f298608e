"""`scripts/backup` and `scripts/restore` as a person runs them: what is copied, checked, kept and refused."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from backend.settings import PROJECT_FOLDER
from backend.store.migrate import migrate
from backend.store.sqlite_file import InstanceLock


def run(script: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(PROJECT_FOLDER / "scripts" / script), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def say(path: Path, *texts: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR IGNORE INTO chats (id, created_at, updated_at) VALUES ('a', '', '')")
        rows = [("a", "user", text, "") for text in texts]
        connection.executemany("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES (?, ?, ?, ?)", rows)


def said(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT content FROM chat_messages ORDER BY id")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cleanroom.db"
    migrate(path)
    say(path, "one", "two")
    return path


@pytest.fixture
def backup(path: Path) -> Path:
    target = path.with_name("copy.bak")
    result = run("backup", "copy.bak", "--database", path.name, folder=path.parent)
    assert result.returncode == 0, result.stderr
    return target


def test_a_backup_is_made_while_a_writer_has_the_database_open(path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('a', 'user', 'three', '')")
        writer.commit()
        writer.execute("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('a', 'user', 'not committed', '')")
        lock = InstanceLock(path)
        lock.acquire()
        result = run("backup", "--database", path, folder=path.parent)
        lock.release()
    assert result.returncode == 0, result.stderr
    (copy,) = path.parent.glob("*.bak")
    assert said(copy) == ["one", "two", "three"]
    assert str(copy) in result.stdout


def test_a_backup_never_takes_the_place_of_a_file(path: Path, backup: Path) -> None:
    result = run("backup", backup, "--database", path, folder=path.parent)
    assert result.returncode == 1
    assert "is there already" in result.stderr


def test_a_restore_brings_back_the_backup_and_keeps_what_was_there(path: Path, backup: Path) -> None:
    say(path, "later")
    result = run("restore", "copy.bak", "--yes", "--database", path.name, folder=path.parent)
    assert result.returncode == 0, result.stderr
    assert said(path) == ["one", "two"]
    (kept,) = path.parent.glob("cleanroom.db.*.bak")
    assert said(kept) == ["one", "two", "later"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_of_a_damaged_file_is_not_read_into_the_restored_one(path: Path, backup: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('a', 'user', 'in the log', '')")
        writer.commit()
        log = path.with_name("cleanroom.db-wal").read_bytes()
    # As a killed server and a broken disk leave it: a log beside a file that can't be opened.
    path.with_name("cleanroom.db-wal").write_bytes(log)
    path.write_bytes(b"garbage" * 1000)
    assert run("restore", backup, "--yes", "--database", path, folder=path.parent).returncode == 0
    assert said(path) == ["one", "two"]
    (kept,) = path.parent.glob("cleanroom.db.*.bak-wal")
    assert kept.read_bytes() == log


def test_a_damaged_database_can_be_replaced_and_is_kept(path: Path, backup: Path) -> None:
    path.write_bytes(b"garbage" * 1000)
    result = run("restore", backup, "--yes", "--database", path, folder=path.parent)
    assert result.returncode == 0, result.stderr
    assert said(path) == ["one", "two"]
    (kept,) = path.parent.glob("cleanroom.db.*.bak")
    assert kept.read_bytes().startswith(b"garbage")


def test_a_restore_to_a_new_place_makes_the_folder(path: Path, backup: Path) -> None:
    target = path.parent / "new" / "place.db"
    assert run("restore", backup, "--database", target, folder=path.parent).returncode == 0
    assert said(target) == ["one", "two"]


def cut_short(backup: Path) -> None:
    backup.write_bytes(backup.read_bytes()[: backup.stat().st_size // 2])


def of_another_program(backup: Path) -> None:
    backup.unlink()
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")


def of_a_newer_cleanroom(backup: Path) -> None:
    with closing(sqlite3.connect(backup)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cut_short, "damaged"),
        (of_another_program, "another program"),
        (of_a_newer_cleanroom, "newer Cleanroom"),
        (lambda backup: backup.write_bytes(b""), "is empty"),
        (lambda backup: backup.unlink(), "there is no backup"),
    ],
    ids=["cut short", "another program", "newer", "empty", "missing"],
)
def test_a_backup_that_can_not_be_trusted_changes_nothing(path: Path, backup: Path, spoil: object, words: str) -> None:
    assert callable(spoil)
    spoil(backup)
    before = path.read_bytes()
    result = run("restore", backup, "--yes", "--database", path, folder=path.parent)
    assert result.returncode == 1
    assert words in result.stderr
    assert path.read_bytes() == before
    assert list(path.parent.glob("cleanroom.db.*.bak")) == []


def test_nothing_is_restored_while_a_server_runs_or_without_a_yes(path: Path, backup: Path) -> None:
    before = path.read_bytes()
    lock = InstanceLock(path)
    lock.acquire()
    refused = run("restore", backup, "--yes", "--database", path, folder=path.parent)
    lock.release()
    assert refused.returncode == 1
    assert f"process {os.getpid()}" in refused.stderr
    unasked = run("restore", backup, "--database", path, folder=path.parent)
    assert unasked.returncode == 1
    assert "--yes" in unasked.stderr
    assert path.read_bytes() == before
