"""Jobs as they go over the wire: the store's, with the titles of their workloads."""

from __future__ import annotations

from collections.abc import Sequence

from records import Job as StoredJob
from records import RecordError, Store
from records.leases import JobQueue
from records.submissions import Submission
from server.schemas import Job


def shown(store: Store, jobs: Sequence[StoredJob]) -> list[Job]:
    """Jobs of the store, as they are answered."""
    titles = store.titles([job.workload_key for job in jobs])
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
    answers = queue.submit_many(submissions)
    jobs = iter(shown(store, [found[0] for found in answers if isinstance(found, tuple)]))
    return [found if isinstance(found, RecordError) else next(jobs) for found in answers]
