"""What the trials of one job come to: counts by status, and a sample that shows their course.

Both are made by the database in one pass over the job, so that a job of 100,000 trials opens as
fast as one of a thousand: rows that nobody looks at never become Python values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, func, or_, select

from records.ranking import Candidate, pick
from records.schema import RecordRow
from records.types import BASELINE, BASELINE_ROUND, OK


@dataclass(frozen=True, kw_only=True)
class StatusCount:
    """How many trials of a job have a status; the first of them and its error."""

    status: str
    trials: int
    first_id: int
    message: str | None


@dataclass(frozen=True, kw_only=True)
class Tallied:
    """The trials of a job: `statuses` (ok first, then the most frequent) and `best_id`, the record
    that is its best by the rules of `ranking.py`, baselines included; None if nothing is valid."""

    statuses: list[StatusCount]
    best_id: int | None

    @property
    def trials(self) -> int:
        return sum(row.trials for row in self.statuses)


@dataclass(frozen=True, kw_only=True)
class TrialPoint:
    """The `trial`-th trial of its job, counted from 1; `seconds` is None if it failed."""

    trial: int
    record_id: int
    status: str
    seconds: float | None
    created_at: datetime


def tallied(connection: Connection, job_id: str) -> Tallied:
    """The trials of a job by status."""
    of_job = RecordRow.job_id == job_id
    groups = connection.execute(
        select(
            RecordRow.kind,
            RecordRow.status,
            RecordRow.standing,
            func.count().label("records"),
            func.min(RecordRow.id).label("first_id"),
            func.min(RecordRow.ranked_seconds).label("least"),
        )
        .where(of_job)
        .group_by(RecordRow.kind, RecordRow.status, RecordRow.standing)
    ).all()
    counts: dict[str, tuple[int, int]] = {}
    for row in groups:
        if row.kind != BASELINE:
            trials, first = counts.get(row.status, (0, row.first_id))
            counts[row.status] = trials + row.records, min(first, row.first_id)
    ids = [first for _, first in counts.values()]
    errors = connection.execute(
        select(RecordRow.id, RecordRow.error).where(RecordRow.id.in_(ids))
    ).all()
    messages: dict[int, str | None] = {row.id: row.error for row in errors}
    statuses = [
        StatusCount(status=status, trials=trials, first_id=first, message=messages[first])
        for status, (trials, first) in counts.items()
    ]
    statuses.sort(key=lambda row: (row.status != OK, -row.trials, row.status))
    firsts = [Candidate(row.least, 0, row.standing) for row in groups if row.standing is not None]
    return Tallied(statuses=statuses, best_id=_best_id(connection, job_id, pick(firsts)))


def _best_id(connection: Connection, job_id: str, best: Candidate | None) -> int | None:
    if best is None:
        return None
    # The job's workload, target and device make this a seek in ix_records_best.
    scope = (RecordRow.workload_key, RecordRow.target, RecordRow.device)
    first = select(*scope).where(RecordRow.job_id == job_id).order_by(RecordRow.id).limit(1)
    values = connection.execute(first).one()
    query = (
        select(RecordRow.id)
        .where(*(column == value for column, value in zip(scope, values, strict=True)))
        .where(RecordRow.standing == best.standing, RecordRow.ranked_seconds == best.seconds)
        .where(RecordRow.job_id == job_id)
        .order_by(RecordRow.id)
        .limit(1)
    )
    return connection.execute(query).scalar()


def ends(connection: Connection, job_id: str) -> tuple[datetime, datetime] | None:
    """When the first and the last trial of a job were measured; None without trials."""
    trials = select(RecordRow.created_at).where(
        RecordRow.job_id == job_id, RecordRow.round != BASELINE_ROUND
    )
    first = connection.execute(trials.order_by(RecordRow.id).limit(1)).scalar()
    last = connection.execute(trials.order_by(RecordRow.id.desc()).limit(1)).scalar()
    return None if first is None or last is None else (first, last)


def sample(
    connection: Connection, job_id: str, *, at_most: int, always: Collection[int] = ()
) -> list[TrialPoint]:
    """Every n-th trial of a job in order, about `at_most` in all, with the first and the last one,
    and the records of the ids in `always` (some tens at most)."""
    of_job = RecordRow.job_id == job_id
    baselines = connection.execute(
        select(RecordRow.id).where(of_job, RecordRow.round == BASELINE_ROUND)
    ).scalars().all()  # fmt: skip
    trials = and_(of_job, RecordRow.id.not_in(baselines))
    total = connection.execute(select(func.count()).where(trials)).scalar_one()
    step = max(1, -(-total // at_most))
    number = func.row_number().over(order_by=RecordRow.id).label("trial")
    numbered = select(RecordRow.id, number).where(trials).subquery()
    wanted = or_(
        numbered.c.trial % step == 1 % step,
        numbered.c.trial == total,
        numbered.c.id.in_(always),
    )
    chosen = select(numbered).where(wanted).subquery()
    query = select(
        chosen.c.trial, RecordRow.id, RecordRow.status, RecordRow.seconds, RecordRow.created_at
    ).join(chosen, chosen.c.id == RecordRow.id).order_by(chosen.c.id)  # fmt: skip
    return [
        TrialPoint(
            trial=row.trial,
            record_id=row.id,
            status=row.status,
            seconds=row.seconds if row.status == OK else None,
            created_at=row.created_at,
        )
        for row in connection.execute(query)
    ]
