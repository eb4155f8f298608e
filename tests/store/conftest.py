"""A database of the test's own, and children that use one as another process would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from backend.store.connection import Connection
from backend.store.database import Database
from backend.store.engines import database_at
from backend.store.units import Units

D = TypeVar("D", bound=Units)

PROJECT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cleanroom.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    """Connected, with one chat `c`."""
    async with connected(Database(f"sqlite:///{path}")) as database:
        yield database


@pytest.fixture
async def either(database_url: str) -> AsyncIterator[Units]:
    """The same on each engine."""
    async with connected(database_at(database_url)) as database:
        yield database


@asynccontextmanager
async def connected(database: D) -> AsyncIterator[D]:
    """Until the block ends, with one chat `c`."""
    await database.connect()
    await database.write(add_chat)
    yield database
    await database.disconnect()


async def add_chat(tx: Connection, chat_id: str = "c") -> None:
    await tx.execute("INSERT INTO chats (id, created_at, updated_at) VALUES (:id, '', '')", {"id": chat_id})


async def add_message(tx: Connection, content: str, chat_id: str = "c") -> int:
    return int(
        await tx.fetch_value(
            "INSERT INTO chat_messages (session_id, role, content, created_at) VALUES (:chat, 'user', :content, '') RETURNING id",
            {"chat": chat_id, "content": content},
        )
    )


def start_child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run Python code in a process of its own, its errors among its output."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_child(code: str, *arguments: object) -> tuple[int, str]:
    """The exit status and the output of code that ends by itself."""
    with start_child(code, *arguments) as child:
        try:
            output, _ = child.communicate(timeout=30)
        finally:
            child.kill()
    return child.returncode, output


def files_with(text: str, folder: Path) -> list[str]:
    """The files below `folder` that hold the text. Read by another process: reading here would drop SQLite's locks."""
    code = """
import pathlib, sys
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    if file.is_file() and sys.argv[2].encode() in file.read_bytes():
        print(file.name)
"""
    status, output = run_child(code, folder, text)
    assert status == 0, output
    return output.split()
