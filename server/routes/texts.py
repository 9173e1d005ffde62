"""The program of a record as text, each form by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response

from server.http.auth import client_of
from server.http.etags import has, tagged
from server.programs.cache import Form
from server.routes.common import RecordId, answers
from server.state import ServiceOf

router = APIRouter(prefix="/v1/records/{record_id}", tags=["records"])

PYTHON = "text/x-python"


def _of(media_type: str) -> dict[int | str, dict[str, Any]]:
    return {
        200: {
            "description": "the text",
            "content": {media_type: {"schema": {"type": "string"}}},
            "headers": {"ETag": {"schema": {"type": "string"}}},
        },
        304: {"description": "the client has it"},
        **answers(404, 409),
    }


@router.get(
    "/schedule",
    operation_id="get_record_schedule",
    response_class=PlainTextResponse,
    responses=_of(PYTHON),
)
async def get_schedule(request: Request, service: ServiceOf, record_id: RecordId) -> Response:
    """A Python module that stands alone: the workload, and `apply(sch)`, which makes the program;
    when run it builds, checks and times it. 409 says why there is none."""
    return await _text(request, service, record_id, "schedule", PYTHON)


@router.get(
    "/script",
    operation_id="get_record_script",
    response_class=PlainTextResponse,
    responses=_of(PYTHON),
)
async def get_script(request: Request, service: ServiceOf, record_id: RecordId) -> Response:
    """The scheduled program as script, which `autosched.script.parse` reads."""
    return await _text(request, service, record_id, "script", PYTHON)


@router.get(
    "/source",
    operation_id="get_record_source",
    response_class=PlainTextResponse,
    responses=_of("text/plain"),
)
async def get_source(
    request: Request,
    service: ServiceOf,
    record_id: RecordId,
    form: Annotated[
        Literal["llvm", "asm"],
        Query(
            description="`llvm`: what the code generator makes, LLVM IR, or CUDA or OpenCL source "
            "for a GPU; `asm`: the assembly made of LLVM IR"
        ),
    ] = "llvm",
) -> Response:
    """What the code generator makes of the program."""
    name: Form = "source" if form == "llvm" else "asm"
    return await _text(request, service, record_id, name, "text/plain")


async def _text(
    request: Request, service: ServiceOf, record_id: int, form: Form, media_type: str
) -> Response:
    key = client_of(request).key
    tag = await service.texts.tag(record_id, form)
    text = "" if has(request, tag) else await service.texts.text(record_id, form, key)
    return tagged(request, PlainTextResponse(text, media_type=media_type), tag)
