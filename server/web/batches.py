"""The pages of batches: the list, and one with its jobs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from records.types import ENDED
from server.http.auth import ClientOf
from server.jobs.model_times import tasks_of
from server.routes import batches as api
from server.routes.batches import BatchId
from server.routes.common import Cursor
from server.state import ServiceOf
from server.web.render import page

router = APIRouter(include_in_schema=False)


@router.get("/batches")
def batches_page(request: Request, service: ServiceOf, cursor: Cursor = None) -> HTMLResponse:
    """Batches, newest first."""
    found = api.list_batches(service, cursor)
    return page(
        request,
        "batches.html",
        items=found.items,
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.get("/batches/{batch_id}")
def batch_page(request: Request, service: ServiceOf, batch_id: BatchId) -> HTMLResponse:
    """One batch."""
    batch = api.batch_of(service, batch_id)
    tasks = tasks_of(service.store, batch.jobs[0].id)
    return page(
        request,
        "batch.html",
        batch=batch,
        tasks=tasks if tasks.model else None,
        live=not set(batch.states).issubset(ENDED),
    )


@router.post("/batches/{batch_id}/cancel")
async def cancel(service: ServiceOf, client: ClientOf, batch_id: BatchId) -> RedirectResponse:
    """The button."""
    await api.cancel_batch(service, client, batch_id)
    return RedirectResponse(f"/batches/{batch_id}", 303)


@router.post("/batches/{batch_id}/pause")
async def pause(service: ServiceOf, client: ClientOf, batch_id: BatchId) -> RedirectResponse:
    """The button."""
    await api.pause_batch(service, client, batch_id)
    return RedirectResponse(f"/batches/{batch_id}", 303)


@router.post("/batches/{batch_id}/resume")
async def resume(service: ServiceOf, client: ClientOf, batch_id: BatchId) -> RedirectResponse:
    """The button."""
    await api.resume_batch(service, client, batch_id)
    return RedirectResponse(f"/batches/{batch_id}", 303)
