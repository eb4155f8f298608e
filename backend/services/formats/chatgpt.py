"""ChatGPT's `conversations.json`: a tree of nodes for each conversation, times in seconds. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from backend.services.formats import values
from backend.services.formats.markdown import fenced
from backend.services.formats.transcript import Said, Transcript
from backend.services.formats.trees import branch, with_notes, with_one_reply

# Marks of sources between private characters, which only its own page can draw.
_SOURCE_MARK = re.compile("\ue200[^\ue201]{0,2000}\ue201")
_PARTS_WITHOUT_TEXT = {"image_asset_pointer": "image", "audio_asset_pointer": "audio", "video_container_asset_pointer": "video"}


def is_one(value: dict[str, Any]) -> bool:
    return isinstance(value.get("mapping"), dict)


def decode(value: dict[str, Any], now: str) -> Transcript:
    created_at = values.moment(value.get("create_time"), now, now)
    title = values.title(value.get("title"))
    return Transcript(
        source=values.text(value.get("conversation_id")) or values.text(value.get("id")),
        title=title,
        title_by="person" if title else "auto",
        created_at=created_at,
        updated_at=values.moment(value.get("update_time"), created_at, now),
        messages=with_one_reply(_said(branch(value["mapping"], value.get("current_node"), "parent"), created_at, now)),
    )


def _said(nodes: list[dict[str, Any]], before: str, now: str) -> Iterator[Said]:
    """What person and model said to each other: no system messages, no calls of tools and no results."""
    thinking: list[str] = []
    for message in (values.record(node.get("message")) for node in nodes):
        role, about = values.record(message.get("author")).get("role"), values.record(message.get("metadata"))
        content = values.record(message.get("content"))
        before = values.moment(message.get("create_time"), before, now)
        if role not in ("user", "assistant") or _is_unseen(message, about):
            continue
        if content.get("content_type") == "thoughts":
            thinking += _thoughts(content)
            continue
        text = with_notes(_text(content), _attachments(about)) if role == "user" else _SOURCE_MARK.sub("", _text(content))
        if not text.strip():
            continue
        thoughts, thinking = ("\n\n".join(thinking) or None) if role == "assistant" else None, []
        model = values.text(about.get("model_slug")) or None if role == "assistant" else None
        yield Said(role, text, before, thinking=thoughts, model=model)


def _is_unseen(message: dict[str, Any], about: dict[str, Any]) -> bool:
    is_hidden = bool(about.get("is_visually_hidden_from_conversation") or about.get("is_user_system_message"))
    return is_hidden or message.get("recipient") not in (None, "all")


def _text(content: dict[str, Any]) -> str:
    """The text of the kinds of content that a conversation shows; of the others none."""
    kind = content.get("content_type")
    if kind == "code":
        language = values.text(content.get("language"))
        return fenced(values.text(content.get("text")), language if re.fullmatch(r"[\w+#-]{1,30}", language) and language != "unknown" else "")
    if kind not in ("text", "multimodal_text", None):
        return ""
    return "\n".join(part for part in map(_part, values.items(content.get("parts"))) if part)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return values.text(part)
    kind = values.text(values.record(part).get("content_type"))
    return values.text(values.record(part).get("text")) or (f"[{_PARTS_WITHOUT_TEXT[kind]}]" if kind in _PARTS_WITHOUT_TEXT else "")


def _attachments(about: dict[str, Any]) -> list[str]:
    return [name for found in values.items(about.get("attachments")) if (name := values.title(values.record(found).get("name")))]


def _thoughts(content: dict[str, Any]) -> list[str]:
    found = map(values.record, values.items(content.get("thoughts")))
    return [text for thought in found if (text := "\n".join(filter(None, (values.text(thought.get("summary")), values.text(thought.get("content"))))))]
