"""Minutes of workers, and which are drained; pools of jobs; tokens that rotate; webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_TIME = sa.DateTime(timezone=True)
_ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "worker_minutes",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("minute", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("busy_seconds", sa.Double, nullable=False),
        sa.Column("faults", sa.Integer, nullable=False),
    )
    op.create_index("ix_worker_minutes_minute", "worker_minutes", ["minute"])
    op.create_table(
        "drained_workers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
    )
    op.add_column("jobs", sa.Column("pool", sa.Text))
    op.add_column("tokens", sa.Column("previous_hash", sa.Text))
    op.add_column("tokens", sa.Column("previous_until", _TIME))
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(12), primary_key=True),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
    )
    op.create_index("ix_webhooks_client", "webhooks", ["client"])
    op.create_table(
        "deliveries",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("webhook_id", sa.String(12), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("not_before", _TIME, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"]),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
    )
    op.create_index("ix_deliveries_state", "deliveries", ["state", "not_before"])
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook_id", "id"])
    op.create_index("ix_deliveries_job_id", "deliveries", ["job_id"])
