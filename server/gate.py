"""The gate: what every request passes before it comes to a route, and every answer after.

In order: an id, the host and origin, the length of URL and headers, who asks, how often, whether
they may, the body. Whatever is refused on the way, and whatever fails below, is answered with a
problem; every answer gets the security headers, a line in the log and its count in the metrics.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import anyio.to_thread
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server import auth, logs
from server.limits import (
    RateLimiter,
    RequestBody,
    RequestLimits,
    StreamLimiter,
    drain,
    strict_json,
    too_large,
    wants_stream,
)
from server.metrics import Metrics
from server.problems import is_json, problem_of, refused, response, unavailable
from server.security import HEADERS, BrowserRules
from server.settings import Settings

_log = logging.getLogger("autosched.requests")

STREAMED = frozenset({("POST", "/v1/records/import")})
"""(method, template) of routes that read their body part by part."""
LARGE_JSON = 32 << 10
PATHS_KEPT = 1024
"""Paths whose routes are remembered."""
EVENTS = "/v1/jobs/{job_id}/events"
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class RouteTable:
    """The templates of an application's routes, to be known before a route is entered."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes: list[tuple[re.Pattern[str], str, frozenset[str]]] = [
            (found.path_regex, found.path or "", frozenset(found.methods or ()))
            for found in iter_route_contexts(routes)
        ]
        # Trying all patterns takes longer than the rest of the gate.
        self._matching = lru_cache(PATHS_KEPT)(self._match)

    def matching(self, path: str) -> list[tuple[str, frozenset[str]]]:
        """Template and methods of the routes that have the path: those that spell it out go before
        all others, as `/v1/records/import` before `/v1/records/{record_id}`."""
        return self._matching(path)

    def _match(self, path: str) -> list[tuple[str, frozenset[str]]]:
        found = [
            (template, methods) for regex, template, methods in self.routes if regex.match(path)
        ]
        return [route for route in found if route[0] == path] or found

    def template(self, path: str, method: str) -> str:
        """The template of the route that answers, such as `/v1/jobs/{job_id}`.

        Raises ProblemError: 404 if no route has the path, 405 if those that do have other methods.
        """
        allowed: set[str] = set()
        for template, methods in self.matching(path):
            if not methods or method in methods:  # what is mounted has no methods of its own
                return template
            allowed |= methods
        if "GET" in allowed:
            allowed.add("HEAD")
        if not allowed:
            raise refused("not-found", "no such path; /v1/openapi.json lists them all")
        names = ", ".join(sorted(allowed))
        raise refused(
            "method-not-allowed", f"this path has {names}, not {method}", headers={"Allow": names}
        )


@dataclass
class _Passage:
    """A request on its way through the gate."""

    scope: Scope
    headers: Headers
    address: str
    began: float = field(default_factory=time.perf_counter)
    client: auth.Client | None = None
    template: str | None = None
    status: int = 0
    stream: str | None = None
    """The client for whom it is counted as an open event stream."""


