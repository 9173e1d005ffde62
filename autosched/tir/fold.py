"""Folding of expressions: constants, identities, and conditions that the ranges of axes decide.

Floats are folded only where IEEE 754 leaves no choice (`x * 1`, arithmetic of two constants), so
that a folded expression has the same bits as the one that was written.
"""

from __future__ import annotations

import numpy as np

from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.expr import Call, Const, Expr, Slot, walk
from autosched.tir.from_expr import from_expr
from autosched.tir.linear import plus
from autosched.tir.operations import CONVERSIONS, OPS
from autosched.tir.prove import Facts

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_EXACT = ("add", "sub", "mul", "div", "neg", "abs", *_COMPARISONS)
"""Operations that every correct implementation rounds alike; on integers these and more."""
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
_INTEGER = (*_EXACT, *_BITS, "min", "max", "floordiv", "floormod")
_FALSE_IF_NOT = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def fold(e: Expr, facts: Facts) -> Expr:
    """`e`, simpler where possible, given what is known of its variables."""
    if not isinstance(e, Call):
        return e
    if e.op in ("select", "if_then_else"):
        condition = fold(e.args[0], facts)
        if isinstance(condition, Const):
            return fold(e.args[1] if condition.value else e.args[2], facts)
        is_guard = e.op == "if_then_else"
        yes = fold(e.args[1], _under(e.args[1], facts, condition, True, is_guard))
        no = fold(e.args[2], _under(e.args[2], facts, condition, False, is_guard))
        return yes if ex.same(yes, no) else ex.call(e.op, condition, yes, no)
    if e.op in ("and", "or"):
        first = fold(e.args[0], facts)
        second = fold(e.args[1], _under(e.args[1], facts, first, e.op == "and", False))
        return _logic(e.op, first, second)
    args = tuple(fold(a, facts) for a in e.args)
    new = Call(e.op, args, e.dtype) if e.op in CONVERSIONS else ex.call(e.op, *args)
    if not isinstance(new, Call):
        return new
    decided = _decided(new, facts)
    if decided is not None:
        return decided
    if new.dtype == dtypes.INDEX:
        return _index(new, facts)
    constant = fold_constant(new)
    if constant is not None:
        return constant
    shorter = _identity(new)
    return new if shorter is None else shorter


def _under(e: Expr, facts: Facts, condition: Expr, truth: bool, is_guard: bool) -> Facts:
    """What is known in an argument whose value counts only if `condition` is `truth`. But for the
    branches of `if_then_else` it is computed in any case, so what it reads must stay guarded."""
    if not is_guard and any(isinstance(x, Slot) for x in walk(e)):
        return facts
    return facts.given(condition, truth)


def _logic(op: str, a: Expr, b: Expr) -> Expr:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            return y if bool(x.value) == (op == "and") else x
    return a if ex.same(a, b) else ex.call(op, a, b)


def _decided(e: Call, facts: Facts) -> Const | None:
    """The value of a comparison of integers, if the ranges of its variables decide it."""
    if e.op not in _COMPARISONS or not dtypes.is_int(e.args[0].dtype):
        return None
    difference = plus(facts.of_expr(e.args[0]), facts.of_expr(e.args[1]), -1)
    negated = plus(facts.of_expr(e.args[1]), facts.of_expr(e.args[0]), -1)

    def holds(op: str) -> bool:
        match op:
            case "lt":
                return facts.at_most(difference, -1)
            case "le":
                return facts.at_most(difference, 0)
            case "gt":
                return facts.at_most(negated, -1)
            case "ge":
                return facts.at_most(negated, 0)
            case "eq":
                return facts.within(difference, 0, 0)
            case _:
                return facts.at_most(difference, -1) or facts.at_most(negated, -1)

    if holds(e.op):
        return Const(True, "bool")
    return Const(False, "bool") if holds(_FALSE_IF_NOT[e.op]) else None


def _index(e: Call, facts: Facts) -> Expr:
    """Index arithmetic by its affine form, if that is shorter: `(i*4 + j) // 4` is `i`."""
    form = from_expr(e)
    if form is None:
        return e
    ranges = {v: facts.range(id(v)) for v in form.variables()}
    known = {v: high + 1 for v, (low, high) in ranges.items() if low >= 0}
    short = form.substitute({}, known).to_expr()
    return short if _size(short) < _size(e) else e


