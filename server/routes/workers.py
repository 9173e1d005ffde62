"""The workers that measure: how they are, and which are to take no more work."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import APIRouter

from records.operations.workers import WorkerLog
from server.http.auth import Client, ClientOf
from server.http.problems import refused
from server.routes.common import ModelRoute, answers
from server.schemas import DrainRequest, Page, Worker
from server.state import Service, ServiceOf

_log = logging.getLogger("autosched.workers")

router = APIRouter(prefix="/v1/workers", tags=["workers"], route_class=ModelRoute)


@router.get("", operation_id="list_workers", responses=answers())
def list_workers(service: ServiceOf) -> Page[Worker]:
    """The workers of this server's pools and what runs on them."""
    return Page(items=list_devices(service))


@router.post("/drain", operation_id="drain_workers", responses=answers(403, 404))
async def drain_workers(
    service: ServiceOf, client: ClientOf, request: DrainRequest
) -> Page[Worker]:
    """Have workers finish the trial that they are at, and take no more: the rest of it goes to
    others, and a job whose pool has none left waits in the queue. For admins."""
    return await change(service, client, request.names, drain=True)


@router.post("/admit", operation_id="admit_workers", responses=answers(403, 404))
async def admit_workers(
    service: ServiceOf, client: ClientOf, request: DrainRequest
) -> Page[Worker]:
    """Let drained workers work again. For admins."""
    return await change(service, client, request.names, drain=False)


async def change(
    service: Service, client: Client, names: Sequence[str], *, drain: bool
) -> Page[Worker]:
    """Drains or admits workers; those, as they are then. Raises ProblemError (404) for names of
    none."""

    def work() -> Page[Worker]:
        log = WorkerLog(service.store)
        known = {worker.name for worker in list_devices(service)} | log.drained()
        if wrong := sorted(set(names) - known):
            raise refused("not-found", f"no worker {wrong[0]!r}; /v1/workers lists them")
        if drain:
            log.drain(names, client.name)
        else:
            log.admit(names)
        _log.info("%s by %s: %s", "drained" if drain else "admitted", client.name, ", ".join(names))
        return Page(items=[worker for worker in list_devices(service) if worker.name in names])

    return await service.writing.do(work)


def list_devices(service: Service) -> list[Worker]:
    """The workers of this server's pools and what runs on them."""
    jobs: dict[str, list[str]] = {}
    for job in service.store.jobs(state="running", limit=1000).jobs:
        if job.device is not None:
            jobs.setdefault(job.device, []).append(job.id)
    log = WorkerLog(service.store)
    return service.workers.items(jobs, log.drained(), log.past())
