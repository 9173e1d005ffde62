"""Batches: jobs that were submitted together and spend one budget of trials.

Each job has its own records, state and trials. The trials asked for of all of them come to the
batch's budget at all times: what is left of it is parted evenly among those that are worked on
(`share`), so that the job that is promised more by the task scheduler takes from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, func, or_, select, update

from records.errors import NoRecord
from records.queue.lease import check_lease
from records.sql.rows import select_values
from records.sql.schema import JobRow, database_time
from records.types import Job, Lease

if TYPE_CHECKING:
    from records.store import Store

MOST = 32
"""Jobs of a batch."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch, whose jobs stand in the order of their submission. Its name, tags and client are
    those of its jobs."""

    id: str
    jobs: Sequence[Job]

    @property
    def created_at(self) -> datetime:
        return min(job.created_at for job in self.jobs)


class BatchPage(NamedTuple):
    """Some batches, and the id at which to go on; None: there are no more."""

    batches: list[Batch]
    before: str | None


def batch_of(store: Store, batch_id: str) -> Batch:
    """The batch of that id. Raises NoRecord."""
    with store._db.transaction(writes=False) as connection:
        return Batch(id=batch_id, jobs=members(connection, batch_id))


def members(connection: Connection, batch_id: str) -> list[Job]:
    """The jobs of a batch in the order of their submission. Raises NoRecord if there are none."""
    query = select_values(Job).where(JobRow.batch_id == batch_id)
    rows = connection.execute(query.order_by(JobRow.created_at, JobRow.id)).all()
    if not rows:
        raise NoRecord(f"no batch {batch_id} in this store")
    jobs = [Job(**row._mapping) for row in rows]
    return sorted(jobs, key=lambda job: int(job.options.get("place", 0)))


def newest(store: Store, limit: int, before: str | None) -> BatchPage:
    """The newest batches, those made before the batch `before`."""
    made = func.min(JobRow.created_at).label("made")
    groups = select(JobRow.batch_id.label("id"), made).where(JobRow.batch_id.is_not(None))
    grouped = groups.group_by(JobRow.batch_id).subquery()
    query = select(grouped.c.id).order_by(grouped.c.made.desc(), grouped.c.id.desc())
    with store._db.snapshot() as connection:
        if before is not None:
            time = select(grouped.c.made).where(grouped.c.id == before).scalar_subquery()
            same = (grouped.c.made == time) & (grouped.c.id < before)
            query = query.where(or_(grouped.c.made < time, same))
        ids = connection.scalars(query.limit(limit + 1)).all()
        found = [Batch(id=one, jobs=members(connection, one)) for one in ids[:limit]]
    return BatchPage(found, found[-1].id if len(ids) > limit else None)


def share(store: Store, leases: Sequence[Lease]) -> None:
    """Parts what is left of the budget evenly among the jobs held under `leases`: each is asked for
    the trials that it has done and its part. Raises LeaseLost."""
    ids = sorted(lease.job_id for lease in leases)

    def work(connection: Connection) -> None:
        for lease in sorted(leases):
            check_lease(connection, lease)
        query = select(JobRow.id, JobRow.trials_done, JobRow.trials_requested)
        rows = connection.execute(query.where(JobRow.id.in_(ids)).order_by(JobRow.id)).all()
        left = sum(row.trials_requested - row.trials_done for row in rows)
        part, more = divmod(left, len(rows))
        for number, row in enumerate(rows):
            wanted = row.trials_done + part + (number < more)
            if wanted != row.trials_requested:
                values = {"trials_requested": wanted, "updated_at": database_time()}
                connection.execute(update(JobRow).where(JobRow.id == row.id).values(values))

    store._db.write(work)
