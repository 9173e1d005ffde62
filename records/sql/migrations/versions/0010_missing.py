"""What databases lack that were made while revision 0006 was still being written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    look = sa.inspect(op.get_bind())
    if "device_part" not in {column["name"] for column in look.get_columns("jobs")}:
        op.add_column(
            "jobs", sa.Column("device_part", sa.Double, nullable=False, server_default="1")
        )
    if not look.has_table("traffic"):
        op.create_table(
            "traffic",
            sa.Column("workload_key", sa.Text, sa.ForeignKey("workloads.key"), primary_key=True),
            sa.Column("bytes", sa.BigInteger, nullable=False),
            sa.Column("dtype", sa.Text),
        )
