"""Scalar functions of tensor expressions, under TVM's names."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from autosched.checks import shown
from autosched.errors import TensorExprError
from autosched.integers import as_int
from autosched.tir import bits, clamped, dtypes
from autosched.tir import expr as ex
from autosched.tir.expr import Const, Expr, ExprLike, Scalar


def const(value: Scalar, dtype: str | None = None) -> Const:
    """A constant; without `dtype`, int64 for ints, float32 for floats, bool for bools."""
    return ex.const(value, dtype)


def cast(value: ExprLike, dtype: str) -> Expr:
    """`value` converted to `dtype`; floats to integers truncate, what does not fit becomes the
    least or the largest integer, and NaN 0."""
    return ex.cast(value, dtype)


def reinterpret(dtype: str, value: ExprLike) -> Expr:
    """The bits of `value` as `dtype`, which has as many; neither is bool. Raises
    TensorExprError."""
    return bits.reinterpret(dtype, value)


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
tan = _unary("tan", "Tangent of radians.")
asin = _unary("asin", "Arc sine, in radians.")
acos = _unary("acos", "Arc cosine, in radians.")
atan = _unary("atan", "Arc tangent, in radians.")
sinh = _unary("sinh", "Hyperbolic sine.")
cosh = _unary("cosh", "Hyperbolic cosine.")
asinh = _unary("asinh", "Inverse hyperbolic sine.")
acosh = _unary("acosh", "Inverse hyperbolic cosine.")
atanh = _unary("atanh", "Inverse hyperbolic tangent.")
exp2 = _unary("exp2", "2 to the power of x.")
exp10 = _unary("exp10", "10 to the power of x.")
expm1 = _unary("expm1", "exp(x) - 1, exact near 0.")
log2 = _unary("log2", "Logarithm to base 2.")
log10 = _unary("log10", "Logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x), exact near 0.")
trunc = _unary("trunc", "The integral value next to x towards 0.")
nearbyint = round


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
    return clamped.clamp_index(index, extent)


def wrap_index(index: ExprLike, extent: ExprLike) -> Expr:
    """An index that data decide, kept inside a dimension of `extent`: `index % extent`, so that -1
    is the last element, as in ONNX's Gather. NumPy's `take(mode="wrap")`."""
    return clamped.wrap_index(index, extent)


def floordiv(x: ExprLike, y: ExprLike) -> Expr:
    """x // y, rounding to minus infinity."""
    return ex.binary("floordiv", x, y)


def floormod(x: ExprLike, y: ExprLike) -> Expr:
    """x % y with the sign of y."""
    return ex.binary("floormod", x, y)


def div(x: ExprLike, y: ExprLike) -> Expr:
    """x / y as C has it: of integers the quotient rounded towards 0."""
    return ex.apply(_quotient, "div", x, y)


def _quotient(x: ExprLike, y: ExprLike) -> Expr:
    a, b = ex.matched("/", x, y)
    return ex.binary("div", a, b) if dtypes.is_float(a.dtype) else truncdiv(a, b)


def truncdiv(x: ExprLike, y: ExprLike) -> Expr:
    """The quotient of integers, rounded towards 0."""
    return ex.apply(lambda a, b: _truncated(a, b)[0], "truncdiv", x, y)


def truncmod(x: ExprLike, y: ExprLike) -> Expr:
    """The rest of `truncdiv`: x - y * truncdiv(x, y), with the sign of x."""
    return ex.apply(lambda a, b: _truncated(a, b)[1], "truncmod", x, y)


def _truncated(x: ExprLike, y: ExprLike) -> tuple[Expr, Expr]:
    """Quotient and rest, by those rounded to minus infinity, which proofs know."""
    a, b = ex.matched("truncdiv", x, y)
    quotient, rest = ex.binary("floordiv", a, b), ex.binary("floormod", a, b)
    if a.dtype in dtypes.UNSIGNED:
        return quotient, rest
    up = all(rest != 0, ex.binary("lt", a, 0) != ex.binary("lt", b, 0))
    return (
        ex.binary("add", quotient, select(up, ex.const(1, a.dtype), ex.const(0, a.dtype))),
        ex.binary("sub", rest, select(up, b, ex.const(0, a.dtype))),
    )


def ceildiv(x: ExprLike, y: ExprLike) -> Expr:
    """The quotient of integers, rounded to plus infinity; y is positive."""
    return ex.apply(_rounded_up, "ceildiv", x, y)


