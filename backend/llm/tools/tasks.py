"""The family `tasks`: the workspace's to-do list."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from backend.errors import ToolFailed
from backend.llm.core.cards import action, item_list, notice
from backend.llm.core.registry import LARGEST_NUMBER, Family, StateSection, ToolContext, ToolResult
from backend.store import deleted_facts, tasks

family = Family("tasks")

TaskId = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, description="Number of the task.")]
Title = Annotated[str, Field(min_length=1, max_length=500, description="What is to be done.")]


@family.tool("commit", entry=True, identified_by=("title",))
async def task_add(context: ToolContext, title: Title) -> ToolResult:
    """Add a task to the list."""
    title = title.strip()
    if not title:
        raise ToolFailed("The task has no title; say what is to be done.")
    task = await tasks.insert(context.tx, title, context.session_id, context.now)
    undo = action("undo", "task_delete", {"id": task["id"]})
    complete = action("complete", "task_complete", {"id": task["id"]})
    return _changed(f"Task {task['id']} added", title, "added", task["id"], [complete, undo])


@family.tool("read", entry=True)
async def task_list(context: ToolContext) -> ToolResult:
    """List the tasks with their numbers, open ones first."""
    rows = await tasks.list_all(context.tx, context.session_id)
    still_open = sum(1 for row in rows if not row["done"])
    title = f"Tasks: {still_open} open of {len(rows)}"
    card = item_list(title, [_item(row) for row in rows], title_key="card.task.list", params={"open": still_open, "total": len(rows)})
    return ToolResult(for_model=_lines(rows) or "There are no tasks.", card=card, outcome=f"ok, {still_open} open")


@family.tool("commit", identified_by=("id", "title"))
async def task_update(context: ToolContext, id: TaskId, title: Title | None = None, done: bool | None = None) -> ToolResult:
    """Change a task's title, or whether it is done."""
    task = await _get(context, id)
    if title is None and done is None:
        raise ToolFailed("Nothing to change: give a title, or done.")
    new_title = task["title"] if title is None else title.strip()
    new_done = bool(task["done"]) if done is None else done
    if not new_title:
        raise ToolFailed("The task has no title; say what is to be done.")
    await tasks.update(context.tx, id, title=new_title, done=new_done, now=context.now)
    undo = action("undo", "task_update", {"id": id, "title": task["title"], "done": bool(task["done"])})
    body = f"{_marked(task)} → {_marked({'title': new_title, 'done': new_done})}"
    return _changed(f"Task {id} changed", body, "updated", id, [undo])


@family.tool("commit", identified_by=("id",))
async def task_complete(context: ToolContext, id: TaskId) -> ToolResult:
    """Mark a task as done."""
    task = await _get(context, id)
    if task["done"]:
        raise ToolFailed(f"Task {id} is done already.")
    await tasks.update(context.tx, id, title=task["title"], done=True, now=context.now)
    undo = action("undo", "task_update", {"id": id, "done": False})
    return _changed(f"Task {id} done", task["title"], "completed", id, [undo])


@family.tool("commit", identified_by=("id",))
async def task_delete(context: ToolContext, id: TaskId) -> ToolResult:
    """Delete a task."""
    task = await _get(context, id)
    await deleted_facts.keep(context.tx, context.session_id, "task", task, context.now)
    await tasks.delete(context.tx, id)
    undo = action("undo", "task_restore", {"id": id})
    return _changed(f"Task {id} deleted", task["title"], "deleted", id, [undo])


@family.tool("commit", for_model=False, identified_by=("id",))
async def task_restore(context: ToolContext, id: TaskId) -> ToolResult:
    """Put a deleted task back on the list."""
    if await tasks.get(context.tx, context.session_id, id) is not None:
        raise ToolFailed(f"Task {id} is on the list already.")
    task = await deleted_facts.take(context.tx, context.session_id, "task", id)
    if task is None:
        raise ToolFailed(f"Task {id} was deleted more than a day ago, or never was.")
    await tasks.restore(context.tx, context.session_id, task, context.now)
    return _changed(f"Task {id} restored", task["title"], "restored", id, [action("undo", "task_delete", {"id": id})])


@family.working_state
async def _sections(context: ToolContext) -> list[StateSection]:
    rows = await tasks.list_all(context.tx, context.session_id)
    still_open = [row for row in rows if not row["done"]]
    if not rows:
        return []
    return [StateSection(0, f"Tasks, {len(still_open)} open of {len(rows)}", _lines(rows), "task_list")]


@family.counts
async def _count(context: ToolContext) -> str:
    still_open, total = await tasks.counts(context.tx, context.session_id)
    return f"tasks: {still_open} open of {total}"


async def _get(context: ToolContext, task_id: int) -> dict[str, Any]:
    task = await tasks.get(context.tx, context.session_id, task_id)
    if task is None:
        raise ToolFailed(f"There is no task {task_id}; task_list shows the numbers.")
    return task


def _changed(title: str, body: str, verb: str, task_id: int, buttons: list[dict[str, Any]]) -> ToolResult:
    card = notice(title, body, actions=[*buttons, action("list", "task_list", {})], title_key=f"card.task.{verb}", params={"id": task_id})
    return ToolResult(for_model=f"{title}: {body}", card=card, outcome=f"ok, task {task_id}")


def _item(row: dict[str, Any]) -> dict[str, Any]:
    done = bool(row["done"])
    switch = action("reopen", "task_update", {"id": row["id"], "done": False}) if done else action("complete", "task_complete", {"id": row["id"]})
    delete = action("delete", "task_delete", {"id": row["id"]}, "danger")
    return {"id": row["id"], "text": row["title"], "done": done, "actions": [switch, delete]}


def _lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(f"{row['id']} {_marked(row)}" for row in rows)


def _marked(row: dict[str, Any]) -> str:
    return f"[{'x' if row['done'] else ' '}] {row['title']}"
