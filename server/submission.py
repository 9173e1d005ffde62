"""Taking a job in: examined fully before it is stored, and stored before it is acknowledged."""

from __future__ import annotations

import hashlib
from typing import Any

from autosched.target import Target
from autosched.tuning import TuningOptions
from records import SubmissionKey, Workload
from records.submissions import Submission
from server.auth import Client
from server.problems import refused
from server.schemas import Job, JobRequest, NamedWorkload
from server.state import Service


async def submit(
    service: Service, client: Client, request: JobRequest, idempotency_key: str | None
) -> Job:
    """The job of a request, new or that of the first time.

    Raises ProblemError: 422 for what cannot be tuned here or beyond limits; KeyReused for a key
    that was used for another request, QueueFull where too many jobs wait.
    """
    key = None
    if idempotency_key is not None:
        digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
        key = SubmissionKey(client.name, idempotency_key, digest)
    examined = await service.examiner.examine(_question(service, request), client.key)
    _check_target(service, examined.target)
    options = request.options
    # A round's size is fixed here: with more trials, rounds of another size would be other rounds.
    tuning = TuningOptions(
        num_measure_trials=options.num_measure_trials,
        num_measures_per_round=options.num_measures_per_round,
    )
    return await service.writing.submit(
        Submission(
            workload=Workload(**examined.workload),
            target=examined.target,
            seed=options.seed,
            trials_requested=options.num_measure_trials,
            options=options.model_dump() | {"round_size": tuning.round_size},
            priority=request.priority,
            client=client.name,
            key=key,
        )
    )


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
