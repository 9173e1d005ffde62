"""The devices that measure."""

from __future__ import annotations

from fastapi import APIRouter

from server.routes.common import ModelRoute, answers
from server.schemas import Page, Worker
from server.state import Service, ServiceOf

router = APIRouter(prefix="/v1/workers", tags=["workers"], route_class=ModelRoute)


@router.get("", operation_id="list_workers", responses=answers())
def list_workers(service: ServiceOf) -> Page[Worker]:
    """The devices of this server's pool and what runs on them."""
    return Page(items=list_devices(service))


def list_devices(service: Service) -> list[Worker]:
    """The devices of this server's pool and what runs on them."""
    jobs: dict[str, list[str]] = {}
    for job in service.store.jobs(state="running", limit=1000).jobs:
        if job.device is not None:
            jobs.setdefault(job.device, []).append(job.id)
    return service.workers.items(jobs)
