"""Jobs as they go over the wire: the store's, with the titles of their workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from records import Job as StoredJob
from records import RecordError, Store
from records.leases import JobQueue
from records.submissions import Submission
from server.schemas import Job

Titles = Mapping[str, tuple[str, Sequence[Any] | None]]
"""Key of a workload -> its name and arguments."""


def shown(store: Store, jobs: Sequence[StoredJob], known: Titles | None = None) -> list[Job]:
    """Jobs of the store, as they are answered; the titles that are not `known` are asked for."""
    titles = dict(known or {})
    if missing := {job.workload_key for job in jobs}.difference(titles):
        titles |= store.titles(missing)
    answer = []
    for job in jobs:
        name, args = titles[job.workload_key]
        answer.append(
            Job.model_validate({**vars(job), "workload_name": name, "workload_args": args})
        )
    return answer


def submitted(
    store: Store, queue: JobQueue, submissions: Sequence[Submission]
) -> list[Job | RecordError]:
    """Submissions taken in together: for each its job, or why it was refused.

    Raises StoreUnavailable, and then none was taken.
    """
    # Asked before: when the jobs are stored nothing may fail any more.
    own = {s.workload.key: (s.workload.name, s.workload.args) for s in submissions}
    titles = own | store.titles(own)
    answers = queue.submit_many(submissions)
    taken = [found[0] for found in answers if isinstance(found, tuple)]
    jobs = iter(shown(store, taken, titles))
    return [found if isinstance(found, RecordError) else next(jobs) for found in answers]
