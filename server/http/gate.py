"""The gate: what every request passes before it comes to a route, and every answer after.

In order: an id, the host and origin, the length of URL and headers, who asks, how often, whether
they may, the body. Whatever is refused on the way, and whatever fails below, is answered with a
problem; every answer gets the security headers, a line in the log and its count in the metrics.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass, field
from functools import partial

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http import auth, logs
from server.http.limits import (
    HeldBytes,
    RateLimiter,
    RequestBody,
    RequestLimits,
    StreamLimiter,
    check_coding,
    drain,
    too_large,
    wants_stream,
)
from server.http.metrics import Metrics
from server.http.problems import (
    is_json,
    problem_of,
    refused,
    response,
    retry_after,
    unavailable,
)
from server.http.routing import Route, RouteTable
from server.http.security import HEADERS, BrowserRules
from server.http.strict_json import strict_json
from server.settings import Settings

_log = logging.getLogger("autosched.requests")

LARGE_JSON = 32 << 10
"""A longer body is looked through in a thread."""
PARSERS = 2
"""Such threads: they are not those that read for clients."""
PUBLIC_BYTES = 16 << 10
"""The largest body of a route that asks for no token: the form that has one."""
BODIES_BYTES = 256 << 20
"""Of bodies that arrive or are being answered at a time, or four of the largest; of one client a
quarter: hundreds of connections may each bring one, and keep back its end."""
EVENTS = "/v1/jobs/{job_id}/events"
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


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
    kept: int = 0
    """Bytes of its body."""

    @property
    def key(self) -> str:
        """Who sent it, where limits count."""
        return self.address if self.client is None else self.client.key


class Gate:
    """An ASGI middleware, the outermost. `app.state.authenticator` tells who asks."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics
        self.rules = BrowserRules(settings.hosts)
        self.proxies = settings.proxies
        self.transport = _transport_headers(settings.hsts_seconds)
        self.limits = RequestLimits(
            settings.url_bytes,
            settings.header_bytes,
            settings.body_bytes,
            settings.import_bytes,
            settings.body_seconds,
        )
        self.rates = RateLimiter(settings.requests_per_second, settings.request_burst)
        self.streams = StreamLimiter(settings.streams, settings.streams_per_client)
        bodies = max(BODIES_BYTES, 4 * settings.body_bytes)
        self.bodies = HeldBytes(bodies, bodies // 4)
        metrics.streams.set_function(lambda: self.streams.open)
        self._table: RouteTable | None = None
        self._parsers = CapacityLimiter(PARSERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._pass(scope, receive, send)
        else:  # no route speaks websocket
            await send({"type": "websocket.close", "code": 1008, "reason": ""})

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        mark = logs.request_id.set(secrets.token_hex(8))
        scope = self.proxies.seen(scope)
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
            if passage.kept:
                self.bodies.add(passage.key, -passage.kept)
            self._note(passage)
            logs.request_id.reset(mark)

    async def _admit(self, passage: _Passage, receive: Receive) -> Receive:
        """The body to be received, of a request that may pass. Raises ProblemError."""
        scope, method = passage.scope, passage.scope["method"]
        self.rules.check(method, passage.headers)
        self.limits.check_head(scope)
        if self._table is None:
            self._table = RouteTable(scope["app"].routes)
        route = self._table.route(scope["path"], method)
        passage.template = route.template
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
        route.check_query(scope["query_string"])
        route.check_headers(passage.headers)
        return await self._body(passage, route, scope_needed is None, receive)

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

    async def _body(
        self, passage: _Passage, route: Route, public: bool, receive: Receive
    ) -> Receive:
        """The body to be received. One that the route does not take stays unread."""
        headers, limits = passage.headers, self.limits
        check_coding(headers, "transfer-encoding", {"chunked"})
        if not route.takes_body:
            return receive
        check_coding(headers, "content-encoding", {"identity"})
        limit = limits.import_bytes if route.streams else limits.body_bytes
        limit = min(limit, PUBLIC_BYTES) if public else limit
        length = headers.get("content-length", "")
        if length.isdigit() and (len(length) > 18 or int(length) > limit):
            await drain(receive)
            raise too_large(limit)
        body = RequestBody(receive, limit, limits.body_seconds)
        if not route.streams and (length not in ("", "0") or "transfer-encoding" in headers):
            content = await body.read(partial(self._keep, passage))
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if not is_json(kind):
                pass  # a form, which its route reads
            elif len(content) > LARGE_JSON:
                await anyio.to_thread.run_sync(strict_json, content, limiter=self._parsers)
            else:
                strict_json(content)
        return body

    def _keep(self, passage: _Passage, count: int) -> None:
        """Count bytes of a body. Raises ProblemError (503)."""
        if not self.bodies.add(passage.key, count):
            raise refused(
                "unavailable",
                "too many bodies arrive at once, of your requests or of all; try again when some "
                "of them are answered",
                headers=retry_after(2) | {"Connection": "close"},
            )
        passage.kept += count

    def _answering(self, passage: _Passage, send: Send) -> Send:
        """`send` with our headers, which notes the status."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                passage.status = message["status"]
                headers = list(message["headers"])
                there = {name.lower() for name, _ in headers}
                headers += [header for header in _HEADERS if header[0] not in there]
                if passage.scope["scheme"] == "https":
                    headers += self.transport
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


def _transport_headers(seconds: int) -> list[tuple[bytes, bytes]]:
    """Told where the request came by TLS."""
    return [(b"strict-transport-security", b"max-age=%d" % seconds)] if seconds else []


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
