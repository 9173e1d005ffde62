"""The pages of workloads, with the best of each."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from autosched.ops import OPERATORS
from records import NoRecord, Record, Store, Workload
from server.routes import workloads as api
from server.routes.common import Cursor, WorkloadKey
from server.state import ServiceOf
from server.web.highlight import highlighted
from server.web.render import page

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Best:
    """The best record on one device, or the reason why there is none."""

    target: str
    device: str
    record: Record | None
    reason: str


@router.get("/workloads")
def workloads_page(request: Request, service: ServiceOf, cursor: Cursor = None) -> HTMLResponse:
    """All workloads."""
    found = api.list_workloads(service, cursor, 50)
    return page(
        request,
        "workloads.html",
        items=found.items,
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.get("/workloads/{key}")
def workload_page(request: Request, service: ServiceOf, key: WorkloadKey) -> HTMLResponse:
    """One workload: the best on each device, and its program."""
    workload = service.store.workload(key)
    return page(
        request,
        "workload.html",
        workload=workload,
        bests=_bests(service.store, key),
        script=highlighted(workload.text or workload.script, "python"),
        hint="before it is scheduled" if workload.text else "the canonical text",
        again=_again(workload),
    )


def _bests(store: Store, key: str) -> list[Best]:
    found = []
    for target, device in store.devices(key):
        try:
            found.append(Best(target, device, store.best(key, target, device), ""))
        except NoRecord as e:
            found.append(Best(target, device, None, str(e)))
    return found


def _again(workload: Workload) -> str | None:
    """The form that submits this workload; None for one that the library does not have."""
    if workload.name not in OPERATORS or workload.args is None:
        return None
    given = [("operator", workload.name), *(("arg", str(value)) for value in workload.args)]
    return f"/submit?{urlencode(given)}"
