"""Connections: how long a client may take for the head of a request, and to take in what is written
to it, and how many there are.

uvicorn waits for both for ever, and tells of requests that it cannot read in plain text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from fastapi import FastAPI
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.http.listening import Door, Place, Visit, most_connections
from server.http.problems import KINDS, MEDIA_TYPE, retry_after
from server.settings import Settings

_log = logging.getLogger("server.connections")

MOST_AHEAD = 100
"""Requests of one connection that may wait for the answers to those before them: one read from the
network may hold thousands."""

WRITE_BYTES = 1024
"""A client that is behind takes at least so many in `write_seconds`, or it is taken for one that
does not read."""

HEALTH = (b"/healthz", b"/readyz")
"""What may be asked where all other places are taken, within RESERVED_SECONDS."""
RESERVED_SECONDS = 2.0

Refusal = tuple[str, str, dict[str, str]]
"""The kind of a problem, its detail, headers."""

_ACKNOWLEDGED = struct.Struct("=120xQ")
"""Where Linux' `struct tcp_info` has `tcpi_bytes_acked`."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with a deadline and a bound for heads of requests, a deadline for those
    who do not read, and a place that it has by `server.http.listening`.

    Most of what it builds on is private to uvicorn: `tests/server/http/test_uvicorn.py` says what,
    and pyproject.toml up to which version that was looked at.
    """

    head_seconds: float
    head_bytes: int
    write_seconds: float
    door: Door
    visit: Visit
    _deadline: asyncio.TimerHandle | None = None
    _patience: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None
    _in_head = True
    _wrong: Refusal = (
        "malformed-request",
        "the request is not HTTP/1.1, or has a method that HTTP does not know",
        {},
    )
    _unseen = 0
    """Bytes that arrived and that nobody was told of yet: of a head, or of what stands between the
    parts of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.visit.place is Place.NONE:
            self._answer(*self._no_place())
        else:
            self._await_head()

    def _no_place(self) -> Refusal:
        detail = f"{self.visit.why}; close some, or try again"
        return "unavailable", detail, retry_after(2)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unseen += len(data)
        self._unset_keepalive_if_required()
        try:
            self._read(data)
        except httptools.HttpParserError as e:
            self.send_400_response(str(e))
        if self._unseen > self.head_bytes:
            detail = f"expected a head of at most {self.head_bytes} bytes"
            self._answer("headers-too-large", detail, {})
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()  # the first part of the next head
        else:
            self._head_arrived()

    def _read(self, data: bytes) -> None:
        """Have `data` parsed. Raises HttpParserError for what is no HTTP.

        With any request a client may offer to go on in another protocol, which this server does
        not (Java's clients offer HTTP/2 with each). The parser takes what follows the head as of
        that protocol, also where it is the body, so the request is read again without the offer.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as e:
                if not self._offers:  # CONNECT, and what follows is for somebody else
                    return
                version = self.parser.get_http_version().encode()
                line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)
                kept = [header for header in self.headers if header[0] != b"upgrade"]
                head = b"".join(b"%s: %s\r\n" % header for header in kept)
                data = line + head + b"\r\n" + data[e.args[0] :]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    @property
    def _offers(self) -> bool:
        """Whether the request at hand will be read again."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():  # else the rest is still to be taken
            self._forget_reader()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_rest()

    def shutdown(self) -> None:
        super().shutdown()
        self._watch_rest()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_rest()

    def _watch_rest(self) -> None:
        """A connection that is closed stays as long as something is to be sent."""
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._watch_reader()

    def _watch_reader(self) -> None:
        """Cut the connection if `write_seconds` from now the client has taken hardly anything; at
        once if too much waits for clients of its address that are behind, or for all."""
        self._forget_reader()
        now = self.transport.get_write_buffer_size(), _acknowledged(self.transport)
        if not self.visit.hold(now[0]):
            _log.warning("a connection was cut: too many bytes wait for clients that are behind")
            self.transport.abort()
            return
        self._patience = self.loop.call_later(self.write_seconds, self._judge_reader, *now)

    def _judge_reader(self, waited: int, acknowledged: int) -> None:
        self._patience = None
        waiting = self.transport.get_write_buffer_size()
        taken = max(waited - waiting, _acknowledged(self.transport) - acknowledged)
        if taken < WRITE_BYTES:
            _log.warning(
                "a connection was cut: its client was behind and took %d bytes in %g s",
                *(max(0, taken), self.write_seconds),
            )
            self.transport.abort()
        else:
            self._watch_reader()

    def _forget_reader(self) -> None:
        self.visit.hold(0)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        self._forget_reader()
        self._tell_gone()
        self.visit.leave()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _tell_gone(self) -> None:
        """Tell the request that is being answered that nobody reads the answer. uvicorn tells the
        newest one, behind which others may wait; and uvloop raises errors where one writes then."""
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def send_400_response(self, msg: str) -> None:
        self._answer(*self._wrong)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_AHEAD:
            detail = f"{MOST_AHEAD} requests were sent ahead of their answers"
            self._wrong = "malformed-request", detail, {}
            raise OverflowError(detail)  # which the parser ends by, as by what is no HTTP
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a body in parts (its trailers) is not a header: the gate has let the request
        # pass without it.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._unseen = False, 0
        if self._offers:
            return
        reserved = self.visit.place is Place.HEALTH
        if reserved and (self.url.partition(b"?")[0] not in HEALTH or self.cycle is not None):
            self._wrong = self._no_place()
            raise OverflowError(self.visit.why)
        if not self.url.startswith(b"/") and b"://" in self.url:
            self._name_host()
        super().on_headers_complete()
        if reserved:
            self.cycle.keep_alive = False

    def _name_host(self) -> None:
        """A target that is a whole URL names the host, and not the header (RFC 9112, 3.2.2)."""
        authority = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
        # In place: the request has this list.
        self.headers[:] = [(n, authority if n == b"host" else v) for n, v in self.headers]

    def on_body(self, body: bytes) -> None:
        self._unseen = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unseen = 0
        if not self._offers:
            super().on_message_complete()

    def _await_head(self) -> None:
        if self._deadline is None:
            reserved = self.visit.place is Place.HEALTH
            seconds = min(self.head_seconds, RESERVED_SECONDS) if reserved else self.head_seconds
            self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _head_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.visit.place is Place.HEALTH:
            self._answer(*self._no_place())
        elif self.cycle is None or self.cycle.response_complete:
            detail = f"the head of a request did not arrive within {self.head_seconds:g} seconds"
            self._answer("request-timeout", detail, {})

    def _answer(self, kind: str, detail: str, headers: dict[str, str]) -> None:
        """Write a problem and close: there is no request that an application could answer."""
        if self.transport.is_closing():
            return
        running = self._answering
        if running is not None and running.response_started and not running.response_complete:
            self._tell_gone()
            self.transport.close()  # in the middle of another answer
            self._watch_rest()
            return
        found = KINDS[kind]
        problem: dict[str, Any] = {
            "type": f"urn:autosched:problem:{kind}",
            "title": found.title,
            "status": found.status,
            "detail": detail,
            "instance": "",
            "request_id": "-",
            "errors": [],
        }
        body = json.dumps(problem).encode()
        head = [
            f"HTTP/1.1 {found.status} {HTTPStatus(found.status).phrase}",
            f"Content-Type: {MEDIA_TYPE}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._tell_gone()
        self.transport.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        self.transport.close()
        self._watch_rest()


def _acknowledged(transport: asyncio.Transport) -> int:
    """Bytes that the other side's system has taken; 0 where nobody counts them.

    The buffer here says little: the kernel asks for more only when a third of its own is free, a
    megabyte at times, and with TLS there is one between the two.
    """
    try:
        found = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size
        )
    except (AttributeError, OSError):  # no TCP_INFO on this system, or no socket any more
        return 0
    return int(_ACKNOWLEDGED.unpack(found)[0]) if len(found) == _ACKNOWLEDGED.size else 0


def config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves `app`: these connections, no text that is not ours, no trusted proxies."""
    bounds = {
        "head_seconds": settings.head_seconds,
        # Larger heads than the gate allows, which answers with what was found.
        "head_bytes": 2 * (settings.header_bytes + settings.url_bytes),
        "write_seconds": settings.write_seconds,
        "door": Door(
            most_connections(settings), settings.connections_per_address, settings.proxies
        ),
    }
    return uvicorn.Config(
        app,
        http=type("BoundedConnection", (Connection,), bounds),
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=max(1, int(settings.grace_seconds)),
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
