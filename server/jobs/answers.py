"""Jobs as they go over the wire: the store's, with their workloads' titles, speed and clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from records import Job as StoredJob
from records import RecordError, Store
from records.operations import roofline
from records.queue.leases import JobQueue
from records.queue.submissions import Submission
from records.sql.workloads import Title
from records.types import HELD, QUEUED
from server.schemas import Job

Titles = Mapping[str, Title]
"""Key of a workload -> its name, arguments and operations."""


def shown(store: Store, jobs: Sequence[StoredJob], known: Titles | None = None) -> list[Job]:
    """Jobs of the store, as they are answered; the titles that are not `known` are asked for."""
    titles = dict(known or {})
    if missing := {job.workload_key for job in jobs}.difference(titles):
        titles |= store.titles(missing)
    now = datetime.now(UTC)
    return [_shown(job, titles[job.workload_key], now) for job in jobs]


def _shown(job: StoredJob, title: Title, now: datetime) -> Job:
    best, baseline = job.best_seconds, job.baseline_seconds
    spent = job.run_seconds
    if job.state in HELD and job.claimed_at is not None:
        spent += max(0.0, (now - job.claimed_at).total_seconds()) * job.device_part
    left = job.trials_requested - job.trials_done
    # Before the first round has ended the time went mostly into preparing.
    searching = job.phase == "searching" and job.trials_done >= max(
        1, job.options.get("round_size") or 1
    )
    values: dict[str, Any] = {
        **vars(job),
        "name": job.name or title.name,
        "tags": list(job.tags),
        "workload_name": title.name,
        "workload_args": title.args,
        "gflops": title.flop / best / 1e9 if best and title.flop else None,
        "gain": baseline / best if best and baseline else None,
        "run_seconds": round(spent, 3),
        "eta_seconds": round(spent * left / job.trials_done, 3) if searching else None,
    }
    return Job.model_validate(values)


def placed(queue: JobQueue, job: Job) -> Job:
    """The job with its place in the queue, if it waits there."""
    if job.state != QUEUED or job.origin != "local":
        return job
    return job.model_copy(update={"queue_place": queue.place(job.id)})


def held_to_bound(store: Store, job: Job) -> Job:
    """The job with its share of what its device could do at best, where that is known."""
    if not job.best_seconds:
        return job
    traffic = roofline.traffic_of(store, [job.workload_key]).get(job.workload_key)
    flop = store.titles([job.workload_key])[job.workload_key].flop
    bound = roofline.bound(flop, traffic, roofline.limits_of(store, job.device))
    if bound is None:
        return job
    values = {"share": bound.seconds / job.best_seconds, "bound_by": bound.by}
    return job.model_copy(update=values)


def submitted(
    store: Store, queue: JobQueue, submissions: Sequence[Submission]
) -> list[Job | RecordError]:
    """Submissions taken in together: for each its job, or why it was refused.

    Raises StoreUnavailable, and then none was taken.
    """
    # Asked before: when the jobs are stored nothing may fail any more.
    own = {s.workload.key: _title(s) for s in submissions}
    library = {s.workload.key: _title(s) for s in submissions if s.from_library}
    titles = own | store.titles(own) | library
    answers = queue.submit_many(submissions)
    taken = [found[0] for found in answers if isinstance(found, tuple)]
    jobs = iter(shown(store, taken, titles))
    return [found if isinstance(found, RecordError) else next(jobs) for found in answers]


def _title(submission: Submission) -> Title:
    workload = submission.workload
    return Title(workload.name, workload.args, workload.flop)
