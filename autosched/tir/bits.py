"""The bits of a value as one of another dtype."""

from __future__ import annotations

from autosched.errors import TensorExprError
from autosched.tir import dtypes
from autosched.tir.expr import Call, Expr, ExprLike, apply, as_expr


def reinterpret(dtype: str, value: ExprLike) -> Expr:
    """The bits of `value` as `dtype`, of as many bits; neither is bool. Raises TensorExprError for
    another."""
    dtypes.check(dtype, "a reinterpretation")
    return apply(lambda v: _reinterpreted(as_expr(v), dtype), "reinterpret", value)


def _reinterpreted(e: Expr, dtype: str) -> Expr:
    if not dtypes.reinterprets(e.dtype, dtype):
        raise TensorExprError(
            f"the bits of {e.dtype} are none of {dtype}; expected a type of as many bits, and no "
            "bool; .astype(…) converts the value"
        )
    return e if e.dtype == dtype else Call("reinterpret", (e,), dtype)
