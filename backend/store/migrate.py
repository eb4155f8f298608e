"""Bringing a database to the newest schema, in one transaction or not at all. The only file that imports Alembic."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config

from backend.errors import StoreError
from backend.store import schema
from backend.store.sqlite_file import back_up, open_file, store_error

logger = logging.getLogger(__name__)


def migrate(path: Path) -> None:
    """Bring the file to the newest schema, after a backup when it holds anything. Raises StoreError; then it is as it was."""
    version, newest = schema.version_of(path), schema.newest_version()
    try:
        if version != schema.EMPTY:
            logger.info("%s is brought from schema %s to %s", path.name, version, newest)
            back_up(path, path.with_name(f"{path.name}.before-{newest}.bak"))
        _upgrade(path)
    except sqlite3.Error as error:
        raise store_error(error, path.name) or error from error
    except ValueError as error:
        raise StoreError(f"{path.name} could not be taken over and is as it was: {error}.") from error


def _upgrade(path: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS).replace("%", "%%"))
    engine = sqlalchemy.create_engine("sqlite://", creator=lambda: _open(path), poolclass=sqlalchemy.NullPool)
    # The driver's own transactions end at DDL. Begun by hand, one holds the DDL, the rows and the version's record.
    sqlalchemy.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            views = _working_views(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            broken = views - _working_views(connection)
            if broken:
                raise ValueError(f"its view {min(broken)!r} would break")
    except sqlalchemy.exc.DBAPIError as error:
        raise (error.orig if isinstance(error.orig, sqlite3.Error) else error) from error


def _open(path: Path) -> sqlite3.Connection:
    """A connection on which a table can be rebuilt while other tables, views and triggers refer to it by name."""
    connection = open_file(path, "mode=rwc")
    for pragma in ("foreign_keys = OFF", "legacy_alter_table = ON", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.text_factory = lambda text: text.decode("utf-8", "replace")  # other programs store what they like
    return connection


def _working_views(connection: sqlalchemy.Connection) -> set[str]:
    """The names of the views that can be read. Views may be of another program, and broken before we came."""
    names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'view'").scalars().all()
    return {name for name in names if _can_be_read(connection, name)}


def _can_be_read(connection: sqlalchemy.Connection, view: str) -> bool:
    quoted = view.replace('"', '""')
    try:
        connection.exec_driver_sql(f'SELECT * FROM "{quoted}" LIMIT 0').close()
    except sqlalchemy.exc.DBAPIError:
        return False
    return True
