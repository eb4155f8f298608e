"""`scripts/move_database` as a person runs it: there and back, stopped and gone on with, refused, and compared."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backend import moving
from backend.errors import StoreError
from backend.store import moving as steps
from backend.store import schema, sqlite_end
from backend.store.engines import database_at
from backend.store.postgres import end as postgres_end
from backend.store.sqlite_file import InstanceLock
from tests.engines import column
from tests.fake_ollama import FakeOllama
from tests.server import Client, make_settings, migrated_database, running

pytestmark = pytest.mark.anyio

MOMENT = "2026-01-02T03:04:05.000000Z"
Rows = dict[str, list[tuple[object, ...]]]

FILLED = f"""
INSERT INTO model_windows VALUES ('qwen3:8b', 8192), ('Ёлка', 4096);
INSERT INTO chats (id, title, model, ttl_messages, client_id, owner, parameters, created_at, updated_at) VALUES
    ('b', 'Планы 👩‍👩‍👧', NULL, 3, 'x', '', '{{"temperature": 0.5}}', '{MOMENT}', '{MOMENT}'),
    ('B', '', 'qwen3:8b', NULL, 'x', 'ann', '{{}}', '{MOMENT}', '{MOMENT}'),
    ('я', 'last', NULL, NULL, NULL, '', '{{}}', '{MOMENT}', '{MOMENT}');
INSERT INTO chat_messages (id, session_id, role, content, is_ephemeral, card, thinking, created_at) VALUES
    (3, 'b', 'user', 'Где ёжик живёт? \\N "quoted"', 0, NULL, NULL, '{MOMENT}'),
    (9, 'b', 'assistant', 'В лесу 🦔' || char(10) || char(9) || 'там', 0, '{{"kind": "note", "body": "ж"}}', 'hm', '{MOMENT}'),
    (10, 'B', 'assistant', replace(hex(zeroblob(300000)), '00', 'слово '), 1, '', NULL, '{MOMENT}'),
    (40, 'B', 'user', 'deleted', 0, NULL, NULL, '{MOMENT}');
