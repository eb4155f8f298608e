"""A chat knows which of several servers took it up last: what another one still writes to it is refused.

A server of the version before goes on beside it: it neither reads nor writes this.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("chats", sa.Column("server", sa.Text))
