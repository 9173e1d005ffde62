"""What the routes share: parameters of pages, problems in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from server.problems import MEDIA_TYPE
from server.schemas import JOB_ID, WORKLOAD_KEY, Problem

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
JobId = Annotated[str, Path(pattern=_NAME, examples=[JOB_ID])]
RecordId = Annotated[int, Path(ge=1, lt=1 << 63, examples=[1042])]
WorkloadKey = Annotated[str, Path(pattern=_NAME, examples=[WORKLOAD_KEY])]
PRINTABLE = r"^[ -~]+$"
"""What queries may be: no text in the store has anything else."""

_MEANINGS = {
    400: "a cursor, or a body, that is none",
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
