"""Tuning jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Query, Response
from pydantic import AfterValidator, AwareDatetime, BeforeValidator

from records import Job as StoredJob
from records import RecordError, StoreUnavailable
from records.types import ENDED, PAUSED, PAUSING, PHASE, STATE
from server.http.auth import ClientOf
from server.http.paging import decode_cursor, encode_cursor
from server.http.problems import ProblemError
from server.jobs import submission
from server.jobs.answers import held_to_bound, placed, shown
from server.jobs.heartbeat import PROGRESS
from server.jobs.model_times import members, tasks_of, with_model
from server.routes.common import PRINTABLE, Cursor, JobId, Limit, ModelRoute, answers, written
from server.schemas import (
    CancelReport,
    CancelRequest,
    CloneRequest,
    Curve,
    CurvePoint,
    Job,
    JobRequest,
    JobState,
    JobTasks,
    Page,
    ResumeRequest,
)
from server.state import ServiceOf

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[ -~]+$",
        description="names this submission: repeated, it makes no second job",
    ),
]
Text = Annotated[str | None, Query(pattern=PRINTABLE, max_length=200)]


def _utc(time: datetime) -> datetime:
    """A time in UTC; the first or the last one there is where a zone leads beyond it."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return (datetime.min if time.year == 1 else datetime.max).replace(tzinfo=UTC)


def _dated(text: object) -> object:
    """A time as it was given, if that begins with a date: a number would be taken as seconds."""
    if isinstance(text, str) and not re.match(r"\d{4}-\d\d-\d\d", text):
        raise ValueError("expected a time such as 2026-01-31T12:00:00Z")
    return text


When = Annotated[
    Annotated[AwareDatetime, BeforeValidator(_dated), AfterValidator(_utc)] | None,
    Query(description="a time with its zone", examples=["2026-01-31T12:00:00Z"]),
]
Points = Annotated[int, Query(ge=2, le=10_000, description="points of the curve at most")]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ModelRoute)


