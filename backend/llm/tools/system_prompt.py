"""The family `system_prompt`: drafts, versions and the prompt that opens a chat's requests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from backend.errors import Conflict, ToolFailed
from backend.llm.core.cards import Card, action, diff, notice, preview, table
from backend.llm.core.registry import LARGEST_NUMBER, Family, StateSection, ToolContext, ToolResult
from backend.store import prompts

family = Family("system_prompt")

# What the working state shows of the prompt in force, which already opens the request.
HEAD_WORDS = 40

# A draft's result, the draft's apply and its discard all speak of the same thing.
DRAFT = "system_prompt.draft"

Content = Annotated[str, Field(min_length=1, max_length=50_000, description="The whole text of the new prompt.")]
Version = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, description="Number of the version.")]


@family.tool("read", entry=True, identified_by=("version",))
async def system_prompt_view(context: ToolContext, version: Version | None = None) -> ToolResult:
    """Show this chat's system prompt: the one in force and the draft in hand, or one version by its number."""
    if version is not None:
        return await _view_version(context, version)
    applied = await prompts.get_with_status(context.tx, context.session_id, "applied")
    draft = await prompts.get_with_status(context.tx, context.session_id, "draft")
    if draft is not None and context.held.get("draft") == draft["version"]:
        return await _view_version(context, draft["version"])
    waiting = f" Draft {draft['version']} is open; view version {draft['version']} to read it." if draft else ""
    versions = action("versions", "system_prompt_versions", {})
    if applied is None:
        title = "System prompt: none applied"
        card = notice(
            title,
            "The chat uses Cleanroom's default prompt.",
            title_key="card.system_prompt.default",
            body_key="card.system_prompt.default_body",
            actions=[versions],
        )
        return ToolResult(for_model=f"No system prompt is applied in this chat.{waiting}", card=card, outcome="ok, none applied")
    number, content = applied["version"], applied["content"]
    title = f"System prompt, version {number}"
    buttons = [action("edit", "system_prompt_draft", {"content": content}, edit="content"), versions]
    card = preview(title, content, actions=buttons, title_key="card.system_prompt.applied", params={"version": number})
    return ToolResult(for_model=f"In force, version {number}:\n{content}{waiting}", card=card, outcome=f"ok, version {number}")


async def _view_version(context: ToolContext, version: int) -> ToolResult:
    row = await prompts.get_version(context.tx, context.session_id, version)
    if row is None:
        raise ToolFailed(f"There is no version {version} of this chat's system prompt; system_prompt_versions lists them.")
    text = _for_model(row)
    if row["status"] == "draft":
        card = await _draft_card(context, row)
        return ToolResult(for_model=text, card=card, outcome=f"ok, draft {version}", subject=DRAFT, holds={"draft": version})
    buttons = [] if row["status"] == "applied" else [action("roll_back", "system_prompt_rollback", {"version": version})]
    title = f"System prompt, version {version}"
    card = preview(title, row["content"], actions=buttons, title_key="card.system_prompt.version", params={"version": version})
    return ToolResult(for_model=text, card=card, outcome=f"ok, version {version}")


@family.tool("draft", entry=True)
async def system_prompt_draft(context: ToolContext, content: Content) -> ToolResult:
    """Propose a new system prompt for this chat. It is a draft until system_prompt_apply puts it in force."""
    if not content.strip():
        raise ToolFailed("The prompt is empty; give its whole text as content.")
    await prompts.replace_status(context.tx, context.session_id, "draft", "superseded")
    version = await prompts.insert(context.tx, context.session_id, content, "draft", context.now)
    card = await _draft_card(context, {"version": version, "content": content})
    return ToolResult(
        for_model=f"Draft {version} is saved and shown to the person. It is not in force until it is applied.",
        card=card,
        outcome=f"ok, draft {version}",
        subject=DRAFT,
        holds={"draft": version},
    )


@family.tool("commit", identified_by=("version",))
async def system_prompt_apply(context: ToolContext, version: Version | None = None) -> ToolResult:
    """Put the newest draft in force. With a version: only if that is the newest draft."""
    draft = await prompts.get_with_status(context.tx, context.session_id, "draft")
    if draft is None:
        raise ToolFailed("There is no draft to apply; make one with system_prompt_draft first.")
    number = draft["version"]
    if version is not None and version != number:
        card = {**await _draft_card(context, draft), "title_key": "card.system_prompt.draft_changed"}
        raise Conflict(f"The draft has changed: the newest is version {number}, not {version}. Nothing was applied.", card)
    previous = await prompts.get_with_status(context.tx, context.session_id, "applied")
    await prompts.replace_status(context.tx, context.session_id, "applied", "superseded")
    await prompts.set_status(context.tx, context.session_id, number, "applied")
    before, before_version = (previous["content"], previous["version"]) if previous else ("", 0)
    card = _applied_card("card.system_prompt.applied", before, before_version, draft["content"], number)
    return ToolResult(
        for_model=f"Version {number} is in force.",
        card=card,
        outcome=f"ok, version {number}",
        subject=DRAFT,
        holds={},
        completes=f"System prompt, version {number}",
    )


