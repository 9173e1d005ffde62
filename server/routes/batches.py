"""Batches: several workloads in one submission, on one budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Response

from records import Job as StoredJob
from records import RecordError
from records.queue import batches
from records.queue.batches import Batch as StoredBatch
from records.types import ENDED, PAUSED, PAUSING
from server.http.auth import Client, ClientOf
from server.http.paging import decode_cursor, encode_cursor
from server.jobs import submission
from server.jobs.answers import shown
from server.routes.common import Cursor, ModelRoute, answers, written
from server.routes.jobs import IdempotencyKey
from server.schemas import JOB_ID, Batch, BatchRequest, Page
from server.state import Service, ServiceOf

router = APIRouter(prefix="/v1/batches", tags=["batches"], route_class=ModelRoute)

BatchId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", examples=[JOB_ID])]
LISTED = 20


@router.post(
    "",
    operation_id="submit_batch",
    status_code=201,
    response_model=Batch,
    responses=answers(400, 409, 429),
)
async def submit_batch(
    service: ServiceOf,
    client: ClientOf,
    request: BatchRequest,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Queue a job for each workload, all of them or none. One process works on them: the task
    scheduler gives each round to the job that promises most. A repeated `Idempotency-Key` gives the
    batch of the first time."""
    batch_id = await submission.submit_batch(service, client, request, idempotency_key)
    batch = await service.reading.do(("batch", batch_id), lambda: batch_of(service, batch_id))
    return written(batch, 201, {"Location": f"/v1/batches/{batch_id}"})


@router.get("", operation_id="list_batches", responses=answers(400))
def list_batches(service: ServiceOf, cursor: Cursor = None) -> Page[Batch]:
    """Batches with their jobs, newest first."""
    page = batches.newest(service.store, LISTED, decode_cursor("batches", cursor))
    items = [_shown(service, batch) for batch in page.batches]
    return Page(items=items, next_cursor=encode_cursor("batches", page.before))


@router.get("/{batch_id}", operation_id="get_batch", responses=answers(404))
def get_batch(service: ServiceOf, batch_id: BatchId) -> Batch:
    """One batch with its jobs."""
    return batch_of(service, batch_id)


def batch_of(service: Service, batch_id: str) -> Batch:
    """Raises NoRecord."""
    return _shown(service, batches.batch_of(service.store, batch_id))


def _shown(service: Service, batch: StoredBatch) -> Batch:
    jobs = shown(service.store, batch.jobs)
    return Batch(
        id=batch.id,
        name=batch.jobs[0].name,
        client=batch.jobs[0].client,
        states=dict(Counter(job.state for job in jobs)),
        trials_requested=sum(job.trials_requested for job in jobs),
        trials_done=sum(job.trials_done for job in jobs),
        created_at=batch.created_at,
        jobs=jobs,
    )


@router.post("/{batch_id}/cancel", operation_id="cancel_batch", responses=answers(404))
async def cancel_batch(service: ServiceOf, client: ClientOf, batch_id: BatchId) -> Batch:
    """Cancel the jobs of a batch that have not ended."""
    return await _each(service, client, batch_id, service.queue.cancel, lambda job: True)


@router.post("/{batch_id}/pause", operation_id="pause_batch", responses=answers(404))
async def pause_batch(service: ServiceOf, client: ClientOf, batch_id: BatchId) -> Batch:
    """Pause the jobs of a batch that wait or run."""
    return await _each(
        service, client, batch_id, service.queue.pause, lambda job: job.state not in ENDED
    )


@router.post("/{batch_id}/resume", operation_id="resume_batch", responses=answers(404, 409, 429))
async def resume_batch(service: ServiceOf, client: ClientOf, batch_id: BatchId) -> Batch:
    """Put the paused jobs of a batch back into the queue, where they are taken up together."""
    service.readiness.check_damage()

    def resume(job_id: str) -> StoredJob:
        return service.queue.resume(job_id, 0, client.spender)

    return await _each(
        service, client, batch_id, resume, lambda job: job.state in (PAUSED, PAUSING)
    )


async def _each(
    service: Service,
    client: Client,
    batch_id: str,
    change: Callable[[str], StoredJob],
    wanted: Callable[[StoredJob], bool],
) -> Batch:
    """The batch, whose jobs that are `wanted` were changed. What ended meanwhile stays."""

    def work() -> Batch:
        for job in batches.batch_of(service.store, batch_id).jobs:
            client.check_change(job)
            if wanted(job):
                try:
                    change(job.id)
                except RecordError:
                    if service.store.job(job.id).state not in ENDED:
                        raise
        return batch_of(service, batch_id)

    return await service.writing.do(work)
