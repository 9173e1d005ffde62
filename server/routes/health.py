"""Whether the server lives and can work, and what it counts."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from records.sql.schema import REVISION
from server.http import metrics
from server.http.problems import unavailable
from server.routes.workers import list_workers
from server.schemas import Health
from server.state import ServiceOf

_READY = {"database": "writable", "schema": REVISION, "supervisor": "alive"}

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="get_health")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok", checks={})


@router.get("/readyz", operation_id="get_readiness")
async def readyz(service: ServiceOf) -> Health:
    """The database can be reached, has the right schema and takes what is written, and jobs are
    looked after; else 503 says what is wrong, 500 that the database is damaged."""
    await service.readiness.check()
    found = await service.reading.do("version", service.store.version)
    if found != REVISION:
        raise unavailable(f"the database has schema version {found}, expected {REVISION}")
    if not service.supervisor.healthy:
        raise unavailable("nobody looks after the jobs of this server; restart it")
    return Health(status="ok", checks=_READY)


@router.get(
    "/metrics",
    operation_id="get_metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_metrics(request: Request, service: ServiceOf) -> Response:
    """Counts and times, in Prometheus' text format."""
    counted: metrics.Metrics = request.app.state.metrics
    if counted.read_database(service.store):
        counted.count_workers([worker.healthy for worker in list_workers(service).items])
    counted.running.set(len(service.supervisor.running))
    return Response(counted.text(), media_type=metrics.MEDIA_TYPE)
