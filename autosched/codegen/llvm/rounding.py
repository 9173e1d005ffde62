"""Floats rounded to bytes or words: what quantisation ends with.

    cast(max(min(round(x) + zero, high), low))   as   rounded(max(min(x, high - zero), low - zero))
                                                      + zero

The bounds are whole numbers, so that it is the same whether x is rounded before or after it is
bounded; then x86 rounds as it converts. Halves are rounded to even, as processors do by default.
What is dequantised at once stays an int32.
"""

from __future__ import annotations

from typing import NamedTuple

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.types import Value, literal, splat, suffix, type_of
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.expr import Call, Const, Expr
from autosched.tir.fold import bounds_of, fold_constant, is_within

MOST = 1 << 20
"""Of a zero point: sums with it are exact in float32, until they are bounded."""


class Rounded(NamedTuple):
    """round(x) + zero between `low` and `high`, in int32 or a shorter type that holds both."""

    x: Expr
    zero: int
    low: int
    high: int
    dtype: str

    def code(self, b: Builder, x: Value) -> Value:
        """The value, 0 where x is NaN, given that of x."""
        o, t, lanes = b.op, x.type, x.lanes
        bits, to = type_of("int32", lanes), type_of(self.dtype, lanes)
        c = "i1" if lanes == 1 else f"<{lanes} x i1>"
        low, high = (
            splat(literal(float(n - self.zero), "float32"), "float32", lanes)
            for n in (self.low, self.high)
        )
        # NaN becomes the lower bound.
        near = o(f"select {c} {o(f'fcmp ogt {t} {x.ref}, {low}')}, {t} {x.ref}, {t} {low}")
        near = o(f"select {c} {o(f'fcmp olt {t} {near}, {high}')}, {t} {near}, {t} {high}")
        name = f"llvm.lrint.{suffix('int32', lanes)}.{suffix('float32', lanes)}"
        b.declare(name, f"{bits} @{name}({t})")
        made = o(f"call {bits} @{name}({t} {near})")
        if self.zero:
            made = o(f"add {bits} {made}, {splat(str(self.zero), 'int32', lanes)}")
        if to != bits:
            made = o(f"trunc {bits} {made} to {to}")
        if self.low:
            nan = o(f"fcmp uno {t} {x.ref}, {x.ref}")
            made = o(f"select {c} {nan}, {to} zeroinitializer, {to} {made}")
        return Value(made, self.dtype, lanes)


def rounded(e: Call, target: Target) -> Rounded | None:
    """How a cast is a rounding; None where it is not, or where another processor than x86 is asked,
    whose vectors LLVM may not convert at once."""
    if e.op != "cast":
        return None
    if e.dtype == "int32" and isinstance(e.args[0], Call):
        narrow = rounded(e.args[0], target)
        return None if narrow is None else narrow._replace(dtype=e.dtype)
    if dtypes.itemsize(e.dtype) > 2 or not is_within(e.args[0], e.dtype):
        return None
    bounds, inner = bounds_of(e.args[0])
    if not target.arch.startswith("x86") or inner.dtype != "float32":
        return None
    x, zero = _shifted(inner)
    ends = zero, bounds["max"], bounds["min"]
    if not (isinstance(x, Call) and x.op == "round") or not all(n.is_integer() for n in ends):
        return None
    whole, low, high = map(int, ends)
    return Rounded(x.args[0], whole, low, high, e.dtype) if abs(whole) <= MOST else None


def _shifted(e: Expr) -> tuple[Expr, float]:
    """(a, n) of a + n."""
    if not isinstance(e, Call) or e.op != "add":
        return e, 0.0
    for a, n in (e.args, e.args[::-1]):
        known = fold_constant(n) if isinstance(n, Call) else n
        if isinstance(known, Const):
            return a, float(known.value)
    return e, 0.0
