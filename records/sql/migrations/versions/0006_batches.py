"""Jobs may be of a batch; devices have limits that programs are held against."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("batch_id", sa.String(32)))
    op.add_column("jobs", sa.Column("device_part", sa.Double, nullable=False, server_default="1"))
    op.create_index("ix_jobs_batch", "jobs", ["batch_id"])
    op.create_index("ix_jobs_ended", "jobs", ["ended_at"])
    op.create_table(
        "device_limits",
        sa.Column("device", sa.Text, primary_key=True),
        sa.Column("flops", sa.Double, nullable=False),
        sa.Column("bytes_per_second", sa.Double, nullable=False),
        sa.Column("cache_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "traffic",
        sa.Column("workload_key", sa.Text, sa.ForeignKey("workloads.key"), primary_key=True),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("dtype", sa.Text),
    )
