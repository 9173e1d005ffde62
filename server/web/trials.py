"""The pages about a job's trials: all of them as a table, decisions against speed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from records import OK, Job, Store
from records.operations import listing
from records.operations.listing import ListedTrial
from server.http.problems import ProblemError
from server.routes import jobs as jobs_api
from server.routes import trials as api
from server.routes.common import Cursor, JobId
from server.routes.trials import SortOf
from server.schemas import Status
from server.state import ServiceOf
from server.web.course import baselines_of
from server.web.figures.convergence import Shown, convergence
from server.web.figures.decisions import Importance, importances, parallel
from server.web.figures.svg import as_file
from server.web.jobs import With
from server.web.render import page, title
from server.web.summaries import Summaries, SummariesOf

router = APIRouter(include_in_schema=False)

ITEMS = 100
SAMPLED = 2_000
"""Trials that are looked at for what decisions do."""
FEWEST = 8
"""Trials of a variant without which nothing is said of its decisions."""
STATUSES: tuple[str, ...] = get_args(Status)
StatusField = Annotated[str, Query(pattern=f"^({'|'.join(STATUSES)})?$")]
DecisionField = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.=, -]*$", max_length=500)]
_DECISION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}=-?[0-9]{1,18}")
MOST_DECISIONS = 16
TrialNumber = Annotated[int | None, Query(ge=1, lt=1 << 31)]
Variant = Annotated[int | None, Query(ge=1, lt=1 << 63)]


@router.get("/jobs/{job_id}/trials")
def trials_page(
    request: Request,
    service: ServiceOf,
    job_id: JobId,
    status: StatusField = "",
    decision: DecisionField = "",
    sort: SortOf = "trial",
    cursor: Cursor = None,
) -> HTMLResponse:
    """All trials. Several decisions stand between commas or blanks: `C.vi.1=2, C.vi.2=4`."""
    wanted = decision.replace(",", " ").split()
    for text in wanted:
        if not _DECISION.fullmatch(text) or len(wanted) > MOST_DECISIONS:
            raise ProblemError(
                422, f"{text!r} is no decision; expected up to {MOST_DECISIONS} such as C.vi.3=4"
            )
    job = jobs_api.get_job(service, job_id)
    only: Any = status or None  # one of STATUSES, by the field's pattern
    found = api.list_trials(service, job_id, only, wanted, sort, cursor, ITEMS)
    return page(
        request,
        "trials.html",
        job=job,
        items=found.items,
        next_cursor=found.next_cursor,
        cursor=cursor,
        statuses=STATUSES,
        only=status,
        decision=decision,
        sort=sort,
        bounded=any(item.share is not None for item in found.items),
    )


@dataclass(frozen=True)
class Variants:
    """The trials of a job with a time, by their variant: the number by which a page calls it, its
    own, how many there are, the most frequent first; and those of the chosen one."""

    rows: Sequence[tuple[int, int, int]]
    chosen: int
    trials: Sequence[ListedTrial]
    looked_at: int


def _variants(store: Store, job: Job, variant: int | None) -> Variants | None:
    """None for a job without a trial that has a time. Raises ProblemError (404)."""
    trials = listing.tried(store, job.id, SAMPLED)
    if not trials:
        return None
    counted = Counter(trial.variant for trial in trials).most_common()
    fastest = min(trials, key=lambda trial: trial.seconds or 0.0)
    chosen = fastest.variant if variant is None else variant
    if chosen not in dict(counted):
        raise ProblemError(404, f"job {job.id} has no trial of variant {chosen}")
    rows = [(number, name, many) for number, (name, many) in enumerate(counted, start=1)]
    own = [trial for trial in trials if trial.variant == chosen]
    return Variants(rows, chosen, own, len(trials))


@router.get("/jobs/{job_id}/decisions")
def decisions_page(
    request: Request,
    service: ServiceOf,
    summaries: SummariesOf,
    job_id: JobId,
    variant: Variant = None,
) -> HTMLResponse:
    """Decisions against speed."""
    statuses = summaries.of(service.store, job_id).tallied.statuses
    job = service.store.job(job_id)
    found = _variants(service.store, job, variant)
    order, drawn = _drawn(found)
    return page(
        request,
        "decisions.html",
        job=jobs_api.get_job(service, job_id),
        found=found,
        timed=sum(row.trials for row in statuses if row.status == OK),
        order=order,
        figure=drawn,
        fewest=FEWEST,
    )


def _drawn(found: Variants | None) -> tuple[list[Importance], Any]:
    if found is None or len(found.trials) < FEWEST:
        return [], None
    order = importances(found.trials)
    return order, parallel(found.trials, order)


@router.get("/jobs/{job_id}/decisions.svg")
def decisions_figure(service: ServiceOf, job_id: JobId, variant: Variant = None) -> Response:
    """The figure of that page."""
    _, drawn = _drawn(_variants(service.store, service.store.job(job_id), variant))
    if drawn is None:
        raise ProblemError(404, f"job {job_id} has fewer than {FEWEST} trials with a time")
    return as_file(drawn, f"job-{job_id[:12]}-decisions")


@router.get("/jobs/{job_id}/plot.svg")
def plot_figure(
    service: ServiceOf,
    summaries: SummariesOf,
    job_id: JobId,
    first: TrialNumber = None,
    last: TrialNumber = None,
    other: With = "",
) -> Response:
    """The plot of a job, from its `first` to its `last` trial, or that of two."""
    if first is not None and last is not None and first > last:
        raise ProblemError(422, f"expected trials in order, found {first} to {last}")
    store = service.store
    ids = [job_id, *([store.job_id(other)] if other else [])]
    shown = [_shown(store, summaries, one) for one in ids]
    drawn = convergence(shown, baselines_of(store, job_id), first, last)
    return as_file(drawn, f"job-{job_id[:12]}-plot")


def _shown(store: Store, summaries: Summaries, job_id: str) -> Shown:
    summary = summaries.of(store, job_id)
    job = store.job(job_id)
    name = job.name or title(store.workload(job.workload_key))
    firsts = [row.first_id for row in summary.tallied.statuses if row.status == OK]
    sampled = store.sample(job_id, at_most=SAMPLED, always=firsts)
    return Shown(f"{name} [{job_id[:8]}]", sampled, summary.course.improvements)
