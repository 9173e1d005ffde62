"""Templates, and how values are written in them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from autosched.tuning.report.progress import format_seconds
from server.schemas import Job

NOTHING = "–"

SECTIONS = {
    "/": "Overview",
    "/jobs": "Jobs",
    "/records": "Jobs",
    "/compare": "Jobs",
    "/batches": "Jobs",
} | {f"/{name.lower()}": name for name in ("Submit", "Workloads", "Roofline", "Workers")}
"""The first part of a path -> the entry of the navigation that it belongs to."""


def page(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """The page of `template`, filled with `context`."""
    text = render(template, request.url.path, _signed_in(request), **context)
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})


def render(template: str, path: str, signed_in: str | None, **context: Any) -> str:
    """The text of `template` for a page at `path`.

    `signed_in`: the name of the token that was logged in with, "" where none is needed, None for a
    page that anybody sees, which has no navigation.
    """
    section = SECTIONS.get("/" + path.split("/")[1], "")
    loaded = environment().get_template(template)
    return loaded.render(section=section, signed_in=signed_in, **context)


def _signed_in(request: Request) -> str | None:
    """Who is logged in by a cookie; the gate has put who asks into the request's scope."""
    client = request.scope.get("autosched.client")
    return client.name if client is not None and request.cookies else ""


@functools.cache
def environment() -> Environment:
    """The templates; all values are escaped, and an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("server.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": count,
        "flop": flop,
        "gflops": gflops,
        "seconds": seconds,
        "span": span,
        "times": times,
        "title": title,
        "when": when,
        "words": words,
        "workload": workload,
    }
    made.globals["url"] = url
    return made


def url(path: str, **query: str | int | None) -> str:
    """`path` with those parameters that are given."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


class Titled(Protocol):
    """A workload: a function's name and, where it is known by more than its text, arguments."""

    @property
    def name(self) -> str: ...
    @property
    def args(self) -> Sequence[Any] | None: ...


def title(value: Job | Titled) -> str:
    """A workload as people write it; of a job what it is called, if that is not its workload."""
    if isinstance(value, Job):
        named = value.name not in ("", value.workload_name)
        return value.name if named else workload(value)
    return _called(value.name, value.args)


def workload(job: Job) -> str:
    """What a job tunes, whatever the job is called."""
    return _called(job.workload_name, job.workload_args)


def _called(name: str, args: Sequence[Any] | None) -> str:
    return name if args is None else f"{name}({', '.join(map(str, args))})"


def count(value: int) -> str:
    """`12,345`."""
    return f"{value:,}"


def seconds(value: float | None) -> str:
    """A time that was measured: `5.03 ms`."""
    return NOTHING if value is None else format_seconds(value) if value > 0 else "0 s"


def span(value: float | None) -> str:
    """A stretch of time by the clock: `48.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if value is None:
        return NOTHING
    if value < 100:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def gflops(value: float, flop_count: float) -> str:
    """The speed of a program that does `flop_count` operations in `value` seconds."""
    return f"{flop_count / value / 1e9:.4g} GFLOP/s"


def times(value: float | None) -> str:
    """A ratio of two times: `1.40×`."""
    return NOTHING if value is None else f"{value:.2f}×" if value < 10 else f"{value:.3g}×"


def flop(value: float) -> str:
    """`2.15 GFLOP`."""
    for unit, scale in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} FLOP"


def words(name: str) -> str:
    """`run_timeout` as `run timeout`."""
    return name.replace("_", " ")


def when(value: datetime) -> Markup:
    """A time as it is read, `3 min ago`, with the exact one behind it."""
    exact = value.astimezone(UTC)
    shown = f"{exact:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(timespec="seconds"), shown, _ago(exact)
    )


def _ago(value: datetime) -> str:
    past = (datetime.now(UTC) - value).total_seconds()
    if past < 10:
        return "just now"
    if past < 60:
        return f"{past // 10 * 10:.0f} s ago"
    for unit, size, until in (("min", 60, 3600), ("h", 3600, 86400), ("d", 86400, 30 * 86400)):
        if past < until:
            return f"{past // size:.0f} {unit} ago"
    return f"{value:%Y-%m-%d}"
