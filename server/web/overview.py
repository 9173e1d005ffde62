"""The root: what the service is at."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from records import JOB_STATES
from records.operations import census
from records.queue import model_tasks
from records.types import LOCAL
from server.jobs.answers import shown
from server.routes import jobs as api
from server.routes.workers import list_devices
from server.state import ServiceOf
from server.web.render import page

router = APIRouter(include_in_schema=False)

LISTED = 8
"""Jobs of each list."""
LOOKED_AT = 64
"""The newest jobs, among which gains are looked for."""


@router.get("/")
def overview_page(request: Request, service: ServiceOf) -> HTMLResponse:
    """Queue, devices, throughput, recent gains."""
    store = service.store
    counts = store.count_jobs()
    running = api.list_jobs(service, "running", limit=LISTED).items
    done = shown(store, store.jobs(state="succeeded", limit=LOOKED_AT).jobs)
    gains = [job for job in done if job.origin == LOCAL and (job.gain or 0.0) > 1.0][:LISTED]
    return page(
        request,
        "overview.html",
        counts=[(name, counts[name]) for name in JOB_STATES],
        running=running,
        waiting=counts["queued"],
        throughput=census.recent(store),
        devices=list_devices(service),
        gains=gains,
        kernels=model_tasks.kernels(store, running + gains),
    )
