"""What one request, and one client, may cost.

`RequestBody` reads a body within bounds of size and time; `RateLimiter` counts requests by client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from server.http.problems import refused, retry_after
from server.http.weights import rank, weights

EVENT_STREAM = "text/event-stream"
DRAIN_BYTES = 64 << 20
DRAIN_SECONDS = 2.0
STREAMED_BYTES = 64 << 10
"""A body that is streamed brings so many in each `body_seconds`, or its end: a client that sends
fewer only holds a place."""
_CLOSE = {"Connection": "close"}
"""Sent where a body was not read to its end, so that the rest of it is not read either."""


@dataclass(frozen=True)
class RequestLimits:
    """Bounds on one request: bytes of its URL, its headers, its body (`import_bytes`: of a body
    that is streamed), seconds in which a body, or the next part of a streamed one, must arrive."""

    url_bytes: int = 8 << 10
    header_bytes: int = 16 << 10
    body_bytes: int = 4 << 20
    import_bytes: int = 1 << 30
    body_seconds: float = 30.0

    def check_head(self, scope: Scope) -> None:
        """Raises ProblemError for a URL or headers that are too long, or that no route can mean."""
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size > self.url_bytes:
            raise refused(
                "uri-too-long", f"expected a URL of at most {self.url_bytes} bytes, found {size}"
            )
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self.header_bytes:
            raise refused(
                "headers-too-large",
                f"expected headers of at most {self.header_bytes} bytes, found {size}",
            )
        path: str = scope["path"]
        # U+FFFD: bytes that are no UTF-8. Neither is in any name here, nor storable everywhere.
        if not path.isprintable() or "\ufffd" in path or b"%00" in scope["query_string"]:
            raise refused("malformed-request", "the URL has control characters, or is not UTF-8")


def check_coding(headers: Headers, name: str, known: Collection[str]) -> None:
    """Raises ProblemError for a body in a coding that is not undone here (`name` is
    content-encoding, 415, or transfer-encoding, 501): it would be read as what it is not."""
    given = [part.strip().lower() for text in headers.getlist(name) for part in text.split(",")]
    if not given or (len(given) == 1 and given[0] in known):
        return
    found, expected = ", ".join(given)[:80], " or ".join(sorted(known))
    kind = "unsupported-media-type" if name == "content-encoding" else "unsupported-transfer-coding"
    accepted = {"Accept-Encoding": "identity"} if name == "content-encoding" else {}
    raise refused(
        kind,
        f"a body with {name.title()} {found}; expected {expected}: send it as it is",
        headers=_CLOSE | accepted,
    )


class RequestBody:
    """The body of a request as an application receives it, counted and timed.

    `read` takes in all of it at once; a streamed body is passed on part by part.
    """

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive, self._limit, self._seconds = receive, limit, seconds
        self._size = 0
        self._judged_at, self._judged_size = time.monotonic(), 0
        self._whole: Message | None = None
        self._more = True

    async def __call__(self) -> Message:
        if self._whole is not None:
            message, self._whole = self._whole, None
            return message
        if not self._more:  # now only the client's going away can be received
            return await self._receive()
        return await self._part()

    async def _part(self) -> Message:
        try:
            message = await asyncio.wait_for(self._receive(), self._seconds)
        except TimeoutError as e:
            raise refused(
                "request-timeout",
                f"nothing more of the body arrived within {self._seconds:g} seconds",
                headers=_CLOSE,
            ) from e
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._more = message.get("more_body", False)
            if self._size > self._limit:
                if self._more:
                    await drain(self._receive)
                raise too_large(self._limit)
            self._judge_pace()
        else:
            self._more = False
        return message

    def _judge_pace(self) -> None:
        """Raises ProblemError (408) for a body of which parts arrive in time, and hardly anything
        with them."""
        now = time.monotonic()
        if not self._more or now - self._judged_at < self._seconds:
            return
        arrived = self._size - self._judged_size
        if arrived < STREAMED_BYTES:
            raise refused(
                "request-timeout",
                f"{arrived} bytes of the body arrived within {self._seconds:g} seconds; expected "
                f"{STREAMED_BYTES}, or the end",
                headers=_CLOSE,
            )
        self._judged_at, self._judged_size = now, self._size

    async def read(self, keep: Callable[[int], None] = lambda count: None) -> bytes:
        """The whole body, which is kept to be received; `keep` is told of each part's bytes, and
        may raise. Raises ProblemError: 408, 413, 400."""
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._seconds):
                while self._more:
                    message = await self._part()
                    if message["type"] != "http.request":
                        raise refused("malformed-request", "the body ended early", headers=_CLOSE)
                    keep(len(message.get("body", b"")))
                    parts.append(message.get("body", b""))
        except TimeoutError as e:
            raise refused(
                "request-timeout",
                f"the body did not arrive within {self._seconds:g} seconds",
                headers=_CLOSE,
            ) from e
        body = b"".join(parts)
        self._whole = {"type": "http.request", "body": body, "more_body": False}
        return body


async def drain(receive: Receive) -> None:
    """Throw away some more of a body that is refused: a connection that is closed on a client which
    is sending loses the answer. Not for ever, nor without bound."""
    size, more = 0, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and size < DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message["type"] == "http.request" and message.get("more_body", False)


@dataclass
class HeldBytes:
    """Bytes that are kept for clients, in all and by client."""

    most: int
    most_per_client: int
    total: int = 0
    _by_client: Counter[str] = field(default_factory=Counter)

    def add(self, client: str | None, count: int) -> bool:
        """Count so many more, or fewer, of a client (None: of many clients together). False if
        that would be more than may be: nothing is counted then."""
        mine = 0 if client is None else self._by_client[client] + count
        if count > 0 and (self.total + count > self.most or mine > self.most_per_client):
            return False
        self.total += count
        if client is not None:
            self._by_client[client] = mine
            if not mine:
                del self._by_client[client]
        return True


def too_large(limit: int) -> Exception:
    """413, and the rest of the body stays unread."""
    return refused(
        "too-large", f"expected a body of at most {limit} bytes, found more", headers=_CLOSE
    )


@dataclass
class RateLimiter:
    """A bucket a client: `burst` requests at once, refilled at `per_second`; 0: no limit."""

    per_second: float
    burst: int
    clients: int = 10_000
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, key: str) -> None:
        """Count a request of the client `key`. Raises ProblemError (429) if it made too many."""
        if self.per_second <= 0:
            return
        now = time.monotonic()
        left, since = self._buckets.pop(key, (float(self.burst), now))
        left = min(self.burst, left + (now - since) * self.per_second)
        allowed = left >= 1
        self._buckets[key] = (left - 1 if allowed else left), now
        if len(self._buckets) > self.clients:
            self._buckets.popitem(last=False)
        if not allowed:
            raise refused(
                "rate-limited",
                f"more than {self.per_second:g} requests a second, after {self.burst} at once",
                headers=retry_after((1 - left) / self.per_second),
            )


def wants_stream(headers: Headers) -> bool:
    """Whether a request for events is for a stream of them; else it prefers JSON, a page."""
    accepted = weights(headers, "accept")
    return rank(accepted, EVENT_STREAM) >= rank(accepted, "application/json")


@dataclass
class StreamLimiter:
    """How many event streams are open, in all and by client."""

    most: int
    most_per_client: int
    open: int = 0
    _by_client: dict[str, int] = field(default_factory=dict)

    def enter(self, key: str) -> None:
        """Count a stream that opens. Raises ProblemError (429) if too many are open."""
        mine = self._by_client.get(key, 0)
        if self.open >= self.most or mine >= self.most_per_client:
            raise refused(
                "too-many-streams",
                f"{self.open} event streams are open, {mine} of them yours; at most {self.most} "
                f"and {self.most_per_client}: close one, or ask for /events with a poll",
                headers=retry_after(5),
            )
        self.open += 1
        self._by_client[key] = mine + 1

    def leave(self, key: str) -> None:
        """Count a stream that has ended."""
        self.open -= 1
        self._by_client[key] -= 1
        if not self._by_client[key]:
            del self._by_client[key]
