"""x to the power of y on vectors."""

from __future__ import annotations

import math

from autosched.codegen.llvm.math.formats import EXP2_WIDE, LOG2_WIDE
from autosched.codegen.llvm.math.values import Values, vector


def by_constant(v: Values, x: str, y: str) -> str | None:
    """The power where y is 2, 3, -1, 1/2 or -1/2, by products, a quotient or a root."""
    if y == v.const(2.0):
        return v.mul(x, x)
    if y == v.const(3.0):
        return v.mul(v.mul(x, x), x)
    if y == v.const(-1.0):
        return v.div(v.const(1.0), x)
    if y not in (v.const(0.5), v.const(-0.5)):
        return None
    # Other than the root of either, the power of -0 is 0 and that of minus infinity infinite.
    root = v.add(v.intrinsic("sqrt", x), v.const(0.0))
    lowest = v.b.op(f"fcmp oeq {v.type} {x}, {v.const(-math.inf)}")
    root = v.choose(lowest, v.const(math.inf), root)
    return root if y == v.const(0.5) else v.div(v.const(1.0), root)


def emit(v: Values, x: str, y: str) -> str:
    """The power of float32: 2^(y log2 |x|) in float64, rounded once, and then the sign."""
    w = Values(v.b, "double", v.lanes, v.target)
    size = v.intrinsic("fabs", x)
    wide = _widen(v, size)
    exponent, f = w.split(wide)
    s = w.div(f, w.add(f, w.const(2.0)))
    log = w.fma(s, w.horner(w.mul(s, s), LOG2_WIDE), exponent)
    zero = v.b.op(f"fcmp oeq {v.type} {size}, {v.const(0.0)}")
    finite = v.b.op(f"fcmp olt {v.type} {size}, {v.const(math.inf)}")
    log = w.choose(finite, w.choose(zero, w.const(-math.inf), log), wide)
    # 1 to any power, not a number too, and any number, not a number too, to the power of 0 are 1.
    one = v.b.op(f"fcmp oeq {v.type} {size}, {v.const(1.0)}")
    none = v.b.op(f"fcmp oeq {v.type} {y}, {v.const(0.0)}")
    t = w.mul(_widen(v, y), log)
    t = w.choose(v.b.op(f"or {v.bools} {one}, {none}"), w.const(0.0), t)
    t = w.at_least(w.at_most(t, 130.0), -160.0)  # beyond which results are infinite and zero
    n, bits = w.round_to_int(t)
    power = w.mul(w.horner(w.sub(t, n), EXP2_WIDE), w.power_of_two(bits))
    value = v.b.op(f"fptrunc {w.type} {power} to {v.type}")
    return _signed(v, x, y, value, finite)


def _signed(v: Values, x: str, y: str, value: str, finite: str) -> str:
    """The power of x from that of |x|: negative where y is odd, no number where it is no integer,
    for negative x other than infinity."""
    half = v.mul(y, v.const(0.5))
    part = v.b.op(f"fcmp une {v.type} {y}, {v.intrinsic('floor', y)}")
    uneven = v.b.op(f"fcmp une {v.type} {half}, {v.intrinsic('floor', half)}")
    top = v.int_op("and", v.bits(x), v.int_const(-(1 << (v.format.bits - 1))))
    flipped = v.float_of(v.int_op("xor", v.bits(value), top))
    odd = v.b.op(f"select {v.bools} {part}, {v.bools} {_no(v)}, {v.bools} {uneven}")
    value = v.choose(odd, flipped, value)
    negative = v.b.op(f"fcmp olt {v.type} {x}, {v.const(0.0)}")
    negative = v.b.op(f"and {v.bools} {negative}, {finite}")
    return v.choose(v.b.op(f"and {v.bools} {negative}, {part}"), v.const(math.nan), value)


def _no(v: Values) -> str:
    return "zeroinitializer" if v.lanes > 1 else "false"


def _widen(v: Values, x: str) -> str:
    return v.b.op(f"fpext {v.type} {x} to {vector('double', v.lanes)}")
