"""Chats and facts have an owner; what was there before belongs to the local user, whose name is empty.

A server of the version before goes on beside it: what it writes is the local user's.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

# The names of constraints that were made without one: ours for SQLite, which has none, and PostgreSQL's own.
_BY_CLIENT_ID = {"sqlite": "uq_chats_client_id", "postgresql": "chats_client_id_key"}


def upgrade() -> None:
    for table in ("chats", "tasks", "notes", "deleted_facts"):
        op.add_column(table, sa.Column("owner", sa.Text, nullable=False, server_default=""))
    naming = {"uq": "uq_%(table_name)s_%(column_0_name)s"}
    with op.batch_alter_table("chats", naming_convention=naming) as chats:
        chats.drop_constraint(_BY_CLIENT_ID[op.get_bind().dialect.name], type_="unique")
        chats.create_unique_constraint("chats_by_client_id", ["owner", "client_id"])
    for table in ("tasks", "notes", "deleted_facts"):
        op.create_index(f"{table}_by_owner", table, ["owner"])
