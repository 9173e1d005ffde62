"""Jobs are queued, claimed under a lease, and tell what happens to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.drop_table("meta")  # Alembic has the version in a table of its own
    op.add_column("jobs", sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("client", sa.Text))
    op.add_column("jobs", sa.Column("lease_owner", sa.Text))
    op.add_column("jobs", sa.Column("lease_epoch", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("lease_until", _TIME))
    op.create_index("ix_jobs_state", "jobs", ["state", "priority", "created_at"])
    op.create_table(
        "events",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("job_id", sa.String(64), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Index("ix_events_job", "job_id", "id"),
    )
