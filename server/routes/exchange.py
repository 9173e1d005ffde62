"""Records in and out, as JSON lines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import IO, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from records import Filters, Store, export_lines, import_jsonl
from server.routes.common import answers
from server.routes.records import KindOf, StatusOf, Text
from server.schemas import ImportReport
from server.state import ServiceOf

router = APIRouter(prefix="/v1/records", tags=["records"])

LINES = "application/x-ndjson"
CHUNK_BYTES = 64 << 10
IN_MEMORY = 1 << 20
"""A larger import waits in a file."""

_LINES: dict[str, Any] = {LINES: {"schema": {"type": "string"}}}


@router.get(
    "/export",
    operation_id="export_records",
    response_class=StreamingResponse,
    responses={200: {"description": "JSON lines", "content": _LINES}, **answers()},
)
def export_records(
    service: ServiceOf,
    workload_key: Text = None,
    target: Text = None,
    device: Text = None,
    status: StatusOf = None,
    job_id: Text = None,
    kind: KindOf = None,
) -> StreamingResponse:
    """Records with their workloads and measurements, as the self-contained lines of a log."""
    chunks = _chunks(
        service.store,
        Filters(
            workload_key=workload_key,
            target=target,
            device=device,
            status=status,
            job_id=job_id,
            kind=kind,
        ),
    )
    # What fails at once fails before the answer has begun.
    first = list(islice(chunks, 1))
    headers = {"Content-Disposition": 'attachment; filename="records.jsonl"'}
    return StreamingResponse(chain(first, chunks), media_type=LINES, headers=headers)


def _chunks(store: Store, filters: Filters) -> Iterator[bytes]:
    """The lines, some at a time: each part of a stream costs a turn of a thread."""
    waiting, size = [], 0
    for line in export_lines(store, **filters):
        waiting.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


@router.post(
    "/import",
    operation_id="import_records",
    responses=answers(413),
    openapi_extra={"requestBody": {"required": False, "content": _LINES}},
)
async def import_records(request: Request, service: ServiceOf) -> ImportReport:
    """Take in the lines of an export. Doing it again changes nothing. Imported records are never
    the best until they are measured here; lines that cannot be used are refused one by one."""
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as spool:
        async for part in request.stream():
            if spool.tell() + len(part) > IN_MEMORY:
                await run_sync(spool.write, part)
            else:
                spool.write(part)
        await run_sync(spool.seek, 0)
        return await service.writing.do_long(partial(_take, service.store, spool))


def _take(store: Store, spool: IO[bytes]) -> ImportReport:
    report = import_jsonl(store, spool)
    reasons = [f"line {number}: {reason}" for number, reason in report.refused[:100]]
    return ImportReport(
        new=report.new, known=report.known, refused=report.refused_count, reasons=reasons
    )
