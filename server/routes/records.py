"""What was measured."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from autosched.errors import TargetError
from autosched.target import Target
from records.types import shortened
from server.http.auth import ClientOf
from server.http.etags import tagged_json
from server.http.paging import decode_id, encode_cursor
from server.http.prepared import PreparedRead, answered
from server.http.problems import refused
from server.routes.common import PRINTABLE, Cursor, Limit, ModelRoute, RecordId, answers
from server.schemas import Kind, Measurement, Page, Record, RecordDetail, Status
from server.state import Service, ServiceOf

router = APIRouter(prefix="/v1", tags=["records"], route_class=ModelRoute)

Text = Annotated[str | None, Query(pattern=PRINTABLE, max_length=1000)]
StatusOf = Annotated[Status | None, Query(description="how the measurement ended")]
KindOf = Annotated[Kind | None, Query()]
LISTED_ERROR = 2000
"""Characters of an error in a list: 2 MB of a page."""
TargetOf = Annotated[
    str | None,
    Query(
        pattern=PRINTABLE, max_length=1000, description="in full, or `llvm`: that of this machine"
    ),
]


RecordNumber = Annotated[int, Field(ge=1, lt=1 << 63)]
_NUMBER = re.compile(r"-?\d{1,100}(\.\d{1,100})?([eE][+-]?\d{1,3})?")
Argument = Annotated[str, Field(pattern=PRINTABLE, max_length=200)]


@router.get("/records", operation_id="list_records", responses=answers(400))
def list_records(
    service: ServiceOf,
    workload_key: Text = None,
    target: TargetOf = None,
    device: Text = None,
    status: StatusOf = None,
    job_id: Text = None,
    kind: KindOf = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Record]:
    """Records in the order in which they were stored, with the first and last 1,000 characters of
    their errors. A page that is short, or empty, and has a
    `next_cursor` is not the last: a page looks through so many records and no more."""
    page = service.store.page(
        workload_key=workload_key,
        target=resolved(target),
        device=device,
        status=status,
        job_id=job_id,
        kind=kind,
        after_id=decode_id("records", cursor),
        limit=limit,
    )
    items = [brief(Record.model_validate(record)) for record in page.records]
    return Page(items=items, next_cursor=encode_cursor("records", page.after_id))


def brief(record: Record) -> Record:
    """As lists show it: the whole error is with the record alone."""
    if record.error is None or len(record.error) <= LISTED_ERROR:
        return record
    return record.model_copy(update={"error": shortened(record.error, LISTED_ERROR)})


@router.get(
    "/records/{record_id}",
    operation_id="get_record",
    response_model=RecordDetail,
    responses={304: {"description": "the client has it"}, **answers(404)},
)
def get_tagged_record(request: Request, service: ServiceOf, record_id: RecordId) -> Response:
    """One record with its trace and its repeated timings."""
    return tagged_json(request, get_record(service, record_id))


def get_record(service: Service, record_id: int) -> RecordDetail:
    """One record with its trace and its repeated timings. Raises NoRecord."""
    record = service.store.get(record_id)
    measurements = [Measurement.model_validate(m) for m in service.store.measurements(record_id)]
    values = Record.model_validate(record).model_dump()
    return RecordDetail(
        **values,
        trace=list(record.trace),
        decisions=dict(record.decisions),
        measurements=measurements,
    )


@router.get("/best", operation_id="get_best", response_model=Record, responses=answers(404, 409))
async def get_best(
    request: Request,
    service: ServiceOf,
    client: ClientOf,
    workload_key: Annotated[str | None, Query(pattern=PRINTABLE, max_length=64)] = None,
    name: Annotated[
        str | None,
        Query(pattern=PRINTABLE, max_length=200, description="an operator, in place of the key"),
    ] = None,
    arg: Annotated[list[Argument], Query(max_length=32, description="its arguments")] = [],  # noqa: B006
    target: TargetOf = None,
    device: Text = None,
    exclude: Annotated[
        list[RecordNumber], Query(max_length=100, description="ids of records to pass over")
    ] = [],  # noqa: B006
) -> Response:
    """The fastest valid record of a workload, named by its key, or by an operator of the library
    and its arguments in order (`name=matmul&arg=512&arg=512&arg=512`). Target and device may be
    left out where records of only one may be handed out. 404 says why there is none."""
    if (workload_key is None) == (name is None):
        raise refused("invalid-workload", "expected either workload_key or name with its arguments")
    if workload_key is None:
        asked = {"name": name, "args": [_value(text) for text in arg], "target": "llvm"}
        examined = await service.examiner.examine(asked, client.key)
        workload_key = str(examined.workload["key"])
    elif arg:
        raise refused("invalid-workload", "arguments are those of an operator that `name` names")
    asked_for = (workload_key, resolved(target), device)
    best = partial(_best, service, *asked_for, exclude=exclude)
    return await answered(request, PreparedRead(("best", *asked_for, *exclude), best))


def _best(
    service: Service, key: str, target: str | None, device: str | None, exclude: list[int]
) -> str:
    """The best record, as JSON."""
    found = service.store.best(key, target, device, exclude=exclude)
    return Record.model_validate(found).model_dump_json()


def _value(text: str) -> int | float | str:
    """An argument of an operator as it is meant: a number as JSON has it, or text."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text or "e" in text.lower() else int(text)


def resolved(target: str | None) -> str | None:
    """A target as records have it: in full. What is none here may be one of an imported record."""
    if target is None:
        return None
    try:
        return str(Target(target))
    except TargetError:
        return target
