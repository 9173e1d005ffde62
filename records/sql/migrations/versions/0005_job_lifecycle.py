"""Jobs have names, tags, phases, notices, one best and a clock; tokens have quotas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_TIME = sa.DateTime(timezone=True)

# What `ranking.pick` chooses: a trial that was timed once counts only where none was measured
# again; baselines (standing 1) always do.
_BEST = """
UPDATE jobs SET best_record_id = (
    SELECT r.id FROM records AS r
    WHERE r.job_id = jobs.id AND r.standing IS NOT NULL AND r.ranked_seconds IS NOT NULL
    AND (r.standing < 2 OR NOT EXISTS (
        SELECT 1 FROM records AS other WHERE other.job_id = jobs.id AND other.standing = 0
    ))
    ORDER BY r.ranked_seconds, r.id LIMIT 1
)
"""
_BEST_SECONDS = """
UPDATE jobs SET best_seconds = (
    SELECT ranked_seconds FROM records WHERE records.id = jobs.best_record_id
)
"""
_BASELINE = """
UPDATE jobs SET baseline_seconds = (
    SELECT min(ranked_seconds) FROM records
    WHERE records.job_id = jobs.id AND kind = 'baseline' AND standing IS NOT NULL
)
"""
_ENDED = """
UPDATE jobs SET ended_at = updated_at WHERE state IN ('succeeded', 'failed', 'cancelled')
"""


def upgrade() -> None:
    op.add_column("jobs", sa.Column("name", sa.Text))
    op.add_column("jobs", sa.Column("tags", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("phase", sa.Text))
    op.add_column("jobs", sa.Column("notice", sa.Text))
    op.add_column("jobs", sa.Column("best_record_id", sa.BigInteger))
    op.add_column("jobs", sa.Column("baseline_seconds", sa.Double))
    op.add_column("jobs", sa.Column("run_seconds", sa.Double, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("not_before", _TIME))
    op.add_column("jobs", sa.Column("ended_at", _TIME))
    op.add_column("jobs", sa.Column("token_id", sa.String(12)))
    op.create_index("ix_jobs_token", "jobs", ["token_id", "state"])
    for statement in (_BEST, _BEST_SECONDS, _BASELINE, _ENDED):
        op.execute(statement)
    op.add_column("tokens", sa.Column("max_jobs", sa.BigInteger))
    op.add_column("tokens", sa.Column("max_trials", sa.BigInteger))
    op.add_column("tokens", sa.Column("max_device_seconds", sa.Double))
