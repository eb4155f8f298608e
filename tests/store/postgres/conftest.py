"""Databases on a real PostgreSQL server, each of one test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.engines import Postgres

_numbers = count(1)


@pytest.fixture
async def empty_url(postgres_server: Postgres) -> AsyncIterator[str]:
    """The URL of a database without tables."""
    name = f"empty_{next(_numbers)}"
    await postgres_server.administer(f"CREATE DATABASE {name} STRATEGY file_copy")
    yield postgres_server.url(name)
    await postgres_server.administer(f"DROP DATABASE {name} WITH (FORCE)")
