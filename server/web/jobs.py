"""The pages of jobs: the list, one job with its plot, cancelling and resuming."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from records import JOB_STATES, OK, Record
from records.trials import Tallied
from server.auth import ClientOf
from server.routes import jobs as api
from server.routes.common import Cursor, JobId
from server.schemas import Job, JobState, ResumeRequest
from server.state import ServiceOf
from server.web.course import Baseline, Course, baselines_of
from server.web.forms import FormOf, whole_number
from server.web.glance import GlancesOf
from server.web.plotly import GLOBAL_SHEET, library
from server.web.render import page, seconds, title, words

router = APIRouter(include_in_schema=False)

ITEMS = 50
SHOWN_IMPROVEMENTS = 10
POINTS = 2_500
"""Trials of a job that its plot shows at most; as many as there are pixels to tell them apart."""
KINDS = ("state", "progress")
LIVE = ("queued", "running", "cancelling")


@router.get("/")
def jobs_page(
    request: Request,
    service: ServiceOf,
    state: JobState | None = None,
    workload_key: Annotated[str | None, Query(max_length=64)] = None,
    cursor: Cursor = None,
) -> HTMLResponse:
    """Jobs, newest first."""
    found = api.list_jobs(service, state, workload_key, cursor, ITEMS)
    counts = service.store.count_jobs()
    return page(
        request,
        "jobs.html",
        items=found.items,
        next_cursor=found.next_cursor,
        cursor=cursor,
        state=state,
        workload=service.store.workload(workload_key) if workload_key else None,
        counts=[(None, counts.total()), *((name, counts[name]) for name in JOB_STATES)],
    )


@router.get("/jobs/{job_id}")
def job_page(
    request: Request, service: ServiceOf, glances: GlancesOf, job_id: JobId
) -> HTMLResponse:
    """One job."""
    store = service.store
    job = api.get_job(service, job_id)
    glance = glances.of(store, job_id)
    tallied, course = glance.tallied, glance.course
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
        workload=store.workload(job.workload_key),
        live=job.state in LIVE,
        kinds=KINDS,
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
def plot(service: ServiceOf, glances: GlancesOf, job_id: JobId) -> JSONResponse:
    """What the plot shows: a sample of the trials, all improvements, the baselines."""
    store = service.store
    glance = glances.of(store, job_id)
    firsts = [row.first_id for row in glance.tallied.statuses]
    return JSONResponse(
        {
            "trials": glance.tallied.trials,
            **glance.course.points(store.sample(job_id, at_most=POINTS, always=firsts)),
            "baselines": [
                {"name": line.name, "seconds": line.seconds}
                for line in baselines_of(store, job_id)
                if line.seconds
            ],
        }
    )


@router.post("/jobs/{job_id}/cancel")
async def cancel(service: ServiceOf, client: ClientOf, job_id: JobId) -> RedirectResponse:
    """The button."""
    await api.cancel_job(service, client, job_id)
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
