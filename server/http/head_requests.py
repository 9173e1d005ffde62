"""HEAD: what GET would answer, without the body, on every route that has GET."""

from __future__ import annotations

from anyio import CancelScope
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """ASGI middleware around all others, so that what they make of a body (its length, compressed)
    is told as well. A body of several parts (an export, a stream of events) ends with the first.

    Below it, in the log and in the counts, the request is a GET.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        with CancelScope() as rest:

            async def head(message: Message) -> None:
                if message["type"] != "http.response.body":
                    await send(message)
                    return
                await send({"type": "http.response.body"})
                if message.get("more_body"):
                    rest.cancel()

            await self.app({**scope, "method": "GET"}, receive, head)
