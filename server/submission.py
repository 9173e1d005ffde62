"""Taking a job in: examined fully before it is stored, and stored before it is acknowledged."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

from autosched.tuning import TuningOptions
from records import SubmissionKey, Workload
from records.submissions import Submission
from records.types import LOCAL
from server.auth import Client
from server.jobs import shown
from server.problems import refused
from server.schemas import CloneRequest, Job, JobRequest, NamedWorkload
from server.state import Service


async def submit(
    service: Service, client: Client, request: JobRequest, idempotency_key: str | None
) -> Job:
    """The job of a request, new or that of the first time.

    Raises ProblemError: 422 for what cannot be tuned here or beyond limits, 403 for a priority that
    the client may not ask for, 503 while no device of the pool is known; KeyReused for a key that
    was used for another request, QueueFull where too many jobs wait, QuotaExceeded where the token
    has spent what it may.
    """
    service.readiness.check_damage()
    key = _key(client, idempotency_key, request.model_dump_json())
    if (known := await _known(service, key)) is not None:
        return known
    question = await _question(service, request)
    examined = await service.examiner.examine(question, client.key)
    await service.workers.check(examined.target)
    options = request.options
    client.check_priority(request.priority)
    workload, name = Workload(**examined.workload), request.name
    library = isinstance(request.workload, NamedWorkload)
    if not library:
        # What a script calls its function names this job, and nobody else's workload.
        name = name or workload.name
        workload = replace(workload, name=f"program_{workload.key[2:10]}", args=None)
    # A round's size is fixed here: with more trials, rounds of another size would be other rounds.
    tuning = TuningOptions(
        num_measure_trials=options.num_measure_trials,
        num_measures_per_round=options.num_measures_per_round,
    )
    return await service.writing.submit(
        Submission(
            workload=workload,
            library=library,
            name=name,
            tags=tuple(dict.fromkeys(request.tags)),
            spender=client.spender,
            target=examined.target,
            seed=options.seed,
            trials_requested=options.num_measure_trials,
            options=options.model_dump() | {"round_size": tuning.round_size},
            priority=request.priority,
            client=client.name,
            key=key,
        )
    )


async def clone(
    service: Service,
    client: Client,
    job_id: str,
    request: CloneRequest,
    idempotency_key: str | None,
) -> Job:
    """A job like another one, with another seed. Raises NoRecord, RecordError for one that was
    imported, and what `submit` raises."""
    service.readiness.check_damage()
    key = _key(client, idempotency_key, f"clone {job_id} {request.model_dump_json()}")
    if (known := await _known(service, key)) is not None:
        return known
    client.check_priority(request.priority)
    job = await service.reading.do(("job", job_id), partial(service.store.job, job_id))
    if job.origin != LOCAL or job.seed is None:
        raise refused("conflict", f"job {job_id} was imported: what it was asked for is not known")
    await service.workers.check(job.target)
    key_of = partial(service.store.workload, job.workload_key)
    workload = await service.reading.do(("workload", job.workload_key), key_of)
    seed = (job.seed + 1) % (1 << 31) if request.seed is None else request.seed
    options = {**job.options, "seed": seed, "num_measure_trials": job.trials_requested}
    return await service.writing.submit(
        Submission(
            workload=workload,
            target=job.target,
            seed=seed,
            trials_requested=job.trials_requested,
            options=options,
            priority=request.priority,
            client=client.name,
            key=key,
            name=job.name,
            tags=tuple(job.tags),
            spender=client.spender,
        )
    )


def _key(client: Client, idempotency_key: str | None, text: str) -> SubmissionKey | None:
    """Names a request, of that text, if the client does."""
    if idempotency_key is None:
        return None
    return SubmissionKey(client.name, idempotency_key, hashlib.sha256(text.encode()).hexdigest())


async def _known(service: Service, key: SubmissionKey | None) -> Job | None:
    """The job of a request that was made before: nothing is examined, resolved or refused again.
    Raises KeyReused."""
    if key is None:
        return None
    return await service.reading.do(("submitted", key), partial(_submitted, service, key))


def _submitted(service: Service, key: SubmissionKey) -> Job | None:
    job = service.queue.submitted(key)
    return None if job is None else shown(service.store, [job])[0]


async def _question(service: Service, request: JobRequest) -> dict[str, Any]:
    asked, target = request.workload, await service.workers.resolve(request.target)
    if isinstance(asked, NamedWorkload):
        return {"name": asked.name, "args": list(asked.args), "target": target}
    return {"script": asked.script, "target": target}
