"""What every test may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from backend.store.postgres.migrate import migrate
from tests.engines import Postgres, postgres
from tests.fake_ollama import FakeOllama
from tests.server import Client, make_settings, running

_numbers = count(1)

BROWSER_TESTS = Path(__file__).parent / "browser"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests too that take minutes or repeat another in a second language or theme")
    parser.addoption("--picture", type=Path, help="where to draw the README's picture of the page (docs/page.png)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Browser tests go last: Playwright keeps a loop running in this thread, beside which anyio can start none."""
    items.sort(key=lambda item: BROWSER_TESTS in item.path.parents)
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture
def picture(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the picture of the page goes: to the place that the run names, else out of the way."""
    wanted: Path | None = request.config.getoption("--picture")
    return (request.config.invocation_params.dir / wanted) if wanted else tmp_path / "page.png"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres_server: Postgres) -> Postgres:
    """The server, with a migrated database to make others of."""
    _administer(postgres_server, "CREATE DATABASE migrated")
    _run_beside(migrate(postgres_server.url("migrated")))
    return postgres_server


@pytest.fixture
def postgres_url(postgres_template: Postgres) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of the newest schema."""
    with empty_database(postgres_template) as url:
        yield url


@contextmanager
def empty_database(postgres_template: Postgres) -> Iterator[str]:
    name = f"of_a_test_{next(_numbers)}"
    _administer(postgres_template, f"CREATE DATABASE {name} TEMPLATE migrated STRATEGY file_copy")
    yield postgres_template.url(name)
    _administer(postgres_template, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each engine."""
    return f"sqlite:///{tmp_path / 'cleanroom.db'}" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def _administer(server: Postgres, statement: str) -> None:
    _run_beside(server.administer(statement))


def _run_beside(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a thread: the test's own loop may be under way in this one."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, work).result()


@pytest.fixture
async def fake() -> AsyncIterator[FakeOllama]:
    async with FakeOllama() as server:
        yield server


@pytest.fixture
async def address(tmp_path: Path, fake: FakeOllama) -> AsyncIterator[str]:
    """A running server that asks the fake model server."""
    async with running(make_settings(tmp_path, fake)) as where:
        yield where


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    async with Client.connect(address) as connected:
        yield connected
