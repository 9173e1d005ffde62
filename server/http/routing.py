"""What is known of a route before it is entered: its template, whether it takes a body, and the
names of its query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.datastructures import Headers
from starlette.routing import BaseRoute

from server.http.problems import ProblemError, refused
from server.schemas import ProblemItem
from server.web.forms import read_form

STREAMED = frozenset({("POST", "/v1/records/import")})
"""(method, template) of routes that read their body part by part."""
PATHS_KEPT = 1024
"""Paths whose routes are remembered."""
QUERY_FIELDS = 150
"""Fields of one query."""
_TWICE = "stands twice, and one is taken"


@dataclass(frozen=True)
class Route:
    """A route. `methods` is empty for what is mounted; `query`: names of the query, and whether one
    may stand several times, None where the query does not matter; `headers`: names of those that
    it reads, of which each may stand once."""

    template: str
    methods: frozenset[str]
    query: dict[str, bool] | None
    takes_body: bool
    headers: tuple[str, ...] = ()

    @property
    def streams(self) -> bool:
        """Whether it reads its body part by part."""
        return any((method, self.template) in STREAMED for method in self.methods)

    def check_query(self, text: bytes) -> None:
        """Raises ProblemError (422) for a name that the route does not have, or one that stands
        twice; a misspelt filter would else find everything."""
        known = self.query
        if not text or known is None:
            return
        try:
            found = parse_qsl(text.decode("latin-1"), True, max_num_fields=QUERY_FIELDS)
        except ValueError as e:
            raise ProblemError(422, f"expected at most {QUERY_FIELDS} fields in the query") from e
        seen: set[str] = set()
        wrong = []
        for name, _ in found:
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                wrong.append(_item("query", name, f"no such parameter; there are: {there}"))
            elif name in seen and not known[name]:
                wrong.append(_item("query", name, _TWICE))
            seen.add(name)
        _refuse(wrong)

    def check_headers(self, headers: Headers) -> None:
        """Raises ProblemError (422) for a header that the route reads and that stands twice."""
        twice = [name for name in self.headers if len(headers.getlist(name)) > 1]
        _refuse([_item("header", name, _TWICE) for name in twice])


def _item(part: str, name: str, message: str) -> ProblemItem:
    return ProblemItem(at=f"{part}/{name[:80]}", message=message)


def _refuse(wrong: Sequence[ProblemItem]) -> None:
    if wrong:
        told = "; ".join(f"{item.at}: {item.message}" for item in wrong[:5])
        raise ProblemError(422, told, kind="invalid-request", errors=wrong[:50])


class RouteTable:
    """The routes of an application."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes: list[tuple[re.Pattern[str], Route]] = [
            (found.path_regex, _route(found)) for found in iter_route_contexts(routes)
        ]
        # Trying all patterns takes longer than the rest of the gate.
        self._matching = lru_cache(PATHS_KEPT)(self._match)

    def matching(self, path: str) -> list[Route]:
        """The routes that have the path: those that spell it out go before all others, as
        `/v1/records/import` before `/v1/records/{record_id}`."""
        return self._matching(path)

    def _match(self, path: str) -> list[Route]:
        found = [route for regex, route in self.routes if regex.match(path)]
        return [route for route in found if route.template == path] or found

    def route(self, path: str, method: str) -> Route:
        """The route that answers.

        Raises ProblemError: 404 if no route has the path, 405 if those that do have other methods.
        """
        allowed: set[str] = set()
        for route in self.matching(path):
            if not route.methods or method in route.methods:
                return route
            allowed |= route.methods
        if "GET" in allowed:
            allowed.add("HEAD")
        if not allowed:
            raise refused("not-found", "no such path; /v1/openapi.json lists them all")
        names = ", ".join(sorted(allowed))
        raise refused(
            "method-not-allowed", f"this path has {names}, not {method}", headers={"Allow": names}
        )


def _route(found: Any) -> Route:
    """Of one of FastAPI's. Files that are mounted may have a version as their query."""
    template, methods = found.path or "", frozenset(found.methods or ())
    route = found.original_route
    if not isinstance(route, APIRoute):
        return Route(template, methods, {} if methods else None, takes_body=False)
    parts = list(_parts(route.dependant))
    query = {
        field.alias: _is_list(field.field_info.annotation)
        for part in parts
        for field in part.query_params
    }
    takes = route.body_field is not None or any(part.call is read_form for part in parts)
    streamed = any((method, template) in STREAMED for method in methods)
    read = tuple(field.alias for part in parts for field in part.header_params)
    return Route(template, methods, query, takes or streamed, read)


def _parts(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    inner: Iterable[Dependant] = dependant.dependencies
    for part in inner:
        yield from _parts(part)


def _is_list(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))
