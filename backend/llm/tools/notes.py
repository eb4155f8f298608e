"""The family `notes`: texts worth keeping, for the whole workspace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from backend.errors import ToolFailed
from backend.llm.core.cards import Action, Card, action, diff, item_list, notice, preview
from backend.llm.core.registry import LARGEST_NUMBER, Family, StateSection, ToolContext, ToolResult
from backend.store import deleted_facts, notes

family = Family("notes")

LONGEST_NOTE = 200_000

NoteId = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, description="Number of the note.")]
Title = Annotated[str, Field(min_length=1, max_length=200, description="What the note is about.")]
Content = Annotated[str, Field(min_length=1, max_length=LONGEST_NOTE, description="The whole text of the note.")]


@family.tool("commit", entry=True, identified_by=("id", "title"))
async def note_save(context: ToolContext, title: Title, content: Content, id: NoteId | None = None) -> ToolResult:
    """Save a note. With the number of an existing note: replace that one."""
    title = " ".join(title.split())
    if not title or not content.strip():
        raise ToolFailed("A note needs a title and a text.")
    if id is not None:
        return await _replace(context, await _get(context, id), title, content)
    note = await notes.insert(context.tx, title, content, context.session_id, context.now)
    buttons = [_view(note), action("undo", "note_delete", {"id": note["id"]})]
    return _in_hand(note, f"Note {note['id']} is saved.", _text_card("saved", note, buttons))


@family.tool("read", entry=True)
async def note_list(context: ToolContext) -> ToolResult:
    """List the notes with their numbers, titles and lengths, the last changed first."""
    rows = await notes.list_heads(context.tx, context.session_id)
    items = [{"id": row["id"], "text": row["title"], "actions": [_view(row), _delete(row)]} for row in rows]
    card = item_list(f"Notes: {len(rows)}", items, title_key="card.note.list", params={"count": len(rows)})
    return ToolResult(for_model=_lines(rows) or "There are no notes.", card=card, outcome=f"ok, {len(rows)} notes")


@family.tool("read", identified_by=("id", "offset"))
async def note_read(
    context: ToolContext,
    id: NoteId,
    offset: Annotated[int, Field(ge=0, le=LONGEST_NOTE, description="Characters to skip.")] = 0,
    limit: Annotated[int, Field(ge=1, le=LONGEST_NOTE, description="Characters to read at most.")] = LONGEST_NOTE,
) -> ToolResult:
    """Read a note. A long one is read in parts, by offset and limit."""
    note = await _get(context, id)
    content = note["content"]
    if offset >= len(content):
        raise ToolFailed(f"Note {id} ends before that: it has {len(content)} characters.")
    part = content[offset : offset + limit]
    rest = len(content) - offset - len(part)
    heading = f"Note {id}, {note['title']}:\n"
    more = f"\n[{rest} more characters: note_read with offset {offset + len(part)} reads on.]" if rest else ""
    return ToolResult(
        for_model=f"{heading}{part}{more}",
        card=_text_card("shown", note, [_edit(note), _delete(note)]),
        outcome=f"ok, {len(content)} characters",
        subject=_subject(id) if offset == 0 else None,
        holds={"note": id},
        starts_at=offset - len(heading),
    )


@family.tool("commit", identified_by=("id",))
async def note_delete(context: ToolContext, id: NoteId) -> ToolResult:
    """Delete a note."""
    note = await _get(context, id)
    await deleted_facts.keep(context.tx, context.session_id, "note", note, context.now)
    await notes.delete(context.tx, id)
    undo = action("undo", "note_restore", {"id": id})
    card = notice(f"Note {id} deleted", note["title"], actions=[undo], title_key="card.note.deleted", params={"id": id})
    still_held = {name: value for name, value in context.held.items() if value != id}
    return ToolResult(for_model=f"Note {id} is deleted.", card=card, outcome=f"ok, note {id}", subject=_subject(id), holds=still_held)


@family.tool("commit", for_model=False, identified_by=("id",))
async def note_restore(context: ToolContext, id: NoteId) -> ToolResult:
    """Put a deleted note back."""
    if await notes.get(context.tx, context.session_id, id) is not None:
        raise ToolFailed(f"Note {id} is there already.")
    note = await deleted_facts.take(context.tx, context.session_id, "note", id)
    if note is None:
        raise ToolFailed(f"Note {id} was deleted more than a day ago, or never was.")
    await notes.restore(context.tx, context.session_id, note, context.now)
    buttons = [_view(note), action("undo", "note_delete", {"id": id})]
    return _in_hand(note, f"Note {id} is back.", _text_card("restored", note, buttons))


@family.working_state
async def _sections(context: ToolContext) -> list[StateSection]:
    rows = await notes.list_heads(context.tx, context.session_id)
    sections = [StateSection(0, f"Notes, {len(rows)}", _lines(rows), "note_list")] if rows else []
    held = context.held.get("note")
    note = await notes.get(context.tx, context.session_id, held) if held else None
    if note is not None:
        sections.append(StateSection(2, f"Note {note['id']} in hand, {note['title']}", note["content"], "note_read", _subject(note["id"])))
    return sections


@family.counts
async def _count(context: ToolContext) -> str:
    return f"notes: {await notes.count(context.tx, context.session_id)}"


async def _get(context: ToolContext, note_id: int) -> dict[str, Any]:
    note = await notes.get(context.tx, context.session_id, note_id)
    if note is None:
        raise ToolFailed(f"There is no note {note_id}; note_list shows the numbers.")
    return note


async def _replace(context: ToolContext, note: dict[str, Any], title: str, content: str) -> ToolResult:
    number = note["id"]
    if (title, content) == (note["title"], note["content"]):
        raise ToolFailed(f"Note {number} has this title and text already.")
    await notes.update(context.tx, number, title=title, content=content, now=context.now)
    replaced = {"id": number, "title": title, "content": content}
    undo = action("undo", "note_save", {"id": number, "title": note["title"], "content": note["content"]})
    names = {"title_key": "card.note.replaced", "params": {"id": number, "title": title}}
    card = diff(f"Note {number} replaced", _whole(note), _whole(replaced), actions=[_view(note), undo], **names)
    return _in_hand(replaced, f"Note {number} is replaced.", card, completes=f"Note {number}: {title}")


def _in_hand(note: dict[str, Any], said: str, card: Card, completes: str | None = None) -> ToolResult:
    """The result of a change: the note as it is now is in hand, and what was shown of it before is over."""
    number = note["id"]
    return ToolResult(
        for_model=said, card=card, outcome=f"ok, note {number}", subject=_subject(number), holds={"note": number}, completes=completes
    )  # fmt: skip


def _subject(note_id: int) -> str:
    return f"notes.{note_id}"


def _text_card(verb: str, note: dict[str, Any], buttons: list[Action]) -> Card:
    names = {"title_key": f"card.note.{verb}", "params": {"id": note["id"], "title": note["title"]}}
    return preview(f"Note {note['id']}: {note['title']}", note["content"], text_format="markdown", actions=buttons, **names)


def _view(note: dict[str, Any]) -> Action:
    return action("view", "note_read", {"id": note["id"]})


def _edit(note: dict[str, Any]) -> Action:
    arguments = {"id": note["id"], "title": note["title"], "content": note["content"]}
    return action("edit", "note_save", arguments, edit="content")


def _delete(note: dict[str, Any]) -> Action:
    return action("delete", "note_delete", {"id": note["id"]}, "danger")


def _whole(note: dict[str, Any]) -> str:
    """A note as a diff shows it: a new title alone is a change too."""
    return f"{note['title']}\n\n{note['content']}"


def _lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(f"{row['id']} {row['title']} ({row['characters']} characters)" for row in rows)
