"""PostgreSQL as a server: its URL, deadlines, and what a person is told about its errors. Knows none of our tables."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import asyncpg

from backend.errors import StoreError

CONNECT_SECONDS = 10
# No statement of ours takes so long; what does waits for a server that is as good as gone.
STATEMENT_SECONDS = 60
LOCK_SECONDS = 10
# The server ends a statement first; this is for one that can't even say so.
ANSWER_SECONDS = STATEMENT_SECONDS + 5

SETTINGS = {
    "application_name": "cleanroom",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS}s",
}

# Tried in this order, since some are kinds of others.
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "refuses the user or the password; correct them in CLEANROOM_DATABASE_URL"),
    (asyncpg.InvalidCatalogNameError, "has no such database; make it by CREATE DATABASE, or correct CLEANROOM_DATABASE_URL"),
    (asyncpg.TooManyConnectionsError, "has no connection left; raise its max_connections, or close other programs"),
    (asyncpg.InsufficientPrivilegeError, "does not let this user do that; make it the owner of the database"),
    (asyncpg.ReadOnlySQLTransactionError, "can only be read; set CLEANROOM_DATABASE_URL to the server that is written to"),
    (asyncpg.DiskFullError, "can't be written because the disk is full; free some space, then try again"),
    (asyncpg.LockNotAvailableError, "is locked by another program; close that program, then try again"),
    (asyncpg.QueryCanceledError, "took too long to answer; try again"),
    (asyncpg.DeadlockDetectedError, "was written by others at the same moment; try again"),
    (asyncpg.SerializationError, "was written by others at the same moment; try again"),
    (asyncpg.DataCorruptedError, "is damaged; put a backup in its place"),
    (TimeoutError, "did not answer in time; check that the server runs and can be reached"),
    (OSError, "can't be reached; check that the server runs and can be reached"),
    (asyncpg.PostgresConnectionError, "can't be reached; check that the server runs and can be reached"),
    (asyncpg.OperatorInterventionError, "is being stopped or started; try again"),
    (asyncpg.InterfaceError, "can't be reached; check that the server runs and can be reached"),
)
ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


def place(url: str) -> str:
    """What may be shown of a URL: neither user nor password."""
    parts = urlsplit(url)
    return f"The database {unquote(parts.path.lstrip('/'))} at {parts.hostname}:{parts.port or 5432}"


def store_error(error: BaseException, name: str = "The database") -> StoreError | None:
    """What the person is told about PostgreSQL's error; None when the error is the program's own fault."""
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)
    return StoreError(f"{name} {reason}.") if reason else None