@router.get("", operation_id="list_jobs", responses=answers(400))
def list_jobs(
    service: ServiceOf,
    state: JobState | None = None,
    workload_key: Annotated[str | None, Query(max_length=64)] = None,
    name: Text = None,
    client: Text = None,
    tag: Text = None,
    device: Text = None,
    batch_id: Text = None,
    created_after: When = None,
    created_before: When = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[Job]:
    """Jobs, newest first. `name` is part of a job's name, or of its workload's, in any case of
    letters; the others are whole."""
    page = service.store.jobs(
        state=state, workload_key=workload_key, name=name, client=client, tag=tag, device=device,
        batch_id=batch_id,
        created_after=created_after, created_before=created_before,
        before=decode_cursor("jobs", cursor), limit=limit,
    )  # fmt: skip
    items = shown(service.store, page.jobs)
    return Page(items=items, next_cursor=encode_cursor("jobs", page.before))


@router.post(
    "",
    operation_id="submit_job",
    status_code=201,
    response_model=Job,
    responses=answers(400, 409, 429),
)
async def submit_job(
    service: ServiceOf,
    client: ClientOf,
    request: JobRequest,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Queue a job. The answer means that it is stored.

    Of a model each kernel becomes a job; they are a batch on one budget, and the answer is the
    first of them, the kernel that is taken to need the most time. `list_job_tasks` has them all.

    A request that is repeated with the same `Idempotency-Key` is answered with the job of the first
    time; with another body it is refused.
    """
    job = await submission.submit(service, client, request, idempotency_key)
    return written(job, 201, {"Location": f"/v1/jobs/{job.id}"})


@router.get("/{job_id}", operation_id="get_job", responses=answers(404))
def get_job(service: ServiceOf, job_id: JobId) -> Job:
    """One job."""
    store = service.store
    job = placed(service.queue, shown(store, [store.job(job_id)])[0])
    return with_model(store, held_to_bound(store, job))


@router.get("/{job_id}/tasks", operation_id="list_job_tasks", responses=answers(404))
def list_job_tasks(service: ServiceOf, job_id: JobId) -> JobTasks:
    """What is tuned together with a job, on one budget: all tasks of its model with their weights,
    shares and gains, by kernel; of a batch that is no model its workloads; else the job alone."""
    return tasks_of(service.store, job_id)


@router.delete("/{job_id}", operation_id="delete_job", status_code=204, responses=answers(404, 409))
async def delete_job(service: ServiceOf, client: ClientOf, job_id: JobId) -> Response:
    """Remove a job that has ended, with all that was measured in it; what it has spent of a token's
    quota stays spent. Jobs of others are for admins."""

    def delete() -> None:
        client.check_change(service.store.job(job_id))
        service.store.delete_job(job_id)

    await service.writing.do(delete)
    return Response(status_code=204)


@router.post("/cancel", operation_id="cancel_jobs", responses=answers(400))
async def cancel_jobs(service: ServiceOf, client: ClientOf, request: CancelRequest) -> CancelReport:
    """Cancel many jobs, each as by `cancel_job`; what keeps one from it is no matter for the
    others."""

    def cancel() -> CancelReport:
        jobs, refused = [], {}
        for text in dict.fromkeys(request.ids):
            try:
                job_id = service.store.job_id(text)
                job = service.store.job(job_id)
                client.check_change(job)
                for one in members(service.store, job):
                    service.queue.cancel(one.id)
                jobs.append(service.store.job(job_id))
            except StoreUnavailable:
                raise
            except (RecordError, ProblemError) as e:
                refused[text] = e.detail if isinstance(e, ProblemError) else str(e)
        return CancelReport(jobs=shown(service.store, jobs), refused=refused)

    return await service.writing.do(cancel)


@router.post(
    "/{job_id}/clone",
    operation_id="clone_job",
    status_code=201,
    response_model=Job,
    responses=answers(404, 409, 429),
)
async def clone_job(
    service: ServiceOf,
    client: ClientOf,
    job_id: JobId,
    request: CloneRequest,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Queue another job of the same workload, target and options, with another seed."""
    job = await submission.clone(service, client, job_id, request, idempotency_key)
    return written(job, 201, {"Location": f"/v1/jobs/{job.id}"})


@router.post("/{job_id}/cancel", operation_id="cancel_job", responses=answers(404))
async def cancel_job(service: ServiceOf, client: ClientOf, job_id: JobId) -> Job:
    """Cancel a job. One that waits is cancelled at once, one that runs becomes `cancelling` until
    its process has left it; one that has ended stays as it is. With a task of a model the whole
    model is cancelled. Jobs of others are for admins."""

    def cancel() -> Job:
        job = service.store.job(job_id)
        client.check_change(job)
        for one in members(service.store, job):
            service.queue.cancel(one.id)
        return shown(service.store, [service.store.job(job_id)])[0]

    return await service.writing.do(cancel)


@router.post("/{job_id}/pause", operation_id="pause_job", responses=answers(404, 409))
async def pause_job(service: ServiceOf, client: ClientOf, job_id: JobId) -> Job:
    """Pause a job. One that waits is paused at once, one that runs becomes `pausing` until its
    process has left it; what was measured and what is left of its budgets stays, and `resume` puts
    it back into the queue. With a task of a model the whole model is paused. Jobs of others are for
    admins."""

    def pause() -> Job:
        job = service.store.job(job_id)
        client.check_change(job)
        left = [one.id for one in members(service.store, job) if one.state not in ENDED]
        service.queue.pause_together(left or [job_id])
        return shown(service.store, [service.store.job(job_id)])[0]

    return await service.writing.do(pause)


@router.post("/{job_id}/resume", operation_id="resume_job", responses=answers(404, 409, 429))
async def resume_job(
    service: ServiceOf, client: ClientOf, job_id: JobId, request: ResumeRequest | None = None
) -> Job:
    """Put a job that is paused or has ended back into the queue, with more trials: it goes on where
    it was. Of a paused one the time budget goes on, too; of one that had ended it begins anew. With
    a task of a model the whole model goes on, and the additional trials are parted among its tasks.
    Without a body no trials are added. Jobs of others are for admins."""

    service.readiness.check_damage()

    def resume() -> Job:
        job = service.store.job(job_id)
        client.check_change(job)
        ids = _to_resume(members(service.store, job))
        more = request.additional_trials if request else 0
        service.queue.resume_together(ids or [job_id], more, client.spender)
        return shown(service.store, [service.store.job(job_id)])[0]

    return await service.writing.do(resume)


@router.get("/{job_id}/curve", operation_id="get_job_curve", responses=answers(404))
def get_curve(service: ServiceOf, job_id: JobId, points: Points = 500) -> Curve:
    """How the job got faster: the trials that improved on all before, by their number and by the
    seconds since the job was first taken up."""
    job = service.store.job(job_id)
    found = service.store.curve(job_id)
    first = service.store.events(job_id, limit=20)  # of these one tells that it was taken up
    taken_up = (e.created_at for e in first if e.kind == STATE and e.data["state"] == "running")
    began = next(taken_up, job.created_at)
    shown_points = [
        CurvePoint(
            trial=point.trial,
            record_id=point.record_id,
            seconds=point.seconds,
            elapsed_seconds=max(0.0, (point.created_at - began).total_seconds()),
        )
        for point in thinned(found, points)
    ]
    return Curve(job_id=job_id, trials_done=job.trials_done, points=shown_points)


def _to_resume(jobs: Sequence[StoredJob]) -> list[str]:
    """Of a model's jobs those that are paused, or are about to be; where none is, those that have
    ended."""
    paused = [one.id for one in jobs if one.state in (PAUSED, PAUSING)]
    return paused or [one.id for one in jobs if one.state in ENDED]


T = TypeVar("T")

EVENT_KINDS = (STATE, PHASE, PROGRESS)
"""The kinds of events that jobs have."""


def thinned(items: Sequence[T], most: int) -> list[T]:
    """At most `most` (2 or more) of the items, evenly chosen, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[round(n * last / (most - 1))] for n in range(most)]
