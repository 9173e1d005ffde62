"""Operators that move elements and compute nothing: each is an index map of its reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import (
    TensorLike,
    View,
    broadcast,
    broadcast_shape,
    count,
    digits,
    normal_axes,
    normal_axis,
    row_major,
)


def reshaped(x: TensorLike, shape: Sequence[Any]) -> View:
    """`x` with another shape of as many elements."""
    if len(shape) == len(x.shape) and all(
        a is b or a == b for a, b in zip(shape, x.shape, strict=True)
    ):
        return View(x.shape, x.dtype, x, "reshape")
    kept = [n for n in x.shape if not (isinstance(n, int) and n == 1)]
    if kept == [n for n in shape if not (isinstance(n, int) and n == 1)]:
        return _spread(x, shape)
    parts = runs(x.shape, shape)

    def element(*at: Any) -> Any:
        # Each part by itself: the number of an element that padding asks for lies outside, where
        # digits of the whole would have it in another row.
        found: list[Any] = []
        for ours, theirs in parts:
            sizes = shape[theirs]
            found += digits(row_major(at[theirs], sizes), x.shape[ours])
        return x(*found)

    return View(shape, x.dtype, element, "reshape")


def runs(ours: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[slice, slice]]:
    """Runs of axes of two shapes that have as many elements as each other, as short as can be; one
    where an extent is symbolic or 0."""
    if not all(isinstance(n, int) and n > 0 for n in (*ours, *theirs)):
        return [(slice(0, len(ours)), slice(0, len(theirs)))]
    out: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(ours) or j < len(theirs):
        begin, a, b = (i, j), 1, 1
        while a != b or (i, j) == begin:
            if j == len(theirs) or (i < len(ours) and a <= b):
                a, i = a * ours[i], i + 1
            else:
                b, j = b * theirs[j], j + 1
        out.append((slice(begin[0], i), slice(begin[1], j)))
    return out


def _spread(x: TensorLike, shape: Sequence[Any]) -> View:
    """The same axes with others of extent 1 between them: no arithmetic on indices."""
    wide = [d for d, n in enumerate(shape) if not (isinstance(n, int) and n == 1)]

    def element(*at: Any) -> Any:
        axes = iter(wide)
        return x(*(0 if isinstance(n, int) and n == 1 else at[next(axes)] for n in x.shape))

    return View(shape, x.dtype, element, "reshape")


@operator("Reshape", static={1: "shape"})
def reshape(x: TensorLike, *, shape: Sequence[int], allowzero: int = 0) -> Any:
    """Another shape; 0 keeps an extent and -1 is what remains."""
    out: list[Any] = [
        x.shape[d] if n == 0 and not allowzero and d < len(x.shape) else n
        for d, n in enumerate(shape)
    ]
    if out.count(-1) > 1:
        raise Unsupported(f"attribute shape is {tuple(shape)}, which has several -1")
    if -1 in out:
        others = count([n for n in out if n != -1])
        total = count(x.shape)
        if others == 0:  # -1 may be any number, and so is none: onnxruntime refuses it, too
            raise Unsupported(
                f"attribute shape is {tuple(shape)}, where -1 stands beside a size of 0; the input "
                f"has shape {x.shape}: write the size in the place of -1"
            )
        if total % others:
            raise Unsupported(f"attribute shape is {tuple(shape)}; the input has shape {x.shape}")
        out[out.index(-1)] = total // others
    if any(n < 0 for n in out) or count(out) != count(x.shape):
        raise Unsupported(f"attribute shape is {tuple(shape)}; the input has shape {x.shape}")
    return reshaped(x, out)


@operator("Flatten")
def flatten(x: TensorLike, *, axis: int = 1) -> Any:
    """A matrix: the axes before `axis`, and the others."""
    at = axis + len(x.shape) if axis < 0 else axis
    return reshaped(x, [count(x.shape[:at]), count(x.shape[at:])])


@operator("Squeeze", static={1: "axes"})
def squeeze(x: TensorLike, *, axes: Sequence[int] | None = None) -> Any:
    """Without axes of extent 1."""
    axes = (axes,) if isinstance(axes, int) else axes
    ones = [d for d, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    gone = ones if axes is None else normal_axes(axes, len(x.shape))
    wrong = [d for d in gone if d not in ones]
    if wrong:
        raise Unsupported(f"attribute axes has {wrong[0]}, whose extent is {x.shape[wrong[0]]}")
    return _spread(x, [n for d, n in enumerate(x.shape) if d not in gone])


@operator("Unsqueeze", static={1: "axes"})
def unsqueeze(x: TensorLike, *, axes: Sequence[int]) -> Any:
    """With axes of extent 1 at these places of the result."""
    axes = (axes,) if isinstance(axes, int) else axes
    rank = len(x.shape) + len(axes)
    new = normal_axes(axes, rank)
    if len(new) != len(axes):
        raise Unsupported(f"attribute axes is {tuple(axes)}, which has an axis twice")
    kept = iter(x.shape)
    return _spread(x, [1 if d in new else next(kept) for d in range(rank)])


@operator("Transpose")
def transpose(x: TensorLike, *, perm: Sequence[int] | None = None) -> Any:
    """Axis n of the result is axis perm[n]; without `perm` in reverse order."""
    rank = len(x.shape)
    order = list(range(rank))[::-1] if perm is None else [normal_axis(p, rank) for p in perm]
    if sorted(order) != list(range(rank)):
        raise Unsupported(f"attribute perm is {perm}; expected each axis of {x.shape} once")
    return View(
        [x.shape[d] for d in order],
        x.dtype,
        lambda *at: x(*(at[order.index(d)] for d in range(rank))),
        "transpose",
    )


@operator("Expand", static={1: "shape"})
def expand(x: TensorLike, *, shape: Sequence[int]) -> Any:
    """Broadcast with `shape`."""
    wide = broadcast_shape(x.shape, shape)
    return View(wide, x.dtype, broadcast(x, wide), "expand")


@operator("Tile", static={1: "repeats"})
def tile(x: TensorLike, *, repeats: Sequence[int]) -> Any:
    """Repeated along each axis."""
    if len(repeats) != len(x.shape):
        raise Unsupported(
            f"repeats has {len(repeats)} numbers; expected one for each of {len(x.shape)} axes"
        )
    return View(
        [n * r for n, r in zip(x.shape, repeats, strict=True)],
        x.dtype,
        lambda *at: x(
            *(i if r == 1 else i % n for i, n, r in zip(at, x.shape, repeats, strict=True))
        ),
        "tile",
    )


@operator("Slice", static={1: "starts", 2: "ends", 3: "axes", 4: "steps"})
def slice_(
    x: TensorLike,
    *,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Any:
    """Elements from start to end by step along some axes, as Python slices them."""
    along = [normal_axis(a, len(x.shape)) for a in (range(len(starts)) if axes is None else axes)]
    shape, first, by = list(x.shape), [0] * len(x.shape), [1] * len(x.shape)
    for axis, start, end, step in zip(along, starts, ends, steps or [1] * len(along), strict=True):
        extent = x.shape[axis]
        if not isinstance(extent, int):
            raise Unsupported(f"axis {axis} has the symbolic extent {extent}; fix its size")
        begin, stop, step = slice(start, end, step).indices(extent)
        if step < 0 and extent:  # unlike Python's, a start before all elements is the first one
            begin = max(begin, 0)
        shape[axis] = len(range(begin, stop, step))
        first[axis], by[axis] = begin, step
    return View(
        shape,
        x.dtype,
        lambda *at: x(*(i * s + f for i, s, f in zip(at, by, first, strict=True))),
        "slice",
    )


@operator("Split", static={1: "split"})
def split(
    x: TensorLike,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> Any:
    """Pieces along an axis, of the sizes `split`, or equal ones, the last one smaller.

    `outputs` is how many results the call has."""
    at = normal_axis(axis, len(x.shape))
    extent, pieces = x.shape[at], num_outputs or outputs
    if split is None:
        if isinstance(extent, int) and not 1 <= pieces <= max(extent + 1, outputs):
            raise Unsupported(
                f"attribute num_outputs is {pieces}; expected from 1 to the extent {extent}"
            )
        size = -(-extent // pieces)
        split = [min(size, extent - n * size) for n in range(pieces)]
    if sum(split) != extent:
        raise Unsupported(f"attribute split is {tuple(split)}; the axis has extent {extent}")
    out, begin = [], 0
    for size in split:
        out.append(_piece(x, at, begin, size))
        begin += size
    return tuple(out)


def _piece(x: TensorLike, axis: int, begin: int, size: int) -> View:
    shape = [size if d == axis else n for d, n in enumerate(x.shape)]
    return View(
        shape,
        x.dtype,
        lambda *at: x(*(i + begin if d == axis else i for d, i in enumerate(at))),
        "split",
    )


@operator("DepthToSpace")
def depth_to_space(x: TensorLike, *, blocksize: int, mode: str = "DCR") -> Any:
    """Channels become blocks of positions; `mode` tells which of channel and block is outer."""
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        apart = reshaped(x, [n, b, b, c // (b * b), h, w])
        moved = transpose(apart, perm=[0, 3, 4, 1, 5, 2])
    else:
        apart = reshaped(x, [n, c // (b * b), b, b, h, w])
        moved = transpose(apart, perm=[0, 1, 4, 2, 5, 3])
    return reshaped(moved, [n, c // (b * b), h * b, w * b])


@operator("SpaceToDepth")
def space_to_depth(x: TensorLike, *, blocksize: int, mode: str = "DCR") -> Any:
    """Blocks of positions become channels; `mode` tells which of channel and block is outer."""
    n, c, h, w = x.shape
    b = blocksize
    apart = reshaped(x, [n, c, h // b, b, w // b, b])
    perm = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    return reshaped(transpose(apart, perm=perm), [n, c * b * b, h // b, w // b])


def _chosen(values: Sequence[Any], i: Any) -> Any:
    """values[i] of a list of numbers."""
    found: Any = te.const(int(values[-1]), "int64")
    for n in range(len(values) - 2, -1, -1):
        found = te.select(i == n, te.const(int(values[n]), "int64"), found)
    return found


@operator("Shape")
def shape(x: TensorLike, *, start: int = 0, end: int | None = None) -> Any:
    """The extents."""
    sizes = x.shape[slice(start, end)]
    if not all(isinstance(n, int) for n in sizes):
        raise Unsupported(f"the shape {x.shape} is symbolic; fix its sizes")
    return View([len(sizes)], "int64", lambda i: _chosen(sizes, i), "shape")


@operator("Size")
def size(x: TensorLike) -> Any:
    """The number of elements."""
    return View([], "int64", lambda: te.const(count(x.shape), "int64"), "size")
