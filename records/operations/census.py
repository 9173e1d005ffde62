"""Counts for monitoring, none of which reads a table of records whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, select

from records.sql.schema import JobRow, RecordRow, UtcDateTime, database_time
from records.types import JOB_STATES, LOCAL, QUEUED, TRIAL

if TYPE_CHECKING:
    from records.store import Store


LOOKED_AT = 10_000
"""Records among which those of the last hour are looked for."""


@dataclass(frozen=True)
class Census:
    """`jobs` by state; seconds that the oldest queued job waits (0: none does); how many trials
    ended in each status among the records after the last census, whose last id is `last_id`."""

    jobs: Mapping[str, int]
    queue_seconds: float
    trials: Mapping[str, int]
    last_id: int


def take(store: Store, after_id: int | None) -> Census:
    """The counts now. `after_id`: `last_id` of the census before; None counts no trials yet.

    Raises StoreUnavailable.
    """
    states = select(JobRow.state, func.count()).group_by(JobRow.state)
    oldest = select(
        func.min(JobRow.updated_at, type_=UtcDateTime()), database_time().label("now")
    ).where(JobRow.state == QUEUED, JobRow.origin == LOCAL)
    with store._db.transaction(writes=False) as connection:
        jobs = dict.fromkeys(JOB_STATES, 0) | {r[0]: r[1] for r in connection.execute(states)}
        since, now = connection.execute(oldest).one()
        last = connection.execute(select(func.max(RecordRow.id))).scalar() or 0
        trials: dict[str, int] = {}
        if after_id is not None and last > after_id:
            added = (
                select(RecordRow.status, func.count())
                .where(RecordRow.id > after_id, RecordRow.id <= last)
                .where(RecordRow.kind == TRIAL, RecordRow.origin == LOCAL)
                .group_by(RecordRow.status)
            )
            trials = {r[0]: r[1] for r in connection.execute(added)}
    waited = 0.0 if since is None else max((now - since).total_seconds(), 0.0)
    return Census(jobs, waited, trials, last)


class Recent(NamedTuple):
    """The trials of the last hour that were measured here; `more`: there were more than were looked
    at."""

    trials: int
    more: bool


def recent(store: Store) -> Recent:
    """How much was measured lately, found among the last `LOOKED_AT` records. Raises
    StoreUnavailable."""
    with store._db.transaction(writes=False) as connection:
        last = connection.execute(select(func.max(RecordRow.id))).scalar() or 0
        found = connection.execute(
            select(func.count()).where(
                RecordRow.id > last - LOOKED_AT,
                RecordRow.kind == TRIAL,
                RecordRow.origin == LOCAL,
                RecordRow.created_at > database_time(-3600.0),
            )
        ).scalar_one()
    return Recent(found, found >= LOOKED_AT // 2)
