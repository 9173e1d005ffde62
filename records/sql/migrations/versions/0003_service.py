"""Programs as text that can be parsed; what a service of many clients asks of the queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TIME = sa.DateTime(timezone=True)
_BEST = """
UPDATE jobs SET best_seconds = (
    SELECT min(seconds) FROM records
    WHERE records.job_id = jobs.id AND kind = 'trial' AND status = 'ok'
)
"""


def upgrade() -> None:
    op.add_column("workloads", sa.Column("text", sa.Text))
    op.drop_index("ix_records_job", "records")
    op.create_index("ix_records_job", "records", ["job_id", "id", "kind", "status", "seconds"])
    op.add_column("jobs", sa.Column("best_seconds", sa.Double))
    op.execute(_BEST)
    op.add_column("jobs", sa.Column("claimed_at", _TIME))
    # A client that nobody named is one like any other, and equal to itself. (SQLite cannot forbid
    # NULL in a column that is there.)
    op.alter_column("jobs", "client", new_column_name="old_client")
    op.add_column("jobs", sa.Column("client", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE jobs SET client = coalesce(old_client, '')")
    op.drop_column("jobs", "old_client")
    op.drop_index("ix_jobs_state", "jobs")
    op.create_index("ix_jobs_state", "jobs", ["state", "created_at", "id"])
    op.create_index("ix_jobs_created", "jobs", ["created_at", "id"])
    op.create_index("ix_jobs_client", "jobs", ["client", "claimed_at"])
    op.create_table(
        "submissions",
        sa.Column("client", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("job_id", sa.String(64), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Index("ix_submissions_created_at", "created_at"),
    )
