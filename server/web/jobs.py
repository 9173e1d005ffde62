"""The pages of jobs: the list, one job with its plot, cancelling and resuming."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from pydantic import ValidationError

from records import JOB_STATES, OK, Record, Store
from records.queue import model_tasks
from records.sql.trials import Tallied
from server.http.auth import ClientOf
from server.http.problems import ProblemError
from server.jobs import submission
from server.jobs.answers import shown
from server.jobs.model_times import tasks_of
from server.routes import jobs as api
from server.routes.common import Cursor, JobId
from server.routes.files import kinds_of
from server.schemas import CancelRequest, CloneRequest, Job, JobState, ResumeRequest
from server.state import ServiceOf
from server.web.course import Baseline, Course, baselines_of, growth
from server.web.forms import FormOf, whole_number
from server.web.plotly import GLOBAL_SHEET, library
from server.web.render import page, seconds, title, words
from server.web.summaries import SummariesOf

router = APIRouter(include_in_schema=False)

ITEMS = 50
SHOWN_IMPROVEMENTS = 10
POINTS = 2_500
"""Trials of a job that its plot shows at most; as many as there are pixels to tell them apart."""
Field = Annotated[str, Query(pattern=r"^[ -~]*$", max_length=200)]
DateField = Annotated[str, Query(max_length=10)]
With = Annotated[str, Query(alias="with", pattern=r"^[ A-Za-z0-9_-]*$", max_length=64)]
"""Another job, by its id or the beginning of it."""
AfterRecord = Annotated[int | None, Query(ge=0, lt=1 << 63)]
ALIKE = 8
"""Jobs of the same workload that are proposed for the plot."""
LIVE = ("queued", "running", "pausing", "paused", "cancelling")


@router.get("/jobs")
def jobs_page(
    request: Request,
    service: ServiceOf,
    state: JobState | None = None,
    workload_key: Annotated[str | None, Query(max_length=64)] = None,
    name: Field = "",
    tag: Field = "",
    client: Field = "",
    device: Field = "",
    since: DateField = "",
    until: DateField = "",
    cursor: Cursor = None,
) -> HTMLResponse:
    """Jobs, newest first; fields of the form that are empty select all. Dates are days in UTC, the
    last one included."""
    wanted = {"name": name, "tag": tag, "client": client, "device": device}
    found = api.list_jobs(
        service,
        state,
        workload_key,
        **{field: value or None for field, value in wanted.items()},
        created_after=_day(since),
        created_before=_day(until, later=1),
        cursor=cursor,
        limit=ITEMS,
    )
    wanted |= {"since": since, "until": until}
    kept = {field: value for field, value in wanted.items() if value}
    if workload_key:
        kept["workload_key"] = workload_key
    counts = service.store.count_jobs()
    return page(
        request,
        "jobs.html",
        items=found.items,
        kernels=model_tasks.kernels(service.store, found.items),
        next_cursor=found.next_cursor,
        cursor=cursor,
        state=state,
        wanted=wanted,
        kept=kept,
        workload=service.store.workload(workload_key) if workload_key else None,
        counts=[(None, counts.total()), *((name, counts[name]) for name in JOB_STATES)],
    )


def _day(text: str, later: int = 0) -> datetime | None:
    """The beginning of a day, `later` days on; None for none. Raises ProblemError (422)."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=later)
    except (ValueError, OverflowError) as e:
        raise ProblemError(422, f"{text!r} is no date; expected one such as 2026-01-31") from e


@router.post("/jobs/cancel")
async def cancel_many(service: ServiceOf, client: ClientOf, fields: FormOf) -> RedirectResponse:
    """The button of the list."""
    ids = [name.removeprefix("id.") for name in fields if name.startswith("id.")]
    if ids:
        try:
            asked = CancelRequest(ids=ids)
        except ValidationError as e:
            raise ProblemError(422, "expected ids of jobs") from e
        await api.cancel_jobs(service, client, asked)
    return RedirectResponse("/jobs", 303)


@router.post("/jobs/{job_id}/clone")
async def clone(
    service: ServiceOf, client: ClientOf, job_id: JobId, fields: FormOf
) -> RedirectResponse:
    """The button."""
    seed = whole_number(fields, "seed", 0, (1 << 31) - 1)
    job = await submission.clone(service, client, job_id, CloneRequest(seed=seed), None)
    return RedirectResponse(f"/jobs/{job.id}", 303)


