"""Jobs that ended long ago, and go with all that was measured in them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from records.sql import jobs
from records.sql.jobs import job_of
from records.sql.schema import JobRow, RecordRow, database_time
from records.types import ENDED, LOCAL

if TYPE_CHECKING:
    from records.store import Store

LOOKED_AT = 500
"""Jobs of one page of candidates."""


def expire(store: Store, seconds: float) -> int:
    """Removes jobs made here that ended longer ago than that, with their records, the timings of
    these and their events, each in a transaction of its own; returns how many.

    A job that holds the best of its workload, target and device stays whole, as do jobs that wait,
    run or are paused, and imported ones.
    """
    removed, after = 0, ""
    while True:
        with store._db.transaction(writes=False) as connection:
            ids = _old(connection, seconds, after)
        for job_id in ids:
            if store._db.write(partial(_remove, job_id=job_id, seconds=seconds)):
                store._inserter.forget(job_id)
                removed += 1
        if len(ids) < LOOKED_AT:
            return removed
        after = ids[-1]


def _old(connection: Connection, seconds: float, after: str) -> list[str]:
    """The ids of jobs made here that ended longer ago than that, those after the id `after`, in
    order, at most LOOKED_AT. Imported jobs stay until they are deleted by name."""
    query = (
        select(JobRow.id)
        .where(JobRow.state.in_(ENDED), JobRow.origin == LOCAL, JobRow.id > after)
        .where(JobRow.ended_at < database_time(-seconds))
        .order_by(JobRow.id)
        .limit(LOOKED_AT)
    )
    return list(connection.scalars(query))


def _remove(connection: Connection, job_id: str, seconds: float) -> bool:
    """Removes the job if it still ended longer ago than that, and no other record of its workload,
    target and device would be handed out in its best's place; whether it did.

    The job that holds the best stays whole: with it would go what `best` answers.
    """
    still = select(JobRow.id).where(
        JobRow.id == job_id, JobRow.state.in_(ENDED), JobRow.ended_at < database_time(-seconds)
    )
    if connection.execute(still.with_for_update(key_share=True)).first() is None:
        return False
    if _holds_the_best(connection, job_id):
        return False
    jobs.delete(connection, job_id)
    return True


def _holds_the_best(connection: Connection, job_id: str) -> bool:
    """Whether a record of the job may be what is handed out for its workload: whether none of
    another job, of the same target and device, has as good a standing and time."""
    job = job_of(connection, job_id)
    if job.best_record_id is None:
        return False
    found = connection.execute(_RANK.where(RecordRow.id == job.best_record_id)).first()
    if found is None or found.standing is None:
        return False
    better = (
        select(RecordRow.id)
        .where(
            RecordRow.workload_key == found.workload_key,
            RecordRow.target == found.target,
            RecordRow.device == found.device,
            RecordRow.job_id != job_id,
            RecordRow.standing <= found.standing,
            RecordRow.ranked_seconds <= found.ranked_seconds,
        )
        .limit(1)
    )
    return connection.execute(better).first() is None


_RANK = select(
    RecordRow.workload_key,
    RecordRow.target,
    RecordRow.device,
    RecordRow.standing,
    RecordRow.ranked_seconds,
)
