"""What the trials of one job come to: counts by status, and a sample that shows their course.

Both are made by the database, in passes over the job's own index, so that a job of 100,000 trials
opens as fast as one of a thousand: rows that nobody looks at are not even read.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, Select, bindparam, func, literal, select
from sqlalchemy.orm import aliased

from records.ranking import pick
from records.sql.jobs import candidates_of
from records.sql.schema import RecordRow
from records.types import BASELINE_ROUND, OK, TRIAL


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
    """The trials of a job by status. Of its rows only those are read that may be its best: all else
    is in `ix_records_job`."""
    of_job = RecordRow.job_id == job_id
    groups = connection.execute(
        select(
            RecordRow.status,
            func.count().label("trials"),
            func.min(RecordRow.id).label("first_id"),
        )
        .where(of_job, RecordRow.kind == TRIAL)
        .group_by(RecordRow.status)
    ).all()
    ids = [row.first_id for row in groups]
    errors = connection.execute(
        select(RecordRow.id, RecordRow.error).where(RecordRow.id.in_(ids))
    ).all()
    messages: dict[int, str | None] = {row.id: row.error for row in errors}
    statuses = [
        StatusCount(
            status=row.status,
            trials=row.trials,
            first_id=row.first_id,
            message=messages[row.first_id],
        )
        for row in groups
    ]
    statuses.sort(key=lambda row: (row.status != OK, -row.trials, row.status))
    best = pick(candidates_of(connection, job_id))
    return Tallied(statuses=statuses, best_id=None if best is None else best.id)


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
    and the trials of the ids in `always` (some tens at most)."""
    trials = RecordRow.job_id == job_id, RecordRow.kind == TRIAL
    total, last = connection.execute(
        select(func.count(), func.max(RecordRow.id)).where(*trials)
    ).one()
    if not total:
        return []
    step = max(1, -(-total // at_most))
    found = [*connection.execute(_WALK, {"job_id": job_id, "step": step})]
    ids = [row.id for row in found]
    for one in sorted({last, *always}.difference(ids)):
        before = found[bisect(ids, one) - 1]
        since = select(func.count()).where(*trials, RecordRow.id > before.id, RecordRow.id <= one)
        number = literal(before.trial) + since.scalar_subquery()
        found += connection.execute(
            select(number.label("trial"), *_POINT).where(*trials, RecordRow.id == one)
        )
    return [_point(row.trial, row) for row in sorted(found, key=lambda row: row.trial)]


def following(
    connection: Connection, job_id: str, *, after_id: int, limit: int
) -> list[TrialPoint]:
    """The first `limit` trials of a job after the record `after_id`, numbered from 1 after it."""
    query = (
        select(*_POINT)
        .where(RecordRow.job_id == job_id, RecordRow.kind == TRIAL, RecordRow.id > after_id)
        .order_by(RecordRow.id)
        .limit(limit)
    )
    return [
        _point(number, row) for number, row in enumerate(connection.execute(query).all(), start=1)
    ]


def _point(trial: int, row: Any) -> TrialPoint:
    return TrialPoint(
        trial=trial,
        record_id=row.id,
        status=row.status,
        seconds=row.seconds if row.status == OK else None,
        created_at=row.created_at,
    )


_POINT = (RecordRow.id, RecordRow.status, RecordRow.seconds, RecordRow.created_at)


def _walk() -> Select[Any]:
    """Selects every `step`-th trial of a job, beginning with the first.

    From each to the one `step` further on: the index of the job is passed once, while window
    functions make a row of each trial.
    """
    row = aliased(RecordRow)
    trials = select(row.id).where(row.job_id == bindparam("job_id"), row.kind == TRIAL)
    first = trials.order_by(row.id).limit(1).scalar_subquery()
    start = select(literal(1).label("trial"), RecordRow.id.label("id")).where(RecordRow.id == first)
    at = start.cte("walk", recursive=True)
    step = bindparam("step", type_=Integer)
    ahead = trials.where(row.id > at.c.id).order_by(row.id).limit(1).offset(step - 1)
    following = ahead.correlate(at).scalar_subquery()
    walk = at.union_all(
        select(at.c.trial + step, RecordRow.id)
        .select_from(at)
        .join(RecordRow, RecordRow.id == following)
    )
    return select(walk.c.trial, *_POINT).join(walk, walk.c.id == RecordRow.id).order_by(walk.c.id)


_WALK = _walk()
