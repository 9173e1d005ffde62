"""The API as a page on which it can be tried, made from the same document that programs read.

All of it is served from here: it loads nothing from any other site.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from server.web.render import page

router = APIRouter(include_in_schema=False)

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Parameter:
    """Part of a request: `place` is path, query or header; `example` is what it may be."""

    name: str
    place: str
    required: bool
    kind: str
    description: str
    example: str


@dataclass(frozen=True)
class Operation:
    """A method of a path. `body`: an example of what is sent, None where nothing is."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    scope: str
    parameters: tuple[Parameter, ...]
    media_type: str
    body: str | None
    answers: tuple[tuple[str, str], ...]


@router.get("/docs")
def docs_page(request: Request) -> HTMLResponse:
    """Every operation, with a form that sends it."""
    return page(request, "docs.html", groups=groups_of(request.app.openapi()))


@router.get("/openapi.json")
def document(request: Request) -> JSONResponse:
    """The document where programs look for it first; the same as `/v1/openapi.json`."""
    return JSONResponse(request.app.openapi())


def groups_of(document: Mapping[str, Any]) -> dict[str, list[Operation]]:
    """The operations of an OpenAPI document by their first tag."""
    found: dict[str, list[Operation]] = {}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if (one := operations.get(method)) is not None:
                made = _operation(document, path, method, one)
                found.setdefault((one.get("tags") or ["service"])[0], []).append(made)
    return found


def _operation(
    document: Mapping[str, Any], path: str, method: str, found: Mapping[str, Any]
) -> Operation:
    content = found.get("requestBody", {}).get("content", {})
    media_type = next(iter(content), "")
    summary, _, rest = found.get("description", "").partition("\n\n")
    return Operation(
        id=found["operationId"],
        method=method.upper(),
        path=path,
        summary=" ".join(summary.split()),
        description=" ".join(rest.split()),
        scope=found.get("x-scope", ""),
        parameters=tuple(_parameter(p) for p in found.get("parameters", ())),
        media_type=media_type,
        body=_body(document, content[media_type]) if media_type else None,
        answers=tuple(
            (status, answer.get("description", "")) for status, answer in found["responses"].items()
        ),
    )


def _parameter(found: Mapping[str, Any]) -> Parameter:
    schema = found["schema"]
    examples = [e for e in schema.get("examples", ()) if e is not None]
    return Parameter(
        name=found["name"],
        place=found["in"],
        required=found.get("required", False),
        kind=" or ".join(map(str, schema["enum"])) if "enum" in schema else schema.get("type", ""),
        description=found.get("description", ""),
        example=str(examples[0]) if examples and found.get("required") else "",
    )


def _body(document: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """An example of a body: the schema's own, or one made of its fields' examples."""
    example = _example(document, content.get("schema", {}))
    return json.dumps(example, indent=2) if isinstance(example, dict | list) else ""


def _example(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    if (reference := schema.get("$ref")) is not None:
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    if schema.get("examples"):
        return schema["examples"][0]
    if "default" in schema:
        return schema["default"]
    if "properties" in schema:
        return {
            name: _example(document, one)
            for name, one in schema["properties"].items()
            if name in schema.get("required", ()) or one.get("examples")
        }
    return None
