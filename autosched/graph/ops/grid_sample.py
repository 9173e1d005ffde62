"""GridSample and its adjoint: images read at places that data name, in NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.ops.host_adjoint import adjoint_of
from autosched.graph.ops.registry import host_operator
from autosched.graph.ops.taps import Array, Tap, add_at


@host_operator("GridSample", lambda x, grid, **_: [((*x.shape[:2], *grid.shape[1:-1]), x.dtype)])
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """x (N, C, spatial) at places (N, positions, rank) in [-1, 1], the last axis first."""
    images, channels, *sizes = x.shape
    places = grid.shape[:-1]
    # All images of a channel in one row, so that one call reads a tap of every place.
    rows = np.swapaxes(x, 0, 1).reshape(channels, math.prod((images, *sizes)))
    first = np.arange(images).reshape(images, *[1] * len(sizes)) * math.prod(sizes)
    out = np.zeros((channels, math.prod(places)), np.float64)
    for taps in itertools.product(*_grid_taps(x, grid, align_corners, mode, padding_mode)):
        weight = np.prod([t.weight for t in taps], 0)
        at = first + np.ravel_multi_index(tuple(t.at for t in taps), tuple(sizes))
        out += np.take(rows, at.ravel(), 1) * weight.ravel()
    return np.asarray(np.swapaxes(out.reshape(channels, *places), 0, 1), x.dtype, order="C")


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
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if kind not in ("linear", "cubic", "nearest") or (kind == "cubic" and rank != 2):
        raise Unsupported(f"attribute mode is {mode!r} over {rank} axes")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise Unsupported(f"attribute padding_mode is {padding_mode!r}")
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
        for k in {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[kind]:
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
    a = -0.75
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
