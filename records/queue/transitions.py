"""How a job goes from one state to the next: its columns, and the event that tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, update

from records.queue import webhooks
from records.sql import events
from records.sql.jobs import job_of
from records.sql.schema import JobRow, database_time, seconds_between
from records.types import CANCELLING, ENDED, PAUSED, PAUSING, QUEUED, STATE, Job, state_event


def free(*, late: bool = False) -> dict[str, Any]:
    """The columns of a job that nobody works on any more; what was worked is counted, of a lease
    that is over (`late`) as long as it was held."""
    until = JobRow.lease_until if late else database_time()
    spent = func.coalesce(seconds_between(JobRow.claimed_at, until), 0.0)
    return {
        "lease_owner": None,
        "lease_until": None,
        "phase": None,
        "run_seconds": JobRow.run_seconds + spent * JobRow.device_part,
    }


def put_back(connection: Connection, job_id: str, reason: str, *, late: bool = False) -> Job:
    job = job_of(connection, job_id, lock=True)
    values = {"state": QUEUED, **free(late=late)}
    if job.state == CANCELLING:
        values |= {"state": "cancelled", "ended_at": database_time()}
    elif job.state == PAUSING:
        values["state"] = PAUSED
    return change(connection, job_id, values, reason)


def change(
    connection: Connection, job_id: str, values: Mapping[str, Any], reason: str | None = None
) -> Job:
    """The job with new values; with a `reason` for a new state, that is told, too."""
    of_job: ColumnElement[bool] = JobRow.id == job_id
    changed = {**values, "updated_at": database_time()}
    connection.execute(update(JobRow).where(of_job).values(changed))
    job = job_of(connection, job_id)
    if reason is not None:
        _tell(connection, job, reason)
    return job


def _tell(connection: Connection, job: Job, reason: str) -> None:
    """Adds the event of a job's new state; the transaction has changed, so holds, its row."""
    events.add(connection, job.id, STATE, state_event(reason, vars(job)))
    if job.state in ENDED:
        webhooks.enter(connection, job.id, job.client)
