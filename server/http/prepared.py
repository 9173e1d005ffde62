"""Requests that were understood before: asked again, they are neither routed nor validated again.

Browsers and scripts that follow jobs ask the same over and over, and finding the route, its
parameters and their values takes the server several times as long as what is read for it. What is
kept is how to read, never what was read: each request is answered from the database as it is then
(`Reading`), and has passed the gate, with its token, its rate and its scope, before it comes here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from records import RecordError
from server.state import Service

KEPT, KEPT_BYTES = 1024, 1024
"""So many requests, of so many bytes at most of path, query and headers."""
ANSWERED_BY = frozenset({b"accept", b"last-event-id"})
"""Headers by which what is read, or how it is told, may differ."""
_PREPARE = "autosched.prepare"
_Key = tuple[str, bytes, tuple[tuple[bytes, bytes], ...]]


@dataclass(frozen=True)
class PreparedRead:
    """How a request is answered. `read` gives JSON, called in a thread; those that wait with an
    equal `what` share it. It must depend on nothing but the request's path, its query, and
    ANSWERED_BY."""

    what: Hashable
    read: Callable[[], str]
    vary: bytes = b""
    """The headers of the request that the answer depends on."""


async def answered(request: Request, prepared: PreparedRead) -> Response:
    """The answer of a route, which the same request has from now on without being routed."""
    service: Service = request.app.state.service
    text = await service.reading.do(prepared.what, prepared.read)
    remember: Callable[[PreparedRead], None] | None = request.scope.get(_PREPARE)
    if remember is not None:
        remember(prepared)
    headers = {"Vary": prepared.vary.decode()} if prepared.vary else None
    return Response(text, 200, headers, "application/json")


def do_not_prepare(request: Request) -> None:
    """Of a request whose path may mean something else the next time."""
    request.scope.pop(_PREPARE, None)


class PreparedReads:
    """ASGI middleware, the innermost: what passes the gate comes here."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._known: OrderedDict[_Key, PreparedRead] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        headers = tuple(header for header in scope["headers"] if header[0] in ANSWERED_BY)
        key = scope["path"], scope["query_string"], headers
        prepared = self._known.get(key)
        if prepared is None:
            scope[_PREPARE] = lambda prepared: self._remember(key, prepared)
            await self.app(scope, receive, send)
        else:
            self._known.move_to_end(key)
            await _answer(scope, send, prepared)

    def _remember(self, key: _Key, prepared: PreparedRead) -> None:
        path, query, headers = key
        if len(path) + len(query) + sum(len(value) for _, value in headers) > KEPT_BYTES:
            return
        self._known[key] = prepared
        if len(self._known) > KEPT:
            self._known.popitem(last=False)


async def _answer(scope: Scope, send: Send, prepared: PreparedRead) -> None:
    service: Service = scope["app"].state.service
    try:
        text = await service.reading.do(prepared.what, prepared.read)
    except RecordError as e:
        service.readiness.note(e)
        raise  # the gate makes a problem of it
    body = text.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if prepared.vary:
        headers.append((b"vary", prepared.vary))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
