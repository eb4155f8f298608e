"""Our own format: a chat as JSON, whole but for working material, which belongs to the work and not to its record. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backend.llm.core import receipts
from backend.services.formats import values
from backend.services.formats.transcript import Prompt, Reply, Said, Transcript, Unreadable

FORMAT = "cleanroom"
VERSION = 1

_ROLES = ("user", "assistant", "tool")
_STATUSES = ("complete", "stopped", "interrupted", "failed")


def encode(transcript: Transcript, now: str) -> dict[str, Any]:
    chat = {
        "id": transcript.source,
        "title": transcript.title,
        "title_by": transcript.title_by,
        "pinned": transcript.pinned,
        "model": transcript.model,
        "ttl_messages": transcript.ttl_messages,
        "approval": transcript.approval,
        "families_off": transcript.families_off,
        "parameters": transcript.parameters,
        "created_at": transcript.created_at,
        "updated_at": transcript.updated_at,
    }
    prompts = [
        {"version": prompt.version, "status": prompt.status, "created_at": prompt.created_at, "content": prompt.content} for prompt in transcript.prompts
    ]
    messages = [_encode_said(said) for said in transcript.messages]
    return {"format": FORMAT, "version": VERSION, "exported_at": now, "chat": chat, "prompts": prompts, "messages": messages}


def _encode_said(said: Said) -> dict[str, Any]:
    optional = {"hidden": said.hidden, "variant": said.variant, "variants": [_encode_reply(reply) for reply in said.variants]}
    return {"role": said.role, **_encode_text(said), **{name: value for name, value in optional.items() if value}}


def _encode_reply(reply: Reply) -> dict[str, Any]:
    return {**_encode_text(reply), **({"receipts": reply.receipts} if reply.receipts != "[]" else {})}


def _encode_text(written: Said | Reply) -> dict[str, Any]:
    optional = {"thinking": written.thinking, "model": written.model, "metrics": written.metrics}
    return {
        "status": written.status,
        "created_at": written.created_at,
        **{name: value for name, value in optional.items() if value},
        "content": written.content,
    }


def is_one(value: dict[str, Any]) -> bool:
    return value.get("format") == FORMAT and "chats" not in value


def decode(value: dict[str, Any], now: str) -> Transcript:
    """Read one chat. Raises Unreadable."""
    version = value.get("version")
    if isinstance(version, int) and version > VERSION:
        raise Unreadable(f"It is of version {version} of this format, and version {VERSION} is known here; start a newer Cleanroom.")
    chat = values.record(value.get("chat"))
    created_at = values.moment(chat.get("created_at"), now, now)
    ttl, approval = chat.get("ttl_messages"), chat.get("approval")
    title = values.title(chat.get("title"))
    return Transcript(
        source=values.text(chat.get("id")),
        title=title,
        title_by="person" if title and chat.get("title_by") != "auto" else "auto",
        created_at=created_at,
        updated_at=values.moment(chat.get("updated_at"), created_at, now),
        messages=list(_said(values.items(value.get("messages")), created_at, now)),
        prompts=list(_prompts(values.items(value.get("prompts")), created_at, now)),
        pinned=chat.get("pinned") is True,
        model=values.text(chat.get("model"))[:300] or None,
        ttl_messages=ttl if ttl in (3, 4, 5) else None,
        approval=approval if approval in ("after", "before") else "after",
        families_off=[name for name in map(values.text, values.items(chat.get("families_off"))) if name],
        parameters=values.parameters(chat.get("parameters")),
    )


def _said(found: list[Any], before: str, now: str) -> Iterator[Said]:
    for message in map(values.record, found):
        role, content = message.get("role"), values.text(message.get("content"))
        if role not in _ROLES or not content or (role == "tool" and not receipts.decode(content)):
            continue
        written = _text(message, before, now)
        before = written["created_at"]
        others = [_reply(other, before, now) for other in map(values.record, values.items(message.get("variants")))] if role == "assistant" else []
        shown = message.get("variant")
        place = min(max(shown, 1), len(others) + 1) if isinstance(shown, int) else len(others) + 1
        yield Said(role, hidden=message.get("hidden") is True, variant=place if others else None, variants=others, **written)


def _reply(value: dict[str, Any], before: str, now: str) -> Reply:
    return Reply(receipts=receipts.encode(receipts.decode(values.text(value.get("receipts")))), **_text(value, before, now))


def _text(value: dict[str, Any], before: str, now: str) -> dict[str, Any]:
    status = value.get("status")
    return {
        "content": values.text(value.get("content")),
        "created_at": values.moment(value.get("created_at"), before, now),
        "status": status if status in _STATUSES else "complete",
        "thinking": values.text(value.get("thinking")) or None,
        "model": values.text(value.get("model")) or None,
        "metrics": values.metrics(value.get("metrics")),
    }


def _prompts(found: list[Any], before: str, now: str) -> Iterator[Prompt]:
    """The versions with their numbers, which receipts name, as long as they rise; the last that was in force is."""
    last = 0
    known = [prompt for prompt in map(values.record, found) if values.text(prompt.get("content"))]
    applied = next((number for number, prompt in reversed(list(enumerate(known))) if prompt.get("status") == "applied"), None)
    for number, prompt in enumerate(known):
        version = prompt.get("version")
        last = version if isinstance(version, int) and last < version < 1_000_000 else last + 1
        status = "applied" if number == applied else "superseded"
        yield Prompt(last, values.text(prompt["content"]), status, values.moment(prompt.get("created_at"), before, now))
