"""Runs migrations on the connection that `records.sql.versions` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from records.sql.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
