"""NumPy's own functions for operators that run between kernels.

A definition is evaluated by a loop function, which is made for each shape and takes some 0.1 ms a
call: what follows a result whose shape is not known is a hundred small operators, of other shapes
in each call. A shortcut returns None for a form that it leaves to the definition, which says what
is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.ops.registry import Operator
from autosched.tir.dtypes import converted

Array = npt.NDArray[Any]
Made = Any
"""An array, several of them, or None."""
FLOATS = frozenset(map(np.dtype, ("float32", "float64")))
NUMBERS = FLOATS | frozenset(map(np.dtype, ("int32", "int64")))
BOOLS = frozenset([np.dtype(bool)])
ELEMENTWISE: dict[str, tuple[Callable[..., Any], int, frozenset[np.dtype[Any]]]] = {
    "Abs": (np.abs, 1, NUMBERS),
    "Add": (np.add, 2, NUMBERS),
    "And": (np.logical_and, 2, BOOLS),
    "Div": (np.divide, 2, FLOATS),
    "Equal": (np.equal, 2, NUMBERS),
    "Exp": (np.exp, 1, FLOATS),
    "Floor": (np.floor, 1, FLOATS),
    "Greater": (np.greater, 2, NUMBERS),
    "GreaterOrEqual": (np.greater_equal, 2, NUMBERS),
    "Less": (np.less, 2, NUMBERS),
    "LessOrEqual": (np.less_equal, 2, NUMBERS),
    "Log": (np.log, 1, FLOATS),
    "Mul": (np.multiply, 2, NUMBERS),
    "Neg": (np.negative, 1, NUMBERS),
    "Not": (np.logical_not, 1, BOOLS),
    "Or": (np.logical_or, 2, BOOLS),
    "Sqrt": (np.sqrt, 1, FLOATS),
    "Sub": (np.subtract, 2, NUMBERS),
}
"""A function, how many operands it takes, and of what dtypes, all the same."""


def shortcut(
    op: Operator, arrays: Sequence[Array | None], attrs: Mapping[str, Any], outputs: int
) -> tuple[Array, ...] | None:
    """The results of an operator on arrays, which share no memory with them; None where there is no
    shortcut."""
    if any(a is not None and type(a) is not np.ndarray for a in arrays):
        return None
    try:
        with np.errstate(all="ignore"):
            made = _made(op, [a for a in arrays if a is not None], attrs)
    except (TypeError, ValueError, IndexError):
        return None  # the definition refuses it, with a reason
    if made is None:
        return None
    results = made if isinstance(made, (list, tuple)) else (made,)
    if len(results) != outputs:
        return None
    return tuple(_own(np.asarray(r, order="C"), arrays) for r in results)


def _own(array: Array, arrays: Sequence[Array | None]) -> Array:
    """A result in memory of its own: that of an argument may be written to afterwards."""
    shared = array.base is not None or any(array is a for a in arrays)
    return array.copy() if shared else array


def _made(op: Operator, arrays: list[Array], attrs: Mapping[str, Any]) -> Made:
    row = ELEMENTWISE.get(op.name)
    if row is not None:
        function, operands, dtypes = row
        kinds = {a.dtype for a in arrays}
        fits = len(arrays) == operands and len(kinds) == 1 and kinds <= dtypes and not attrs
        return function(*arrays) if fits else None
    other = OTHERS.get(op.name)
    if other is None:
        return None
    given, left = dict(attrs), arrays
    if op.static and not any(name in attrs for name in op.static.values()):
        given |= {op.static[n]: a.tolist() for n, a in enumerate(arrays) if n in op.static}
        left = [a for n, a in enumerate(arrays) if n not in op.static]
    return other(*left, **given)


def _reshape(x: Array, *, shape: Sequence[int]) -> Made:
    return x.reshape(shape) if x.size and 0 not in shape else None


def _flatten(x: Array, *, axis: int = 1) -> Made:
    return x.reshape(int(np.prod(x.shape[:axis])), -1) if x.size else None


def _squeeze(x: Array, *, axes: Sequence[int] | None = None) -> Made:
    return np.squeeze(x, None if axes is None else tuple(axes))


def _unsqueeze(x: Array, *, axes: Sequence[int]) -> Made:
    return np.expand_dims(x, tuple(axes))


def _transpose(x: Array, *, perm: Sequence[int] | None = None) -> Made:
    return x.transpose(perm)


def _expand(x: Array, *, shape: Sequence[int]) -> Made:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape)))


def _slice(
    x: Array,
    *,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Made:
    along = range(len(starts)) if axes is None else axes
    by = [1] * len(starts) if steps is None else steps
    if min(by, default=1) < 1:
        return None
    at = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, starts, ends, by, strict=True):
        at[axis] = slice(start, end, step)
    return x[tuple(at)]


def _split(x: Array, *, split: Sequence[int], axis: int = 0, outputs: int = 1) -> Made:
    if sum(split) != x.shape[axis]:
        return None
    return np.split(x, np.cumsum(split)[:-1], axis)


def _shape(x: Array, *, start: int = 0, end: int | None = None) -> Made:
    return np.array(x.shape[start:end], np.int64)


def _concat(*arrays: Array, axis: int) -> Made:
    alike = len({a.dtype for a in arrays}) == 1 and all(a.size for a in arrays)
    return np.concatenate(arrays, axis) if alike else None


def _gather(x: Array, indices: Array, *, axis: int = 0) -> Made:
    return np.take(x, _inside(indices, x.shape[axis]), axis)


def _gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Made:
    at = _inside(indices, x.shape[axis])
    along = axis % x.ndim
    lead = tuple(slice(None if d == along else n) for d, n in enumerate(at.shape))
    return np.take_along_axis(x[lead], at, axis)  # ValueError where indices are more


def _gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Made:
    width = indices.shape[-1]
    if batch_dims or not width:
        return None
    return x[tuple(_inside(indices[..., d], x.shape[d]) for d in range(width))]


def _inside(indices: Array, extent: int) -> Array:
    """Indices counted from the first element; those beyond an axis are brought inside, as in the
    definitions. Raises TypeError for other numbers."""
    if indices.dtype.kind != "i" or not extent:
        raise TypeError(f"{indices.dtype} indices into {extent} elements")
    i = indices.astype(np.int64)
    return np.clip(np.where(i < 0, i + extent, i), 0, extent - 1)


def _where(condition: Array, x: Array, y: Array) -> Made:
    alike = condition.dtype == bool and x.dtype == y.dtype
    return np.where(condition, x, y) if alike else None


def _matmul(a: Array, b: Array) -> Made:
    alike = a.dtype == b.dtype and a.dtype in FLOATS
    return np.matmul(a, b) if alike else None


def _gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Made:
    if {x.dtype for x in (a, b, c) if x is not None} != {np.dtype("float32")}:
        return None
    product = np.matmul(a.T if transA else a, b.T if transB else b) * np.float32(alpha)
    if c is None or beta == 0:
        return product
    total = product + c * np.float32(beta)
    return total if total.shape == product.shape else None


def _cast(x: Array, *, to: str) -> Made:
    known = NUMBERS | BOOLS
    if x.dtype not in known or np.dtype(to) not in known:
        return None
    return np.array(converted(x, x.dtype.name, to))


def _relu(x: Array) -> Made:
    return np.maximum(x, x.dtype.type(0)) if x.dtype in NUMBERS else None


def _extreme(function: Callable[..., Any]) -> Callable[..., Made]:
    def made(*arrays: Array) -> Made:
        kinds = {a.dtype for a in arrays}
        fits = len(arrays) > 1 and len(kinds) == 1 and kinds <= NUMBERS
        return reduce(function, arrays) if fits else None

    return made


OTHERS: dict[str, Callable[..., Made]] = {
    "Cast": _cast,
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Max": _extreme(np.maximum),
    "Min": _extreme(np.minimum),
    "Relu": _relu,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Others: inputs by position, and attributes, those of static inputs as well, by name. An attribute
that a function does not have is left to the definition."""
