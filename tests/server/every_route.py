"""All routes of the application, so that a test over them misses none that is added."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from server.app import create_app
from server.http.routing import RouteTable
from server.settings import Settings

UNKNOWN = {
    "job_id": "0" * 32,
    "batch_id": "0" * 32,
    "record_id": "1",
    "token_id": "0" * 12,
    "webhook_id": "0" * 12,
    "key": "1-000000000000000000000000",
    "kind": "py",
}
"""Things that are not there, for the parameters of paths."""


class Route(NamedTuple):
    method: str
    template: str
    below: str = ""
    """What is asked for below something mounted."""

    @property
    def path(self) -> str:
        """A path of the route, about things that are not there."""
        path = re.sub(r"\{(\w+)[^}]*\}", lambda m: UNKNOWN.get(m[1], "1"), self.template)
        return path + self.below


def methods_of(path: str) -> set[str]:
    """All methods that some route has for a path; none for what is below something mounted."""
    table = RouteTable(create_app(Settings()).routes)
    return set().union(*(route.methods for route in table.matching(path)))


def every_route() -> Iterator[Route]:
    """Each method of each route; what is mounted is asked for with GET and POST."""
    for _, route in RouteTable(create_app(Settings()).routes).routes:
        if route.methods:
            methods = sorted(route.methods - {"HEAD"})
            yield from (Route(method, route.template) for method in methods)
        else:
            yield from (Route(method, route.template, "/none") for method in ("GET", "POST"))


ROUTES = list(every_route())
