"""The roofline: speed by arithmetic intensity, below what a device can do."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from server.schemas import DeviceLimits, RooflinePoint
from server.web.figures.svg import (
    Scale,
    around,
    bottom_axis,
    element,
    figure,
    left_axis,
    path,
)

WIDTH, HEIGHT = 900, 460
LEFT, RIGHT, TOP, BOTTOM = 84, 20, 34, 56
NAMED = 12
"""Points with their names, those of the fastest; the others are in the table, and so are those
whose name would lie on another's, or on a point."""
RADIUS = 4.5
CHARACTER, LINE = 9, 15
"""Room that a character and a line of a name take."""


def roof(limits: DeviceLimits, points: Sequence[RooflinePoint]) -> Markup:
    """The roof of one device, and the points that were reached on it."""
    shown = [point for point in points if point.intensity]
    ridge = limits.flops / limits.bytes_per_second
    low, high = around([ridge / 30, ridge * 30, *(p.intensity for p in shown if p.intensity)])
    x = Scale(low, high, LEFT, WIDTH - RIGHT, log=True)
    speeds = [limits.flops / 1e9, *(p.gflops for p in shown)]
    bottom, top = around([*speeds, min(speeds) / 10, low * limits.bytes_per_second / 1e9])
    y = Scale(bottom, top, HEIGHT - BOTTOM, TOP, log=True)
    parts = bottom_axis(
        x, HEIGHT - BOTTOM, TOP, "FLOP a byte that has to be moved", [f"{v:g}" for v in x.ticks()]
    )
    parts += left_axis(y, LEFT, WIDTH - RIGHT, [f"{v:g}" for v in y.ticks()])
    parts.append(element("text", "GFLOP/s", x=LEFT - 8, y=TOP - 14, text_anchor="end"))
    peak = limits.flops / 1e9
    slope = [
        (x.at(low), y.at(low * limits.bytes_per_second / 1e9)),
        (x.at(ridge), y.at(peak)),
        (x.at(high), y.at(peak)),
    ]
    parts.append(path(slope, "roof"))
    parts.append(path([(x.at(low), y.at(peak)), (x.at(ridge), y.at(peak))], "roof cache"))
    parts.append(
        element("text", f"{peak:.4g} GFLOP/s", x=WIDTH - RIGHT, y=y.at(peak) - 6, text_anchor="end")
    )
    names: list[tuple[float, float, float]] = []
    places = [(x.at(p.intensity), y.at(p.gflops)) for p in shown if p.intensity]
    dots = [(at_x - RADIUS, at_x + RADIUS, at_y) for at_x, at_y in places]
    for point in sorted(shown, key=lambda p: -p.gflops):
        assert point.intensity is not None
        place = x.at(point.intensity), y.at(point.gflops)
        kind = "dot cached" if point.in_cache else "dot"
        parts.append(element("circle", cx=place[0], cy=place[1], r=RADIUS, class_=kind))
        name = point.workload_name[:24]
        for start, middle, anchor in _beside(place, len(name) * CHARACTER):
            span = start, start + len(name) * CHARACTER, middle
            free = not any(_overlap(span, other) for other in (*names, *dots))
            if len(names) < NAMED and free:
                names.append(span)
                at = {"start": span[0], "middle": place[0], "end": span[1]}[anchor]
                parts.append(element("text", name, x=at, y=middle + 4, text_anchor=anchor))
                break
    label = (
        f"Roofline of device {limits.device}: {peak:.4g} GFLOP/s, "
        f"{limits.bytes_per_second / 1e9:.4g} GB/s; {len(shown)} workloads below it."
    )
    return figure(WIDTH, HEIGHT, label, parts)


def _beside(place: tuple[float, float], width: float) -> list[tuple[float, float, str]]:
    """Where the name of a point may stand, the best first: its left end, the height of its middle,
    and its anchor."""
    x, y = place
    beside = [(x + 8, y, "start"), (x - width - 8, y, "end")]
    if x > WIDTH * 0.75:
        beside.reverse()
    return beside + [(x - width / 2, y + LINE, "middle"), (x - width / 2, y - LINE, "middle")]


def _overlap(a: tuple[float, float, float], b: tuple[float, float, float]) -> bool:
    """Whether two names, or a name and a point, lie on each other: their left and right ends, and
    heights."""
    return a[0] < b[1] and b[0] < a[1] and abs(a[2] - b[2]) < LINE
