"""What deleted jobs had spent, and when clients were last served, outlive the jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column(
        "tokens", sa.Column("spent_trials", sa.BigInteger, nullable=False, server_default="0")
    )
    op.add_column(
        "tokens", sa.Column("spent_seconds", sa.Double, nullable=False, server_default="0")
    )
    op.create_table(
        "clients",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("served_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.execute(
        "INSERT INTO clients (name, served_at) SELECT client, MAX(claimed_at) FROM jobs "
        "WHERE claimed_at IS NOT NULL GROUP BY client"
    )
