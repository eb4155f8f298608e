"""How rows of the store become the wire's objects, and the clock that dates them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from backend.protocol import Chat, Message, Parameters, Variant


class Clock:
    """Wall time for people, monotonic seconds for durations: a wall clock can jump back."""

    def now(self) -> str:
        """The time in UTC, ISO 8601 with microseconds."""
        return iso(datetime.now(UTC))

    def later(self, seconds: float) -> str:
        """The time `seconds` from now."""
        return iso(datetime.now(UTC) + timedelta(seconds=seconds))

    def monotonic(self) -> float:
        return time.monotonic()


def iso(moment: datetime) -> str:
    """A time in UTC as all our times are written, so that their texts are in the order of the times."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_message(row: dict[str, Any]) -> Message:
    """A row of `chat_messages` as the person gets it. The figures of a reply that streams again are those of its former run."""
    return Message(
        id=row["id"],
        chat_id=row["session_id"],
        role=row["role"],
        content=row["content"],
        is_ephemeral=row["is_ephemeral"],
        hidden=bool(row["hidden"]),
        status=row["status"],
        created_at=row["created_at"],
        turn_id=row["turn_id"],
        client_id=row["client_id"],
        family=row["family"],
        tool=row["tool"],
        card=json.loads(row["card"]) if row["card"] else None,
        thinking=row["thinking"] or None,
        model=row["model"],
        metrics=json.loads(row["metrics"]) if row["metrics"] and row["status"] != "streaming" else None,
        transaction_completed=row["transaction_id"] is not None,
        variant=Variant(index=row["variant"], count=row["variants"]) if row["variants"] else None,
    )


def to_chat(row: dict[str, Any], *, turn_running: bool) -> Chat:
    """A row of `chats`, its TTL filled in, as the person gets it."""
    return Chat(
        owner=row["owner"],
        id=row["id"],
        title=row["title"],
        pinned=bool(row["pinned"]),
        model=row["model"],
        ttl_messages=row["ttl_messages"],
        approval=row["approval"],
        families_off=json.loads(row["families_off"]),
        temporary=bool(row["temporary"]),
        parameters=Parameters.model_validate_json(row["parameters"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        turn_running=turn_running,
    )
