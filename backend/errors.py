"""Every error that may reach a person, each with its code on the wire.

    CleanroomError
    ├── Invalid              invalid            (fields: which field is wrong and why)
    ├── NotFound             not_found
    ├── Conflict             conflict
    ├── TurnRunning          turn_running
    ├── TooLarge             too_large
    │   └── ContextExceeded  too_large          the prompt does not fit the model's window
    ├── ToolFailed           tool_failed
    ├── ModelError
    │   ├── ModelUnavailable model_unavailable
    │   │   ├── ModelBusy    model_unavailable  the server has no place now; asking again helps
    │   │   └── BrokenStream model_unavailable  the reply began and broke off
    │   └── ModelNotFound    model_not_found
    ├── StoreError           internal           the database can't be used; the message says what to do
    ├── Unreachable          internal           another replica, or what connects them, does not answer
    └── SettingsError        (start only)

A message says what was wrong and what the person can do about it; it never holds a traceback,
a path or SQL.
"""

from __future__ import annotations

from typing import Any, ClassVar


class CleanroomError(Exception):
    """Something that the person can be told as it is."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Invalid(CleanroomError):
    """A command or a tool's arguments are wrong. `fields` maps a field's name to what is wrong with it."""

    code = "invalid"

    def __init__(self, message: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.fields = fields or {}


class NotFound(CleanroomError):
    code = "not_found"


class Conflict(CleanroomError):
    """Something changed meanwhile. `card` shows a person how it is now, when a tool can."""

    code = "conflict"

    def __init__(self, message: str, card: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.card = card


class TurnRunning(CleanroomError):
    code = "turn_running"


class TooLarge(CleanroomError):
    code = "too_large"


class ContextExceeded(TooLarge):
    """The prompt needs more tokens than the model's window holds."""


class ToolFailed(CleanroomError):
    code = "tool_failed"


class ModelError(CleanroomError):
    """The model server did not do what was asked."""


class ModelUnavailable(ModelError):
    code = "model_unavailable"


class ModelBusy(ModelUnavailable):
    """The server has no place for the request now (503); the same request may succeed later."""


class BrokenStream(ModelUnavailable):
    """The reply had begun and ended without its final line."""


class ModelNotFound(ModelError):
    code = "model_not_found"


class StoreError(CleanroomError):
    """The database can't be used as it is."""


class Unreachable(CleanroomError):
    """Another replica, or Redis between them, does not answer now."""


class SettingsError(CleanroomError):
    """A setting's value can't be used; stops the start."""