DELETE FROM chat_messages WHERE id = 40;
INSERT INTO reply_variants (session_id, user_message_id, position, content, status, created_at) VALUES ('b', 3, 1, 'В норе', 'complete', '{MOMENT}');
INSERT INTO session_states (session_id, active_tool, state, updated_at) VALUES ('b', 'notes', '{{"note": 1}}', '{MOMENT}');
INSERT INTO paused_turns (session_id, turn_id, call_id, state) VALUES ('b', 't', 'c', '{{}}');
INSERT INTO context_events (session_id, kind, reason, created_at) VALUES ('b', 'cleared', 'expired', '{MOMENT}');
INSERT INTO snapshots (session_id, label, content, created_at) VALUES ('b', 'one', '[]', '{MOMENT}');
INSERT INTO system_prompts (session_id, version, content, status, created_at) VALUES ('b', 1, 'Be kind', 'applied', '{MOMENT}');
INSERT INTO tasks (title, session_id, updated_at, created_at) VALUES ('buy', NULL, '{MOMENT}', '{MOMENT}');
INSERT INTO notes (title, content, session_id, updated_at, created_at) VALUES ('n', '', 'b', '{MOMENT}', '{MOMENT}');
INSERT INTO deleted_facts (kind, fact_id, content, deleted_at) VALUES ('task', 7, '{{}}', '{MOMENT}');
"""
NEXT_MESSAGE = f"INSERT INTO chat_messages (session_id, role, content, created_at) VALUES ('b', 'user', 'next', '{MOMENT}') RETURNING id"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    path.write_bytes(migrated_database())
    run_in(path, FILLED)
    return path


def run_in(path: Path, statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA foreign_keys = ON; {statements}")


def rows_of(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        return {table: list(connection.execute(f"SELECT * FROM {table} ORDER BY 1")) for table in schema.TABLES}


def next_id(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(NEXT_MESSAGE).fetchone()[0])


async def ask(url: str, statement: str) -> object:
    found = await column(url, statement)
    return found[0] if found else None


async def move(source: str | Path, target: str | Path) -> None:
    await moving.move(*(f"sqlite:///{end}" if isinstance(end, Path) else end for end in (source, target)))


async def test_every_row_goes_there_and_back(source: Path, postgres_url: str, tmp_path: Path) -> None:
    before = rows_of(source)
    assert [table for table, rows in before.items() if not rows] == []
    await move(source, postgres_url)
    await move(postgres_url, tmp_path / "new" / "back.db")
    assert rows_of(source) == before
    assert rows_of(tmp_path / "new" / "back.db") == before


async def test_the_id_of_a_deleted_row_is_not_given_again(source: Path, postgres_url: str, tmp_path: Path) -> None:
    await move(source, postgres_url)
    await move(postgres_url, tmp_path / "back.db")
    assert await ask(postgres_url, NEXT_MESSAGE) == 41
    assert next_id(tmp_path / "back.db") == 41


@pytest.mark.parametrize("kind", ["PostgreSQL", "SQLite"])
async def test_a_server_answers_and_finds_on_the_target(kind: str, source: Path, postgres_url: str, tmp_path: Path, fake: FakeOllama) -> None:
    run_in(source, "DELETE FROM paused_turns")  # the server would take up its turn
    target = postgres_url if kind == "PostgreSQL" else f"sqlite:///{tmp_path / 'target.db'}"
    await move(source, target)
    async with running(make_settings(tmp_path, fake, database_url=target)) as address, Client.connect(address) as client:
        found = await client.ok("chat.search", query="ежик")
        assert [hit["chat_id"] for hit in found["hits"]] == ["b"]
        await client.ok("chat.open", chat_id="b")
        assert (await client.say("b", "And now?"))["status"] == "complete"


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", ["PostgreSQL", "SQLite"])
async def test_a_move_that_was_killed_goes_on(kind: str, source: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = postgres_url if kind == "PostgreSQL" else tmp_path / "target.db"
    monkeypatch.setattr(steps, "BATCH_ROWS", 1)

    def stop(table: str, rows: int) -> None:
        if table == "chat_messages" and rows:
            raise Killed

    async def copy_a_part(source: steps.End, target: steps.Target, progress: steps.Progress) -> None:
        await copy(source, target, stop)

    copy = steps.copy
    monkeypatch.setattr(steps, "copy", copy_a_part)
    with pytest.raises(Killed):
        await move(source, target)
    database = database_at(target if isinstance(target, str) else f"sqlite:///{target}")
    with pytest.raises(StoreError, match="only a part of a move"):
        await database.connect()
    with pytest.raises(StoreError, match="only a part of a move"):
        await move(target, tmp_path / "other.db")
    monkeypatch.setattr(steps, "copy", copy)
    await move(source, target)
    await move(target, tmp_path / "back.db")
    assert rows_of(tmp_path / "back.db") == rows_of(source)


async def test_a_move_from_another_source_does_not_go_on(source: Path, tmp_path: Path) -> None:
    async with sqlite_end.open_source(source) as begun, sqlite_end.open_target(tmp_path / "target.db") as target:
        await steps.begin(begun, target)
    run_in(source, "DELETE FROM notes")
    with pytest.raises(StoreError, match="a part of another move"):
        await move(source, tmp_path / "target.db")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chat_messages SET content = content || ' ' WHERE id = 9",
        "UPDATE chat_messages SET card = NULL WHERE id = 9",
        "DELETE FROM chat_messages WHERE id = 9",
        f"INSERT INTO chat_messages (id, session_id, role, content, created_at) VALUES (9, 'b', 'user', '', '{MOMENT}')",
    ],
    ids=["text", "NULL", "missing", "one too many"],
)
@pytest.mark.parametrize("kind", ["PostgreSQL", "SQLite"])
async def test_a_row_that_differs_is_named(kind: str, change: str, source: Path, postgres_url: str, tmp_path: Path) -> None:
    if change.startswith("INSERT"):
        run_in(source, "DELETE FROM chat_messages WHERE id = 9")
    target = tmp_path / "target.db"
    opened = postgres_end.open_target(postgres_url) if kind == "PostgreSQL" else sqlite_end.open_target(target)
    async with sqlite_end.open_source(source) as begun, opened as end:
        await steps.begin(begun, end)
        await steps.copy(begun, end, lambda table, rows: None)
        await ask(postgres_url, change) if kind == "PostgreSQL" else run_in(target, change)
        with pytest.raises(StoreError, match="differs from the source in chat_messages, id 9;"):
            await steps.compare(begun, end, lambda table, rows: None)


async def test_text_that_postgres_can_not_store_is_replaced_and_counted(
    source: Path, postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in(source, "UPDATE chat_messages SET content = 'a' || char(0) || CAST(x'EDA080' AS TEXT) WHERE id = 9")
    await move(source, postgres_url)
    assert await ask(postgres_url, "SELECT content FROM chat_messages WHERE id = 9") == "a" + 4 * "\ufffd"
    assert "1 texts had characters" in capsys.readouterr().out


async def test_a_row_that_the_target_refuses_is_named(source: Path, postgres_url: str) -> None:
    run_in(source, "UPDATE chat_messages SET content = CAST('text' AS BLOB) WHERE id = 9")
    with pytest.raises(StoreError, match="refuses a row of chat_messages, id 3 to 10"):
        await move(source, postgres_url)


async def test_a_target_with_rows_stays_as_it_is(source: Path, postgres_url: str) -> None:
    await ask(postgres_url, "INSERT INTO model_windows VALUES ('own', 1)")
    with pytest.raises(StoreError, match="not empty, it has rows in model_windows"):
        await move(source, postgres_url)
    assert await ask(postgres_url, "SELECT COUNT(*) FROM chats") == 0
    with pytest.raises(StoreError, match="not empty"):
        await move(postgres_url, source)


async def test_what_a_server_holds_is_not_moved(source: Path, postgres_url: str, tmp_path: Path) -> None:
    lock = InstanceLock(source)
    lock.acquire()
    with pytest.raises(StoreError, match="in use by a running Cleanroom"):
        await move(source, postgres_url)
    lock.release()
    database = database_at(postgres_url)
    await database.connect()
    try:
        for ends in ((source, postgres_url), (postgres_url, tmp_path / "back.db")):
            with pytest.raises(StoreError, match="in use by a running Cleanroom"):
                await move(*ends)
    finally:
        await database.disconnect()


async def test_other_programs_and_older_schemas_are_refused(source: Path, postgres_url: str, tmp_path: Path) -> None:
    run_in(tmp_path / "songs.db", "CREATE TABLE songs (name TEXT)")
    run_in(tmp_path / "older.db", "CREATE TABLE chat_messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT)")
    for path, words in (("songs.db", "another program"), ("older.db", "start Cleanroom on it once"), ("missing.db", "no database")):
        with pytest.raises(StoreError, match=words):
            await move(tmp_path / path, postgres_url)
    for path, words in (("songs.db", "another program"), ("older.db", "older database")):
        with pytest.raises(StoreError, match=words):
            await move(source, tmp_path / path)
    await ask(postgres_url, "COMMENT ON TABLE chats IS NULL")
    with pytest.raises(StoreError, match="another program"):
        await move(source, postgres_url)


@pytest.mark.parametrize(
    ("source_url", "target_url", "words"),
    [
        ("mysql://me:secret@host/x", "sqlite:////tmp/x.db", "a database must be sqlite:///"),
        ("postgresql://me:secret@[host/x", "sqlite:////tmp/x.db", "a database must be sqlite:///"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/../tmp/x.db", "the same database"),
        ("postgresql://me:secret@host/x", "postgresql://host:5432/x", "the same database"),
        ("postgresql://me:secret@127.0.0.1:9/x", "sqlite:////tmp/x.db", "can't be reached"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(source_url: str, target_url: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert moving.main([source_url, target_url]) == 1
    shown = capsys.readouterr()
    assert words in shown.err
    assert "secret" not in shown.out + shown.err


def test_the_target_is_that_of_the_settings(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CLEANROOM_DATABASE_URL", f"sqlite:///{tmp_path / 'target.db'}")
    assert moving.main([f"sqlite:///{source}"]) == 0
    shown = capsys.readouterr()
    assert "17 rows, all compared" in shown.out
    assert shown.err == ""
    assert rows_of(tmp_path / "target.db") == rows_of(source)
