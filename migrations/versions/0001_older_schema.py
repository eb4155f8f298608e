"""The schema as older programs made it. Tables that such a program left are taken as they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    present = sa.inspect(op.get_bind())
    if not present.has_table("chat_messages"):
        op.create_table(
            "chat_messages",
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("session_id", sa.Text),
            sa.Column("role", sa.Text),
            sa.Column("content", sa.Text),
            sa.Column("created_at", sa.Text),
        )
    if not present.has_table("session_states"):
        op.create_table(
            "session_states",
            sa.Column("session_id", sa.Text, primary_key=True),
            sa.Column("state", sa.Text),
        )
