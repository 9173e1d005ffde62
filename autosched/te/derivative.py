"""Derivatives of scalar expressions, by rule, one a row of the table of operations."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

from autosched.errors import TensorExprError
from autosched.te.tensor import TensorRead
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.expr import Call, Const, Expr

Partial = Expr | None
"""None where it is zero everywhere."""


def derivative(e: Expr, read: TensorRead) -> Partial:
    """d e / d read, as an expression of what `e` reads; None where that is zero.

    Integers, conditions, `floor` and its like have the derivative zero. Where a function has none
    (`abs` and `max` at a kink) it is one of those beside it. Raises TensorExprError for an
    operation without a rule.
    """
    return _Derivative(read).of(e)


class _Derivative:
    def __init__(self, read: TensorRead) -> None:
        self.read = read
        self.known: dict[int, tuple[Expr, Partial]] = {}

    def of(self, e: Expr) -> Partial:
        """Each node once, however often it is used."""
        if id(e) not in self.known:
            self.known[id(e)] = (e, self._of(e))
        return self.known[id(e)][1]

    def _of(self, e: Expr) -> Partial:
        if isinstance(e, TensorRead):
            return ex.const(1.0, e.dtype) if e.same_leaf(self.read) else None
        if not isinstance(e, Call) or not dtypes.is_float(e.dtype):
            return None
        parts = [self.of(x) for x in e.args]
        if all(p is None for p in parts):
            return None
        if e.op == "cast":
            (inner,) = parts
            assert inner is not None
            return ex.cast(inner, e.dtype)
        if e.op not in RULES:
            raise TensorExprError(f"{e.op} has no derivative")
        return RULES[e.op](e, *e.args, *parts)


def plus(a: Partial, b: Partial) -> Partial:
    """a + b."""
    if a is None or b is None:
        return a if b is None else b
    return a + b


def times(a: Partial, b: Partial) -> Partial:
    """a * b."""
    if a is None or b is None:
        return None
    if isinstance(a, Const) and a.value == 1:
        return b
    return a if isinstance(b, Const) and b.value == 1 else a * b


def minus(a: Partial) -> Partial:
    """-a."""
    return None if a is None else -a


def _zero(e: Expr, a: Partial) -> Expr:
    return ex.const(0.0, e.dtype) if a is None else a


def _number(e: Expr, value: float) -> Expr:
    return ex.const(value, e.dtype)


def _either(e: Call, condition: Expr, a: Partial, b: Partial, op: str = "select") -> Expr:
    return ex.call(op, condition, _zero(e, a), _zero(e, b))


def _chosen(e: Call, c: Expr, a: Expr, b: Expr, dc: Partial, da: Partial, db: Partial) -> Expr:
    return _either(e, c, da, db, e.op)


def _div(e: Call, a: Expr, b: Expr, da: Partial, db: Partial) -> Partial:
    return plus(None if da is None else da / b, None if db is None else -(db * (e / b)))


def _pow(e: Call, a: Expr, b: Expr, da: Partial, db: Partial) -> Partial:
    # a ** 0 has the derivative 0 at a = 0, too, and so has 0 ** b by b, where log(0) is infinite.
    zero = _number(e, 0.0)
    base = _where(b == zero, da, b * ex.call("pow", a, b - 1.0))
    none = ex.binary("and", a == zero, b >= zero)
    return plus(base, _where(none, db, e * ex.call("log", a)))


def _where(is_zero: Expr, d: Partial, factor: Expr) -> Partial:
    """d * factor; 0 where that is known to be 0."""
    if d is None:
        return None
    if isinstance(is_zero, Const):
        return None if is_zero.value else d * factor
    return d * ex.call("select", is_zero, ex.const(0.0, factor.dtype), factor)


def _atan2(e: Call, y: Expr, x: Expr, dy: Partial, dx: Partial) -> Partial:
    square = x * x + y * y
    at_zero = square == _number(e, 0.0)
    return plus(_where(at_zero, dy, x / square), minus(_where(at_zero, dx, y / square)))


def _fmod(e: Call, a: Expr, b: Expr, da: Partial, db: Partial) -> Partial:
    return plus(da, minus(times(db, ex.call("trunc", a / b))))


def _hypot(e: Call, a: Expr, b: Expr, da: Partial, db: Partial) -> Partial:
    at_zero = e == _number(e, 0.0)
    return plus(_where(at_zero, da, a / e), _where(at_zero, db, b / e))


def _copysign(e: Call, a: Expr, b: Expr, da: Partial, db: Partial) -> Partial:
    return None if da is None else ex.call("select", a == e, da, -da)


def _abs(e: Call, a: Expr, da: Partial) -> Expr:
    assert da is not None
    zero = _number(e, 0.0)
    return ex.call("select", a > zero, da, ex.call("select", a < zero, -da, zero))


def _unary(factor: Callable[[Call, Expr], Expr]) -> Callable[..., Partial]:
    return lambda e, a, da: times(da, factor(e, a))


def _none(*given: Any) -> None:
    return None


def _rsqrt(e: Expr) -> Expr:
    return ex.call("rsqrt", e)


RULES: dict[str, Callable[..., Partial]] = {
    "abs": _abs,
    "acos": _unary(lambda e, a: -_rsqrt(_number(e, 1.0) - a * a)),
    "acosh": _unary(lambda e, a: _rsqrt(a * a - _number(e, 1.0))),
    "add": lambda e, a, b, da, db: plus(da, db),
    "asin": _unary(lambda e, a: _rsqrt(_number(e, 1.0) - a * a)),
    "asinh": _unary(lambda e, a: _rsqrt(a * a + _number(e, 1.0))),
    "atan": _unary(lambda e, a: _number(e, 1.0) / (a * a + _number(e, 1.0))),
    "atan2": _atan2,
    "atanh": _unary(lambda e, a: _number(e, 1.0) / (_number(e, 1.0) - a * a)),
    "ceil": _none,
    "copysign": _copysign,
    "cos": _unary(lambda e, a: -ex.call("sin", a)),
    "cosh": _unary(lambda e, a: ex.call("sinh", a)),
    "div": _div,
    "erf": _unary(lambda e, a: _number(e, 2 / pi**0.5) * ex.call("exp", -(a * a))),
    "exp": _unary(lambda e, a: e),
    "exp10": _unary(lambda e, a: e * _number(e, log(10))),
    "exp2": _unary(lambda e, a: e * _number(e, log(2))),
    "expm1": _unary(lambda e, a: ex.call("exp", a)),
    "floor": _none,
    "floordiv": _none,
    "floormod": lambda e, a, b, da, db: plus(
        da, None if db is None else -(db * ex.call("floordiv", a, b))
    ),
    "fmod": _fmod,
    "hypot": _hypot,
    "if_then_else": _chosen,
    "log": _unary(lambda e, a: _number(e, 1.0) / a),
    "log10": _unary(lambda e, a: _number(e, 1 / log(10)) / a),
    "log1p": _unary(lambda e, a: _number(e, 1.0) / (a + _number(e, 1.0))),
    "log2": _unary(lambda e, a: _number(e, 1 / log(2)) / a),
    "max": lambda e, a, b, da, db: _either(e, a > b, da, db),
    "min": lambda e, a, b, da, db: _either(e, a < b, da, db),
    "mul": lambda e, a, b, da, db: plus(times(da, b), times(a, db)),
    "neg": lambda e, a, da: minus(da),
    "pow": _pow,
    "round": _none,
    "rsqrt": _unary(lambda e, a: _number(e, -0.5) * e / a),
    "select": _chosen,
    "sigmoid": _unary(lambda e, a: e * (_number(e, 1.0) - e)),
    "sin": _unary(lambda e, a: ex.call("cos", a)),
    "sinh": _unary(lambda e, a: ex.call("cosh", a)),
    "sqrt": _unary(lambda e, a: _number(e, 0.5) / e),
    "sub": lambda e, a, b, da, db: plus(da, minus(db)),
    "tan": _unary(lambda e, a: _number(e, 1.0) + e * e),
    "tanh": _unary(lambda e, a: _number(e, 1.0) - e * e),
    "trunc": _none,
}
"""Operation -> (call, arguments, their derivatives) -> its derivative."""
