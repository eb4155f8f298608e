"""Tell working material from the conversation. A table that has the column already keeps it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    columns = op.get_bind().execute(sa.text("SELECT * FROM chat_messages LIMIT 0")).keys()
    if "is_ephemeral" not in {column.lower() for column in columns}:
        op.execute("ALTER TABLE chat_messages ADD COLUMN is_ephemeral INTEGER DEFAULT 0")
