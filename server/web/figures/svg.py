"""What figures are made of: elements, scales, axes.

Elements have classes, and `static/figure.css` has their colours, light and dark: on a page, and
inside a file of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi.responses import Response
from markupsafe import Markup

STYLE = Path(__file__).parents[1] / "static" / "figure.css"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Of a file with its own style sheet: it loads and runs nothing."""
FIGURE = "image/svg+xml"


def element(name: str, *inside: str | Markup, **attributes: str | float | None) -> Markup:
    """An element; `class_` is its class, `_` in other names stands for `-`; what is None is left
    out."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _text(value))
        for key, value in attributes.items()
        if value is not None
    )
    if not inside:
        return Markup("<{}{}/>").format(Markup(name), given)
    body = Markup("").join(inside)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), given, body)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def figure(width: int, height: int, label: str, parts: Iterable[Markup]) -> Markup:
    """The root of a figure, as it stands in a page; `label` says in words what it shows."""
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        class_="chart",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


@functools.cache
def _style() -> str:
    return STYLE.read_text(encoding="utf-8")


def as_file(drawn: Markup, name: str) -> Response:
    """A figure as a file, with its colours and a ground."""
    begin = drawn.index(">") + 1
    style = Markup("<style>{}</style>").format(Markup(_style()))
    ground = Markup('<rect class="ground" width="100%" height="100%"/>')
    headers = {
        "Content-Security-Policy": POLICY,
        "Content-Disposition": f'inline; filename="{name}.svg"',
        "Cache-Control": "no-store",
    }
    return Response(
        drawn[:begin] + style + ground + drawn[begin:], headers=headers, media_type=FIGURE
    )


@dataclass(frozen=True)
class Scale:
    """From values between `low` and `high` to pixels between `begin` and `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The place of a value."""
        low, high = self._of(self.low), self._of(self.high)
        part = (self._of(value) - low) / (high - low) if high > low else 0.5
        return self.begin + part * (self.end - self.begin)

    def _of(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, most: int = 8) -> list[float]:
        """Round values, at most about so many."""
        if self.log and self.high / self.low >= 6:
            return _decades(self.low, self.high, most)
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        rough = span / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _decades(low: float, high: float, most: int) -> list[float]:
    """1, 2, 5 of each power of ten, or 1 alone, or that of every n-th power."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits, step in (((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), 4)):
        found = [d * 10.0**p for p in powers[::step] for d in digits]
        found = [value for value in found if low <= value <= high]
        if len(found) <= most:
            return found
    return found


def around(values: Sequence[float], room: float = 0.06) -> tuple[float, float]:
    """The range of positive values on a logarithmic scale, with some room."""
    low, high = min(values), max(values)
    factor = (high / low) ** room * 1.02
    return low / factor, high * factor


def path(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    data = " ".join(f"{'L' if n else 'M'}{x:.1f} {y:.1f}" for n, (x, y) in enumerate(points))
    return element("path", d=data, class_=class_)


def bottom_axis(
    scale: Scale, y: float, top: float, name: str, texts: Sequence[str]
) -> list[Markup]:
    """An axis below, with grid lines up to `top`, and the texts of the scale's ticks."""
    parts = []
    for value, text in zip(scale.ticks(), texts, strict=True):
        x = scale.at(value)
        parts.append(element("line", x1=x, x2=x, y1=top, y2=y, class_="grid"))
        parts.append(element("text", text, x=x, y=y + 18, text_anchor="middle"))
    middle = (scale.begin + scale.end) / 2
    parts.append(element("text", name, x=middle, y=y + 38, text_anchor="middle"))
    return parts


def left_axis(scale: Scale, x: float, right: float, texts: Sequence[str]) -> list[Markup]:
    """An axis at the left, with grid lines to `right`."""
    parts = []
    for value, text in zip(scale.ticks(), texts, strict=True):
        y = scale.at(value)
        parts.append(element("line", x1=x, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(element("text", text, x=x - 8, y=y + 4, text_anchor="end"))
    return parts
