"""The queue of jobs: who works on which, decided by the database and its clock.

A worker claims a job for some seconds, and renews the lease while it works. Who dies, or is cut
off, stops renewing; `reap` puts the job back, and the next claim raises the lease's epoch, so that
what the first one writes late is refused (`LeaseLost`). States:

    queued ──claim──► running ──finish──► succeeded | failed | cancelled ──resume──► queued
       │                 │  cancel──► cancelling ──finish, reap──► cancelled
       └──cancel──► cancelled        running ──park, reap──► queued
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, func, select, update
from sqlalchemy.orm import aliased

from records.errors import LeaseLost, NoRecord, RecordError
from records.rows import select_values
from records.schema import JobRow, database_time
from records.types import (
    CANCELLING,
    ENDED,
    LOCAL,
    QUEUED,
    RUNNING,
    Job,
    Lease,
    storable_text,
)

if TYPE_CHECKING:
    from records.database import Database
    from records.store import Store


def check_lease(connection: Connection, lease: Lease) -> None:
    """Raises LeaseLost unless the job is held under `lease`; holds the job until the end of the
    transaction."""
    query = select(JobRow.lease_epoch, JobRow.lease_owner).where(JobRow.id == lease.job_id)
    found = connection.execute(query.with_for_update()).first()
    if found is None or found.lease_owner is None or found.lease_epoch != lease.epoch:
        raise LeaseLost(
            f"the lease of epoch {lease.epoch} of job {lease.job_id} is over: "
            + ("there is no such job" if found is None else _holder(*found))
        )


def _holder(epoch: int, owner: str | None) -> str:
    return f"{owner} has epoch {epoch}" if owner else "nobody has the job now"


class JobQueue:
    """The jobs of a store as a queue. Any number of processes may use one at once."""

    def __init__(self, store: Store) -> None:
        self._db: Database = store._db

    def claim(self, owner: str, seconds: float) -> Job | None:
        """The next job, running under a new lease of `owner` for `seconds`; None if none waits.

        The highest priority first, then the client that has the fewest jobs running, then the
        oldest.
        """
        other = aliased(JobRow)
        same_client = func.coalesce(other.client, "") == func.coalesce(JobRow.client, "")
        running = (
            select(func.count())
            .where(other.state.in_((RUNNING, CANCELLING)), same_client)
            .correlate(JobRow)
            .scalar_subquery()
        )
        waiting = (
            select(JobRow.id)
            .where(JobRow.state == QUEUED, JobRow.origin == LOCAL)
            .order_by(JobRow.priority.desc(), running, JobRow.created_at, JobRow.id)
            .limit(1)
            .with_for_update(skip_locked=True, of=JobRow)
        )
        with self._db.transaction(writes=True) as connection:
            job_id = connection.execute(waiting).scalar()
            if job_id is None:
                return None
            values = {
                "state": RUNNING,
                "error": None,
                "lease_owner": owner,
                "lease_epoch": JobRow.lease_epoch + 1,
                "lease_until": database_time(seconds),
            }
            return _change(connection, job_id, values)

    def renew(self, lease: Lease, seconds: float) -> Job:
        """The job, held for `seconds` from now; its state says whether it is to be cancelled.

        Raises LeaseLost.
        """
        with self._db.transaction(writes=True) as connection:
            check_lease(connection, lease)
            return _change(connection, lease.job_id, {"lease_until": database_time(seconds)})

    def finish(self, lease: Lease, state: str, error: str | None = None) -> Job:
        """The job, ended in `state`. Raises LeaseLost; RecordError for a state that ends none."""
        if state not in ENDED:
            raise RecordError(f"a job ends as one of {', '.join(ENDED)}; found {state!r}")
        with self._db.transaction(writes=True) as connection:
            check_lease(connection, lease)
            text = None if error is None else storable_text(error)
            return _change(connection, lease.job_id, {"state": state, "error": text, **_FREE})

    def park(self, lease: Lease) -> Job:
        """The job, back in the queue for anybody (cancelled, if that was asked for).

        Raises LeaseLost.
        """
        with self._db.transaction(writes=True) as connection:
            check_lease(connection, lease)
            return _put_back(connection, lease.job_id)

    def reap(self) -> list[Job]:
        """Puts jobs back whose leases are over; returns them."""
        late = (
            select(JobRow.id)
            .where(JobRow.state.in_((RUNNING, CANCELLING)), JobRow.lease_until < database_time())
            .order_by(JobRow.id)
            .with_for_update(skip_locked=True)
        )
        with self._db.transaction(writes=True) as connection:
            return [_put_back(connection, job_id) for job_id in connection.scalars(late).all()]

    def cancel(self, job_id: str) -> Job:
        """The job, cancelled if nobody works on it, else cancelling; an ended one stays as it is.

        Raises NoRecord.
        """
        with self._db.transaction(writes=True) as connection:
            job = _locked(connection, job_id)
            if job.state == QUEUED:
                return _change(connection, job_id, {"state": "cancelled"})
            if job.state == RUNNING:
                return _change(connection, job_id, {"state": CANCELLING})
            return job

    def resume(self, job_id: str, additional_trials: int = 0) -> Job:
        """An ended job, back in the queue, with more trials. Raises RecordError for others."""
        with self._db.transaction(writes=True) as connection:
            job = _locked(connection, job_id)
            if job.state not in ENDED or job.origin != LOCAL or additional_trials < 0:
                raise RecordError(
                    f"job {job_id} cannot be resumed: it is {job.state} ({job.origin}); expected a "
                    f"job made here that is {' or '.join(ENDED)}, and 0 or more trials"
                )
            trials = JobRow.trials_requested + additional_trials
            values = {"state": QUEUED, "error": None, "trials_requested": trials}
            return _change(connection, job_id, values)


_FREE: Mapping[str, Any] = {"lease_owner": None, "lease_until": None}


def _locked(connection: Connection, job_id: str) -> Job:
    row = connection.execute(
        select_values(Job).where(JobRow.id == job_id).with_for_update()
    ).first()
    if row is None:
        raise NoRecord(f"no job {job_id}")
    return Job(**row._mapping)


def _put_back(connection: Connection, job_id: str) -> Job:
    state = "cancelled" if _locked(connection, job_id).state == CANCELLING else QUEUED
    return _change(connection, job_id, {"state": state, **_FREE})


def _change(connection: Connection, job_id: str, values: Mapping[str, Any]) -> Job:
    of_job: ColumnElement[bool] = JobRow.id == job_id
    changed = {**values, "updated_at": database_time()}
    connection.execute(update(JobRow).where(of_job).values(changed))
    return Job(**connection.execute(select_values(Job).where(of_job)).one()._mapping)
