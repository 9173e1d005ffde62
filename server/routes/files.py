"""The programs of records as files, and their loop IR beside their assembly."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from records import Record
from server.http.auth import client_of
from server.http.etags import has, tagged
from server.http.problems import ProblemError, refused
from server.programs.cache import Form, Made
from server.programs.rendering import stem_of
from server.routes.common import JobId, ModelRoute, RecordId, answers
from server.schemas import Listing
from server.state import Service, ServiceOf

router = APIRouter(prefix="/v1", tags=["records"], route_class=ModelRoute)

Kind = Literal["py", "ll", "s", "o", "h", "cu", "cl"]
FORMS: dict[str, tuple[Form | Made, str]] = {
    "py": ("schedule", "text/x-python"),
    "ll": ("source", "text/plain"),
    "s": ("asm", "text/plain"),
    "o": ("object", "application/octet-stream"),
    "h": ("header", "text/x-c"),
    "cu": ("source", "text/x-c"),
    "cl": ("source", "text/x-c"),
}
SOURCES = {"llvm": "ll", "cuda": "cu", "opencl": "cl"}
"""Kind of a target -> the file that its source is."""

_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the file",
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in sorted({media_type for _, media_type in FORMS.values()})
        },
        "headers": {"ETag": {"schema": {"type": "string"}}},
    },
    304: {"description": "the client has it"},
    **answers(404, 409),
}


def kinds_of(target: str) -> list[Kind]:
    """The files that there are of a program for a target: none for a kind of target that is not
    known here, as a log of another version may have it."""
    source = SOURCES.get(target.partition(" ")[0])
    if source is None:
        return []
    return ["py", "ll", "s", "o", "h"] if source == "ll" else ["py", source]  # type: ignore[list-item]


@router.get(
    "/records/{record_id}/files/{kind}",
    operation_id="get_record_file",
    response_class=Response,
    responses=_FILE,
)
async def get_file(
    request: Request, service: ServiceOf, record_id: RecordId, kind: Kind
) -> Response:
    """A record's program as a file: `py`, its schedule, a module that runs; `ll`, LLVM IR; `s`,
    assembly; `o` and `h`, an object file and the header by which C programs call it; for a GPU `cu`
    or `cl`, the source of its kernels."""
    record = await service.reading.do(("record", record_id), partial(service.store.get, record_id))
    return await _file(request, service, record, kind)


@router.get(
    "/jobs/{job_id}/best/{kind}",
    operation_id="get_best_file",
    response_class=Response,
    responses=_FILE,
)
async def get_best_file(
    request: Request, service: ServiceOf, job_id: JobId, kind: Kind
) -> Response:
    """The file of a job's best record; 404 where it has none."""
    job = await service.reading.do(("job", job_id), partial(service.store.job, job_id))
    if (best := job.best_record_id) is None:
        raise refused("not-found", f"job {job_id} has no valid record")
    record = await service.reading.do(("record", best), partial(service.store.get, best))
    return await _file(request, service, record, kind)


async def _file(request: Request, service: Service, record: Record, kind: Kind) -> Response:
    have = kinds_of(record.target)
    if kind not in have:
        what = (
            f"has the files {', '.join(have)}; found {kind!r}"
            if have
            else f"has no files here; expected a target of {', '.join(SOURCES)}"
        )
        raise refused(
            "conflict", f"record {record.id} is for {record.target.partition(' ')[0]!r} and {what}"
        )
    form, media_type = FORMS[kind]
    tag = await service.texts.tag(record.id, form)
    text = (
        ""
        if has(request, tag)
        else await service.texts.text(record.id, form, client_of(request).key)
    )
    key = record.workload_key
    workload = await service.reading.do(("workload", key), partial(service.store.workload, key))
    # Nothing in the header's comments and the object's symbols depends on the record's number.
    stem = stem_of(workload.name)
    name = f"{stem}.{kind}" if kind in ("o", "h") else f"{stem}-{record.id}.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    body = base64.b64decode(text) if kind == "o" else text.encode()
    return tagged(request, Response(body, headers=headers, media_type=media_type), tag)


@router.get(
    "/records/{record_id}/listing",
    operation_id="get_record_listing",
    response_model=Listing,
    responses=answers(404, 409),
)
async def get_listing(request: Request, service: ServiceOf, record_id: RecordId) -> Listing:
    """The loop IR of a record's program, as code is made of it, and its assembly, whose lines name
    the line of loop IR that they come from (from 1). `linked` is false where that could not be told
    without changing the code."""
    return await listing_of(service, record_id, client_of(request).key)


async def listing_of(service: Service, record_id: int, client: str) -> Listing:
    """Raises ProblemError: 409 where there is none, as for a GPU."""
    text = await service.texts.text(record_id, "listing", client)
    try:
        return Listing.model_validate_json(text)
    except ValueError as e:
        raise ProblemError(500, "the listing is not as it should be") from e
