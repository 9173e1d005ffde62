"""Interpolation along axes: the place in the input is an affine function of the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Any, NamedTuple

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import TensorLike, normal_axis, stage

TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
)
LARGEST = 1 << 16
"""Elements of a resized axis."""
EXACT_EXTENT = 1024
"""Elements of an axis up to which its places are computed in float32."""


class Axis(NamedTuple):
    """Index i of `size` reads around place i * step + begin of `extent` elements; `scale` is the
    number of new elements for an old one."""

    size: int
    extent: int
    scale: float
    begin: float
    step: float

    def place(self, i: int) -> float:
        """Where index i reads; what is halfway between two is so exactly."""
        return round(i * self.step + self.begin, 7)


@operator("Resize", static={1: "roi", 2: "scales", 3: "sizes"}, spatial=True)
def resize(
    x: TensorLike,
    *,
    roi: Any = None,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    """Interpolation, nearest, linear or cubic, along each axis whose extent changes."""
    rank = len(x.shape)
    along = list(range(rank)) if axes is None else [normal_axis(a, rank) for a in axes]
    transform = coordinate_transformation_mode
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"attribute mode is {mode!r}; expected nearest, linear or cubic")
    if transform not in TRANSFORMS:
        raise Unsupported(f"attribute coordinate_transformation_mode is {transform!r}")
    crop = transform == "tf_crop_and_resize"
    if crop and (roi is None or len(roi) != 2 * len(along)):
        raise Unsupported(f"input roi is {roi}; expected a begin and an end for each axis")
    extents = [int(x.shape[d]) for d in along]
    news, factors = _sizes(extents, scales, sizes, keep_aspect_ratio_policy)
    found = {}
    for n, d in enumerate(along):
        box = (float(roi[n]), float(roi[n + len(along)])) if crop else (0.0, 1.0)
        if news[n] > LARGEST:
            raise Unsupported(f"axis {d} would have {news[n]} elements; at most {LARGEST} are made")
        one = _axis(extents[n], news[n], factors[n], transform, box)
        if (one.begin, one.step, one.size) != (0.0, 1.0, one.extent):
            found[d] = one
    result = x
    if mode == "nearest":
        moved = {d: _index(a, nearest_mode) for d, a in found.items()}
        shape = [found[d].size if d in found else n for d, n in enumerate(x.shape)]

        def element(*at: Any) -> Any:
            return x(*(moved[d](i) if d in moved else i for d, i in enumerate(at)))

        result = stage(shape, element, "resize")
    else:
        taps = _Taps(mode == "cubic", cubic_coeff_a, bool(exclude_outside), bool(antialias))
        for d, a in found.items():
            result = _interpolated(result, d, a, taps)
    return _cropped(result, found, extrapolation_value) if crop else result


def _sizes(
    extents: Sequence[int],
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    policy: str,
) -> tuple[list[int], list[float]]:
    if scales:
        return [floor(n * s) for n, s in zip(extents, scales, strict=True)], list(scales)
    if not sizes:
        raise Unsupported("neither scales nor sizes are given")
    ratios = [s / n for s, n in zip(sizes, extents, strict=True)]
    if policy == "stretch":
        return list(sizes), ratios
    if policy not in ("not_larger", "not_smaller"):
        raise Unsupported(f"attribute keep_aspect_ratio_policy is {policy!r}")
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [floor(n * ratio + 0.5) for n in extents], [ratio] * len(extents)


def _axis(extent: int, size: int, scale: float, transform: str, box: tuple[float, float]) -> Axis:
    step = 1 / scale
    begin = 0.5 / scale - 0.5
    if transform == "asymmetric":
        begin = 0.0
    elif transform == "align_corners":
        begin, step = 0.0, (extent - 1) / max(extent * scale - 1, 1)
    elif transform == "pytorch_half_pixel" and size == 1:
        begin = 0.0
    elif transform == "half_pixel_symmetric":
        begin += extent / 2 * (1 - size / (extent * scale))
    elif transform == "tf_crop_and_resize":
        low, high = box
        wide = (high - low) * (extent - 1)
        begin = low * (extent - 1) if size > 1 else (low + high) * (extent - 1) / 2
        step = wide / (size - 1) if size > 1 else 0.0
    return Axis(size, extent, scale, begin, step)


def _nearest(s: float, mode: str) -> int:
    low = floor(s)
    if mode == "floor":
        return low
    if mode == "ceil":
        return -floor(-s)
    if s - low == 0.5:
        return low if mode == "round_prefer_floor" else low + 1
    return floor(s + 0.5)


def _index(axis: Axis, mode: str) -> Callable[[Any], Any]:
    """The index that the nearest place has, as an expression of i: (i * p + b) // q, with p / q
    the step, brought inside. What is halfway is so exactly: b is verified for every i."""
    if mode not in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        raise Unsupported(f"attribute nearest_mode is {mode!r}")
    values = [_nearest(axis.place(i), mode) for i in range(axis.size)]
    for limit in (64, 4096, 1 << 20):
        step = Fraction(axis.step).limit_denominator(limit)
        for times in (1, 2, 1024):
            p, q = step.numerator * times, step.denominator * times
            least = max(v * q - i * p for i, v in enumerate(values))
            most = min((v + 1) * q - 1 - i * p for i, v in enumerate(values))
            if least <= most:
                b = min(max(least, 0), most)
                inside = min(values) >= 0 and max(values) < axis.extent
                return partial(_quotient, p, b, q, None if inside else axis.extent)
    raise Unsupported(
        f"the indices that the scale {axis.scale} gives are no quotients of the position"
    )


def _quotient(p: int, b: int, q: int, extent: int | None, i: Any) -> Any:
    """(i * p + b) // q, brought inside of `extent` where it may be outside."""
    at = i * p + b
    at = at if q == 1 else te.floordiv(at, q)
    return at if extent is None else te.max(te.min(at, extent - 1), 0)


