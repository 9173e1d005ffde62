"""What the routes share: parameters of pages, problems in the OpenAPI document."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from server.http.prepared import PreparedRead, answered, do_not_prepare
from server.http.problems import MEDIA_TYPE
from server.schemas import JOB_ID, WORKLOAD_KEY, Problem
from server.state import Service, ServiceOf

Limit = Annotated[int, Query(ge=1, le=1000, description="items a page")]
Cursor = Annotated[
    str | None,
    Query(
        max_length=200,
        description="`next_cursor` of the page before",
        examples=[None],
    ),
]
_NAME = r"^[A-Za-z0-9_-]{1,64}$"


async def _job_id(
    request: Request,
    service: ServiceOf,
    job_id: Annotated[
        str,
        Path(
            pattern=_NAME,
            examples=[JOB_ID],
            description="the job's id, or the first characters of it, four or more, that no other "
            "job's begins with",
        ),
    ],
) -> str:
    if len(job_id) == len(JOB_ID):
        return job_id
    do_not_prepare(request)  # of another job, when one comes whose id begins so
    found: str = await service.reading.do(("id", job_id), partial(service.store.job_id, job_id))
    return found


JobId = Annotated[str, Depends(_job_id)]
RecordId = Annotated[int, Path(ge=1, lt=1 << 63, examples=[1042])]
WorkloadKey = Annotated[str, Path(pattern=_NAME, examples=[WORKLOAD_KEY])]
PRINTABLE = r"^[ -~]+$"
"""What queries may be: no text in the store has anything else."""

_MEANINGS = {
    400: "a cursor, or a body, that is none",
    403: "the token's scope does not allow it",
    404: "there is no such thing",
    406: "no such form",
    409: "the thing's state does not allow it",
    413: "larger than the server takes",
    422: "a parameter, or the body, does not fit",
    429: "too many requests, or too many jobs waiting",
    503: "the database cannot be used now; try again",
}


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route answers with, for its OpenAPI; 422 and 503 are always among
    them."""
    return {
        status: {
            "description": _MEANINGS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            "model": Problem,
        }
        for status in sorted({*statuses, 422, 503})
    }


def written(
    model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A model as the answer."""
    return Response(model.model_dump_json(), status, headers, "application/json")


class ModelRoute(APIRoute):
    """A route whose function returns a model. It is written at once, in the thread where it was
    made: FastAPI would have it validated again first, in another turn of a thread.

    A plain function only reads: those who ask the same at a time share what it finds (`Reading`).
    One that takes the request answers by its headers, for its client alone.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if inspect.iscoroutinefunction(endpoint):
            endpoint = _writing(endpoint)
        elif "request" not in inspect.signature(endpoint).parameters:
            endpoint = _sharing(endpoint)
        super().__init__(path, endpoint, **options)


def _writing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a model that it returns as a response."""

    @wraps(function)
    async def called(*args: Any, **values: Any) -> Any:
        found = await function(*args, **values)
        return written(found) if isinstance(found, BaseModel) else found

    return called


def _sharing(function: Callable[..., BaseModel]) -> Callable[..., Any]:
    """The plain function as one that shares what it reads, as a response."""

    @wraps(function)
    async def called(request: Request, service: Service, **asked: Any) -> Response:
        def read() -> str:
            return function(service=service, **asked).model_dump_json()

        what = {name: tuple(v) if isinstance(v, list) else v for name, v in asked.items()}
        return await answered(request, PreparedRead((function, *what.items()), read))

    signature = inspect.signature(function)
    asking = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    named = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]
    called.__signature__ = signature.replace(parameters=[asking, *named])  # type: ignore[attr-defined]
    return called
