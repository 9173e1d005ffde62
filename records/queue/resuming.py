"""Jobs that are stopped and go on: paused, and resumed after a pause or an end."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from records.errors import RecordError
from records.queue.submissions import Entrance, Spender
from records.queue.transitions import change
from records.sql.jobs import job_of
from records.types import ENDED, LOCAL, PAUSED, PAUSING, QUEUED, RUNNING, Job

RESUMED = "resumed"
"""The reason of the state event with which a job that had ended goes on: its time budget begins
anew."""
UNPAUSED = "unpaused"
"""That with which a paused one does, with what is left of its budgets."""
MOST_TRIALS = 10_000_000
"""Trials of one job, however often it is resumed."""


def pause(connection: Connection, job_id: str) -> Job:
    """The job, paused or pausing. Raises NoRecord, and RecordError for a job that has ended, or
    that nobody holds under a lease (a run of the command line)."""
    job = job_of(connection, job_id, lock=True)
    if job.state == QUEUED and job.origin == LOCAL:
        return change(connection, job_id, {"state": PAUSED, "not_before": None}, "asked for")
    if job.state == RUNNING and job.lease_owner is not None:
        return change(connection, job_id, {"state": PAUSING}, "asked for")
    if job.state in (PAUSED, PAUSING):
        return job
    raise RecordError(
        f"job {job_id} cannot be paused: it is {job.state} ({job.origin}); expected one that waits "
        "or that a server works on"
    )


def resume(
    connection: Connection, entrance: Entrance, job_id: str, additional: int, spender: Spender
) -> Job:
    """A job that is paused or has ended, back in the queue with `additional` trials; it counts
    towards `spender`'s quota from now on. One that is still pausing goes on.

    Raises RecordError for others, and beyond MOST_TRIALS, QueueFull and QuotaExceeded.
    """
    job = job_of(connection, job_id, lock=True)
    if job.state == PAUSING and not additional:
        # Its process may have been told to leave: then it is put back, and taken up again.
        return change(connection, job_id, {"state": RUNNING}, UNPAUSED)
    paused = job.state == PAUSED
    if not (paused or job.state in ENDED) or job.origin != LOCAL or additional < 0:
        raise RecordError(
            f"job {job_id} cannot be resumed: it is {job.state} ({job.origin}); expected a job "
            f"made here that is {PAUSED}, {' or '.join(ENDED)}, and 0 or more trials"
        )
    trials = job.trials_requested + additional
    if trials > MOST_TRIALS:
        raise RecordError(f"job {job_id} would have {trials} trials; at most {MOST_TRIALS}")
    entrance.check(job.client)
    values: dict[str, Any] = {"state": QUEUED, "trials_requested": trials}
    values["token_id"] = spender.token_id or job.token_id
    if spender.token_id != job.token_id:
        entrance.check_quota(spender, trials)
    else:  # of a job that has ended those trials count that it did, of another those asked for
        entrance.check_quota(spender, additional if paused else trials - job.trials_done)
    if paused:
        return change(connection, job_id, values, UNPAUSED)
    values |= {"error": None, "notice": None, "ended_at": None}
    return change(connection, job_id, values, RESUMED)
