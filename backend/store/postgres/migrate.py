"""Bringing a PostgreSQL database to the newest schema, in one transaction or not at all, by one process at a time."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import sqlalchemy
from alembic import command
from alembic.config import Config
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from backend.errors import StoreError
from backend.store import schema
from backend.store.postgres.server import CONNECT_SECONDS, SETTINGS, place, store_error

logger = logging.getLogger(__name__)

# Its lock keeps those out that start at the same time. They wait for it, however long the rows of a large database take.
_LOCK_KEY = schema.APPLICATION_ID
# A server that still runs on the database holds locks that we wait for, and may come to wait for ours. Before PostgreSQL takes
# that for a deadlock, which it does after a second, we let go.
LOCK_MS = 100
LOCK_ATTEMPTS = 200
LOCK_PAUSE = "SELECT pg_sleep(0.1 * random())"
PATIENT = {**SETTINGS, "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}


async def migrate(url: str) -> None:
    """Bring the database to the newest schema. Raises StoreError; then it is as it was.

    A database must be empty or our own: nothing of another program is taken over.
    """
    async with _connected(url) as connection:
        await connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        await connection.run_sync(_upgrade, place(url))


async def version_of(url: str) -> str:
    """A known version or EMPTY; nothing is changed. Raises StoreError for a database that can't be ours."""
    async with _connected(url) as connection:
        return await connection.run_sync(_version_of, place(url))


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[AsyncConnection]:
    """A connection in a transaction, which is committed at the end."""
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+asyncpg://", 1),
        poolclass=sqlalchemy.NullPool,
        connect_args={"timeout": CONNECT_SECONDS, "server_settings": PATIENT},
    )
    try:
        async with engine.begin() as connection:
            yield connection
    except sqlalchemy.exc.DBAPIError as error:
        cause = error.orig.__cause__ if error.orig is not None else None
        raise store_error(cause or error, place(url)) or error from error
    except OSError as error:
        raise store_error(error, place(url)) or error from error
    finally:
        await engine.dispose()


def _upgrade(connection: sqlalchemy.Connection, name: str) -> None:
    version, newest = _version_of(connection, name), schema.newest_version()
    if version == newest:
        return
    if version != schema.EMPTY:
        logger.info("%s is brought from schema %s to %s", name, version, newest)
        _lock_tables(connection)
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _lock_tables(connection: sqlalchemy.Connection) -> None:
    """Have every table to ourselves before the first is changed, so that no other server can be in the way after that."""
    tables = connection.exec_driver_sql("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace").scalars()
    statement = f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE"
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MS}")
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(statement)
            break
        except sqlalchemy.exc.DBAPIError as error:
            if attempt == LOCK_ATTEMPTS or not _is_locked(error):
                raise
            connection.exec_driver_sql(LOCK_PAUSE)
    connection.exec_driver_sql("SET LOCAL lock_timeout = 0")


def _is_locked(error: sqlalchemy.exc.DBAPIError) -> bool:
    return error.orig is not None and isinstance(error.orig.__cause__, asyncpg.LockNotAvailableError)


def _version_of(connection: sqlalchemy.Connection, name: str) -> str:
    """A known version or EMPTY. Raises StoreError for a database that can't be ours."""
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise StoreError(f"{name} has the encoding {encoding}; make one by CREATE DATABASE … ENCODING 'UTF8'.")
    tables = set(connection.exec_driver_sql("SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace").scalars())
    if not tables:
        return schema.EMPTY
    mark = connection.exec_driver_sql("SELECT obj_description(to_regclass('chats'), 'pg_class')").scalar()
    if "alembic_version" not in tables or mark != schema.POSTGRES_MARK:
        if "chats" not in tables and schema.OLDER_TABLES.keys() & tables:
            raise StoreError(
                f"{name} has tables of the older program, which are taken over from a SQLite file only; "
                "set CLEANROOM_DATABASE_URL to that file or to an empty database."
            )
        raise StoreError(f"{name} belongs to another program; set CLEANROOM_DATABASE_URL to an empty one.")
    if schema.UNFINISHED_MOVE in tables:
        raise schema.unfinished_move(name)
    version = str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())
    if version not in schema.known_versions():
        raise StoreError(f"{name} has schema {version}, and this Cleanroom knows {schema.newest_version()} at most; start a newer Cleanroom.")
    return version
