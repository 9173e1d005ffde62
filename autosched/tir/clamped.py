"""Indices that are in bounds whatever they are computed from."""

from __future__ import annotations

from autosched.errors import TensorExprError
from autosched.tir import dtypes
from autosched.tir.expr import Const, Expr, ExprLike, as_expr, binary, cast


def clamp_index(index: ExprLike, extent: ExprLike) -> Expr:
    """`index`, or the nearest to it of 0 to `extent` - 1; an index into a dimension of `extent`."""
    i, n = _index("clamp_index", index, extent)
    return binary("max", binary("min", i, n - 1), 0)


def wrap_index(index: ExprLike, extent: ExprLike) -> Expr:
    """`index % extent`: from -`extent` to -1 it counts from the end of a dimension of `extent`."""
    i, n = _index("wrap_index", index, extent)
    return i % n


def _index(what: str, index: ExprLike, extent: ExprLike) -> tuple[Expr, Expr]:
    i, n = as_expr(index, dtypes.INDEX), as_expr(extent, dtypes.INDEX)
    for name, e in (("index", i), ("extent", n)):
        if not dtypes.is_int(e.dtype):
            raise TensorExprError(f"{what}: the {name} is {e.dtype}; expected an integer")
    if isinstance(n, Const) and int(n.value) < 1:
        raise TensorExprError(f"{what}: the extent is {n.value}; expected an integer from 1 up")
    return cast(i, dtypes.INDEX), cast(n, dtypes.INDEX)