@family.tool("draft")
async def system_prompt_discard(context: ToolContext) -> ToolResult:
    """Throw the open draft away."""
    draft = await prompts.get_with_status(context.tx, context.session_id, "draft")
    if draft is None:
        raise ToolFailed("There is no draft to discard.")
    version = draft["version"]
    await prompts.set_status(context.tx, context.session_id, version, "discarded")
    title = f"Draft {version} discarded"
    undo = action("undo", "system_prompt_draft", {"content": draft["content"]})
    card = notice(title, "The prompt in force stays as it is.", actions=[undo], title_key="card.system_prompt.discarded",
                  body_key="card.system_prompt.discarded_body", params={"version": version})  # fmt: skip
    return ToolResult(for_model=f"Draft {version} is discarded.", card=card, outcome=f"ok, draft {version}", subject=DRAFT, holds={})


@family.tool("read")
async def system_prompt_versions(context: ToolContext) -> ToolResult:
    """List this chat's prompt versions with their status."""
    rows = await prompts.list_versions(context.tx, context.session_id)
    lines = [f"{row['version']} {row['status']}" for row in rows]
    columns = ["version", "status", "created_at", "content"]
    cells = [[row["version"], row["status"], row["created_at"], _head(row["content"], HEAD_WORDS)] for row in rows]
    buttons = [action("roll_back", "system_prompt_rollback", {"version": row["version"]}) for row in rows if row["status"] == "superseded"][:1]
    title = f"System prompt: {len(rows)} versions"
    card = table(title, columns, cells, actions=buttons, title_key="card.system_prompt.versions", params={"count": len(rows)})
    return ToolResult(for_model="\n".join(lines) or "No versions yet.", card=card, outcome=f"ok, {len(rows)} versions")


@family.tool("commit", identified_by=("version",))
async def system_prompt_rollback(
    context: ToolContext, version: Annotated[int, Field(ge=0, le=LARGEST_NUMBER, description="Number of the version; 0 for no prompt.")]
) -> ToolResult:
    """Put an earlier version in force again, as a new version."""
    current = await prompts.get_with_status(context.tx, context.session_id, "applied")
    before, before_version = (current["content"], current["version"]) if current else ("", 0)
    if version == before_version:
        raise ToolFailed(f"Version {version} is in force already.")
    content = ""
    if version > 0:
        row = await prompts.get_version(context.tx, context.session_id, version)
        if row is None:
            raise ToolFailed(f"There is no version {version}; system_prompt_versions lists them.")
        content = row["content"]
    await prompts.replace_status(context.tx, context.session_id, "applied", "superseded")
    number = await prompts.insert(context.tx, context.session_id, content, "applied", context.now) if version > 0 else 0
    card = _applied_card("card.system_prompt.rolled_back", before, before_version, content, number, from_version=version)
    said = f"Version {number}, the text of version {version}, is in force." if number else "No system prompt is in force now."
    return ToolResult(
        for_model=said,
        card=card,
        outcome=f"ok, version {number}" if number else "ok, none applied",
        completes=f"System prompt, version {number}" if number else "System prompt removed",
    )


@family.working_state
async def _sections(context: ToolContext) -> list[StateSection]:
    sections = []
    applied = await prompts.get_with_status(context.tx, context.session_id, "applied")
    if applied is not None:
        heading = f"System prompt in force, version {applied['version']}"
        sections.append(StateSection(1, heading, _head(applied["content"], HEAD_WORDS), "system_prompt_view"))
    draft = await prompts.get_with_status(context.tx, context.session_id, "draft")
    if draft is not None and context.held.get("draft") == draft["version"]:
        heading = f"Open draft of the system prompt, version {draft['version']}, not in force"
        sections.append(StateSection(2, heading, draft["content"], "system_prompt_view", DRAFT))
    return sections


@family.counts
async def _count(context: ToolContext) -> str:
    applied = await prompts.get_with_status(context.tx, context.session_id, "applied")
    return f"system prompt: version {applied['version']}" if applied else "system prompt: none applied"


async def _draft_card(context: ToolContext, draft: dict[str, Any]) -> Card:
    applied = await prompts.get_with_status(context.tx, context.session_id, "applied")
    version, content = draft["version"], draft["content"]
    buttons = [
        action("apply", "system_prompt_apply", {"version": version}, "primary"),
        action("edit", "system_prompt_draft", {"content": content}, edit="content"),
        action("discard", "system_prompt_discard", {}, "danger"),
    ]
    before = applied["content"] if applied else ""
    title = f"System prompt, draft {version}"
    return diff(title, before, content, actions=buttons, title_key="card.system_prompt.draft", params={"version": version})


def _applied_card(title_key: str, before: str, before_version: int, after: str, version: int, **params: int) -> Card:
    undo = action("undo", "system_prompt_rollback", {"version": before_version})
    title = f"System prompt, version {version}" if version else "System prompt removed"
    key = title_key if version else "card.system_prompt.removed"
    return diff(title, before, after, actions=[undo], title_key=key, params={"version": version, **params})


def _for_model(row: dict[str, Any]) -> str:
    """A version for the model. What is over, as a draft or in force, is the person's to read: a model would follow it."""
    if row["status"] in ("superseded", "discarded"):
        return f"Version {row['version']}, {row['status']}, is shown to the person."
    return f"Version {row['version']}, {row['status']}:\n{row['content']}"


def _head(text: str, words: int) -> str:
    parts = text.split()
    return " ".join(parts[:words]) + (" …" if len(parts) > words else "")
