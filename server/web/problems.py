"""Errors as pages: browsers get HTML where programs get `application/problem+json`.

This stands around the whole application, so that no route and no refusal before the routes
needs to know of pages.
"""

from __future__ import annotations

import json
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.problems import MEDIA_TYPE
from server.http.weights import weights
from server.web.render import render


class ProblemPages:
    """ASGI middleware: a problem that answers a browser's navigation is shown as a page.

    What needs a token is answered with the way to the login page.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not wants_html(Headers(scope=scope)):
            await self.app(scope, receive, send)
            return
        held: Message | None = None
        body = bytearray()

        async def sort(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if kind.startswith(MEDIA_TYPE):
                    held = message
                    return
            elif held is not None:
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                message = {"type": "http.response.body", "body": _page(scope, held, bytes(body))}
                await send(held)
            await send(message)

        await self.app(scope, receive, sort)


def wants_html(headers: Headers) -> bool:
    """Whether the client is a browser that shows what it gets: it names text/html itself."""
    return weights(headers, "accept").get("text/html", 0.0) > 0


def _page(scope: Scope, start: Message, body: bytes) -> bytes:
    """The page for the problem in `body`; makes `start` its beginning."""
    problem = json.loads(body)
    headers = MutableHeaders(raw=start["headers"])
    if problem["status"] == 401 and scope["method"] == "GET":
        start["status"] = 303
        query = scope["query_string"].decode("latin-1")
        there = scope["path"] + (f"?{query}" if query else "")
        headers["location"] = f"/login?next={quote(there, safe='')}"
    public = problem["status"] in (400, 401)
    page = render("problem.html", scope["path"], None if public else "", problem=problem).encode()
    headers["content-type"] = "text/html; charset=utf-8"
    headers["content-length"] = str(len(page))
    headers["cache-control"] = "no-store"
    start["headers"] = headers.raw
    return page
