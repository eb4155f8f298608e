"""Whole chats read from the database and written to it, inside the caller's transaction. Working material is never among them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from backend.services.formats.transcript import Prompt, Reply, Said, Transcript
from backend.services.journal import Unit
from backend.store import chats, transcripts, variants
from backend.store.connection import Connection


async def read(tx: Connection, chat: dict[str, Any], until_id: int | None = None) -> Transcript:
    """A chat with its permanent messages, up to one of them. `chat` is its row."""
    aside: dict[int, list[Reply]] = {}
    for row in await transcripts.variants(tx, chat["id"]):
        aside.setdefault(row["user_message_id"], []).append(_reply(row))
    said: list[Said] = []
    question = 0
    for row in await transcripts.permanent(tx, chat["id"], until_id):
        question = row["id"] if row["role"] == "user" else question
        said.append(_said(row, aside.get(question, []) if row["variants"] else []))
    prompts = [Prompt(row["version"], row["content"], row["status"], row["created_at"]) for row in await transcripts.prompts(tx, chat["id"])]
    return Transcript(
        source=chat["id"],
        title=chat["title"],
        title_by=chat["title_by"],
        created_at=chat["created_at"],
        updated_at=chat["updated_at"],
        messages=said,
        prompts=prompts,
        pinned=bool(chat["pinned"]),
        model=chat["model"],
        ttl_messages=chat["ttl_messages"],
        approval=chat["approval"],
        families_off=json.loads(chat["families_off"]),
        parameters=json.loads(chat["parameters"]),
    )


async def write(unit: Unit, owner: str, transcript: Transcript, client_id: str | None, *, temporary: bool = False) -> str:
    """Make a chat of a transcript; its id."""
    tx, chat_id = unit.tx, uuid.uuid4().hex
    await chats.insert(
        tx, owner=owner, chat_id=chat_id, title=transcript.title, title_by=transcript.title_by, model=transcript.model, client_id=client_id,
        now=transcript.created_at, temporary=temporary,
    )  # fmt: skip
    await chats.update(
        tx, chat_id, pinned=int(transcript.pinned), ttl_messages=transcript.ttl_messages, approval=transcript.approval,
        families_off=json.dumps(transcript.families_off), parameters=json.dumps(transcript.parameters), updated_at=transcript.updated_at,
    )  # fmt: skip
    for prompt in transcript.prompts:
        await transcripts.insert_prompt(tx, chat_id, version=prompt.version, content=prompt.content, status=prompt.status, created_at=prompt.created_at)
    await append(unit, chat_id, transcript.messages)
    return chat_id


async def append(unit: Unit, chat_id: str, said: list[Said], after: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Add messages to a chat behind its last one, `after`; the whole rows. Each question begins a turn of its own."""
    turn_id = after["turn_id"] if after else None
    columns = []
    for message in said:
        turn_id = uuid.uuid4().hex if message.role == "user" or turn_id is None else turn_id
        columns.append(_columns(message, turn_id))
    rows = await transcripts.insert_messages(unit.tx, chat_id, columns)
    question_id: int | None = None
    for row, message in zip(rows, said, strict=True):
        question_id = row["id"] if message.role == "user" else question_id
        if message.variants and question_id is not None:
            await _set_aside(unit.tx, chat_id, question_id, message)
    return rows


async def _set_aside(tx: Connection, chat_id: str, question_id: int, shown: Said) -> None:
    positions = [number for number in range(1, len(shown.variants) + 2) if number != shown.variant]
    for position, reply in zip(positions, shown.variants, strict=True):
        await variants.insert(
            tx, session_id=chat_id, user_message_id=question_id, position=position, content=reply.content, status=reply.status,
            thinking=reply.thinking, model=reply.model, metrics=_dump(reply.metrics), receipts=reply.receipts, created_at=reply.created_at,
        )  # fmt: skip


def _said(row: dict[str, Any], others: list[Reply]) -> Said:
    return Said(
        row["role"], row["content"], row["created_at"], row["status"], bool(row["hidden"]), row["thinking"] or None, row["model"],
        _load(row["metrics"]), row["variant"] if others else None, others,
    )  # fmt: skip


def _reply(row: dict[str, Any]) -> Reply:
    return Reply(row["content"], row["created_at"], row["status"], row["thinking"] or None, row["model"], _load(row["metrics"]), row["receipts"])


def _columns(message: Said, turn_id: str) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.content,
        "status": message.status,
        "hidden": int(message.hidden),
        "thinking": message.thinking,
        "model": message.model,
        "metrics": _dump(message.metrics),
        "variant": message.variant,
        "variants": len(message.variants) + 1 if message.variants else None,
        "turn_id": turn_id,
        "created_at": message.created_at,
    }


def _load(metrics: str | None) -> dict[str, Any] | None:
    return json.loads(metrics) if metrics else None


def _dump(metrics: dict[str, Any] | None) -> str | None:
    return json.dumps(metrics) if metrics else None
