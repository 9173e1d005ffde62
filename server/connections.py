"""Connections: how long a client may take for the head of a request, and how many there are.

uvicorn waits for a request for ever, and tells of requests that it cannot read in plain text.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.problems import KINDS, MEDIA_TYPE, retry_after
from server.settings import Settings


class Connection(H11Protocol):
    """uvicorn's protocol, with a deadline for heads of requests and a bound on connections."""

    head_seconds: float
    most: int
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            detail = f"{self.most} connections are open; close some, or try again"
            self._answer("unavailable", detail, retry_after(2))
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()  # the first part of the next head
        else:
            self._head_arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._answer("malformed-request", msg, {})

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._too_slow)

    def _head_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            detail = f"the head of a request did not arrive within {self.head_seconds:g} seconds"
            self._answer("request-timeout", detail, {})

    def _answer(self, kind: str, detail: str, headers: dict[str, str]) -> None:
        """Write a problem and close: there is no request that an application could answer."""
        if self.transport.is_closing():
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
        self.transport.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        self.transport.close()


def config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves `app`: these connections, no text that is not ours, no trusted proxies."""
    bounds = {"head_seconds": settings.head_seconds, "most": settings.connections}
    return uvicorn.Config(
        app,
        http=type("BoundedConnection", (Connection,), bounds),
        # Larger heads than the gate allows, which answers with what was expected.
        h11_max_incomplete_event_size=2 * (settings.header_bytes + settings.url_bytes),
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
