"""What happens to a job: as a stream, and page by page."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from records import Store
from records.types import ENDED
from server.http.auth import Authenticator
from server.http.limits import EVENT_STREAM, wants_stream
from server.http.prepared import PreparedRead, answered
from server.http.problems import ProblemError
from server.routes.common import JobId, answers
from server.schemas import Event, EventPage
from server.state import ServiceOf

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

After = Annotated[
    int | None,
    Query(ge=0, lt=1 << 63, description="go on after the event of this id; 0: from the first"),
]
LastEventId = Annotated[
    str | None,
    Header(pattern=r"^[0-9]{0,18}$", description="as `after`, sent by a reader that comes back"),
]
_OK: dict[str, Any] = {
    "description": "a stream of server-sent events, or a page of them, as `Accept` asks for",
    "model": EventPage,
    "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
}


@router.get(
    "/{job_id}/events",
    operation_id="get_job_events",
    response_model=None,
    responses={
        200: _OK,
        204: {"description": "the job has ended, and everything was told"},
        **answers(400, 404),
    },
)
async def get_events(
    request: Request,
    service: ServiceOf,
    job_id: JobId,
    after: After = None,
    last_event_id: LastEventId = None,
    limit: Annotated[int, Query(ge=1, le=500, description="events of a page")] = 100,
) -> Response:
    """What happens to a job.

    A stream of server-sent events as they happen, from the first or after `Last-Event-ID`; it ends
    with the job. With `Accept: application/json` a page of what is there: ask again with its
    `last_id` as `after`.
    """
    start = _start(after, last_event_id)
    if not wants_stream(request.headers):
        asked = job_id, start, limit
        read = partial(_page, service.store, *asked)
        return await answered(request, PreparedRead((_page, *asked), read, vary=b"Accept"))
    job = await anyio.to_thread.run_sync(service.store.job, job_id)
    if job.state in ENDED:
        last = await anyio.to_thread.run_sync(service.store.last_events, [job_id])
        if last[job_id] <= start:
            return Response(status_code=204)  # which tells browsers not to come back
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Vary": "Accept"}
    authenticator: Authenticator = request.app.state.authenticator
    address = request.client.host if request.client else "unknown"
    allowed = partial(authenticator.holds, request.headers, address)
    stream = service.events.stream(job_id, start, allowed)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=headers)


def _page(store: Store, job_id: str, start: int, limit: int) -> str:
    """What is there, as JSON."""
    job, found = store.job_and_events(job_id, after_id=start, limit=limit)
    page = EventPage(
        items=[Event.model_validate(event) for event in found],
        last_id=found[-1].id if found else start,
        ended=job.state in ENDED and len(found) < limit,
    )
    return page.model_dump_json()


def _start(after: int | None, last_event_id: str | None) -> int:
    """The id after which to begin. A reader that comes back repeats the URL that it began with, so
    what it has seen since goes first."""
    if last_event_id is None or last_event_id == "":
        return after or 0
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) < 1 << 63):
        raise ProblemError(400, f"Last-Event-ID {last_event_id!r} is not the id of an event")
    return int(last_event_id)
