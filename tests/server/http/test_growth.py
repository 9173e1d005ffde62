"""Work before anybody has shown a token: it grows with what was sent, and no faster.

Counted, not timed (`work`), on inputs of n, 2n and 4n: every parser and checker that a request of a
stranger passes, and whole requests of every public route.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from every_route import ROUTES
from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.types import Message, Scope
from work import Name, check_linear, work

from server.app import create_app
from server.http import (
    auth,
    compression,
    etags,
    limits,
    logs,
    paging,
    problems,
    routing,
    strict_json,
)
from server.http.problems import ProblemError
from server.http.security import BrowserRules, host_of
from server.settings import Settings
from server.web.problems import wants_html

N = 400
APP = create_app(Settings(require_tokens=True))
TABLE = routing.RouteTable(APP.routes)
RULES = BrowserRules(Settings().hosts)


def refused(do: Callable[[], object]) -> None:
    with contextlib.suppress(ProblemError):
        do()


def head(**headers: str) -> Headers:
    return Headers({name.replace("_", "-"): text for name, text in headers.items()})


def body(text: str) -> None:
    refused(lambda: strict_json.strict_json(text.encode()))


PARSERS: dict[str, Callable[[int], object]] = {
    "different names": lambda n: body(json.dumps({f"n{i}": 0 for i in range(n)})),
    "names that stand twice": lambda n: body(
        "{" + ",".join(f'"n{i}":0' for i in [*range(n), n - 1]) + "}"
    ),
    "objects": lambda n: body("[" + ",".join(['{"a":1}'] * n) + "]"),
    "numbers": lambda n: body("[" + ",".join(["1.5"] * n) + "]"),
    "digits": lambda n: body("9" * n),
    "digits of a fraction": lambda n: body("1." + "9" * n),
    "arrays in arrays": lambda n: body("[" * n + "]" * n),
    "arrays that do not end": lambda n: body("[" * n),
    "quotes": lambda n: body('"' * n),
    "escaped quotes that do not end": lambda n: body('"' + '\\"' * n),
    "backslashes": lambda n: body("\\" * n),
    "a text": lambda n: body(json.dumps("é" * n)),
    "values that are refused": lambda n: body("[" + "0," * (strict_json.JSON_ITEMS + n) + "0]"),
    "a host": lambda n: host_of("a." * n),
    "brackets of a host": lambda n: host_of("[" * n),
    "an origin": lambda n: refused(
        lambda: RULES.check("POST", head(host="localhost", origin="://" * n))
    ),
    "a token": lambda n: refused(lambda: auth.presented(head(authorization="Bearer " + "x " * n))),
    "cookies": lambda n: auth.presented(head(cookie="a=\\101; " * n)),
    "a quoted cookie": lambda n: auth.presented(head(cookie='a="' + "\\" * n + '"')),
    "codings": lambda n: refused(
        lambda: limits.check_coding(
            head(transfer_encoding="gzip," * n), "transfer-encoding", {"chunked"}
        )
    ),
    "what is accepted": lambda n: wants_html(head(accept="text/plain," * n)),
    "compressions": lambda n: compression.takes_gzip(head(accept_encoding="br;q=0.5," * n)),
    "weights": lambda n: limits.wants_stream(head(accept="a/b;q=0.5;x=1;q = 1," * n)),
    "a path": lambda n: refused(lambda: TABLE.route("/" + "v1/" * n, "GET")),
    "a long name in a path": lambda n: refused(lambda: TABLE.route("/v1/jobs/" + "a" * n, "PUT")),
    "a query": lambda n: refused(
        lambda: TABLE.route("/login", "GET").check_query(b"&".join([b"a=%41"] * (n // 10)))
    ),
    "a query that is too long": lambda n: refused(
        lambda: TABLE.route("/login", "GET").check_query(b"a=b&" * n)
    ),
    "a cursor": lambda n: refused(lambda: paging.decode_cursor("jobs", "Mjpq" * n)),
    "a detail": lambda n: problems.printable("\x1b" * n),
    "a log": lambda n: logs.redact("://a:" * n + "bearer  " * n + "?token=" * n),
    "headers": lambda n: limits.RequestLimits().check_head(
        {"path": "/", "raw_path": b"/", "query_string": b"", "headers": [(b"a", b"b")] * n}
    ),
}


@pytest.mark.parametrize("name", PARSERS)
def test_work_of_a_parser_grows_linearly(name: str) -> None:
    PARSERS[name](N)  # what is made the first time
    check_linear(PARSERS[name], N)


def test_work_that_grows_faster_is_noticed() -> None:
    """The search that this was once: each name counted in a list."""

    def search(n: int) -> None:
        names = [str(i) for i in range(n)]
        next((name for name in names if names.count(name) > 1), None)

    with pytest.raises(AssertionError):
        check_linear(search, N)
    with pytest.raises(AssertionError):
        check_linear(lambda n: [j for i in range(n) for j in range(i)], N // 4)


def test_names_are_compared_once_each() -> None:
    """Inside the interpreter, too, where no bytecode is."""
    for n in (500, 1000):
        pairs: Sequence[tuple[str, Any]] = [(Name(f"n{i}"), 0) for i in [*range(n - 1), n - 2]]
        Name.compared = 0
        with pytest.raises(ProblemError):
            strict_json._object(pairs)
        assert Name.compared < 2 * n


# Whole requests


class Sender:
    """A client of the application without a network, which counts what is read of its body."""

    def __init__(self, app: FastAPI, method: str, path: str, *more: tuple[bytes, bytes]) -> None:
        self.app, self.parts, self.read = app, [b""], 0
        self.scope: Scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "headers": [(b"host", b"localhost"), *more],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1), "state": {},
        }  # fmt: skip
        self.status = 0

    async def receive(self) -> Message:
        if not self.parts:
            return {"type": "http.disconnect"}
        self.read += 1
        part = self.parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)

    def run(self) -> int:
        asyncio.run(self.app(self.scope, self.receive, self.send))
        return self.status


class NoTokens:
    """An authenticator that knows of none."""

    async def client(self, headers: Headers, address: str) -> None:
        raise auth.unauthorized("this is no token")

    def knows(self, headers: Headers) -> bool:
        return False


@pytest.fixture
def app() -> FastAPI:
    app = create_app(Settings(require_tokens=True, requests_per_second=0))
    app.state.authenticator = NoTokens()
    return app


JSON_TYPE = (b"content-type", b"application/json")
TOLD = (b"transfer-encoding", b"chunked")


def many_names(n: int) -> bytes:
    return json.dumps({f"n{i}": 0 for i in range(n)}).encode()


@pytest.mark.parametrize(
    "route", [r for r in ROUTES if r.template not in ("/login", "/readyz", "/static")], ids=str
)
def test_no_body_is_read_of_a_request_without_a_token(app: FastAPI, route: Any) -> None:
    """Whatever the route and the method: nothing that it says matters."""
    sender = Sender(app, route.method, route.path, JSON_TYPE, TOLD)
    sender.parts = [many_names(2000)] * 3
    assert sender.run() in (200, 303, 401), route
    assert sender.read == 0


@pytest.mark.parametrize("length", [True, False])
def test_a_body_of_the_login_is_short(app: FastAPI, length: bool) -> None:
    told = (b"content-length", b"20000") if length else TOLD
    form = (b"content-type", b"application/x-www-form-urlencoded")
    sender = Sender(app, "POST", "/login", form, told)
    sender.parts = [b"token=" + b"x" * 20_000]
    assert sender.run() == 413


@pytest.mark.parametrize(
    "what", ["fields", "too many fields", "a token", "escapes", "cookies", "headers", "a next"]
)
def test_work_of_a_public_request_grows_linearly(app: FastAPI, what: str) -> None:
    form = (b"content-type", b"application/x-www-form-urlencoded")

    def ask(n: int) -> int:
        more = {
            "cookies": [(b"cookie", b"autosched_token=a; " * n)],
            "headers": [(b"x-%d" % i, b"1") for i in range(n)],
        }.get(what, [])
        sender = Sender(app, "POST", "/login", form, TOLD, *more)
        sender.parts = [
            {
                "fields": b"&".join([b"a=%d" % i for i in range(n // 20)]),
                "too many fields": b"a=b&" * n,
                "a token": b"token=" + b"x" * n,
                "escapes": b"token=" + b"%41" * n,
                "a next": b"token=x&next=/" + b"a/" * n,
            }.get(what, b"token=x")
        ]
        return sender.run()

    assert ask(N) in (400, 401)
    check_linear(ask, N)


def test_the_count_is_the_same_each_time() -> None:
    assert work(lambda: PARSERS["objects"](N)) == work(lambda: PARSERS["objects"](N))


def test_a_tag_that_a_client_has() -> None:
    def asked(n: int) -> bool:
        scope = {"type": "http", "headers": [(b"if-none-match", b'W/"a", ' * n)]}
        return etags.has(Request(scope), "b")

    check_linear(asked, N)
