"""GridSample, images read at places that data name, and its adjoint in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.host_adjoint import adjoint_of
from autosched.graph.ops.registry import operator
from autosched.graph.ops.resize import EXACT_EXTENT
from autosched.graph.ops.taps import Array, Tap, add_at
from autosched.graph.ops.tensors import TensorLike, stage

CUBIC = -0.75
"""Keys' parameter of the cubic, as ONNX fixes it."""
_NEIGHBOURS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
_SINGLE = {"float32", "float16", "bfloat16"}


@operator("GridSample")
def grid_sample(
    x: TensorLike,
    grid: TensorLike,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Any:
    """x (N, C, spatial) at places (N, positions, rank) in [-1, 1], the last axis first."""
    rank = len(x.shape) - 2
    if rank < 1 or len(grid.shape) != rank + 2:
        raise Unsupported(
            f"x has rank {len(x.shape)} and grid {len(grid.shape)}; expected the same, from 3"
        )
    pairs = (grid.shape[0], x.shape[0]), (grid.shape[-1], rank)
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        raise Unsupported(
            f"grid has shape {tuple(grid.shape)}; expected {x.shape[0]} first and {rank} last"
        )
    kind = _kind(mode, padding_mode, rank)
    # A place of a short axis is known to 6e-5 of an element in float32, as the grid is.
    short = all(isinstance(n, int) and n <= EXACT_EXTENT for n in x.shape[2:])
    exact = {x.dtype, grid.dtype} <= _SINGLE and short
    dtype, index_dtype = ("float32", "int32") if exact else ("float64", "int64")

    def taps(n: Any, at: Sequence[Any], d: int) -> Iterator[tuple[Any, Any, Any]]:
        """Index, weight and whether it is inside, of each neighbour along axis d."""
        extent: Any = x.shape[2 + d]
        g = te.cast(grid(n, *at, rank - 1 - d), dtype)
        last = float(extent - 1) if isinstance(extent, int) else te.cast(extent, dtype) - 1.0
        p = (g + 1.0) * 0.5 * last if align_corners else (g + 1.0) * 0.5 * (last + 1.0) - 0.5
        if kind != "cubic":
            p = _padded(p, last, padding_mode, bool(align_corners))
        low = te.round(p) if kind == "nearest" else te.floor(p)
        for k in _NEIGHBOURS[kind]:
            i = low + float(k)
            weight = _weight_of(kind, te.abs(p - i), k)
            inside = te.all(i >= 0.0, i <= last) if padding_mode == "zeros" else None
            if kind == "cubic":
                i = _padded(i, last, padding_mode, bool(align_corners))
            yield te.max(te.min(te.cast(i, index_dtype), extent - 1), 0), weight, inside

    def element(n: Any, c: Any, *at: Any) -> Any:
        total: Any = None
        for every in itertools.product(*(list(taps(n, at, d)) for d in range(rank))):
            read = te.cast(x(n, c, *(index for index, _, _ in every)), dtype)
            for weight in (w for _, w, _ in every if w is not None):
                read = read * weight
            within = [inside for *_, inside in every if inside is not None]
            if within:  # at last: what is far outside has no weight that is a number
                read = te.select(te.all(*within), read, te.const(0.0, dtype))
            total = read if total is None else total + read
        return te.cast(total, x.dtype)

    return stage([*x.shape[:2], *grid.shape[1:-1]], element, "grid_sample")


def _kind(mode: str, padding_mode: str, rank: int) -> str:
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if kind not in _NEIGHBOURS or (kind == "cubic" and rank != 2):
        raise Unsupported(f"attribute mode is {mode!r} over {rank} axes")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise Unsupported(f"attribute padding_mode is {padding_mode!r}")
    return kind


def _padded(p: Any, last: Any, padding_mode: str, align_corners: bool) -> Any:
    """A place, brought into the image, whose last element has the number `last`, as the mode
    says."""
    if padding_mode == "border":
        return te.max(te.min(p, last), 0.0)
    if padding_mode == "zeros":
        return p
    low, wide = (0.0, last) if align_corners else (-0.5, last + 1.0)
    if align_corners:  # of one element no place is another
        wide = max(last, 1.0) if isinstance(last, float) else te.max(last, 1.0)
    turned = p - low
    turned = turned - te.floor(turned * (0.5 / wide)) * (2 * wide)
    return te.min(turned, 2 * wide - turned) + low


def _weight_of(kind: str, d: Any, k: int) -> Any:
    """Of the neighbour k at the distance d; None for 1."""
    if kind == "nearest":
        return None
    if kind == "linear":
        return te.max(1.0 - d, 0.0)
    if k in (0, 1):
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1.0
    return ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC


@adjoint_of("GridSample")
def grid_sample_adjoint(
    wrt: int,
    above: Array,
    x: Array,
    grid: Array,
    **attrs: Any,
) -> Array:
    """To x: each element gets the weights with which it was read; to the grid: the slopes of the
    weights."""
    out = np.zeros((x, grid)[wrt].shape, np.float64)
    rank = x.ndim - 2
    for taps in itertools.product(*_grid_taps(x, grid, **attrs)):
        for b in range(x.shape[0]):
            at = (slice(None), *(t.at[b] for t in taps))
            weights = [t.weight[b] for t in taps]
            if wrt == 0:
                add_at(out[b], at, above[b] * np.prod(weights, 0))
                continue
            read = np.sum(above[b] * x[b][at].astype(np.float64), 0)
            for d, t in enumerate(taps):
                others = np.prod([t.slope[b], *weights[:d], *weights[d + 1 :]], 0)
                out[b][..., rank - 1 - d] += read * others
    return out


def _grid_taps(
    x: Array,
    grid: Array,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Iterator[list[Tap]]:
    """The elements beside the places of a grid, axis by axis of the image; slopes are by the
    grid."""
    rank = x.ndim - 2
    kind = _kind(mode, padding_mode, rank)
    for d in range(rank):
        n, g = x.shape[2 + d], grid[..., rank - 1 - d].astype(np.float64)
        p: Array = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
        by_grid = np.full(p.shape, ((n - 1) if align_corners else n) / 2)
        if padding_mode == "border" and kind != "cubic":
            by_grid *= (p > 0) & (p < n - 1)
            p = np.clip(p, 0, n - 1)
        elif padding_mode == "reflection" and kind != "cubic":
            p, back = _reflected(p, n, bool(align_corners))
            by_grid *= back
        low = np.rint(p) if kind == "nearest" else np.floor(p)
        taps = []
        for k in _NEIGHBOURS[kind]:
            i = low + k
            weight, slope = _weight(kind, p - i, k)
            if padding_mode == "zeros":
                inside = (i >= 0) & (i < n)
                weight, slope = weight * inside, slope * inside
            elif padding_mode == "reflection" and kind == "cubic":
                i, _ = _reflected(i, n, bool(align_corners))
            taps.append(Tap(np.clip(i, 0, n - 1).astype(np.int64), weight, slope * by_grid))
        yield taps


def _weight(kind: str, distance: Array, k: int) -> tuple[Array, Array]:
    """Weights by the distance from tap `k`, and their derivatives by it."""
    if kind == "nearest":
        return np.ones(distance.shape), np.zeros(distance.shape)
    d, sign = np.abs(distance), 1.0 if k < 1 else -1.0
    if kind == "linear":
        return np.maximum(1 - d, 0), np.full(d.shape, -sign)
    a = CUBIC
    if k in (0, 1):
        weight, slope = ((a + 2) * d - (a + 3)) * d * d + 1, (3 * (a + 2) * d - 2 * (a + 3)) * d
    else:
        weight = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        slope = (3 * a * d - 10 * a) * d + 8 * a
    return np.asarray(weight), np.asarray(sign * slope)


def _reflected(p: Array, n: int, align_corners: bool) -> tuple[Array, Array]:
    """Places, reflected into the image, and the derivatives by what they were: 1 or -1."""
    low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
    wide = high - low
    if wide == 0:
        return np.zeros_like(p), np.zeros_like(p)
    turned = np.mod(p - low, 2 * wide)
    return np.minimum(turned, 2 * wide - turned) + low, np.where(turned <= wide, 1.0, -1.0)
