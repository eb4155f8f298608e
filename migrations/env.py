"""Alembic's entry: runs the migrations inside the transaction of the connection that `backend/store/migrate.py` hands over."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
