"""What the database of a running server shows, read beside it: the judge of every deed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

# The facts by table; equal ones mean that nothing has changed.
Facts = dict[str, list[dict[str, Any]]]

_QUERIES = {
    "tasks": "SELECT id, title, done FROM tasks ORDER BY id",
    "notes": "SELECT id, title, content FROM notes ORDER BY id",
    "prompts": "SELECT version, status, content FROM system_prompts ORDER BY id",
    "snapshots": "SELECT id, label, content FROM snapshots ORDER BY id",
}


def read_facts(path: Path) -> Facts:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        database.execute("BEGIN")  # all of one moment
        return {name: [dict(row) for row in database.execute(query)] for name, query in _QUERIES.items()}
