"""The tables of autosched 0.1, as they were made without Alembic."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "workloads",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("args", sa.JSON),
        sa.Column("script", sa.Text, nullable=False),
        sa.Column("flop", sa.Double, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("workload_key", sa.Text, sa.ForeignKey("workloads.key"), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("device", sa.Text),
        sa.Column("seed", sa.BigInteger),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("trials_requested", sa.Integer, nullable=False),
        sa.Column("trials_done", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Index("ix_jobs_resume", "workload_key", "target", "seed", "created_at"),
    )
    op.create_table(
        "traces",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("dialect", sa.Integer, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
    )
    op.create_table(
        "records",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("job_id", sa.String(64), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("workload_key", sa.Text, sa.ForeignKey("workloads.key"), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("toolchain", sa.Text, nullable=False),
        sa.Column("trace_id", _ID, sa.ForeignKey("traces.id"), nullable=False),
        sa.Column("decisions", sa.JSON, nullable=False),
        sa.Column("program_hash", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("seconds", sa.Double),
        sa.Column("spread", sa.Double),
        sa.Column("noise", sa.Double),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("build_seconds", sa.Double),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("remeasured_seconds", sa.Double),
        sa.Column("standing", sa.SmallInteger),
        sa.Column("ranked_seconds", sa.Double),
        sa.UniqueConstraint("job_id", "round", "slot", name="uq_records_job_round_slot"),
        sa.Index(
            "ix_records_best",
            *("workload_key", "target", "device", "standing", "ranked_seconds", "id", "status"),
        ),
        sa.Index("ix_records_workload", "workload_key", "id"),
        sa.Index("ix_records_job", "job_id", "id"),
    )
    op.create_table(
        "measurements",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("record_id", _ID, sa.ForeignKey("records.id"), nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("spread", sa.Double),
        sa.Column("noise", sa.Double),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Index("ix_measurements_record_id", "record_id"),
    )
