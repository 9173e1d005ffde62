"""Taking a job in: examined fully before it is stored, and stored before it is acknowledged."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

from autosched.tuning import TuningOptions
from records import SubmissionKey, Workload, new_job_id
from records.queue import batches
from records.queue.model_tasks import Part
from records.queue.submissions import Submission
from records.types import LOCAL
from server.http.auth import Client
from server.http.problems import ProblemError, refused
from server.jobs.answers import shown
from server.jobs.model_times import with_model
from server.pools.pool_workers import GPUS
from server.pools.targets import kind_of
from server.programs.pool import Examined
from server.schemas import (
    BatchRequest,
    CloneRequest,
    Job,
    JobOptions,
    JobRequest,
    ModelWorkload,
    NamedWorkload,
    ScriptWorkload,
)
from server.state import Service


async def submit(
    service: Service, client: Client, request: JobRequest, idempotency_key: str | None
) -> Job:
    """The job of a request, new or that of the first time; of a model the first of its jobs.

    Raises ProblemError: 422 for what cannot be tuned here or beyond limits, 403 for a priority that
    the client may not ask for, 503 while no device of the pool is known; KeyReused for a key that
    was used for another request, QueueFull where too many jobs wait, QuotaExceeded where the token
    has spent what it may.
    """
    service.readiness.check_damage()
    key = _key(client, idempotency_key, request.model_dump_json())
    submission = await _at_hand(service, client, request, key)
    if submission is None:
        if (known := await _known(service, key)) is not None:
            return known
        if request.model is not None:
            return await submit_model(service, client, request, request.model, key)
        question = await _question(service, request)
        examined = await service.examiner.examine(question, client.key)
        submission = await _submission(service, client, request, examined, key)
    return await service.writing.submit(submission)


async def _at_hand(
    service: Service, client: Client, request: JobRequest, key: SubmissionKey | None
) -> Submission | None:
    """The submission of a request whose workload was examined before; its idempotency key is looked
    up in the transaction that stores it. None if the workload must be examined, or is refused: a
    request with a known key is answered with its job even then."""
    if request.workload is None or kind_of(request.target) in GPUS:  # which may be looked for long
        return None
    try:
        examined = service.examiner.known(await _question(service, request))
        if examined is None:
            return None
        return await _submission(service, client, request, examined, key)
    except ProblemError:
        return None


async def _submission(
    service: Service,
    client: Client,
    request: JobRequest,
    examined: Examined,
    key: SubmissionKey | None,
) -> Submission:
    """What is stored of a request. Raises ProblemError for a target that no device of the pool
    runs, and a priority that the client may not ask for."""
    pool = await service.workers.fitting(examined.target, request.pool)
    options = request.options
    client.check_priority(request.priority)
    assert request.workload is not None
    workload, name, library = _named(Workload(**examined.workload), request.workload, request.name)
    size = _round_size(service, options, options.num_measure_trials, 1, pool)
    return Submission(
        workload=workload,
        from_library=library,
        name=name,
        tags=tuple(dict.fromkeys(request.tags)),
        spender=client.spender,
        target=examined.target,
        pool=pool,
        seed=options.seed,
        trials_requested=options.num_measure_trials,
        options=options.model_dump() | {"round_size": size},
        priority=request.priority,
        client=client.name,
        key=key,
    )


async def submit_batch(
    service: Service, client: Client, request: BatchRequest, idempotency_key: str | None
) -> str:
    """The id of the batch of a request, new or that of the first time. Raises what `submit` raises,
    and ProblemError (422) for a workload that stands twice, or fewer trials than workloads."""
    service.readiness.check_damage()
    key = _key(client, idempotency_key, "batch " + request.model_dump_json())
    if (known := await _known(service, key)) is not None:
        if known.batch_id is None:
            raise refused("conflict", f"the key {idempotency_key!r} was used for a single job")
        return known.batch_id
    client.check_priority(request.priority)
    options, many = request.options, len(request.workloads)
    total = options.num_measure_trials
    if total < many:
        raise refused(
            "invalid-workload", f"expected a trial for each of the {many} workloads, found {total}"
        )
    batch_id = new_job_id()
    submissions: list[Submission] = []
    pool: str | None = None
    for place, item in enumerate(request.workloads):
        asked = JobRequest(workload=item.workload, target=request.target, pool=request.pool)
        examined = await service.examiner.examine(await _question(service, asked), client.key)
        # One process works on all of them, so that they go to one pool.
        pool = await service.workers.fitting(examined.target, pool or request.pool)
        workload, name, library = _named(Workload(**examined.workload), item.workload, request.name)
        if any(workload.key == other.workload.key for other in submissions):
            raise refused(
                "invalid-workload",
                f"workload {place + 1}, {workload.name}, stands twice; give it once, with the sum "
                "of the weights",
            )
        size = _round_size(service, options, total, many, pool)
        given = {"round_size": size, "weight": item.weight, "place": place}
        submissions.append(
            Submission(
                workload=workload,
                from_library=library,
                name=name,
                tags=tuple(dict.fromkeys(request.tags)),
                spender=client.spender,
                target=examined.target,
                seed=options.seed,
                trials_requested=total // many + (place < total % many),
                options=options.model_dump() | given,
                priority=request.priority,
                client=client.name,
                key=key if place == 0 else None,
                batch_id=batch_id,
                pool=pool,
            )
        )
    found, _ = await service.writing.do(partial(service.queue.submit_batch, submissions, key))
    return found


async def submit_model(
    service: Service,
    client: Client,
    request: JobRequest,
    model: ModelWorkload,
    key: SubmissionKey | None,
) -> Job:
    """The first job of the batch whose jobs are the tasks of a model. Raises what `submit` raises,
    and ProblemError (422) for fewer trials than tasks."""
    client.check_priority(request.priority)
    target = await service.workers.resolve(request.target, request.pool)
    question = {"skeleton": model.skeleton, "target": target}
    found = await service.examiner.ask(question, client.key)
    pool = await service.workers.fitting(found["target"], request.pool)
    options, many = request.options, len(found["tasks"])
    given = "num_measure_trials" in options.model_fields_set
    total = options.num_measure_trials if given else options.num_measure_trials * many
    if total < many:
        raise refused(
            "invalid-workload", f"expected a trial for each of the {many} tasks, found {total}"
        )
    batch_id = new_job_id()
    size = _round_size(service, options, total, many, pool)
    shared = options.model_dump() | {"num_measure_trials": total, "round_size": size}
    submissions = []
    for place, task in enumerate(found["tasks"]):
        parts = [Part(*part) for part in task["parts"]]
        of_task = {"place": place, "weight": sum(part.weight for part in parts)}
        submissions.append(
            Submission(
                workload=Workload(**task["workload"]),
                name=request.name or "model",
                tags=tuple(dict.fromkeys(request.tags)),
                spender=client.spender,
                target=found["target"],
                seed=options.seed,
                trials_requested=total // many + (place < total % many),
                options=shared | of_task | {"rest_seconds": found["rest_seconds"]},
                priority=request.priority,
                client=client.name,
                key=key if place == 0 else None,
                batch_id=batch_id,
                pool=pool,
                parts=parts,
            )
        )
    stored, _ = await service.writing.do(partial(service.queue.submit_batch, submissions, key))

    def first() -> Job:
        jobs = batches.batch_of(service.store, stored).jobs
        return with_model(service.store, shown(service.store, jobs[:1])[0])

    return await service.reading.do(("model", stored), first)


def _round_size(
    service: Service, options: JobOptions, total: int, many: int, pool: str | None
) -> int:
    """Of `many` tasks with so many trials altogether, as tuning them here would choose it. It is
    fixed here: with more trials, rounds of another size would be other rounds."""
    return TuningOptions(
        num_measure_trials=total,
        num_measures_per_round=options.num_measures_per_round,
        pool=service.workers.address(pool),
    ).round_size_of(many)


def _named(
    workload: Workload, asked: NamedWorkload | ScriptWorkload, name: str | None
) -> tuple[Workload, str | None, bool]:
    """The workload, what its job is called, and whether it is the operator library's."""
    if isinstance(asked, NamedWorkload):
        return workload, name, True
    # What a script calls its function names this job, and nobody else's workload.
    named = replace(workload, name=f"program_{workload.key[2:10]}", args=None)
    return named, name or workload.name, False


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
    pool = await service.workers.fitting(job.target, job.pool)
    key_of = partial(service.store.workload, job.workload_key)
    workload = await service.reading.do(("workload", job.workload_key), key_of)
    seed = (job.seed + 1) % (1 << 31) if request.seed is None else request.seed
    options = {**job.options, "seed": seed, "num_measure_trials": job.trials_requested}
    return await service.writing.submit(
        Submission(
            workload=workload,
            target=job.target,
            pool=pool,
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
    asked, target = request.workload, await service.workers.resolve(request.target, request.pool)
    if isinstance(asked, NamedWorkload):
        return {"name": asked.name, "args": list(asked.args), "target": target}
    assert asked is not None
    return {"script": asked.script, "target": target}
