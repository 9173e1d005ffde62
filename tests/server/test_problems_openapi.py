"""The OpenAPI document: complete, and stable where clients are made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from every_route import ROUTES

from server.app import create_app
from server.http import auth
from server.http.problems import MEDIA_TYPE
from server.settings import Settings

DOCUMENT = create_app(Settings()).openapi()


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


ALL = list(operations())
NAMES = [f"{method} {path}" for method, path, _ in ALL]


def test_operations_and_their_scopes_are_those_that_clients_know(
    golden: Callable[[str, str], None],
) -> None:
    lines = [f"{m} {p} {o['operationId']} {o.get('x-scope', '-')}\n" for m, p, o in ALL]
    golden("operations", "".join(sorted(lines)))


def test_every_route_of_the_api_is_in_the_document() -> None:
    routes = {f"{r.method} {r.template}" for r in ROUTES if r.template.startswith("/v1/")}
    assert routes - {"GET /v1/openapi.json"} <= set(NAMES)


@pytest.mark.parametrize(("method", "path", "operation"), ALL, ids=NAMES)
def test_an_operation_is_described(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert operation.get("x-scope") == auth.needed(method, path)
    responses = operation["responses"]
    assert {"400", "414", "429", "431", "500", "503"} <= responses.keys()
    assert ("413" in responses) == ("requestBody" in operation)
    assert ("401" in responses) == ("x-scope" in operation) == bool(operation.get("security"))
    for status, response in responses.items():
        assert response["description"]
        if int(status) < 400:
            continue
        schema = {"$ref": "#/components/schemas/Problem"}
        assert response["content"] == {MEDIA_TYPE: {"schema": schema}}
        assert ("Retry-After" in response.get("headers", {})) == (status in ("429", "503"))
    for parameter in operation.get("parameters", ()):
        assert {"type": "null"} not in parameter["schema"].get("anyOf", ())


def test_bounds_are_written_as_json_schema_has_them() -> None:
    def names(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
            for inner in value.values():
                yield from names(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from names(inner)

    assert not {"ge", "gt", "le", "lt"} & set(names(DOCUMENT["components"]["schemas"]))


def test_references_lead_somewhere() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    named = {f"#/components/schemas/{name}" for name in schemas}
    assert set(walk(DOCUMENT)) <= named
    assert "HTTPValidationError" not in schemas
