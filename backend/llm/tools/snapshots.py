"""The family `snapshots`: labelled slices of tasks, notes and this chat's prompt, compared and restored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from backend.errors import ToolFailed
from backend.llm.core.cards import Action, Card, action, diff, item_list, notice
from backend.llm.core.registry import LARGEST_NUMBER, Family, StateSection, ToolContext, ToolResult
from backend.store import deleted_facts, notes, prompts, snapshots, tasks

family = Family("snapshots")

LABEL_CHARACTERS = 200
# What the working state lists; snapshot_list has them all.
LISTED = 5
# What a diff shows of a note that is on one side only: there is nothing to compare it with.
HEAD_CHARACTERS = 400

Kind = Literal["task", "note", "prompt"]
STORES: dict[str, ModuleType] = {"task": tasks, "note": notes}
# What of a fact can change; the rest of its row is where it came from.
FIELDS = {"task": ("title", "done"), "note": ("title", "content")}
ORIGIN = ("id", "session_id", "created_at")

# `{task: [row…], note: [row…], prompt: text or None}`; the same facts make the same JSON.
Slice = dict[str, Any]

SnapshotId = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, description="Number of the snapshot.")]
Label = Annotated[str, Field(min_length=1, max_length=LABEL_CHARACTERS, description="What the snapshot is for.")]


@dataclass(frozen=True, slots=True)
class Change:
    """A fact that differs between two slices; None where it isn't there."""

    kind: Kind
    before: Any
    after: Any


@family.tool("draft", entry=True, identified_by=("label",))
async def snapshot_take(context: ToolContext, label: Label) -> ToolResult:
    """Keep all tasks, all notes and this chat's system prompt as they are now, under a label."""
    label = " ".join(label.split())
    if not label:
        raise ToolFailed("The snapshot has no label; say what it is for.")
    taken = await _read(context)
    number = await snapshots.insert(context.tx, context.session_id, label, _encode(taken), context.now)
    body = f"{len(taken['task'])} tasks, {len(taken['note'])} notes, {'the' if taken['prompt'] else 'no'} system prompt"
    names = {
        "title_key": "card.snapshot.taken",
        "body_key": "card.snapshot.holds" if taken["prompt"] else "card.snapshot.holds_no_prompt",
        "params": {"id": number, "label": label, "tasks": len(taken["task"]), "notes": len(taken["note"])},
    }
    card = notice(f"Snapshot {number}: {label}", body, actions=_buttons(number), **names)
    return ToolResult(for_model=f"Snapshot {number} is taken: {body}.", card=card, outcome=f"ok, snapshot {number}")


@family.tool("read")
async def snapshot_list(context: ToolContext) -> ToolResult:
    """List this chat's snapshots with their numbers, labels and times, the newest first."""
    rows = await snapshots.list_heads(context.tx, context.session_id)
    items = [{"id": row["id"], "text": _line(row), "actions": _buttons(row["id"])} for row in rows]
    card = item_list(f"Snapshots: {len(rows)}", items, title_key="card.snapshot.list", params={"count": len(rows)})
    said = "\n".join(_line(row) for row in rows) or "There are no snapshots in this chat."
    return ToolResult(for_model=said, card=card, outcome=f"ok, {len(rows)} snapshots")


@family.tool("read", identified_by=("a", "b"))
async def snapshot_diff(
    context: ToolContext, a: SnapshotId, b: Annotated[SnapshotId | None, Field(description="The later one; none: the facts of now.")] = None
) -> ToolResult:
    """Show what was added, removed and changed from one snapshot to another, or from one to now."""
    before = _decode(await _get(context, a))
    after = await _read(context) if b is None else _decode(await _get(context, b))
    changes = _changes(before, after)
    title = f"From snapshot {a} to {'now' if b is None else f'snapshot {b}'}"
    names = {"title_key": "card.snapshot.diff_now" if b is None else "card.snapshot.diff", "params": {"a": a, "b": b}}
    lines = "\n".join(_told(change) for change in changes)
    return ToolResult(
        for_model=f"{title}:\n{lines or 'no difference'}",
        card=_diff_card(title, changes, [_restore(a)] if b is None else [], names),
        outcome=f"ok, {len(changes)} differences",
    )


@family.tool("commit", identified_by=("id",))
async def snapshot_restore(context: ToolContext, id: SnapshotId) -> ToolResult:
    """Bring tasks, notes and this chat's system prompt back to a snapshot. The state before is kept as another one."""
    row = await _get(context, id)
    current = await _read(context)
    changes = _changes(current, _decode(row))
    if not changes:
        raise ToolFailed(f"Everything is as in snapshot {id} already.")
    kept = await _keep(context, current, f"Before restoring: {row['label']}"[:LABEL_CHARACTERS])
    for change in changes:
        await _bring_about(context, change)
    names = {"title_key": "card.snapshot.restored", "params": {"id": id, "label": row["label"]}}
    undo = action("undo", "snapshot_restore", {"id": kept})
    said = "\n".join([f"Snapshot {id} is restored; the state before is snapshot {kept}.", *map(_told, changes)])
    return ToolResult(
        for_model=said,
        card=_diff_card(f"Snapshot {id} restored: {row['label']}", changes, [undo], names),
        outcome=f"ok, {len(changes)} changes, before: snapshot {kept}",
        completes=f"Snapshot {id}: {row['label']}",
    )


