"""Operators that put tensors together, pick elements by data, or make them from nothing.

An index that data decide is wrapped and clamped, so that every access is provably in bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import TensorLike, View, constant, is_empty, normal_axis, stage
from autosched.tir import dtypes

INDICES = {
    "Gather": 1,
    "GatherElements": 1,
    "GatherND": 1,
    "OneHot": 0,
    "ScatterElements": 1,
    "ScatterND": 1,
}
"""Operators that take indices, of which 0 is in every array, and the number of that input."""


def clamped(index: Any, extent: Any) -> Any:
    """An index from data: negative ones count from the end, what is beyond is brought inside."""
    if not dtypes.is_int(index.dtype):
        raise Unsupported(
            f"indices are {index.dtype}; expected an integer dtype, such as int64: cast them"
        )
    i = te.cast(index, "int64")
    wrapped = te.select(i < 0, i + extent, i)
    return te.max(te.min(wrapped, extent - 1), 0)


@operator("Concat")
def concat(*tensors: TensorLike, axis: int) -> Any:
    """One after the other along an axis."""
    first = tensors[0]
    along = normal_axis(axis, len(first.shape))
    full = [t for t in tensors if not is_empty(t.shape)]
    if not full:  # those of some extent along the axis count for the shape
        full = [
            t
            for t in tensors
            if len(t.shape) == len(first.shape) and not is_empty(t.shape[along : along + 1])
        ]
    tensors = tuple(full) or (first,)
    ends: list[Any] = []
    for t in tensors:
        others = [n for d, n in enumerate(t.shape) if d != along]
        if others != [n for d, n in enumerate(first.shape) if d != along]:
            raise Unsupported(f"shapes {first.shape} and {t.shape} do not go together")
        ends.append(t.shape[along] + (ends[-1] if ends else 0))
    if len(tensors) == 1:
        (only,) = tensors
        return View(only.shape, only.dtype, only, "concat")

    def element(*at: Any) -> Any:
        found: Any = None
        for n in range(len(tensors) - 1, -1, -1):
            begin = ends[n - 1] if n else 0
            e = tensors[n](*(i - begin if d == along and n else i for d, i in enumerate(at)))
            found = e if found is None else te.if_then_else(at[along] < ends[n], e, found)
        return found

    shape = [ends[-1] if d == along else n for d, n in enumerate(first.shape)]
    return stage(shape, element, "concat")


@operator("Gather")
def gather(x: TensorLike, indices: TensorLike, *, axis: int = 0) -> Any:
    """Slices of x along an axis, by index."""
    along = normal_axis(axis, len(x.shape))
    rank = len(indices.shape)
    shape = [*x.shape[:along], *indices.shape, *x.shape[along + 1 :]]

    def element(*at: Any) -> Any:
        i = clamped(indices(*at[along : along + rank]), x.shape[along])
        return x(*at[:along], i, *at[along + rank :])

    return stage(shape, element, "gather")


@operator("GatherElements")
def gather_elements(x: TensorLike, indices: TensorLike, *, axis: int = 0) -> Any:
    """Elements of x, whose index along an axis is data."""
    along = normal_axis(axis, len(x.shape))

    def element(*at: Any) -> Any:
        i = clamped(indices(*at), x.shape[along])
        return x(*at[:along], i, *at[along + 1 :])

    return stage(indices.shape, element, "gather_elements")


@operator("GatherND")
def gather_nd(x: TensorLike, indices: TensorLike, *, batch_dims: int = 0) -> Any:
    """Slices of x, whose first indices are rows of data."""
    width = int(indices.shape[-1])
    lead = indices.shape[:-1]

    def element(*at: Any) -> Any:
        row, rest = at[: len(lead)], at[len(lead) :]
        found = [clamped(indices(*row, n), x.shape[batch_dims + n]) for n in range(width)]
        return x(*row[:batch_dims], *found, *rest)

    return stage([*lead, *x.shape[batch_dims + width :]], element, "gather_nd")


@operator("ConstantOfShape", static={0: "shape"})
def constant_of_shape(*, shape: Sequence[int], value: float = 0.0, dtype: str = "float32") -> Any:
    """One number everywhere. The importer reads `value` and `dtype` off ONNX's tensor."""
    return constant(value, dtype, tuple(shape))


@operator("Range", static={0: "start", 1: "limit", 2: "delta"})
def range_(*, start: float, limit: float, delta: float, dtype: str = "int64") -> Any:
    """start, start + delta, … below limit."""
    start, limit, delta = (v[0] if isinstance(v, tuple) else v for v in (start, limit, delta))
    n = max(-floor(-(limit - start) / delta), 0)
    return View(
        [n],
        dtype,
        lambda i: (
            te.cast(i * delta + start, dtype)
            if isinstance(start, int) and isinstance(delta, int)
            else te.cast(te.cast(i, dtype) * delta + start, dtype)
        ),
        "range",
    )


@operator("EyeLike")
def eye_like(x: TensorLike, *, dtype: str | None = None, k: int = 0) -> Any:
    """1 on a diagonal, 0 elsewhere."""
    kind = dtype or x.dtype
    return View(x.shape, kind, lambda i, j: te.cast(j - i == k, kind), "eye_like")


@operator("Trilu", static={1: "k"})
def trilu(x: TensorLike, *, k: Any = 0, upper: int = 1) -> Any:
    """The part of matrices above, or below, a diagonal; 0 elsewhere."""
    if len(x.shape) < 2:
        raise Unsupported(f"the input has the shape {tuple(x.shape)}; expected matrices")
    first = k[0] if isinstance(k, (list, tuple)) else k

    def element(*at: Any) -> Any:
        i, j = at[-2:]
        inside = j - i >= first if upper else j - i <= first
        return te.select(inside, x(*at), te.const(0, x.dtype))

    return stage(x.shape, element, "trilu")


@operator("OneHot", static={1: "depth"})
def one_hot(indices: TensorLike, values: TensorLike, *, depth: Any, axis: int = -1) -> Any:
    """values[1] where the index along a new axis is the data's, else values[0]."""
    given = depth if isinstance(depth, (int, float)) else depth[0]
    if not 1 <= given < 1 << 31:
        raise Unsupported(f"depth is {given}; expected from 1 to 2**31 - 1")
    n = int(given)
    along = normal_axis(axis, len(indices.shape) + 1)
    shape = [*indices.shape[:along], n, *indices.shape[along:]]

    def element(*at: Any) -> Any:
        i = te.cast(indices(*at[:along], *at[along + 1 :]), "int64")
        return te.select(te.select(i < 0, i + n, i) == at[along], values(1), values(0))

    return stage(shape, element, "one_hot")
