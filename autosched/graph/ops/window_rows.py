"""Convolutions of few channels by rows of windows.

An intrinsic on tiles adds 64 bytes of terms at once, one on vectors 4, and the channels of one tap
may be 3. Where
channels are stored last, what a window has in one row of pixels is one run of memory, as long as
its taps times its channels; the next window's starts a stride later, in the same run. So the taps
of a row and the channels are one axis of terms.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autosched import te
from autosched.graph.ops.conv import Window
from autosched.graph.ops.tensors import TensorLike, stage, within

Array = npt.NDArray[Any]
FEWER = 0.75
"""Of the products by taps, that those by rows may be at most to be worth a copy of the input."""
FULL = 0.3
"""Of a tile's terms, the part that a row must fill at least."""
LONG = 16
"""Channels from which on the copy moves whole vectors."""
REUSE, REUSE_SHORT = 64, 400
"""Products that an element of the copy goes into, from which on it pays: of bfloat16, long runs of
channels and single ones, which are no axis of terms else; of a few channels of bytes."""
TAPS = 16
"""Of a window on a single channel, from which on tiles pay."""
SHALLOW = (2, 3)
"""Channels whose vectors a copy interleaves, and of which taps fill no group of terms."""
TILED = range(4, 17)
"""Rows of a tile worth its loads."""


class Row(NamedTuple):
    """A row of a window, of `taps` pixels of `depth` channels, some of which may be 0 everywhere.

    The last of `terms` elements may be of the pixels that follow; their weights are 0.
    """

    taps: int
    depth: int
    terms: int


def row_of(
    depth: int, filters: int, window: Window, most: int, near: int, finite: bool
) -> Row | None:
    """How to compute by rows with tiles of `most` terms in groups of `near`; None where that is
    no gain (measured in `docs/lab/low-precision-2026-11.md`). Where numbers may not be finite, what
    follows is not read: its product with 0 would be no 0."""
    *_, taps = window.kernel
    tiled = any(n % rows == 0 for n in window.out for rows in TILED)
    if not tiled or window.dilations[-1] != 1 or window.spatial[-1] == 1:
        return None
    reuse = filters * prod(window.kernel) / prod(window.strides)
    if reuse < (REUSE_SHORT if finite and 1 < depth < LONG else REUSE):
        return None
    products = -(-taps * depth // most)
    fewer = products <= FEWER * taps * -(-depth // most) and taps * depth >= FULL * most
    if not fewer and (depth > 1 or prod(window.kernel) < TAPS):
        return None
    if finite:
        return Row(taps, depth, products * most)
    wide = depth
    while taps * wide % (-(-taps * wide // most) * near):
        wide += 1
    return Row(taps, wide, taps * wide)


def row_of_vectors(depth: int, window: Window, near: int) -> Row | None:
    """How to compute by rows where vectors add `near` terms of bytes at once; None where as many
    are added by taps."""
    *_, taps = window.kernel
    terms = -(-taps * depth // near) * near
    if window.dilations[-1] != 1 or window.spatial[-1] == 1 or depth not in SHALLOW:
        return None
    return Row(taps, depth, terms) if terms <= taps * near else None


def summed_by_rows(
    x: TensorLike, w: TensorLike, window: Window, row: Row, fill: Any, total: str
) -> Any:
    """Sums of dtype `total` of the products of x (N, C, spatial), with `fill` around it, and w
    (window without its last axis, terms, filters), of `by_rows`."""
    depth, step = row.depth, window.strides[-1]
    length = (window.out[-1] - 1) * step * depth + row.terms
    # Whole pixels, so that the copy's last axis splits into pixels and channels.
    lines = _lines(x, window, depth, -(-length // depth) * depth, fill)

    def element(n: Any, co: Any, *at: Any) -> Any:
        *r, _ = window.axes()
        k = te.reduce_axis((0, row.terms), name="k")
        *outer, last = window.at(at, [*r, 0])
        data, weight = lines(n, *outer, last * depth + k), w(*r, k, co)
        return te.sum(te.cast(data, total) * te.cast(weight, total), axis=[*r, k])

    shape = [x.shape[0], w.shape[-1], *window.out]
    return stage(shape, element, "conv", free=w, axes=window.labels)


def _lines(x: TensorLike, window: Window, depth: int, length: int, fill: Any) -> TensorLike:
    """x with `fill` around it, (N, spatial without its last axis, length): the last axis and the
    channels, `depth` of them, which follow each other, are one."""
    *outer_spatial, _ = window.spatial
    before, after = window.before, [*window.beyond[:-1], 1]

    def element(n: Any, *at: Any) -> Any:
        *outer, j = at
        place, channel = [*outer, j // depth], j % depth
        inside = [] if depth == x.shape[1] else [channel < x.shape[1]]
        for i, size, b, a in zip(place, window.spatial, before, after, strict=True):
            inside += [i >= b] if b else []
            inside += [i < size + b] if a else []
        moved = [i - b if b else i for i, b in zip(place, before, strict=True)]
        return te.if_then_else(te.all(*inside), x(n, channel, *moved), fill)

    rows = [n + b + a for n, b, a in zip(outer_spatial, before[:-1], after[:-1], strict=True)]
    with within({}):
        made: TensorLike = stage((x.shape[0], *rows, length), element, "lines")
    return made


def by_rows(row: Row) -> Callable[[Array], Array]:
    """What makes of a weight (M, C, window) one that `summed_by_rows` takes."""

    def prepare(weight: Array) -> Array:
        filters, depth, *kernel = weight.shape
        taps = np.moveaxis(weight, (1, 0), (-2, -1))  # window, C, M
        used = row.taps * row.depth
        wide = np.zeros((*kernel[:-1], row.terms, filters), weight.dtype)
        wide[..., :used, :].reshape(*kernel, row.depth, filters)[..., :depth, :] = taps
        return wide

    return prepare
