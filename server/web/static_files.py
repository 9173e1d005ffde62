"""The files that pages load: styles, modules, the plotting library."""

from __future__ import annotations

from os import PathLike, stat_result

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send


def static_files() -> StaticFiles:
    """The application that serves `server/web/static`."""
    return _Revalidated(packages=[("server.web", "static")])


class _Revalidated(StaticFiles):
    """Files that browsers keep and ask about by ETag, so that an upgrade is seen at once. Range
    requests get the whole file: Starlette answers a range beyond the end in plain text, where this
    service's errors are problem documents."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [header for header in scope["headers"] if header[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Accept-Ranges"] = "none"
        return response
