"""DeformConv, windows whose elements data move, and its adjoint in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.host_adjoint import adjoint_of
from autosched.graph.ops.registry import operator
from autosched.graph.ops.taps import Array, Tap, add_at
from autosched.graph.ops.tensors import TensorLike, row_major, stage, widened


@operator("DeformConv")
def deform_conv(
    x: TensorLike,
    w: TensorLike,
    offset: TensorLike,
    b: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """A convolution over two axes whose windows read where the offsets move them: what is read in
    columns, then a product."""
    if len(x.shape) != 4:
        raise Unsupported(f"the input has the shape {x.shape}; two spatial axes are supported")
    far, by, around = dilations or (1, 1), strides or (1, 1), pads or (0, 0, 0, 0)
    (filters, depth, *window), out = w.shape, offset.shape[2:]
    each, wide = x.shape[1] // offset_group, widened(x)
    dtype, each_filters = wide.dtype, filters // group

    def taps(n: Any, g: Any, at: Sequence[Any], k: Sequence[Any], d: int) -> list[tuple[Any, Any]]:
        """Index and weight of both neighbours along axis d."""
        extent: Any = x.shape[2 + d]
        tap = row_major((g, *k), (offset_group, *window))
        moved = te.cast(offset(n, tap * 2 + d, *at), dtype)
        p = te.cast(at[d] * by[d] + k[d] * far[d] - around[d], dtype) + moved
        found = []
        for i in (te.floor(p), te.floor(p) + 1.0):
            index = te.max(te.min(te.cast(i, "int64"), extent - 1), 0)
            inside = te.all(i >= 0.0, i < te.cast(extent, dtype))
            weight = te.select(inside, 1.0 - te.abs(p - i), te.const(0.0, dtype))
            found.append((index, weight))
        return found

    def column(n: Any, y: Any, z: Any, k: Any, m: Any, c: Any) -> Any:
        g = c // each if offset_group > 1 else 0
        rows, columns = (taps(n, g, (y, z), (k, m), d) for d in range(2))
        total: Any = None
        for (i, u), (j, v) in itertools.product(rows, columns):
            read = last(n, i, j, c) * (u * v)
            total = read if total is None else total + read
        if mask is None:
            return total
        return total * te.cast(mask(n, row_major((g, k, m), (offset_group, *window)), y, z), dtype)

    def element(n: Any, y: Any, z: Any, f: Any) -> Any:
        k, m = (te.reduce_axis((0, size), name=a) for a, size in zip("km", window, strict=True))
        c = te.reduce_axis((0, depth), name="c")
        first = 0 if group == 1 else f // each_filters * depth
        return te.sum(columns(n, y, z, k, m, first + c) * filter_(f, c, k, m), axis=[k, m, c])

    def result(n: Any, f: Any, y: Any, z: Any) -> Any:
        e = product(n, y, z, f)
        return te.cast(e if b is None else e + te.cast(b(f), dtype), x.dtype)

    images, channels, *sizes = x.shape
    last = stage((images, *sizes, channels), lambda n, i, j, c: wide(n, c, i, j), "last")
    columns = stage((images, *out, *window, channels), column, "columns")
    filter_ = widened(w)
    product = stage((images, *out, filters), element, "product", free=w)
    return stage((images, filters, *out), result, "deform_conv")


@adjoint_of("DeformConv")
def deform_conv_adjoint(
    wrt: int,
    above: Array,
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    **attrs: Any,
) -> Array:
    """To the filters as a convolution's; to x the weights of what was read, to the offsets the
    slopes of these weights, to the mask what was read."""
    given = above.reshape(x.shape[0], group, -1, *above.shape[2:]).astype(np.float64)
    columns = np.zeros((*x.shape[:2], *w.shape[2:], *offset.shape[2:]))
    parts, filters = _grouped(columns, w, group)
    if wrt != 1:
        np.einsum("ngmyx,gmckl->ngcklyx", given, filters, out=parts)
    out = np.zeros((x, w, offset, b, mask)[wrt].shape, np.float64)  # type: ignore[union-attr]
    places = (x.shape[0], offset_group, *w.shape[2:])
    for window in _windows(x, w, offset, mask, offset_group, **attrs):
        back = columns[window.at] * window.mask
        for c in window.corners:
            if wrt == 0:
                add_at(out[window.at[:2]], (slice(None), *c.at), back * c.weight)
                continue
            read = c.read(window, x)
            if wrt == 1:
                columns[window.at] += read * c.weight * window.mask
            elif wrt == 2:
                moved = out.reshape(*places, 2, *offset.shape[2:])[window.place]
                moved += np.sum(back * read, 0) * np.stack(c.slopes)
            else:
                seen = out.reshape(*places, *offset.shape[2:])[window.place]
                seen += np.sum(columns[window.at] * read, 0) * c.weight
    if wrt == 1:
        out[...] = np.einsum("ngcklyx,ngmyx->gmckl", parts, given).reshape(w.shape)
    return out


class Corner(NamedTuple):
    """One of the four elements around the places of a window: its index along both axes, its
    weight, and the derivatives of that by both coordinates of the place."""

    at: tuple[Array, Array]
    weight: Array
    slopes: tuple[Array, Array]

    def read(self, window: Window, x: Array) -> Array:
        """The elements, of all channels of the window."""
        return np.asarray(x[window.at[:2]][(slice(None), *self.at)])


class Window(NamedTuple):
    """One element of the windows of one image and group of offsets: where it is in the columns
    (image, channels, row, column), where in the offsets (image, group, row, column), its corners,
    and its mask."""

    at: tuple[Any, ...]
    place: tuple[int, ...]
    corners: list[Corner]
    mask: Any


def _windows(
    x: Array,
    w: Array,
    offset: Array,
    mask: Array | None,
    groups: int,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
    kernel_shape: Any = None,
) -> Iterator[Window]:
    """The windows of a DeformConv."""
    if x.ndim != 4:
        raise Unsupported(f"the input has the shape {x.shape}; two spatial axes are supported")
    far, by, around = dilations or (1, 1), strides or (1, 1), pads or (0, 0, 0, 0)
    each, sizes = x.shape[1] // groups, offset.shape[2:]
    places = (x.shape[0], groups, *w.shape[2:])
    moves = offset.reshape(*places, 2, *sizes).astype(np.float64)
    masks = None if mask is None else mask.reshape(*places, *sizes)
    for place in np.ndindex(*places):
        i, g, *k = place
        taps: list[list[Tap]] = []
        for d, n in enumerate(x.shape[2:]):
            steps = np.arange(sizes[d]).reshape((-1, 1) if d == 0 else (1, -1))
            p = steps * by[d] - around[d] + k[d] * far[d] + moves[place][d]
            low = np.floor(p)
            taps.append([])
            for j in (low, low + 1):
                inside = (j >= 0) & (j < n)
                weight, slope = (1 - np.abs(p - j)) * inside, (-1.0 if j is low else 1.0) * inside
                taps[d].append(Tap(np.clip(j, 0, n - 1).astype(np.int64), weight, slope))
        corners = [
            Corner((a.at, b.at), a.weight * b.weight,
                   (a.slope * b.weight, a.weight * b.slope))
            for a, b in itertools.product(*taps)
        ]  # fmt: skip
        at = (i, slice(g * each, (g + 1) * each), *k)
        yield Window(at, place, corners, 1.0 if masks is None else masks[place])


def _grouped(columns: Array, w: Array, group: int) -> tuple[Array, Array]:
    """Columns (N, C, …) and filters (M, C / group, …) by groups of channels."""
    return (
        columns.reshape(columns.shape[0], group, -1, *columns.shape[2:]),
        w.reshape(group, -1, *w.shape[1:]),
    )