class Gate:
    """An ASGI middleware, the outermost. `app.state.authenticator` tells who asks."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics
        self.rules = BrowserRules(settings.hosts)
        self.limits = RequestLimits(
            settings.url_bytes,
            settings.header_bytes,
            settings.body_bytes,
            settings.import_bytes,
            settings.body_seconds,
        )
        self.rates = RateLimiter(settings.requests_per_second, settings.request_burst)
        self.streams = StreamLimiter(settings.streams, settings.streams_per_client)
        metrics.streams.set_function(lambda: self.streams.open)
        self._table: RouteTable | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._pass(scope, receive, send)
        else:  # no route speaks websocket
            await send({"type": "websocket.close", "code": 1008, "reason": ""})

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        mark = logs.request_id.set(secrets.token_hex(8))
        client = scope.get("client")
        passage = _Passage(scope, Headers(scope=scope), client[0] if client else "unknown")
        answer = self._answering(passage, send)
        try:
            body = await self._admit(passage, receive)
            await self.app(scope, body, answer)
        except ClientDisconnect:
            pass  # nobody waits for an answer; the log has the request
        except asyncio.CancelledError:  # by a server that stops, whose grace is over
            if passage.status:  # too late for an answer
                raise
            stopping = unavailable(
                "this server is stopping and has given the request up; repeat it"
            )
            await self._fail(passage, stopping, answer)
        except Exception as e:
            await self._fail(passage, e, answer)
        finally:
            if passage.stream is not None:
                self.streams.leave(passage.stream)
            self._note(passage)
            logs.request_id.reset(mark)

    async def _admit(self, passage: _Passage, receive: Receive) -> Receive:
        """The body to be received, of a request that may pass. Raises ProblemError."""
        scope, method = passage.scope, passage.scope["method"]
        self.rules.check(method, passage.headers)
        self.limits.check_head(scope)
        if self._table is None:
            self._table = RouteTable(scope["app"].routes)
        passage.template = self._table.template(scope["path"], method)
        scope_needed = auth.needed(method, passage.template)
        if scope_needed is None:
            self.rates.take(passage.address)
        else:
            await self._identify(passage)
            passage.client = auth.check_scope(passage.client, scope_needed)
            scope["autosched.client"] = passage.client
            if passage.template == EVENTS and wants_stream(passage.headers):
                self.streams.enter(passage.client.key)
                passage.stream = passage.client.key
        return await self._body(passage, receive)

    async def _identify(self, passage: _Passage) -> None:
        """Find out who asks, and count it: by the client, or by the address where nothing is known
        of one, before the database is asked: a flood of tokens shall not reach it."""
        authenticator: auth.Authenticator = passage.scope["app"].state.authenticator
        known = authenticator.knows(passage.headers)
        if not known:
            self.rates.take(passage.address)
        key = passage.address
        try:
            passage.client = await authenticator.client(passage.headers, passage.address)
            key = passage.client.key if passage.client is not None else key
        finally:
            if known:
                self.rates.take(key)

    async def _body(self, passage: _Passage, receive: Receive) -> Receive:
        headers, limits = passage.headers, self.limits
        if (coding := headers.get("content-encoding", "identity")) != "identity":
            raise refused(
                "unsupported-media-type",
                f"a body with Content-Encoding {coding}; send it as it is",
                headers={"Accept-Encoding": "identity"},
            )
        streamed = (passage.scope["method"], passage.template) in STREAMED
        limit = limits.import_bytes if streamed else limits.body_bytes
        length = headers.get("content-length", "")
        if length.isdigit() and (len(length) > 18 or int(length) > limit):
            await drain(receive)
            raise too_large(limit)
        body = RequestBody(receive, limit, limits.body_seconds)
        if not streamed and (length not in ("", "0") or "transfer-encoding" in headers):
            content = await body.read()
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if is_json(kind):
                if len(content) > LARGE_JSON:  # reading a megabyte may take half a second
                    await anyio.to_thread.run_sync(strict_json, content)
                else:
                    strict_json(content)
        return body

    def _answering(self, passage: _Passage, send: Send) -> Send:
        """`send` with our headers, which notes the status."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                passage.status = message["status"]
                headers = list(message["headers"])
                there = {name.lower() for name, _ in headers}
                headers += [header for header in _HEADERS if header[0] not in there]
                headers.append((b"x-request-id", logs.request_id.get().encode()))
                message["headers"] = headers
            await send(message)

        return answer

    async def _fail(self, passage: _Passage, error: Exception, answer: Send) -> None:
        found = problem_of(error)
        if found is None:
            _log.error("a request failed", exc_info=error, extra=_told(passage))
            found = refused(
                "internal-error",
                "the service made a mistake, which is in its log under this request_id",
            )
        if passage.status:  # too late for an answer: the connection is cut
            raise error
        path = passage.scope["path"]
        await response(found, path)(passage.scope, _nothing, answer)

    def _note(self, passage: _Passage) -> None:
        seconds = time.perf_counter() - passage.began
        method = passage.scope["method"]
        self.metrics.count_request(passage.template, method, passage.status, seconds)
        _log.info("request", extra={**_told(passage), "seconds": round(seconds, 6)})


def _told(passage: _Passage) -> dict[str, object]:
    """What the log tells of a request: neither its query nor its headers."""
    return {
        "method": passage.scope["method"],
        "path": passage.scope["path"],
        "route": passage.template,
        "status": passage.status,
        "client": passage.client.name if passage.client else None,
        "address": passage.address,
    }


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
