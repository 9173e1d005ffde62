"""The OpenAPI document: what FastAPI derives from the routes, and what the gate adds to each.

Every operation may be refused by the gate; so the gate's problems, the scope that is needed and the
ways to send a token are written here once, not at each route.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.http import auth
from server.http.problems import KINDS, MEDIA_TYPE
from server.schemas import Problem, ProblemItem

_ALWAYS = (400, 414, 429, 431, 500, 503)
_WITH_BODY = (408, 413, 415, 501)
_WITH_TOKENS = (401, 403)
_RETRY = (429, 503)
_OPERATIONS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_DESCRIPTION = """\
Tuning jobs, what was measured, and the fastest programs found.

Errors are problems (RFC 9457, `application/problem+json`) of one shape, whatever the route. Off
loopback every request needs a bearer token, made by `autosched token create`; an operation's
`x-scope` says which one is needed: `read`, `submit` (which contains `read`) or `admin` (which
contains both).
"""


def install(app: FastAPI) -> None:
    """Let `app` answer with this document, which is made when it is first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """The document of all routes that are in the schema."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        summary="The tuning service of autosched",
        description=_DESCRIPTION,
        routes=app.routes,
    )
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for model in (Problem, ProblemItem):
        found = model.model_json_schema(ref_template="#/components/schemas/{model}")
        found.pop("$defs", None)
        schemas[model.__name__] = found
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "browser": {"type": "apiKey", "in": "cookie", "name": auth.COOKIE},
    }
    for path, operations in made["paths"].items():
        for method in _OPERATIONS:
            if method in operations:
                _complete(operations[method], method.upper(), path)
    return made


def _complete(operation: dict[str, Any], method: str, path: str) -> None:
    """Add what the gate does to an operation."""
    for parameter in operation.get("parameters", ()):
        _without_null(parameter)
    responses = operation.setdefault("responses", {})
    statuses = set(_ALWAYS)
    if "requestBody" in operation:
        statuses |= set(_WITH_BODY)
    needed = auth.needed(method, path)
    if needed is not None:
        statuses |= set(_WITH_TOKENS)
        operation["x-scope"] = needed
        # The empty one: on loopback.
        operation["security"] = [{"token": []}, {"browser": []}, {}]
    statuses |= {int(s) for s in responses if s.isdigit() and int(s) >= 400}
    for status in statuses:
        stated = responses.get(str(status), {}).get("description")
        responses[str(status)] = _problem(status, stated)
    operation["responses"] = dict(sorted(responses.items()))


def _without_null(parameter: dict[str, Any]) -> None:
    """A parameter that may be left out cannot be null: it would be the text `null`."""
    schema = parameter["schema"]
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        parameter["schema"] = kinds[0] | schema


def _problem(status: int, description: str | None) -> dict[str, Any]:
    titles = [kind.title for kind in KINDS.values() if kind.status == status]
    if description in (None, "Validation Error"):
        description = "; ".join(titles)
    found: dict[str, Any] = {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    headers = {}
    if status in _RETRY:
        headers["Retry-After"] = ("seconds after which to try again", "integer")
    if status == 401:
        headers["WWW-Authenticate"] = ("how to authenticate", "string")
    if headers:
        found["headers"] = {
            name: {"description": text, "schema": {"type": kind}}
            for name, (text, kind) in headers.items()
        }
    return found
