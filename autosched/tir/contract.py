"""Sums of products, evaluated as products of matrices: NumPy's BLAS in place of whole arrays.

A product of 50×12544 by 12544×1024 has 640 million terms, which `whole` makes in pieces before it
adds them: 1.3 s, where BLAS takes 10 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Expr, Slot, Var
from autosched.tir.interp import Array, as_int
from autosched.tir.nodes import Access, Block

LARGEST = 512 << 20
"""Bytes of an operand as a matrix, at most: windows of a convolution are copied to rows of it."""
FLOATS = ("float32", "float64")


def contract(block: Block, memory: dict[int, Array]) -> bool:
    """Evaluate a block that sums products of two accesses over axes that both have, if it is one
    whose sizes are numbers: False, and nothing done, for others and for accesses out of bounds."""
    factors = _factors(block)
    if factors is None:
        return False
    extents = {it.var: as_int(it.extent) for it in block.iters}
    first, second = (view_of(x, memory[id(x.buffer)], extents) for x, _ in factors)
    written = [i.single_var() if isinstance(i, Affine) else None for i in block.writes[0].indices]
    if first is None or second is None:
        return False
    (one, a), (other, b) = first, second
    summed = [it.var for it in block.iters if it.kind == "reduce"]
    groups = (set(one) & set(other)) - set(summed), set(one) - set(other), set(other) - set(one)
    batch, rows, columns = ([it.var for it in block.iters if it.var in g] for g in groups)
    kept = {v: n for n, v in enumerate((*batch, *rows, *columns))}
    target = memory[id(block.writes[0].buffer)]
    if (
        {id(v) for v in written} != {id(v) for v in kept}
        or len(written) != len(kept)
        or not set(summed) <= set(one) & set(other)
        or any(extents[v] > n for v, n in zip(written, target.shape, strict=True) if v is not None)
    ):
        return False
    lhs = _matrix(a, one, (batch, rows, summed), extents)
    rhs = _matrix(b, other, (batch, summed, columns), extents)
    if lhs is None or rhs is None:
        return False
    dtype = block.body[0].dtype
    left, right = (
        dtypes.converted(m, of, dtype) for m, (_, of) in zip((lhs, rhs), factors, strict=True)
    )
    made = np.matmul(left, right).reshape([extents[v] for v in kept])
    axes = [v for v in written if v is not None]
    at = tuple(slice(0, extents[v]) for v in axes)
    target[at] = made.transpose([kept[v] for v in axes])
    return True


def _factors(block: Block) -> list[tuple[Access, str]] | None:
    """The two accesses whose elements are multiplied and added, with their dtypes."""
    reducer = block.reducer
    if reducer is None or reducer.name != "sum" or not block.init or len(block.writes) != 1:
        return None
    if any(it.kind not in ("spatial", "reduce") for it in block.iters):
        return None
    e = block.body[0]
    if not isinstance(e, Call) or e.op != "mul" or e.dtype not in FLOATS:
        return None
    found = [_slot(x) for x in e.args]
    if any(s is None for s in found):
        return None
    return [(block.reads[s.index], s.dtype) for s in found if s is not None]


def _slot(e: Expr) -> Slot | None:
    """What is read, maybe in another type."""
    if isinstance(e, Call) and e.op == "cast":
        e = e.args[0]
    return e if isinstance(e, Slot) else None


def view_of(
    access: Access, array: Array, extents: dict[Var, int]
) -> tuple[list[Var], Array] | None:
    """The axes of an access, and its elements with a dimension for each: a view of memory. None
    where an index is no sum of axes, or out of bounds."""
    if not array.flags.c_contiguous:
        return None
    strides: dict[Var, int] = {}
    start = 0
    for index, extent, stride in zip(access.indices, array.shape, array.strides, strict=True):
        if not isinstance(index, Affine) or any(not isinstance(v, Var) for v, _ in index.terms):
            return None
        low, high = index.span(extents)
        if as_int(low) < 0 or as_int(high) >= extent:
            return None
        start += as_int(index.const) * stride
        for v, c in index.terms:
            assert isinstance(v, Var)
            strides[v] = strides.get(v, 0) + as_int(c) * stride
    axes = list(strides)
    first = array.reshape(-1)[start // array.itemsize :]
    shape, steps = [extents[v] for v in axes], [strides[v] for v in axes]
    return axes, np.lib.stride_tricks.as_strided(first, shape, steps, writeable=False)


def _matrix(
    view: Array, axes: Sequence[Var], groups: Sequence[Sequence[Var]], extents: dict[Var, int]
) -> Any:
    """A view with one dimension for each group of axes; None where it would be too large."""
    shape = [prod(extents[v] for v in group) for group in groups]
    if prod(shape) * 8 > LARGEST:
        return None
    number = {v: n for n, v in enumerate(axes)}
    return view.transpose([number[v] for group in groups for v in group]).reshape(shape)
