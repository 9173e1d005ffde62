"""Workloads: the computations that jobs and records are of."""

from __future__ import annotations

from itertools import islice

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server.http.etags import tagged_json
from server.http.paging import decode_cursor, encode_cursor
from server.routes.common import Cursor, Limit, ModelRoute, WorkloadKey, answers
from server.schemas import Page, Scope, Workload, WorkloadDetail
from server.state import ServiceOf

router = APIRouter(prefix="/v1/workloads", tags=["workloads"], route_class=ModelRoute)


@router.get("", operation_id="list_workloads", responses=answers(400))
def list_workloads(service: ServiceOf, cursor: Cursor = None, limit: Limit = 50) -> Page[Workload]:
    """Workloads, in order of their keys."""
    found = list(islice(service.store.workloads(decode_cursor("workloads", cursor) or ""), limit))
    more = found[-1].key if len(found) == limit else None
    items = [Workload.model_validate(workload) for workload in found]
    return Page(items=items, next_cursor=encode_cursor("workloads", more))


@router.get(
    "/{key}",
    operation_id="get_workload",
    response_model=WorkloadDetail,
    responses={304: {"description": "the client has it"}, **answers(404)},
)
def get_workload(request: Request, service: ServiceOf, key: WorkloadKey) -> Response:
    """One workload, with its text."""
    found = vars(service.store.workload(key))
    scopes = [Scope(target=target, device=device) for target, device in service.store.devices(key)]
    return tagged_json(request, WorkloadDetail(**found, devices=scopes))
