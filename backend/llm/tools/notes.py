"""The family `notes`: texts worth keeping, for the whole workspace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from backend.errors import ToolFailed
from backend.llm.core.cards import Card, action, diff, item_list, notice, preview
from backend.llm.core.registry import Family, StateSection, ToolContext, ToolResult
from backend.store import deleted_facts, notes

family = Family("notes")

# What one reading gives a model at most; it asks for the rest by `offset`.
READ_CHARACTERS = 4_000

NoteId = Annotated[int, Field(ge=1, description="Number of the note.")]
Title = Annotated[str, Field(min_length=1, max_length=200, description="What the note is about.")]
Content = Annotated[str, Field(min_length=1, max_length=200_000, description="The whole text of the note.")]


@family.tool("commit", entry=True, identified_by=("id", "title"))
async def note_save(context: ToolContext, title: Title, content: Content, id: NoteId | None = None) -> ToolResult:
    """Save a note. With the number of an existing note: replace that one."""
    title = title.strip()
    if not title or not content.strip():
        raise ToolFailed("A note needs a title and a text.")
    if id is None:
        note = await notes.insert(context.tx, title, content, context.session_id, context.now)
        undo = action("undo", "note_delete", {"id": note["id"]})
        card = _text_card("saved", note["id"], title, content, [_edit(note), undo])
        return ToolResult(for_model=f"Note {note['id']} is saved.", card=card, outcome=f"ok, note {note['id']}")
    note = await _get(context, id)
    await notes.update(context.tx, id, title=title, content=content, now=context.now)
    undo = action("undo", "note_save", {"id": id, "title": note["title"], "content": note["content"]})
    shown = f"Note {id} replaced"
    card = diff(shown, note["content"], content, actions=[undo], title_key="card.note.replaced", params={"id": id, "title": title})
    return ToolResult(for_model=f"Note {id} is replaced.", card=card, outcome=f"ok, note {id}", completes=f"Note {id}: {title}")


@family.tool("read", entry=True)
async def note_list(context: ToolContext) -> ToolResult:
    """List the notes with their numbers, titles and lengths, the last changed first."""
    rows = await notes.list_all(context.tx)
    items = [{"id": row["id"], "text": row["title"], "actions": [action("view", "note_read", {"id": row["id"]}), _delete(row)]} for row in rows]
    card = item_list(f"Notes: {len(rows)}", items, title_key="card.note.list", params={"count": len(rows)})
    return ToolResult(for_model=_lines(rows) or "There are no notes.", card=card, outcome=f"ok, {len(rows)} notes")


@family.tool("read", identified_by=("id",))
async def note_read(
    context: ToolContext,
    id: NoteId,
    offset: Annotated[int, Field(ge=0, description="Characters to skip.")] = 0,
    limit: Annotated[int, Field(ge=1, le=READ_CHARACTERS, description="Characters to read at most.")] = READ_CHARACTERS,
) -> ToolResult:
    """Read a note. A long one is read in parts, by offset and limit."""
    note = await _get(context, id)
    content = note["content"]
    part = content[offset : offset + limit]
    rest = len(content) - offset - len(part)
    more = f"\n[{rest} more characters: note_read with offset {offset + len(part)}]" if rest > 0 else ""
    card = _text_card("shown", id, note["title"], content, [_edit(note), _delete(note)])
    return ToolResult(
        for_model=f"Note {id}, {note['title']}:\n{part}{more}",
        card=card,
        outcome=f"ok, {len(content)} characters",
        subject=f"note {id}" if offset == 0 else None,
        holds={"note": id},
    )


@family.tool("commit", identified_by=("id",))
async def note_delete(context: ToolContext, id: NoteId) -> ToolResult:
    """Delete a note."""
    note = await _get(context, id)
    await deleted_facts.keep(context.tx, "note", note, context.now)
    await notes.delete(context.tx, id)
    undo = action("undo", "note_restore", {"id": id})
    card = notice(f"Note {id} deleted", note["title"], actions=[undo], title_key="card.note.deleted", params={"id": id})
    return ToolResult(for_model=f"Note {id} is deleted.", card=card, outcome=f"ok, note {id}")


@family.tool("commit", for_model=False, identified_by=("id",))
async def note_restore(context: ToolContext, id: NoteId) -> ToolResult:
    """Put a deleted note back."""
    if await notes.get(context.tx, id) is not None:
        raise ToolFailed(f"Note {id} is there already.")
    note = await deleted_facts.take(context.tx, "note", id)
    if note is None:
        raise ToolFailed(f"Note {id} was deleted more than a day ago, or never was.")
    await notes.restore(context.tx, note, context.now)
    card = _text_card("restored", id, note["title"], note["content"], [_delete(note)])
    return ToolResult(for_model=f"Note {id} is back.", card=card, outcome=f"ok, note {id}")


@family.working_state
async def _sections(context: ToolContext) -> list[StateSection]:
    rows = await notes.list_all(context.tx)
    sections = [StateSection(0, f"Notes, {len(rows)}", _lines(rows), "note_list")] if rows else []
    in_hand = next((row for row in rows if row["id"] == context.held.get("note")), None)
    if in_hand is not None:
        sections.append(StateSection(2, f"Note {in_hand['id']} in hand, {in_hand['title']}", in_hand["content"], "note_read"))
    return sections


@family.counts
async def _count(context: ToolContext) -> str:
    return f"notes: {await notes.count(context.tx)}"


async def _get(context: ToolContext, note_id: int) -> dict[str, Any]:
    note = await notes.get(context.tx, note_id)
    if note is None:
        raise ToolFailed(f"There is no note {note_id}; note_list shows the numbers.")
    return note


def _text_card(verb: str, note_id: int, title: str, content: str, buttons: list[dict[str, Any]]) -> Card:
    shown = f"Note {note_id}: {title}"
    key = f"card.note.{verb}"
    return preview(shown, content, text_format="markdown", actions=buttons, title_key=key, params={"id": note_id, "title": title})


def _edit(note: dict[str, Any]) -> dict[str, Any]:
    arguments = {"id": note["id"], "title": note["title"], "content": note["content"]}
    return action("edit", "note_save", arguments, edit="content")


def _delete(note: dict[str, Any]) -> dict[str, Any]:
    return action("delete", "note_delete", {"id": note["id"]}, "danger")


def _lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(f"{row['id']} {row['title']} ({len(row['content'])} characters)" for row in rows)