def _size(e: Expr) -> int:
    return sum(1 for _ in ex.walk(e))


def fold_constant(e: Call) -> Const | None:
    """The value of an operation on constants."""
    values = [a.value for a in e.args if isinstance(a, Const)]
    if len(values) < len(e.args):
        return None
    dtype = e.args[0].dtype
    if "bfloat16" in (dtype, e.dtype):
        return None  # NumPy does not have it
    kind = np.dtype(dtype).type
    if e.op == "cast":
        return _converted(dtype, e.dtype, kind(values[0]))
    if e.op == "not":
        return Const(not values[0], "bool")
    if dtype in ("bool", "float16") or e.op not in (_INTEGER if dtypes.is_int(dtype) else _EXACT):
        return None  # float16 is computed in float32, and rounded only when it is stored
    if dtypes.is_int(dtype):
        exact = [np.array(int(v), object) for v in values]
        if e.op in ("floordiv", "floormod") and values[1] == 0:
            return None
        value = OPS[e.op].numpy(*exact)
        fits = e.dtype == "bool" or dtypes.minimum(e.dtype) <= value <= dtypes.maximum(e.dtype)
        return ex.const(value, e.dtype) if fits else None  # what overflows is left to run time
    with np.errstate(all="ignore"):
        result = np.dtype(e.dtype).type(OPS[e.op].numpy(*(kind(v) for v in values)))
    return None if np.isnan(result) else ex.const(result.item(), e.dtype)


def _converted(source: str, target: str, value: np.generic) -> Const | None:
    """A constant in another type; None, which leaves it to run time, where it does not fit."""
    if dtypes.is_float(source) and not dtypes.is_float(target):
        number = value.item()
        if target == "bool" or not np.isfinite(number):
            return None
        if not dtypes.minimum(target) <= int(number) <= dtypes.maximum(target):
            return None
        return ex.const(int(number), target)
    with np.errstate(all="ignore"):
        result = value.astype(target).item()
    if source != "bool" and target == "bool":
        return None
    same = dtypes.is_float(target) or result == value.item()
    return ex.const(result, target) if same and result == result else None


def _identity(e: Call) -> Expr | None:
    """`x * 1`, `x + 0` and the like; of floats those that keep NaN, infinities and -0."""
    if e.op == "not":
        inner = e.args[0]
        if isinstance(inner, Call) and inner.op == "not":
            return inner.args[0]
        return None
    if len(e.args) != 2:
        return None
    a, b = e.args
    if e.op == "mul" and _is(a, 1):
        return b
    if e.op in ("mul", "div", "floordiv") and _is(b, 1):
        return a
    if e.op == "sub" and _is(b, 0):
        return a
    if dtypes.is_int(e.dtype):
        if e.op == "add" and _is(a, 0):
            return b
        if e.op == "add" and _is(b, 0):
            return a
        if e.op == "mul" and (_is(a, 0) or _is(b, 0)):
            return Const(0, e.dtype)
        if e.op in ("min", "max") and ex.same(a, b):
            return a
    return None


def _is(e: Expr, value: int) -> bool:
    """Whether `e` is that constant; -0.0 is not 0."""
    return isinstance(e, Const) and repr(float(e.value)) == repr(float(value))


def bounds_of(e: Expr) -> tuple[dict[str, float], Expr]:
    """The constants by which floats are bounded, by "min" and "max", and what is bounded."""
    bounds: dict[str, float] = {}
    while isinstance(e, Call) and e.op in ("min", "max") and e.op not in bounds:
        known = [float(a.value) for a in e.args if isinstance(a, Const)]
        if len(known) != 1 or not dtypes.is_float(e.dtype):
            break
        bounds[e.op] = known[0]
        e = next(a for a in e.args if not isinstance(a, Const))
    return bounds, e


def is_within(e: Expr, dtype: str) -> bool:
    """Whether a float is NaN or, by the constants that bound it, between the least and the largest
    number of a type of integers."""
    bounds, e = bounds_of(e)
    if len(bounds) < 2 or not dtypes.is_int(dtype) or e.dtype not in ("float32", "float64"):
        return False
    # In the code bounds are rounded to the float's type.
    low, high = (float(np.dtype(e.dtype).type(bounds[op])) for op in ("max", "min"))
    return bool(int(dtypes.minimum(dtype)) <= low <= high <= int(dtypes.maximum(dtype)))
