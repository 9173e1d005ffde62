"""Answers that clients keep: tags of what they have, and 304 where it has not changed."""

from __future__ import annotations

import hashlib

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.responses import JSONResponse

REVALIDATED = "private, no-cache"
"""May be kept by the client, who asks each time whether it still holds."""


def tagged(request: Request, response: Response, tag: str) -> Response:
    """`response` with its tag, or 304 if the client has it."""
    # Weak: it is compressed differently for different clients.
    quoted = f'W/"{tag}"'
    headers = {"ETag": quoted, "Cache-Control": REVALIDATED}
    if has(request, tag):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


def has(request: Request, tag: str) -> bool:
    """Whether the client has what bears the tag."""
    given = request.headers.get("if-none-match", "")
    return given.strip() == "*" or tag in (
        part.strip().removeprefix("W/").strip('"') for part in given.split(",")
    )


def tagged_json(request: Request, value: BaseModel) -> Response:
    """A model as JSON, tagged by its content."""
    response = JSONResponse(value.model_dump(mode="json"))
    return tagged(request, response, hashlib.sha256(response.body).hexdigest()[:32])
