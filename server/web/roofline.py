"""The roofline page: what the devices can do, and what was reached on them."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from server.http.problems import ProblemError
from server.routes import roofline as api
from server.state import ServiceOf
from server.web.figures.roof import roof
from server.web.figures.svg import as_file
from server.web.jobs import Field
from server.web.render import page

router = APIRouter(include_in_schema=False)


@router.get("/roofline")
def roofline_page(request: Request, service: ServiceOf, device: Field = "") -> HTMLResponse:
    """One device, the first there is if none is named."""
    everything = api.get_roofline(service, None)
    known = sorted({p.device for p in everything.points} | {d.device for d in everything.devices})
    chosen = device or next((d.device for d in everything.devices), known[0] if known else "")
    limits = next((d for d in everything.devices if d.device == chosen), None)
    points = [point for point in everything.points if point.device == chosen]
    return page(
        request,
        "roofline.html",
        devices=known,
        chosen=chosen,
        limits=limits,
        points=sorted(points, key=lambda p: (-(p.share or 0.0), p.workload_name)),
        figure=roof(limits, points) if limits else None,
    )


@router.get("/roofline.svg")
def roofline_figure(service: ServiceOf, device: Field = "") -> Response:
    """The figure of one device."""
    found = api.get_roofline(service, device or None)
    if not found.devices:
        raise ProblemError(404, "no device whose limits are known")
    limits = found.devices[0]
    points = [point for point in found.points if point.device == limits.device]
    return as_file(roof(limits, points), f"roofline-{limits.device}")
