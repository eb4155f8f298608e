"""When working material goes, and why: Auto-TTL as pure functions.

No I/O, no clock: (activity, what happened) → (activity, what to clear). Only what happened counts, never
what a message says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal["expired", "switched"]


@dataclass(frozen=True, slots=True)
class Activity:
    """The family that is active (None: none) and the unrelated user messages in a row since it was touched."""

    family: str | None = None
    unrelated_count: int = 0


@dataclass(frozen=True, slots=True)
class Clearing:
    """Material to clear. `family` is the one whose task ended; `keep` is the one whose material stays."""

    reason: Reason
    family: str | None
    keep: str | None = None


def tool_succeeded(activity: Activity, family: str, *, is_helper: bool) -> tuple[Activity, Clearing | None]:
    """A call succeeded: its family takes over, and what another family left goes first.

    A helper beside an active family changes nothing; alone it is a family like any other.
    """
    if activity.family == family or (is_helper and activity.family is not None):
        return activity, None
    clearing = Clearing("switched", activity.family, keep=family) if activity.family is not None else None
    return Activity(family), clearing


def turn_ended(activity: Activity, *, is_user_message: bool, related: bool, has_material: bool, ttl_messages: int) -> tuple[Activity, Clearing | None]:
    """A turn is over, whichever way it ended.

    `related`: it used a tool of the active family, or the person pressed Keep. Buttons never count as
    unrelated. Material without a family (of calls that failed) ages in the same way.
    """
    if related or (activity.family is None and not has_material):
        return Activity(activity.family), None
    if not is_user_message:
        return activity, None
    count = activity.unrelated_count + 1
    if count >= ttl_messages:
        return Activity(), Clearing("expired", activity.family)
    return Activity(activity.family, count), None


def kept(activity: Activity) -> Activity:
    """The person pressed Keep, or answered No: the counter starts again."""
    return Activity(activity.family)