class _Taps(NamedTuple):
    """What neighbours count for: by a cubic, or linearly; those outside not, or as those at the
    edge; over more neighbours where the size shrinks."""

    cubic: bool
    factor: float
    exclude: bool
    antialias: bool

    def weight(self, distance: Any) -> Any:
        """Of a neighbour at a distance."""
        d = te.abs(distance)
        if not self.cubic:
            return te.max(1.0 - d, 0.0)
        a = self.factor
        near = ((a + 2) * d - (a + 3)) * d * d + 1.0
        far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
        return te.select(d <= 1.0, near, te.select(d < 2.0, far, te.const(0.0, d.dtype)))


def _interpolated(x: TensorLike, axis: int, a: Axis, taps: _Taps) -> Any:
    shrink = min(a.scale, 1.0) if taps.antialias else 1.0
    reach = ceil((2 if taps.cubic else 1) / shrink)
    if reach > 64:
        raise Unsupported(
            f"axis {axis} shrinks from {a.extent} to {a.size} elements with antialias: each would "
            f"read {2 * reach}; at most 128 are supported"
        )

    # Of a short axis float32 has the place to 6e-5 of an element.
    exact = x.dtype == "float32" and a.extent <= EXACT_EXTENT
    dtype, index_dtype = ("float32", "int32") if exact else ("float64", "int64")

    def element(*at: Any) -> Any:
        place = te.cast(at[axis], dtype) * a.step + a.begin
        if not taps.cubic and not taps.antialias:
            place = te.max(te.min(place, float(a.extent - 1)), 0.0)
        low = te.floor(place)
        total: Any = None
        weights: Any = None
        for k in range(1 - reach, reach + 1):
            neighbour = low + float(k)
            weight = taps.weight((neighbour - place) * shrink)
            if taps.exclude or taps.antialias:
                outside = te.any(neighbour < 0.0, neighbour > float(a.extent - 1))
                if taps.exclude:
                    weight = te.select(outside, te.const(0.0, dtype), weight)
            index = te.max(te.min(te.cast(neighbour, index_dtype), a.extent - 1), 0)
            read = x(*(index if d == axis else i for d, i in enumerate(at)))
            part = te.cast(read, dtype) * weight
            total = part if total is None else total + part
            weights = weight if weights is None else weights + weight
        if taps.exclude or taps.antialias:
            total = total / weights
        return te.cast(total, x.dtype)

    return stage([a.size if d == axis else n for d, n in enumerate(x.shape)], element, "resize")


def _cropped(x: TensorLike, axes: dict[int, Axis], value: float) -> Any:
    """The value given for places beyond the input."""

    def element(*at: Any) -> Any:
        beyond: Any = te.const(False, "bool")
        for d, a in axes.items():
            place = te.cast(at[d], "float64") * a.step + a.begin
            beyond = te.any(beyond, place < 0.0, place > float(a.extent - 1))
        return te.select(beyond, te.const(value, x.dtype), x(*at))

    return stage(x.shape, element, "cropped")