@family.working_state
async def _sections(context: ToolContext) -> list[StateSection]:
    rows = await snapshots.list_heads(context.tx, context.session_id)
    if not rows:
        return []
    lines = [_line(row) for row in rows[:LISTED]] + ["…"] * (len(rows) > LISTED)
    return [StateSection(0, f"Snapshots of this chat, {len(rows)}", "\n".join(lines), "snapshot_list")]


@family.counts
async def _count(context: ToolContext) -> str:
    return f"snapshots: {await snapshots.count(context.tx, context.session_id)}"


async def _get(context: ToolContext, snapshot_id: int) -> dict[str, Any]:
    row = await snapshots.get(context.tx, context.session_id, snapshot_id)
    if row is None:
        raise ToolFailed(f"There is no snapshot {snapshot_id} in this chat; snapshot_list shows the numbers.")
    return row


async def _read(context: ToolContext) -> Slice:
    """The slice of now."""
    applied = await prompts.get_with_status(context.tx, context.session_id, "applied")
    facts: Slice = {"prompt": applied["content"] if applied else None}
    for kind, store in STORES.items():
        rows = await store.list_all(context.tx, context.session_id)
        facts[kind] = [{name: row[name] for name in (*ORIGIN, *FIELDS[kind])} for row in sorted(rows, key=lambda row: row["id"])]
    return facts


async def _keep(context: ToolContext, facts: Slice, label: str) -> int:
    """The number of a snapshot of these facts: one that is there already serves as well."""
    content = _encode(facts)
    same = await snapshots.get_same(context.tx, context.session_id, content)
    return same["id"] if same else await snapshots.insert(context.tx, context.session_id, label, content, context.now)


async def _bring_about(context: ToolContext, change: Change) -> None:
    """Make the change. A fact keeps its number, and one that goes can be brought back for a day."""
    if change.kind == "prompt":
        await prompts.replace_status(context.tx, context.session_id, "applied", "superseded")
        if change.after is not None:
            await prompts.insert(context.tx, context.session_id, change.after, "applied", context.now)
        return
    store = STORES[change.kind]
    if change.after is None:
        await deleted_facts.keep(context.tx, context.session_id, change.kind, change.before, context.now)
        await store.delete(context.tx, change.before["id"])
    elif change.before is None:
        await deleted_facts.take(context.tx, context.session_id, change.kind, change.after["id"])
        await store.restore(context.tx, context.session_id, change.after, context.now)
    else:
        await store.update(context.tx, change.after["id"], now=context.now, **{name: change.after[name] for name in FIELDS[change.kind]})


def _changes(before: Slice, after: Slice) -> list[Change]:
    changes = []
    for kind in ("task", "note"):
        old, new = ({row["id"]: row for row in facts[kind]} for facts in (before, after))
        pairs = [(old.get(number), new.get(number)) for number in sorted(old.keys() | new.keys())]
        changes += [Change(kind, *pair) for pair in pairs if _facts(kind, pair[0]) != _facts(kind, pair[1])]
    if before["prompt"] != after["prompt"]:
        changes.append(Change("prompt", before["prompt"], after["prompt"]))
    return changes


def _facts(kind: str, row: dict[str, Any] | None) -> list[Any] | None:
    return None if row is None else [row[name] for name in FIELDS[kind]]


def _told(change: Change) -> str:
    """A change as the model reads it: one line, no body."""
    old, new = (None if side is None else _short(change.kind, side) for side in (change.before, change.after))
    if old is None:
        return f"added {new}"
    return f"removed {old}" if new is None else f"changed {old} → {new}"


def _short(kind: Kind, fact: Any) -> str:
    if kind == "prompt":
        return f"system prompt ({len(fact)} characters)"
    if kind == "note":
        return f"note {fact['id']} {fact['title']} ({len(fact['content'])} characters)"
    return f"task {fact['id']} [{'x' if fact['done'] else ' '}] {fact['title']}"


def _diff_card(title: str, changes: Sequence[Change], buttons: list[Action], names: dict[str, Any]) -> Card:
    """What differs, both sides in full; what is the same on both is left out."""
    if not changes:
        return notice(title, "There is no difference.", body_key="card.snapshot.same", **names)
    before = [_shown(change.kind, change.before, change.after) for change in changes if change.before is not None]
    after = [_shown(change.kind, change.after, change.before) for change in changes if change.after is not None]
    return diff(title, "\n".join(before), "\n".join(after), actions=buttons, **names)


def _shown(kind: Kind, fact: Any, other: Any) -> str:
    if kind == "prompt":
        return f"# System prompt\n\n{fact}\n"
    if kind == "task":
        return f"[{'x' if fact['done'] else ' '}] {fact['id']} {fact['title']}"
    content = fact["content"]
    if other is None and len(content) > HEAD_CHARACTERS:
        content = f"{content[:HEAD_CHARACTERS]} … ({len(content)})"
    return f"# {fact['id']} {fact['title']}\n\n{content}\n"


def _buttons(number: int) -> list[Action]:
    return [action("compare", "snapshot_diff", {"a": number}), _restore(number)]


def _restore(number: int) -> Action:
    return action("restore", "snapshot_restore", {"id": number})


def _line(row: dict[str, Any]) -> str:
    return f"{row['id']} {row['label']} ({row['created_at'][:16]}Z)"


def _encode(facts: Slice) -> str:
    return json.dumps(facts, ensure_ascii=False, sort_keys=True)


def _decode(row: dict[str, Any]) -> Slice:
    return dict(json.loads(row["content"]))
