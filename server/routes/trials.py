"""The trials of a job as a table, and as lines of CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import Field

from records import Job, Store
from records.operations import listing, roofline
from records.operations.listing import ListedTrial, Place, Sort
from records.operations.roofline import Bound
from server.http.paging import decode_cursor, encode_cursor
from server.http.problems import ProblemError
from server.routes.common import Cursor, JobId, Limit, ModelRoute, answers
from server.routes.records import StatusOf
from server.schemas import Page, Trial
from server.state import ServiceOf

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ModelRoute)

Decision = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,99}=-?[0-9]{1,18}$")]
DecisionsOf = Annotated[
    list[Decision],
    Query(max_length=16, description="a decision and its value, such as C.vi.3=4; may be repeated"),
]
SortOf = Annotated[Sort, Query(description="`-`: from the last, or the slowest")]
_POSITION = re.compile(r"(?P<sort>-?[a-z]+) (?P<seconds>none|[0-9.e+-]{1,32}) (?P<id>\d{1,18})")
CSV = "text/csv"
COLUMNS = (
    *("trial", "record_id", "round", "slot", "status", "seconds", "remeasured_seconds"),
    *("created_at", "decisions"),
)
_LINES = 500
"""Of one part of an export."""


@router.get("/{job_id}/trials", operation_id="list_trials", responses=answers(400, 404))
def list_trials(
    service: ServiceOf,
    job_id: JobId,
    status: StatusOf = None,
    decision: DecisionsOf = [],  # noqa: B006
    sort: SortOf = "trial",
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Trial]:
    """The trials of a job, by their number or by their time, those without a time last; of a status
    and of values of decisions."""
    store = service.store
    job = store.job(job_id)
    page = listing.listed(
        store,
        job_id,
        status=status,
        decisions=parted(decision),
        sort=sort,
        after=_place(sort, cursor),
        limit=limit,
    )
    after = page.after and f"{sort} {page.after.seconds or 'none'} {page.after.record_id}"
    return Page(items=judged(store, job, page.trials), next_cursor=encode_cursor("trials", after))


def judged(store: Store, job: Job, trials: Sequence[ListedTrial]) -> list[Trial]:
    """Trials with their speed, beside the job's baseline and its device's bound."""
    flop = store.workload(job.workload_key).flop
    bound = bound_of(store, job, flop)

    def one(trial: ListedTrial) -> Trial:
        seconds = trial.seconds if trial.status == "ok" else None
        values = {**vars(trial), "gflops": None, "gain": None, "share": None}
        if seconds:
            values["gflops"] = flop / seconds / 1e9 if flop else None
            values["gain"] = job.baseline_seconds / seconds if job.baseline_seconds else None
            values["share"] = bound.seconds / seconds if bound else None
        return Trial.model_validate(values)

    return [one(trial) for trial in trials]


def bound_of(store: Store, job: Job, flop: float) -> Bound | None:
    """The least time of a job's workload on its device; None where it is not known."""
    traffic = roofline.traffic_of(store, [job.workload_key]).get(job.workload_key)
    return roofline.bound(flop, traffic, roofline.limits_of(store, job.device))


def parted(decisions: Sequence[str]) -> dict[str, int]:
    """`["C.vi.3=4"]` as `{"C.vi.3": 4}`; of two values of one decision nothing is found. Raises
    ProblemError (422)."""
    found: dict[str, int] = {}
    for text in decisions:
        name, _, value = text.partition("=")
        if found.setdefault(name, int(value)) != int(value):
            raise ProblemError(422, f"{name} is asked to be {found[name]} and {value}")
    return found


def _place(sort: str, cursor: str | None) -> Place | None:
    """Where a page begins. Raises ProblemError (400) for a cursor of another order."""
    if (position := decode_cursor("trials", cursor)) is None:
        return None
    found = _POSITION.fullmatch(position)
    try:
        if found is None or found["sort"] != sort:
            raise ValueError(position)
        seconds = None if found["seconds"] == "none" else float(found["seconds"])
        return Place(seconds, int(found["id"]))
    except ValueError as e:
        raise ProblemError(
            400, f"{(cursor or '')[:80]!r} is no cursor of trials in the order {sort}"
        ) from e


@router.get(
    "/{job_id}/trials.csv",
    operation_id="export_trials",
    response_class=StreamingResponse,
    responses={
        200: {"description": "lines of CSV", "content": {CSV: {"schema": {"type": "string"}}}},
        **answers(404),
    },
)
async def export_trials(service: ServiceOf, job_id: JobId) -> StreamingResponse:
    """All trials of a job as CSV, in order: times in seconds, decisions as `C.vi.1=2 C.vi.2=4`."""
    lines = _csv(service.store, job_id)
    await service.reading.do(("job", job_id), lambda: service.store.job(job_id))
    headers = {"Content-Disposition": f'attachment; filename="job-{job_id[:12]}-trials.csv"'}
    return StreamingResponse(lines, media_type=CSV, headers=headers)


def _csv(store: Store, job_id: str) -> Iterator[str]:
    trials = listing.every(store, job_id)
    head: Iterator[Sequence[object]] = iter([COLUMNS])
    rows = chain(head, map(_row, trials))
    while some := list(islice(rows, _LINES)):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(some)
        yield out.getvalue()


def _row(trial: ListedTrial) -> Sequence[object]:
    values = vars(trial) | {
        "created_at": trial.created_at.isoformat(timespec="milliseconds"),
        "decisions": " ".join(f"{name}={value}" for name, value in trial.decisions.items()),
    }
    return ["" if values[name] is None else values[name] for name in COLUMNS]
