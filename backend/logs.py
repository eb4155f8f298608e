"""The server's log: one JSON object a line on stderr, made of ids and figures.

What people and models write stays out of it. A record names what it knows as fields
(`extra=fields(chat_id=...)`) beside a message that is always the same; of an error the line has its type and where it
happened, and its words only at level debug, since they may quote whatever was being worked on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from traceback import walk_tb
from types import TracebackType
from typing import Any

from backend.errors import StoreError

logger = logging.getLogger(__name__)

# Errors that quote nobody.
PLAIN_ERRORS = (StoreError,)

# What is told of an error: those that it came from, and the innermost frames. A RecursionError has a thousand.
ERRORS_TOLD = 8
FRAMES_TOLD = 40


def configure(level: str) -> None:
    """Log to stderr from `level` on: debug, info, warning or error. Libraries are heard from warning on, since below it they log what they carry."""
    chosen = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(quotes_errors=chosen <= logging.DEBUG))
    logging.basicConfig(level=max(chosen, logging.WARNING), handlers=[handler])
    logging.getLogger("backend").setLevel(chosen)
    logging.captureWarnings(True)


def fields(**values: object) -> dict[str, object]:
    """What a record tells beside its message, as logging's `extra`."""
    return {"fields": values}


def report_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what an event loop has nobody else to tell; its own message would show calls with their arguments."""
    error = context.get("exception")
    logger.error("unhandled error in the event loop" if error else context["message"], exc_info=error)


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON: time in UTC, level, logger, message, its fields, and the errors behind it."""

    def __init__(self, *, quotes_errors: bool) -> None:
        super().__init__()
        self._quotes_errors = quotes_errors

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().strip(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1]:
            line["errors"] = [self._told(error) for error in _origins(record.exc_info[1])]
        return json.dumps(line, default=str)

    def _told(self, error: BaseException) -> dict[str, Any]:
        told: dict[str, Any] = {"type": _name(type(error)), "stack": _frames(error.__traceback__)}
        if self._quotes_errors or isinstance(error, PLAIN_ERRORS):
            told["message"] = str(error)
        return told


def _origins(error: BaseException) -> list[BaseException]:
    """The error, those that it is a group of, and what it came from; each once, since one may be its own cause."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < ERRORS_TOLD:
        newest = waiting.pop()
        if newest is None or newest in found:
            continue
        found.append(newest)
        waiting.append(newest.__cause__ or (None if newest.__suppress_context__ else newest.__context__))
        if isinstance(newest, BaseExceptionGroup):
            waiting.extend(reversed(newest.exceptions))
    return found


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _frames(traceback: TracebackType | None) -> list[str]:
    """Each frame as module:line:function, the outermost first."""
    frames = [f"{frame.f_globals.get('__name__')}:{line}:{frame.f_code.co_qualname}" for frame, line in walk_tb(traceback)]
    return frames[-FRAMES_TOLD:]
