"""Units of work on real connections: isolation, order, cancellation, errors, and what is left in the file."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from backend.errors import StoreError
from backend.store import database as database_module
from backend.store.connection import Connection
from backend.store.database import READERS, Database
from tests.store.conftest import add_chat, add_message, files_with, run_child, start_child

pytestmark = pytest.mark.anyio

CONNECT = """
import asyncio, sys
from backend.errors import StoreError
from backend.store.database import Database

async def main():
    database = Database("sqlite:///" + sys.argv[1])
    try:
        await database.connect()
    except StoreError as error:
        print(error.message, flush=True)
        return 3
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await database.disconnect()
    return 0

sys.exit(asyncio.run(main()))
"""


async def contents(database: Database) -> list[str]:
    rows = await database.read(lambda tx: tx.fetch_all("SELECT content FROM chat_messages ORDER BY id"))
    return [row["content"] for row in rows]


async def eventually(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not holds():
            await asyncio.sleep(0.01)


@contextmanager
def held_by_another_program(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def settings_of(tx: Connection) -> dict[str, Any]:
    names = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous", "secure_delete", "query_only")
    return {name: await tx.fetch_value(f"PRAGMA {name}") for name in names}


async def test_every_connection_has_every_setting(database: Database) -> None:
    at_once = asyncio.Barrier(READERS)

    async def on_its_own_reader(tx: Connection) -> dict[str, Any]:
        await at_once.wait()
        return await settings_of(tx)

    wanted = {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 5000, "synchronous": 1, "secure_delete": 1, "query_only": 0}
    assert await database.write(settings_of) == wanted
    readers = await asyncio.gather(*(database.read(on_its_own_reader) for _ in range(READERS)))
    assert readers == [{**wanted, "query_only": 1}] * READERS
    await database.scrub()
    assert await database.write(settings_of) == wanted


async def test_statements_return_what_they_promise(database: Database) -> None:
    async def work(tx: Connection) -> None:
        first = await add_message(tx, "one")
        await add_message(tx, "two")
        assert await tx.execute("UPDATE chat_messages SET hidden = 1 WHERE session_id = :id", {"id": "c", "unused": 1}) == 2
        assert await tx.execute("DELETE FROM chat_messages WHERE id = -1") == 0
        assert await tx.fetch_one("SELECT content, hidden FROM chat_messages WHERE id = :id", {"id": first}) == {"content": "one", "hidden": 1}
        assert await tx.fetch_one("SELECT 1 FROM chat_messages WHERE id = -1") is None
        assert await tx.fetch_value("SELECT id FROM chat_messages WHERE id = -1") is None
        assert await tx.fetch_value("SELECT :text", {"text": '{"a": 1}'}) == '{"a": 1}'

    await database.write(work)


async def test_ten_transactions_at_once_half_raising_leave_the_good_rows(database: Database) -> None:
    async def read_then_write(tx: Connection, number: int) -> None:
        await tx.fetch_value("SELECT COUNT(*) FROM chat_messages")
        await add_message(tx, str(number))
        if number % 2:
            raise ValueError(number)

    await database.read(lambda tx: tx.fetch_value("SELECT 1"))
    results = await asyncio.gather(*(database.write(partial(read_then_write, number=n)) for n in range(10)), return_exceptions=True)

    assert [type(result) for result in results] == [type(None), ValueError] * 5
    assert await contents(database) == ["0", "2", "4", "6", "8"]


async def test_a_reader_sees_one_state_while_a_writer_goes_on(database: Database) -> None:
    async def count_twice(tx: Connection) -> tuple[int, int]:
        before = await tx.fetch_value("SELECT COUNT(*) FROM chat_messages")
        await database.write(lambda tx: add_message(tx, "meanwhile"))
        return before, await tx.fetch_value("SELECT COUNT(*) FROM chat_messages")

    async def write_while_read(tx: Connection) -> None:
        await add_message(tx, "not committed")
        assert await contents(database) == ["meanwhile"]

    assert await database.read(count_twice) == (0, 0)
    await database.write(write_while_read)
    assert await contents(database) == ["meanwhile", "not committed"]


async def test_a_reader_can_not_write(database: Database) -> None:
    with pytest.raises(StoreError):
        await database.read(lambda tx: add_message(tx, "no"))
    assert await contents(database) == []


async def test_then_is_called_in_the_order_of_the_commits_before_the_next_writer(database: Database) -> None:
    happened: list[str] = []

    async def work(tx: Connection, number: int) -> int:
        happened.append(f"begin {number}")
        return await add_message(tx, str(number))

    def published(message_id: int) -> None:
        with closing(sqlite3.connect(database.path)) as other:
            assert other.execute("SELECT COUNT(*) FROM chat_messages WHERE id = ?", (message_id,)).fetchone() == (1,)
        happened.append(f"then {message_id}")

    await asyncio.gather(*(database.write(partial(work, number=n), published) for n in range(1, 5)))
    assert happened == [event for n in range(1, 5) for event in (f"begin {n}", f"then {n}")]


async def test_a_rolled_back_write_publishes_nothing_and_a_failing_then_keeps_the_rows(database: Database) -> None:
    async def fail(tx: Connection) -> None:
        await add_message(tx, "gone")
        raise ValueError("work")

    def fail_later(_: int) -> None:
        raise ValueError("then")

    with pytest.raises(ValueError, match="work"):
        await database.write(fail, lambda _: pytest.fail("published"))
    with pytest.raises(ValueError, match="then"):
        await database.write(lambda tx: add_message(tx, "kept"), fail_later)
    assert await contents(database) == ["kept"]


async def test_a_cancelled_caller_leaves_a_row_whole_and_no_lock(database: Database) -> None:
    chance = random.Random(7)
    published: list[int] = []
    for number in range(50):

        async def two_rows(tx: Connection, number: int = number) -> int:
            await add_message(tx, f"{number} first")
            await add_message(tx, f"{number} second")
            return number

        task = asyncio.create_task(database.write(two_rows, published.append))
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    expected = [f"{number} {part}" for number in published for part in ("first", "second")]
    assert await contents(database) == expected
    assert len(published) > 20, "the cancellation must come inside of writes"
    await database.write(lambda tx: add_message(tx, "after"))


async def test_cancelling_waits_for_the_unit_and_publishes_it(database: Database) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()
    published: list[int] = []

    async def slow(tx: Connection) -> int:
        inside.set()
        await go_on.wait()
        return await add_message(tx, "late")

    task = asyncio.create_task(database.write(slow, published.append))
    await inside.wait()
    task.cancel()
    await asyncio.wait([task], timeout=0.05)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await contents(database) == ["late"]
    assert len(published) == 1


async def test_a_commit_that_fails_is_rolled_back(database: Database) -> None:
    async def orphan(tx: Connection) -> None:
        await tx.execute("PRAGMA defer_foreign_keys = ON")
        await add_message(tx, "orphan", "nowhere")

    with pytest.raises(sqlite3.IntegrityError):
        await database.write(orphan)
    await database.write(lambda tx: add_message(tx, "next"))
    assert await contents(database) == ["next"]


async def test_a_full_disk_is_said_and_the_next_write_works(database: Database) -> None:
    pages = await database.read(lambda tx: tx.fetch_value("PRAGMA page_count"))
    await database.write(lambda tx: tx.fetch_value(f"PRAGMA max_page_count = {pages + 2}"))
    with pytest.raises(StoreError, match="disk is full; free some space"):
        await database.write(lambda tx: add_message(tx, "x" * 100_000))
    await database.write(lambda tx: tx.fetch_value("PRAGMA max_page_count = 1000000"))
    await database.write(lambda tx: add_message(tx, "fits"))
    assert await contents(database) == ["fits"]


async def test_a_log_that_a_power_cut_spoiled_gives_the_commits_before_it(database: Database, tmp_path: Path) -> None:
    """S11: the newest commits may go, in their order; the database is whole, wherever the log ends or has a hole."""
    for number in range(20):
        await database.write(partial(add_message, content=f"{number} {'x' * 3000}"))
    names = ("cleanroom.db", "cleanroom.db-wal")
    base, log = ((tmp_path / name).read_bytes() for name in names)
    chance, kept = random.Random(11), set()
    for run in range(40):
        place = chance.randrange(len(log))
        spoiled = log[:place] if run % 2 else log[:place] + bytes(4096) + log[place + 4096 :]
        folder = tmp_path / str(run)
        folder.mkdir()
        for name, content in zip(names, (base, spoiled), strict=True):
            (folder / name).write_bytes(content)
        with closing(sqlite3.connect(folder / "cleanroom.db")) as left:
            assert left.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = [content.split()[0] for (content,) in left.execute("SELECT content FROM chat_messages ORDER BY id")]
        assert found == [str(number) for number in range(len(found))]
        kept.add(len(found))
    assert len(kept) > 5, "the cuts must come all over the log"


async def test_a_unit_holds_the_file_from_its_beginning(database: Database) -> None:
    async def read_then_write(tx: Connection) -> None:
        await tx.fetch_value("SELECT COUNT(*) FROM chat_messages")
        with closing(sqlite3.connect(database.path, timeout=0, isolation_level=None)) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("DELETE FROM chats")
        await add_message(tx, "still valid")

    await database.write(read_then_write)
    assert await contents(database) == ["still valid"]


async def test_a_lock_that_goes_away_is_waited_for(database: Database) -> None:
    with held_by_another_program(database.path) as other:
        threading.Timer(0.3, other.execute, ["ROLLBACK"]).start()
        await database.write(lambda tx: add_message(tx, "waited"))
    assert await contents(database) == ["waited"]


async def test_a_lock_that_stays_is_said(database: Database) -> None:
    await database.write(lambda tx: tx.fetch_value("PRAGMA busy_timeout = 50"))
    with held_by_another_program(database.path), pytest.raises(StoreError, match="locked by another program; close"):
        await database.write(lambda tx: add_message(tx, "refused"))
    await database.write(lambda tx: add_message(tx, "after"))
    assert await contents(database) == ["after"]


async def test_a_mistake_in_sql_stays_a_programming_error(database: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await database.read(lambda tx: tx.fetch_all("SELECT * FROM elsewhere"))


async def test_ids_of_deleted_drafts_are_never_used_again(database: Database) -> None:
    for table in ("chat_messages", "system_prompts", "tasks", "notes", "snapshots", "context_events"):
        sql = await database.read(partial(Connection.fetch_value, sql="SELECT sql FROM sqlite_master WHERE name = :name", values={"name": table}))
        assert "AUTOINCREMENT" in sql, table
    first = await database.write(lambda tx: add_message(tx, "draft"))
    await database.write(lambda tx: tx.execute("DELETE FROM chat_messages"))
    assert await database.write(lambda tx: add_message(tx, "next")) == first + 1


async def test_deleting_a_chat_takes_its_rows_and_leaves_the_facts(database: Database) -> None:
    async def fill(tx: Connection) -> None:
        await add_message(tx, "hello")
        await tx.execute("INSERT INTO session_states (session_id, updated_at) VALUES ('c', '')")
        await tx.execute("INSERT INTO system_prompts (session_id, version, content, status, created_at) VALUES ('c', 1, '', 'draft', '')")
        await tx.execute("INSERT INTO snapshots (session_id, label, content, created_at) VALUES ('c', '', '', '')")
        await tx.execute("INSERT INTO context_events (session_id, kind, reason, created_at) VALUES ('c', 'cleared', 'manual', '')")
        await tx.execute("INSERT INTO tasks (title, session_id, created_at, updated_at) VALUES ('t', 'c', '', '')")
        await tx.execute("INSERT INTO notes (title, content, session_id, created_at, updated_at) VALUES ('n', '', 'c', '', '')")

    await database.write(fill)
    await database.write(lambda tx: tx.execute("DELETE FROM chats WHERE id = 'c'"))
    for table in ("chat_messages", "session_states", "system_prompts", "snapshots", "context_events"):
        assert await database.read(partial(Connection.fetch_value, sql=f"SELECT COUNT(*) FROM {table}")) == 0, table
    for table in ("tasks", "notes"):
        assert await database.read(partial(Connection.fetch_all, sql=f"SELECT session_id FROM {table}")) == [{"session_id": None}]


async def test_after_a_scrub_deleted_text_is_in_no_file(database: Database) -> None:
    await database.write(lambda tx: add_message(tx, "canary-long-" + "x" * 20_000))
    await database.write(lambda tx: add_message(tx, "canary-short"))
    assert await database.scrub()
    assert files_with("canary-", database.path.parent) == ["cleanroom.db"]
    await database.write(lambda tx: tx.execute("DELETE FROM chats"))
    assert files_with("canary-", database.path.parent) != [], "the log is what the scrub is for"
    assert await database.scrub()
    assert files_with("canary-", database.path.parent) == []


async def test_a_scrub_that_a_reader_blocks_is_done_later(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "SCRUB_RETRY_SECONDS", 0.05)
    log = database.path.with_name("cleanroom.db-wal")
    with closing(sqlite3.connect(database.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM chats").fetchall()
        await database.write(lambda tx: add_message(tx, "canary"))
        assert not await database.scrub()
        assert log.stat().st_size > 0
        reader.execute("ROLLBACK")
        await eventually(lambda: log.stat().st_size == 0)


async def test_a_rebuild_that_a_writer_blocks_is_done_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_MS", 50)
    monkeypatch.setattr(database_module, "SCRUB_RETRY_SECONDS", 0.05)

    database = Database(f"sqlite:///{path}")
    await database.connect()
    try:
        await database.write(add_chat)
        await database.write(lambda tx: add_message(tx, "x" * 50_000))
        await database.write(lambda tx: tx.execute("DELETE FROM chats"))
        with held_by_another_program(path) as other:
            assert not await database.scrub()
            other.execute("ROLLBACK")
            assert other.execute("PRAGMA freelist_count").fetchone() > (0,)
            await eventually(lambda: other.execute("PRAGMA freelist_count").fetchone() == (0,))
    finally:
        await database.disconnect()


async def test_disconnect_waits_for_units_and_empties_the_log(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    await database.connect()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def slow(tx: Connection) -> None:
        inside.set()
        await go_on.wait()
        await add_chat(tx)

    writing = asyncio.create_task(database.write(slow))
    await inside.wait()
    closing_ = asyncio.create_task(database.disconnect())
    await asyncio.wait([closing_], timeout=0.05)
    assert not closing_.done()
    with pytest.raises(StoreError, match="closed"):
        await database.read(lambda tx: tx.fetch_value("SELECT 1"))
    assert not await database.check()
    go_on.set()
    await writing
    await closing_
    assert not path.with_name("cleanroom.db-wal").exists()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT COUNT(*) FROM chats").fetchone() == (1,)


async def test_connecting_again_and_disconnecting_twice(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    await database.disconnect()
    for _ in range(2):
        await database.connect()
        assert await database.check()
        await database.disconnect()
        await database.disconnect()


async def test_the_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a?b#c%20d.db"
    database = Database(f"sqlite:///{path}")
    await database.connect()
    await database.disconnect()
    assert path.exists()
    assert path.parent.stat().st_mode & 0o077 == 0, "conversations are this user's alone"


async def test_a_second_server_is_refused_and_names_the_first(path: Path) -> None:
    with start_child(CONNECT, path) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "connected\n"
            with pytest.raises(StoreError, match=rf"^cleanroom.db is in use by a running Cleanroom \(process {first.pid}\)"):
                await Database(f"sqlite:///{path}").connect()
            first.communicate("\n", timeout=10)
        finally:
            first.kill()
    assert first.returncode == 0
    database = Database(f"sqlite:///{path}")
    await database.connect()
    await database.disconnect()


async def test_of_two_starts_at_once_on_a_new_file_one_wins(path: Path) -> None:
    children = [start_child(CONNECT, path) for _ in range(2)]
    try:
        lines = [child.stdout.readline() for child in children if child.stdout]
        outputs = [child.communicate("\n", timeout=10) for child in children]
    finally:
        for child in children:
            child.kill()
    assert sorted(child.returncode for child in children) == [0, 3], (lines, outputs)
    assert sum(line == "connected\n" for line in lines) == 1
    assert any("is in use by a running Cleanroom" in line for line in lines)


async def test_a_killed_server_leaves_no_lock(path: Path) -> None:
    with start_child(CONNECT, path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    database = Database(f"sqlite:///{path}")
    await database.connect()
    await database.disconnect()


async def test_a_start_that_fails_after_opening_ends_the_process() -> None:
    code = """
import asyncio, sys, tempfile
from backend.store.database import Database

async def fail(self):
    raise RuntimeError("after opening")

Database._checkpoint = fail
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(Database(f"sqlite:///{folder}/x.db").connect())
"""
    status, output = await asyncio.to_thread(run_child, code)
    assert status == 1
    assert "after opening" in output


async def test_a_start_on_a_current_database_does_not_import_alembic(path: Path) -> None:
    code = CONNECT.replace("    await database.disconnect()", "    await database.disconnect()\n    print('alembic' in sys.modules)")
    for imported in ("True", "False"):
        with start_child(code, path) as child:
            output, _ = child.communicate("\n", timeout=30)
        assert output.split() == ["connected", imported]


async def test_a_cancelled_connect_leaves_nothing_open(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    connecting = asyncio.create_task(database.connect())
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    again = Database(f"sqlite:///{path}")
    await again.connect()
    await again.disconnect()
