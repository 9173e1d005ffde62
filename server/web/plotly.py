"""The plotting library, which ships inside the Python package `plotly`.

Its one file of 5 MB is served from where that package is installed, compressed once, under a name
with its version, so that a browser fetches it once for each version. The package itself is never
imported: only its file is read.

It adds rules to style sheets, which the content policy (`style-src 'self'`) allows for sheets that
the page has linked, but not for elements of its own making. So pages have what it looks for before
it makes one: a linked sheet of the id GLOBAL_SHEET, and an element of each id in `guards`.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server.http.problems import ProblemError

router = APIRouter(include_in_schema=False)

GLOBAL_SHEET = "plotly.js-style-global"
_GUARD = re.compile(rb'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)')
_KEPT = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Library:
    """The file: its name in URLs, its bytes, the same compressed, and the ids that it looks for."""

    name: str
    script: bytes
    compressed: bytes
    guards: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"/library/{self.name}"


@functools.cache
def library() -> Library:
    """The installed one. Raises FileNotFoundError if the package has no such file."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "the package plotly is not installed: pip install 'autosched[service]'"
        )
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    script = path.read_bytes()
    digest = hashlib.sha256(script).hexdigest()[:8]
    guards = tuple(sorted({found.decode() for found in _GUARD.findall(script)}))
    name = f"plotly-{version('plotly')}-{digest}.js"
    return Library(name, script, gzip.compress(script, 6, mtime=0), guards)


@router.get("/library/{name}")
def plotly(request: Request, name: str) -> Response:
    """The library's file."""
    found = library()
    if name != found.name:
        raise ProblemError(404, f"this server has {found.name}")
    headers = {"Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
    body = found.script
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = found.compressed
    return Response(body, headers=headers, media_type="text/javascript")