@router.get("/jobs/{job_id}")
def job_page(
    request: Request, service: ServiceOf, summaries: SummariesOf, job_id: JobId, other: With = ""
) -> HTMLResponse:
    """One job; with `other`'s best in its plot."""
    store = service.store
    beside = api.get_job(service, store.job_id(other.strip())) if other else None
    # Asked first: what happens from here on is told by the stream of events, which begins there.
    last_event = store.last_events([job_id]).get(job_id, 0)
    job = api.get_job(service, job_id)
    summary = summaries.of(store, job_id)
    tallied, course = summary.tallied, summary.course
    best = store.get(tallied.best_id) if tallied.best_id else None
    baselines = baselines_of(store, job_id)
    rivals = [line for line in baselines if line.seconds]
    failed = [row for row in tallied.statuses if row.status != OK]
    improvements = course.improvements[::-1]
    measured = tallied.trials
    return page(
        request,
        "job.html",
        job=job,
        tasks=tasks_of(store, job_id) if job.model else None,
        other=beside,
        files=kinds_of(job.target)[:1],
        alike=_alike(store, job),
        workload=store.workload(job.workload_key),
        live=job.state in LIVE,
        kinds=api.EVENT_KINDS,
        last_event=last_event,
        best=best,
        baseline=min(rivals, key=lambda line: line.seconds or 0.0, default=None),
        baselines=rivals,
        statuses=tallied.statuses,
        errors=failed,
        measured=measured,
        failed=sum(row.trials for row in failed),
        improvements=improvements[:SHOWN_IMPROVEMENTS],
        hidden=max(0, len(improvements) - SHOWN_IMPROVEMENTS),
        elapsed=course.elapsed,
        rate=(measured - 1) / course.elapsed if course.elapsed and measured > 1 else None,
        sampled=-(-measured // POINTS) if measured > POINTS else None,
        summary=_summary(job, tallied, course, best, rivals),
        news=_news(job, best),
        plotly=library(),
        plotly_sheet=GLOBAL_SHEET,
    )


@router.get("/jobs/{job_id}/plot")
def plot(
    service: ServiceOf, summaries: SummariesOf, job_id: JobId, after: AfterRecord = None
) -> JSONResponse:
    """What the plot shows: a sample of the trials, all improvements, the baselines; or what came
    after a record that is shown."""
    store = service.store
    if after is not None:
        job = store.job(job_id)
        return JSONResponse(
            {**growth(store, job.id, after, POINTS), "baselines": _lines(store, job.id)}
        )
    summary = summaries.of(store, job_id)
    firsts = [row.first_id for row in summary.tallied.statuses]
    return JSONResponse(
        {
            "trials": summary.tallied.trials,
            **summary.course.points(store.sample(job_id, at_most=POINTS, always=firsts)),
            "baselines": _lines(store, job_id),
        }
    )


def _alike(store: Store, job: Job) -> list[Job]:
    """The newest other jobs of the workload."""
    found = store.jobs(workload_key=job.workload_key, limit=ALIKE + 1).jobs
    return shown(store, [one for one in found if one.id != job.id])[:ALIKE]


def _lines(store: Store, job_id: str) -> list[dict[str, Any]]:
    found = baselines_of(store, job_id)
    return [{"name": line.name, "seconds": line.seconds} for line in found if line.seconds]


@router.post("/jobs/{job_id}/cancel")
async def cancel(service: ServiceOf, client: ClientOf, job_id: JobId) -> RedirectResponse:
    """The button."""
    await api.cancel_job(service, client, job_id)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/pause")
async def pause(service: ServiceOf, client: ClientOf, job_id: JobId) -> RedirectResponse:
    """The button."""
    await api.pause_job(service, client, job_id)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/resume")
async def resume(
    service: ServiceOf,
    client: ClientOf,
    job_id: JobId,
    fields: FormOf,
) -> RedirectResponse:
    """The button."""
    more = whole_number(fields, "additional_trials", 0, 1_000_000)
    await api.resume_job(service, client, job_id, ResumeRequest(additional_trials=more))
    return RedirectResponse(f"/jobs/{job_id}", 303)


def _summary(
    job: Job, tallied: Tallied, course: Course, best: Record | None, baselines: list[Baseline]
) -> str:
    """What the plot shows, in words."""
    if not tallied.trials:
        return "No trial has been measured yet."
    kinds = ", ".join(f"{row.trials:,} {words(row.status)}" for row in tallied.statuses)
    said = [f"{tallied.trials:,} of {job.trials_requested:,} trials: {kinds}."]
    if course.improvements:
        first, last = course.improvements[0], course.improvements[-1]
        said.append(
            f"The best so far went from {seconds(first.seconds)} (trial {first.trial:,}) to "
            f"{seconds(last.seconds)} (trial {last.trial:,})."
        )
    if best is not None and best.remeasured_seconds is not None:
        again = seconds(best.final_seconds)
        said.append(f"Of the finalists, measured again, the best takes {again}.")
    said += [f"The {line.name} takes {seconds(line.seconds)}." for line in baselines]
    return " ".join(said)


def _news(job: Job, best: Record | None) -> str:
    """What is worth being told when it changes."""
    if job.state not in LIVE:
        outcome = f", best {seconds(best.final_seconds)}" if best else ""
        return f"{title(job)} {job.state}{outcome}"
    return f"{job.state}, best so far {seconds(best.final_seconds)}" if best else job.state
