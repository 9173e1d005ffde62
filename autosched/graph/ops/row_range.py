"""A reduction over a range of rows whose bounds are data, as a routine: EmbeddingBag's bags."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import Known, Results, host_operator
from autosched.graph.ops.routines import fixed, nest, routine
from autosched.graph.ops.scatter import index_from_first
from autosched.graph.ops.tensors import TensorLike

Array = npt.NDArray[Any]
NAME = "autosched.ReduceRowRange"
KINDS = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max"}
"""Of this operator, by the operator that reduces."""
DTYPES = ("float32", "float64")


def reduce_row_range_kernel(
    x: TensorLike,
    start: TensorLike,
    end: TensorLike,
    rows: TensorLike | None = None,
    *,
    kind: str,
    keepdims: int = 0,
) -> Any:
    """x[rows[start:end]] reduced along its first axis, one row after the other."""
    shape = fixed(x.shape)
    if x.dtype not in DTYPES or fixed(start.shape) != (1,) or fixed(end.shape) != (1,):
        raise Unsupported(f"no routine reduces rows of {x.dtype}{list(shape)} in such a range")
    inputs = {"x": x, "start": start, "end": end} | ({} if rows is None else {"rows": rows})
    result = _shape(shape, keepdims)
    names = [f"c{d}" for d in range(len(shape) - 1)]
    out = f"out[{', '.join(['0'] * keepdims + names) or '()'}]"

    def each(statement: str) -> str:
        return nest(names, shape[1:], statement, last="vectorized")

    total = shape[0] if rows is None else fixed(rows.shape)[0]
    row = f"row = T.clamp_index(n, {total})\n"
    if rows is not None:
        row = index_from_first("Gather", "row", f"rows[T.clamp_index(n, {total})]", shape[0])
    read = f"x[{', '.join(['row', *names])}]"
    added = f"T.max({out}, {read})" if kind == "max" else f"{out} + {read}"
    first = f'T.{x.dtype}("-inf")' if kind == "max" else f"T.{x.dtype}(0)"
    text = f"{_bound('low', 'start', total)}{_bound('high', 'end', total)}"
    text += f"{each(f'{out} = {first}')}\nfor n in T.serial(low, high):\n"
    text += indent(row + each(f"{out} = {added}"), "    ")
    if kind == "mean":
        text += f"\ncount = T.{x.dtype}(T.max(high - low, 0))\n" + each(f"{out} = {out} / count")
    (made,) = routine("reduce_row_range", inputs, {"out": (result, x.dtype)}, text)
    return made


def _shape(shape: Sequence[int], keepdims: int) -> tuple[int, ...]:
    return (*((1,) if keepdims else ()), *shape[1:])


def _bound(name: str, given: str, extent: int) -> str:
    """A statement that names a bound of a slice, counted from the first element."""
    found = f"T.int64({given}[0])"
    from_first = f"T.select({found} < 0, {found} + {extent}, {found})"
    return f"{name} = T.min(T.max({from_first}, 0), {extent})\n"


def _result(
    x: Known,
    start: Known,
    end: Known,
    rows: Known | None = None,
    *,
    kind: str,
    keepdims: int = 0,
) -> Results:
    return [(_shape(x.shape, keepdims), x.dtype)]


@host_operator(NAME, _result, reduce_row_range_kernel)
def reduce_row_range(
    x: Array, start: Array, end: Array, rows: Array | None = None, *, kind: str, keepdims: int = 0
) -> Array:
    """x[rows[start:end]] reduced along its first axis: kind "sum", "mean" (of no row NaN) or "max"
    (of no row -inf); without `rows`, x[start:end]. Raises Unsupported for a row that x has not."""
    found = (x if rows is None else rows)[int(start[0]) : int(end[0])]
    if rows is not None:
        if ((found < -len(x)) | (found >= len(x))).any():
            raise Unsupported(f"Gather: an index is beyond the {len(x)} elements of its axis")
        found = x[found]
    if kind == "max":
        return np.asarray(found.max(0, keepdims=bool(keepdims), initial=-np.inf))
    total = found.sum(0, keepdims=bool(keepdims), dtype=x.dtype)
    if kind == "mean":
        with np.errstate(invalid="ignore"):
            total = total / x.dtype.type(len(found))
    return np.asarray(total)
