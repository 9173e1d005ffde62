"""Taking a job in: examined fully before it is stored, and stored before it is acknowledged."""

from __future__ import annotations

import hashlib
from typing import Any

from anyio.to_thread import run_sync

from autosched.target import Target
from autosched.tuning import TuningOptions
from records import Job, KeyReused, SubmissionKey, Workload
from records.types import QUEUED
from server.problems import refused, retry_after
from server.schemas import JobRequest, NamedWorkload
from server.state import Service

FULL_SECONDS = 10.0
"""After this long a queue that was full is worth another try."""


async def submit(
    service: Service, client: str, request: JobRequest, idempotency_key: str | None
) -> Job:
    """The job of a request, new or that of the first time.

    Raises ProblemError: 422 for what cannot be tuned here or beyond limits, 409 for a key that was
    used for another request, 429 where too many jobs wait.
    """
    key = None
    if idempotency_key is not None:
        digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
        key = SubmissionKey(client, idempotency_key, digest)
    examined = await service.examiner.examine(_question(service, request))
    workload = Workload(**examined.workload)
    await run_sync(_check_target, service, examined.target)
    return await run_sync(_store, service, client, request, workload, examined.target, key)


def _question(service: Service, request: JobRequest) -> dict[str, Any]:
    asked, target = request.workload, service.workers.resolved(request.target)
    if isinstance(asked, NamedWorkload):
        return {"name": asked.name, "args": list(asked.args), "target": target}
    return {"script": asked.script, "target": target}


def _check_target(service: Service, target: str) -> None:
    """Raise ProblemError for a target that no device of the pool can run."""
    found = Target(target)
    if not service.settings.pool_address.is_local or found.is_gpu:
        return  # whether a GPU is there is known when it is opened: the job says so
    if missing := found.missing_here():
        raise refused(
            "invalid-workload",
            f"no device of this server's pool runs {target}: it lacks {', '.join(missing)}; "
            "/v1/workers lists the devices with their targets",
        )


def _store(
    service: Service,
    client: str,
    request: JobRequest,
    workload: Workload,
    target: str,
    key: SubmissionKey | None,
) -> Job:
    options = request.options
    _check_queue(service, client)
    # A round's size is fixed here: with more trials, rounds of another size would be other rounds.
    tuning = TuningOptions(
        num_measure_trials=options.num_measure_trials,
        num_measures_per_round=options.num_measures_per_round,
    )
    try:
        job, _ = service.queue.submit(
            workload,
            target,
            seed=options.seed,
            trials_requested=options.num_measure_trials,
            options=options.model_dump() | {"round_size": tuning.round_size},
            priority=request.priority,
            client=client,
            key=key,
        )
    except KeyReused as e:
        raise refused("conflict", str(e)) from e
    return job


def _check_queue(service: Service, client: str) -> None:
    """Raise ProblemError where too many jobs wait already."""
    settings = service.settings
    for whose, most, waiting in (
        ("", settings.jobs_queued, service.store.count_jobs()[QUEUED]),
        (
            f" of {client}",
            settings.jobs_queued_per_client,
            service.store.count_jobs(client)[QUEUED],
        ),
    ):
        if waiting >= most:
            raise refused(
                "queue-full",
                f"{waiting} jobs{whose} wait, and at most {most} may; try again when some ran",
                headers=retry_after(FULL_SECONDS),
            )