def _rounded_up(x: ExprLike, y: ExprLike) -> Expr:
    a, b = ex.matched("ceildiv", x, y)
    if not dtypes.is_int(a.dtype):
        raise TensorExprError(f"te.ceildiv takes integers, found {a.dtype}")
    return (a + (b - 1)) // b


def likely(condition: ExprLike) -> ExprLike:
    """The condition itself: which side is taken more often is not used here."""
    return condition


indexdiv = floordiv
indexmod = floormod
fabs = abs


def isnan(x: ExprLike) -> Expr:
    """Whether a float is no number."""
    return ex.apply(lambda v: ex.binary("ne", v, v), "isnan", x)


def isinf(x: ExprLike) -> Expr:
    """Whether a float is infinite."""
    return ex.apply(lambda v: ex.binary("eq", abs(v), float("inf")), "isinf", x)


def isfinite(x: ExprLike) -> Expr:
    """Whether a float is neither infinite nor no number."""
    return ex.apply(lambda v: ex.binary("lt", abs(v), float("inf")), "isfinite", x)


def ldexp(x: ExprLike, n: ExprLike) -> Expr:
    """x times 2 to the power of the integer n: exact, but where the result is subnormal."""
    return ex.apply(_scaled, "ldexp", x, n)


def _scaled(x: ExprLike, n: ExprLike) -> Expr:
    value, exponent = ex.as_expr(x), ex.as_expr(n, "int32")
    if not dtypes.is_float(value.dtype) or not dtypes.is_int(exponent.dtype):
        raise TensorExprError(
            f"te.ldexp takes a float and an integer, found {value.dtype} and {exponent.dtype}"
        )
    # In float64, and in two steps: 2^n itself may be beyond the largest number.
    low = exponent >> 1
    wide = cast(value, "float64")
    for part in (low, exponent - low):
        wide = wide * exp2(cast(part, "float64"))
    return cast(wide, value.dtype)


def q_multiply_shift(x: ExprLike, y: ExprLike, q: int, s: int) -> Expr:
    """The fixed-point product of int32: round(x * y * 2^(s - q)), halves up, y having `q`
    fractional bits."""
    for name, value, least in (("q", q, 0), ("s", s, -62)):
        number = as_int(value)
        if number is None or not least <= number <= 62:
            raise TensorExprError(
                f"{name} of q_multiply_shift is {shown(value)}; expected an int from {least} to 62"
            )
    left, right = builtins.max(s, 0), builtins.max(-s, 0)
    shift = q + right

    def product(a: ExprLike, b: ExprLike) -> Expr:
        whole = (cast(a, "int64") << left) * cast(b, "int64")
        return cast((whole + (1 << shift - 1 if shift else 0)) >> shift, "int32")

    return ex.apply(product, "q_multiply_shift", x, y)


def _binary(op: str, doc: str) -> Callable[[ExprLike, ExprLike], Expr]:
    def function(x: ExprLike, y: ExprLike) -> Expr:
        return ex.binary(op, x, y)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


bitwise_and = _binary("bitwise_and", "x & y, of integers of one dtype or of conditions.")
bitwise_or = _binary("bitwise_or", "x | y, of integers of one dtype or of conditions.")
bitwise_xor = _binary("bitwise_xor", "x ^ y, of integers of one dtype or of conditions.")
shift_left = _binary("shift_left", "x << y, of integers; 0 where y is not from 0 to the width.")
shift_right = _binary("shift_right", "x >> y, keeping the sign; y beyond the width leaves that.")


atan2 = _binary("atan2", "The angle of the point (y, x), in radians: te.atan2(y, x).")
hypot = _binary("hypot", "sqrt(x^2 + y^2), without overflow on the way in float32.")
fmod = _binary("fmod", "The rest of x / y with the sign of x, of floats; exact.")
copysign = _binary("copysign", "|x| with the sign of y.")
nextafter = _binary("nextafter", "The float next to x towards y.")


def popcount(x: ExprLike) -> Expr:
    """How many bits of an integer are set, in its dtype."""
    return ex.unary("popcount", x)


def clz(x: ExprLike) -> Expr:
    """How many bits of an integer above the highest set one are 0, in its dtype; all of 0."""
    return ex.unary("clz", x)


def bitwise_not(x: ExprLike) -> Expr:
    """~x, of integers or of a condition."""
    return ex.unary("bitwise_not", x)
