"""PostgreSQL as a server: its URL, deadlines, and what a person is told about its errors. Knows none of our tables."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import asyncpg

from backend.errors import StoreError

CONNECT_SECONDS = 10
# A person waits for what is read, and the connections for it are few.
READ_SECONDS = 15
# No statement of ours takes so long, not even one that deletes a very long chat.
STATEMENT_SECONDS = 60
# Between two statements of a unit there is our own code, a query of facts at most. A replica that hangs there loses its locks
# before the others, who wait for them, give up.
IDLE_SECONDS = 15
LOCK_SECONDS = 20
# The server ends a statement first; this is for one that can't even say so.
MARGIN_SECONDS = 5

SETTINGS = {
    "application_name": "cleanroom",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
}

# There is no connection to be had, or it is of no more use.
_NO_CONNECTION: tuple[type[BaseException], ...] = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server has just broken off
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.TooManyConnectionsError,
)

# Tried in this order, since some are kinds of others.
_REASONS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (asyncpg.ClientConfigurationError, "can't be found by CLEANROOM_DATABASE_URL as it is; correct it"),
    (asyncpg.InvalidAuthorizationSpecificationError, "refuses the user or the password; correct them in CLEANROOM_DATABASE_URL"),
    (asyncpg.InvalidCatalogNameError, "has no such database; make it by CREATE DATABASE, or correct CLEANROOM_DATABASE_URL"),
    (asyncpg.TooManyConnectionsError, "has no connection left; raise its max_connections, or close other programs"),
    (asyncpg.InsufficientPrivilegeError, "does not let this user do that; make it the owner of the database"),
    (asyncpg.ReadOnlySQLTransactionError, "can only be read; set CLEANROOM_DATABASE_URL to the server that is written to"),
    (asyncpg.DiskFullError, "can't be written because the disk is full; free some space, then try again"),
    (asyncpg.LockNotAvailableError, "is held by another program or an upgrade for too long; try again"),
    (asyncpg.QueryCanceledError, "took too long to answer; try again"),
    (asyncpg.DeadlockDetectedError, "was written by others at the same moment; try again"),
    (asyncpg.SerializationError, "was written by others at the same moment; try again"),
    (asyncpg.DataCorruptedError, "is damaged; put a backup in its place"),
    (TimeoutError, "did not answer in time; check that the server runs and can be reached"),
    (asyncpg.OperatorInterventionError, "is being stopped or started; try again"),
    (_NO_CONNECTION, "can't be reached; check that the server runs and can be reached"),
)
ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


def place(url: str) -> str:
    """What may be shown of a URL: neither user nor password."""
    parts = urlsplit(url)
    return f"The database {unquote(parts.path.lstrip('/'))} at {parts.hostname}:{parts.port or 5432}"


def store_error(error: BaseException, name: str = "The database") -> StoreError | None:
    """What the person is told about PostgreSQL's error; None when the error is the program's own fault."""
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)
    return StoreError(f"{name} {reason}.") if reason else None


def is_cut_off(error: BaseException) -> bool:
    """Whether the server can't be asked anything, by this connection at least."""
    return isinstance(error, _NO_CONNECTION) and not isinstance(error, asyncpg.QueryCanceledError)
