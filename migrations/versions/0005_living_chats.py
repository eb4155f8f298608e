"""Temporary chats, a chat's parameters, a model's window, and the replies that a chosen one stands for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("chats", sa.Column("temporary", sa.Integer, nullable=False, server_default="0"))
    op.add_column("chats", sa.Column("parameters", sa.Text, nullable=False, server_default="{}"))
    # Which of how many variants a reply is; NULL while it is the only one.
    op.add_column("chat_messages", sa.Column("variant", sa.Integer))
    op.add_column("chat_messages", sa.Column("variants", sa.Integer))
    _create_reply_variants()
    op.create_table(
        "model_windows",
        sa.Column("model", sa.Text, primary_key=True, nullable=False),
        sa.Column("num_ctx", sa.Integer, nullable=False),
    )


def _create_reply_variants() -> None:
    """The replies to a message that are not the shown one. Outside `chat_messages`, no query can take them for history."""
    op.create_table(
        "reply_variants",
        sa.Column("id", _ID, sa.Identity(), primary_key=True),
        sa.Column("session_id", sa.Text, sa.ForeignKey("chats.id", ondelete="CASCADE"), nullable=False),
        sa.Column("user_message_id", _ID, sa.ForeignKey("chat_messages.id", ondelete="CASCADE"), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("thinking", sa.Text),
        sa.Column("model", sa.Text),
        sa.Column("metrics", sa.Text),
        sa.Column("receipts", sa.Text, nullable=False, server_default="[]"),  # what its own tool calls read
        sa.Column("created_at", sa.Text, nullable=False),
        sa.UniqueConstraint("user_message_id", "position"),
    )
    op.create_index("reply_variants_by_session", "reply_variants", ["session_id"])
