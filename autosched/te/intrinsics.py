"""Scalar functions of tensor expressions, under TVM's names."""

from __future__ import annotations

from collections.abc import Callable

from autosched.errors import TensorExprError
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.expr import Const, Expr, ExprLike, Scalar


def const(value: Scalar, dtype: str | None = None) -> Const:
    """A constant; without `dtype`, int64 for ints, float32 for floats, bool for bools."""
    return ex.const(value, dtype)


def cast(value: ExprLike, dtype: str) -> Expr:
    """`value` converted to `dtype`; floats to integers truncate."""
    return ex.cast(value, dtype)


def min_value(dtype: str) -> Const:
    """The smallest value of `dtype`; -inf for floats."""
    return ex.const(dtypes.minimum(dtypes.check(dtype, "min_value")), dtype)


def max_value(dtype: str) -> Const:
    """The largest value of `dtype`; inf for floats."""
    return ex.const(dtypes.maximum(dtypes.check(dtype, "max_value")), dtype)


def _choose(op: str, condition: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    def chosen(c: ExprLike, x: ExprLike, y: ExprLike) -> Expr:
        return ex.call(op, ex.as_expr(c), *ex.matched(op, x, y))

    return ex.apply(chosen, op, condition, a, b)


def select(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """One of two values, both evaluated. For guarding an access use `if_then_else`."""
    return _choose("select", condition, true_value, false_value)


def if_then_else(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """One of two values, only that one evaluated: the condition may guard an access."""
    return _choose("if_then_else", condition, true_value, false_value)


def _chain(op: str, conditions: tuple[ExprLike, ...]) -> Expr:
    if not conditions:
        raise TensorExprError(f"te.{'all' if op == 'and' else 'any'} needs at least one condition")
    return ex.apply(lambda *given: _chained(op, given), op, *conditions)


def _chained(op: str, conditions: tuple[ExprLike, ...]) -> Expr:
    total = ex.as_expr(conditions[0])
    for c in conditions[1:]:
        total = ex.call(op, total, ex.as_expr(c))
    if total.dtype != "bool":
        raise TensorExprError(f"condition {total!r} has dtype {total.dtype}; expected bool")
    return total


def all(*conditions: ExprLike) -> Expr:
    """Whether all conditions hold; every one is evaluated."""
    return _chain("and", conditions)


def any(*conditions: ExprLike) -> Expr:
    """Whether some condition holds; every one is evaluated."""
    return _chain("or", conditions)


def logical_not(condition: ExprLike) -> Expr:
    """Whether a condition does not hold."""
    return ex.unary("not", condition)


def _unary(op: str, doc: str) -> Callable[[ExprLike], Expr]:
    def function(x: ExprLike) -> Expr:
        return ex.unary(op, x)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"{doc} Defined on floats; the dtype stays."
    return function


exp = _unary("exp", "e to the power of x.")
log = _unary("log", "Natural logarithm.")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
tanh = _unary("tanh", "Hyperbolic tangent.")
erf = _unary("erf", "Error function.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
floor = _unary("floor", "Largest integral value <= x.")
ceil = _unary("ceil", "Smallest integral value >= x.")
round = _unary("round", "Nearest integral value, halves to even.")
sin = _unary("sin", "Sine of radians.")
cos = _unary("cos", "Cosine of radians.")


def abs(x: ExprLike) -> Expr:
    """Absolute value, of floats and integers."""
    return ex.unary("abs", x)


def power(x: ExprLike, y: ExprLike) -> Expr:
    """x to the power of y, as `x ** y`: of floats any, of integers a constant number of factors."""
    return ex.power(x, y)


pow = power


def clamp_index(index: ExprLike, extent: ExprLike) -> Expr:
    """An index that data decide, kept inside a dimension of `extent`: `index`, or the nearest of 0
    to `extent` - 1. NumPy's `take(mode="clip")`."""
    return ex.clamp_index(index, extent)


def wrap_index(index: ExprLike, extent: ExprLike) -> Expr:
    """An index that data decide, kept inside a dimension of `extent`: `index % extent`, so that -1
    is the last element, as in ONNX's Gather. NumPy's `take(mode="wrap")`."""
    return ex.wrap_index(index, extent)


def floordiv(x: ExprLike, y: ExprLike) -> Expr:
    """x // y, rounding to minus infinity."""
    return ex.binary("floordiv", x, y)


def floormod(x: ExprLike, y: ExprLike) -> Expr:
    """x % y with the sign of y."""
    return ex.binary("floormod", x, y)


def _bitwise(op: str, doc: str) -> Callable[[ExprLike, ExprLike], Expr]:
    def function(x: ExprLike, y: ExprLike) -> Expr:
        return ex.binary(op, x, y)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


bitwise_and = _bitwise("bitwise_and", "x & y, of integers of one dtype or of conditions.")
bitwise_or = _bitwise("bitwise_or", "x | y, of integers of one dtype or of conditions.")
bitwise_xor = _bitwise("bitwise_xor", "x ^ y, of integers of one dtype or of conditions.")
shift_left = _bitwise("shift_left", "x << y, of integers; 0 where y is not from 0 to the width.")
shift_right = _bitwise("shift_right", "x >> y, keeping the sign; y beyond the width leaves that.")


def bitwise_not(x: ExprLike) -> Expr:
    """~x, of integers or of a condition."""
    return ex.unary("bitwise_not", x)
