"""Answers compressed for those who take them so."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Receive, Scope, Send

from server.http.weights import weights


class Compression(GZipMiddleware):
    """Starlette's, which looks for `gzip` in Accept-Encoding: it finds it in `gzip;q=0`, too, and
    not in `GZIP`. So it is shown what was meant."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [h for h in scope["headers"] if h[0] != b"accept-encoding"]
            if takes_gzip(Headers(scope=scope)):
                headers.append((b"accept-encoding", b"gzip"))
            scope = {**scope, "headers": headers}
        await super().__call__(scope, receive, send)


def takes_gzip(headers: Headers) -> bool:
    """Whether Accept-Encoding names gzip, and not with the weight 0 that forbids it."""
    return weights(headers, "accept-encoding").get("gzip", 0.0) > 0
