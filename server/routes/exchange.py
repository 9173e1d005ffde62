"""Records in and out, as JSON lines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from typing import IO, Any

from anyio import from_thread
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.datastructures import Headers

from records import Filters, RecordError, Store, Workload, export_lines, import_jsonl
from records.logs.checks import Check
from server.http.auth import ClientOf
from server.http.problems import ProblemError, refused
from server.programs.pool import Examiner
from server.routes.common import answers
from server.routes.records import KindOf, StatusOf, Text
from server.schemas import ImportReport
from server.state import ServiceOf

router = APIRouter(prefix="/v1/records", tags=["records"])

LINES = "application/x-ndjson"
CHUNK_BYTES = 64 << 10
IN_MEMORY = 1 << 20
"""A larger import waits in a file."""

ARCHIVES = frozenset(
    f"application/{name}"
    for name in ("gzip", "x-gzip", "zstd", "x-bzip2", "x-xz", "zip", "x-7z-compressed")
)
START_BYTES = 8
ARCHIVE_STARTS = (
    *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"PK\x03\x04", b"7z\xbc\xaf"),
)
"""gzip, Zstandard, bzip2, xz, zip, 7z."""

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
    headers = {"Content-Disposition": 'attachment; filename="records.logs.jsonl"'}
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
async def import_records(request: Request, service: ServiceOf, client: ClientOf) -> ImportReport:
    """Take in the lines of an export. Doing it again changes nothing. Imported records are never
    the best until they are measured here; lines that cannot be used are refused one by one."""
    start = b""
    with service.writing.importing(), tempfile.SpooledTemporaryFile(IN_MEMORY) as spool:
        async for part in request.stream():
            if len(start) < START_BYTES:
                start += part[:START_BYTES]
                _check_plain(request.headers, start)
            if spool.tell() + len(part) > IN_MEMORY:
                await run_sync(spool.write, part)
            else:
                spool.write(part)
        await run_sync(spool.seek, 0)
        check = partial(_checked, service.examiner, client.key)
        return await service.writing.do_long(partial(_take, service.store, spool, check))


def _checked(examiner: Examiner, client: str, workload: Workload) -> Workload:
    """`autosched.tuning.stored.checked`, in a process of its own: a text may be anybody's."""
    try:
        found = from_thread.run(examiner.ask, {"stored": asdict(workload)}, client)
    except ProblemError as e:
        if e.status != 422:
            raise
        raise RecordError(e.detail) from e
    return Workload(**found["workload"])


def _check_plain(headers: Headers, start: bytes) -> None:
    """Raises ProblemError (415) for what is compressed, whatever it is said to be."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ARCHIVES or start.startswith(ARCHIVE_STARTS):
        raise refused(
            "unsupported-media-type",
            f"expected JSON lines, found a compressed file ({kind or 'no type'}): decompress it",
            headers={"Connection": "close"},
        )


def _take(store: Store, spool: IO[bytes], check: Check) -> ImportReport:
    report = import_jsonl(store, spool, check)
    reasons = [f"line {number}: {reason}" for number, reason in report.refused[:100]]
    return ImportReport(
        new=report.new, known=report.known, refused=report.refused_count, reasons=reasons
    )
