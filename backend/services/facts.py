"""The facts that a person may look at and edit beside a chat: prompt versions, tasks, notes, snapshots."""

from __future__ import annotations

from typing import Any

from backend.services.chat_rows import ChatRows
from backend.services.journal import Journal
from backend.store import deleted_facts, notes, prompts, snapshots, tasks
from backend.store.connection import Connection


class Facts:
    def __init__(self, journal: Journal, chat_rows: ChatRows) -> None:
        self._journal = journal
        self._rows = chat_rows

    async def get(self, chat_id: str) -> dict[str, Any]:
        """This chat's prompt versions and snapshots, its owner's tasks and notes, and what can be brought back.

        Raises NotFound.
        """
        return await self._journal.read(lambda tx: self._get(tx, chat_id))

    async def _get(self, tx: Connection, chat_id: str) -> dict[str, Any]:
        await self._rows.get(tx, chat_id)
        return {
            "prompts": [_only(row, "version", "status", "content", "created_at") for row in await prompts.list_versions(tx, chat_id)],
            "tasks": [{**_only(row, "id", "title", "updated_at"), "done": bool(row["done"])} for row in await tasks.list_all(tx, chat_id)],
            "notes": [_only(row, "id", "title", "content", "updated_at") for row in await notes.list_all(tx, chat_id)],
            "snapshots": [_only(row, "id", "label", "created_at") for row in await snapshots.list_heads(tx, chat_id)],
            "deleted": [{**_only(row, "kind", "fact_id", "deleted_at"), "title": row["content"]["title"]} for row in await deleted_facts.list_all(tx, chat_id)],
        }


def _only(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
