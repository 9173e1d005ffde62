"""Jobs may be the tasks of a model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "job_tasks",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("kernel", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("estimate", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
    )
