"""The functions beyond those of `math`: other bases, inverse and hyperbolic functions.

Those of float32 are computed in float64, lane by lane of the vector, and rounded once: 0.51 ulp,
for twice the registers. Of float64, other bases and the functions that keep small arguments exact
are polynomials too; the rest calls libm a lane at a time, as everything does where no instruction
fuses. float16 goes through float32, but for what counts its own steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.math import core as basic
from autosched.codegen.llvm.math import trigonometry
from autosched.codegen.llvm.math.formats import ATAN
from autosched.codegen.llvm.math.values import Values, vector
from autosched.errors import CodegenError
from autosched.target import Target

MAX_ULP: dict[str, dict[str, float]] = {
    "float32": dict.fromkeys(
        ("exp2", "exp10", "expm1", "log2", "log10", "log1p", "tan", "asin", "acos", "atan", "sinh")
        + ("cosh", "asinh", "acosh", "atanh", "atan2", "hypot"),
        0.51,
    ),
    "float64": dict.fromkeys(("exp2", "exp10", "expm1", "log2", "log10", "log1p"), 2.0),
}
"""Largest error in units in the last place of the exact result, where instructions fuse; of other
functions of float64 it is the C library's, at most 2 with glibc. Of float16 all are 0.51 off. fmod,
copysign, trunc and nextafter are exact."""
BRANCHING = ("tan", *basic.BRANCHING)
"""Functions that ask in a branch whether any lane is out of the ordinary."""
_INTEGER = {"popcount": "ctpop", "clz": "ctlz"}
_LLVM = {"float16": "half", "float32": "float", "float64": "double"}


def emit(b: Builder, op: str, args: Sequence[str], dtype: str, lanes: int, target: Target) -> str:
    """IR of `op` on `lanes` elements of `dtype`; returns the SSA name. Raises CodegenError for an
    operation that is none of this module nor of `math`."""
    if op not in OPERATIONS:
        return basic.emit(b, op, args, dtype, lanes, target)
    if dtype not in _LLVM:
        raise CodegenError(f"{op} is not defined on {dtype}")
    if op == "nextafter":
        return _next_after(b, args[0], args[1], dtype, lanes)
    if dtype == "float16":
        return basic.half(b, op, args, lanes, target, emit)
    v = Values(b, _LLVM[dtype], lanes, target)
    if op in ("copysign", "trunc"):
        return v.intrinsic(op, *args)
    if op == "fmod":
        return b.op(f"frem {v.type} {args[0]}, {args[1]}")
    if not target.has_fma or (dtype == "float64" and op not in MAX_ULP["float64"]):
        return v.libm(op, args)
    if dtype == "float64":
        return _WIDE[op](v, *args)
    w = Values(b, "double", lanes, target)
    wide = [b.op(f"fpext {v.type} {x} to {w.type}") for x in args]
    return b.op(f"fptrunc {w.type} {_WIDE[op](w, *wide)} to {v.type}")


def of_integers(b: Builder, op: str, x: str, bits: int, lanes: int) -> str:
    """popcount or clz (of 0: all bits) of integers of so many bits."""
    kind = vector(f"i{bits}", lanes)
    name = f"llvm.{_INTEGER[op]}.{f'v{lanes}' if lanes > 1 else ''}i{bits}"
    zero, zero_type = (", i1 false", ", i1") if op == "clz" else ("", "")
    b.declare(name, f"{kind} @{name}({kind}{zero_type})")
    return b.op(f"call {kind} @{name}({kind} {x}{zero})")


def _next_after(b: Builder, x: str, y: str, dtype: str, lanes: int) -> str:
    """The neighbour of x towards y: one more or less in the bits, which are in order on each side
    of 0."""
    scalar, bits = _LLVM[dtype], {"float16": 16, "float32": 32, "float64": 64}[dtype]
    kind, ints, bools = vector(scalar, lanes), vector(f"i{bits}", lanes), vector("i1", lanes)

    def number(n: int) -> str:
        return f"splat (i{bits} {n})" if lanes > 1 else str(n)

    o, zero = b.op, "zeroinitializer"
    pattern = o(f"bitcast {kind} {x} to {ints}")
    other = o(f"bitcast {kind} {y} to {ints}")
    less, positive = o(f"fcmp olt {kind} {x}, {y}"), o(f"fcmp ogt {kind} {x}, {zero}")
    shrinks = o(f"xor {bools} {less}, {positive}")
    step = o(f"select {bools} {shrinks}, {ints} {number(-1)}, {ints} {number(1)}")
    moved = o(f"add {ints} {pattern}, {step}")
    sign = o(f"and {ints} {other}, {number(-(1 << (bits - 1)))}")
    smallest = o(f"or {ints} {sign}, {number(1)}")
    at_zero = o(f"fcmp oeq {kind} {x}, {zero}")
    moved = o(f"select {bools} {at_zero}, {ints} {smallest}, {ints} {moved}")
    equal = o(f"fcmp oeq {kind} {x}, {y}")
    moved = o(f"select {bools} {equal}, {ints} {other}, {ints} {moved}")
    value = o(f"bitcast {ints} {moved} to {kind}")
    none = o(f"fcmp uno {kind} {x}, {y}")
    return o(f"select {bools} {none}, {kind} {o(f'fadd {kind} {x}, {y}')}, {kind} {value}")


# What follows is on float64.

_LOG2_10 = math.log2(10)
_LOG10_2 = (0.3010299955494702, 1.1451100898021838e-10)
"""log10(2): to 32 bits, whose product with an exponent is exact, and what they lack."""
_LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
_SMALL = 40.0
"""Beyond this, exp(x) and exp(x) - 1 differ by less than half a unit."""


def _scaled(v: Values, p: str, n: str) -> str:
    """p 2^n: half of the exponent goes in exactly, the other half rounds a subnormal once."""
    low, half = v.round_to_int(v.mul(n, v.const(0.5)))
    _, rest = v.round_to_int(v.sub(n, low))
    return v.mul(v.mul(p, v.power_of_two(half)), v.power_of_two(rest))


def _exp2(v: Values, x: str) -> str:
    x = v.at_least(v.at_most(x, 1100.0), -1100.0)
    n, _ = v.round_to_int(x)
    r = v.mul(v.sub(x, n), v.const(math.log(2)))
    return _scaled(v, v.horner(r, (1.0, 1.0, *v.format.exp)), n)


def _exp10(v: Values, x: str) -> str:
    x = v.at_least(v.at_most(x, 330.0), -330.0)
    n, _ = v.round_to_int(v.mul(x, v.const(_LOG2_10)))
    r = v.fma(n, v.const(-_LOG10_2[0]), x)
    r = v.mul(v.fma(n, v.const(-_LOG10_2[1]), r), v.const(math.log(10)))
    return _scaled(v, v.horner(r, (1.0, 1.0, *v.format.exp)), n)


def _expm1(v: Values, x: str) -> str:
    inside = v.at_least(v.at_most(x, _SMALL), -_SMALL)
    _, bits, r = basic.reduce_exp(v, inside)
    p = v.fma(v.mul(r, r), v.horner(r, v.format.expm1), r)
    power = v.power_of_two(bits)
    near = v.fma(power, p, v.sub(power, v.const(1.0)))
    far = v.sub(basic.exp_of(v, x), v.const(1.0))
    beyond = _compare(v, "ogt", v.intrinsic("fabs", x), v.const(_SMALL))
    return v.intrinsic("copysign", v.choose(beyond, far, near), x)


def _log2(v: Values, x: str) -> str:
    def core(v: Values, e: str, f: str) -> str:
        return v.fma(basic.log_64(v, v.const(0.0), f), v.const(math.log2(math.e)), e)

    return basic.log_of(v, x, core)


def _log10(v: Values, x: str) -> str:
    def core(v: Values, e: str, f: str) -> str:
        log = basic.log_64(v, v.const(0.0), f)
        low = v.fma(e, v.const(_LOG10_2[1]), v.mul(log, v.const(_LOG10_E[1])))
        low = v.fma(log, v.const(_LOG10_E[0]), low)
        return v.fma(e, v.const(_LOG10_2[0]), low)

    return basic.log_of(v, x, core)


def _log1p(v: Values, x: str) -> str:
    return v.intrinsic("copysign", _log_above(v, x), x)


def _log_above(v: Values, x: str) -> str:
    """log(1 + x), but for the sign of 0: log(u), u = 1 + x rounded, and what was lost over u."""
    u = v.add(x, v.const(1.0))
    lost = v.div(v.sub(x, v.sub(u, v.const(1.0))), u)
    positive = _compare(v, "ogt", u, v.const(0.0))
    finite = _compare(v, "olt", u, v.const(math.inf))
    ordinary = v.b.op(f"and {v.bools} {positive}, {finite}")
    return v.add(basic.log_of(v, u), v.choose(ordinary, lost, v.const(0.0)))


def _tan(v: Values, x: str) -> str:
    return v.div(trigonometry.emit(v, "sin", x), trigonometry.emit(v, "cos", x))


def _arc(v: Values, t: str) -> str:
    """atan of t from 0 to 1: above tan(pi/8) it is pi/4 + atan((t - 1) / (t + 1))."""
    one = v.const(1.0)
    above = _compare(v, "ogt", t, v.const(math.sqrt(2) - 1))
    t = v.choose(above, v.div(v.sub(t, one), v.add(t, one)), t)
    z = v.mul(t, t)
    value = v.fma(v.mul(z, t), v.horner(z, ATAN), t)
    return v.add(value, v.choose(above, v.const(math.pi / 4), v.const(0.0)))


def _atan(v: Values, x: str) -> str:
    size = v.intrinsic("fabs", x)
    large = _compare(v, "ogt", size, v.const(1.0))
    value = _arc(v, v.choose(large, v.div(v.const(1.0), size), size))
    value = v.choose(large, v.sub(v.const(math.pi / 2), value), value)
    return v.intrinsic("copysign", value, x)


def _atan2(v: Values, y: str, x: str) -> str:
    across, up = v.intrinsic("fabs", x), v.intrinsic("fabs", y)
    steep = _compare(v, "ogt", up, across)
    small, large = v.choose(steep, across, up), v.choose(steep, up, across)
    t = v.div(small, large)
    t = v.choose(_compare(v, "oeq", large, v.const(0.0)), v.const(0.0), t)
    t = v.choose(_compare(v, "oeq", small, v.const(math.inf)), v.const(1.0), t)
    value = _arc(v, t)
    value = v.choose(steep, v.sub(v.const(math.pi / 2), value), value)
    signed = v.intrinsic("copysign", v.const(1.0), x)
    left = _compare(v, "olt", signed, v.const(0.0))
    value = v.choose(left, v.sub(v.const(math.pi), value), value)
    value = v.intrinsic("copysign", value, y)
    return v.choose(_compare(v, "uno", x, y), v.add(x, y), value)


def _cosine(v: Values, x: str) -> str:
    """sqrt(1 - x^2): the cosine of the angle whose sine is x, no number beyond 1."""
    one = v.const(1.0)
    return v.intrinsic("sqrt", v.mul(v.sub(one, x), v.add(one, x)))


def _asin(v: Values, x: str) -> str:
    return _atan2(v, x, _cosine(v, x))


def _acos(v: Values, x: str) -> str:
    return _atan2(v, _cosine(v, x), x)


def _sinh(v: Values, x: str) -> str:
    d = _expm1(v, v.at_most(v.intrinsic("fabs", x), 300.0))
    value = v.mul(v.add(d, v.div(d, v.add(d, v.const(1.0)))), v.const(0.5))
    return v.intrinsic("copysign", value, x)


def _cosh(v: Values, x: str) -> str:
    power = basic.exp_of(v, v.at_most(v.intrinsic("fabs", x), 300.0))
    return v.mul(v.add(power, v.div(v.const(1.0), power)), v.const(0.5))


def _asinh(v: Values, x: str) -> str:
    size = v.at_most(v.intrinsic("fabs", x), 1e100)
    square = v.mul(size, size)
    root = v.intrinsic("sqrt", v.add(square, v.const(1.0)))
    value = _log_above(v, v.add(size, v.div(square, v.add(root, v.const(1.0)))))
    infinite = _compare(v, "oeq", v.intrinsic("fabs", x), v.const(math.inf))
    return v.intrinsic("copysign", v.choose(infinite, v.const(math.inf), value), x)


def _acosh(v: Values, x: str) -> str:
    t = v.sub(x, v.const(1.0))
    t = v.choose(_compare(v, "olt", t, v.const(0.0)), v.const(math.nan), t)
    return _log_above(v, v.add(t, v.intrinsic("sqrt", v.mul(t, v.add(t, v.const(2.0))))))


def _atanh(v: Values, x: str) -> str:
    size = v.intrinsic("fabs", x)
    value = _log_above(v, v.div(v.add(size, size), v.sub(v.const(1.0), size)))
    return v.intrinsic("copysign", v.mul(value, v.const(0.5)), x)


def _hypot(v: Values, x: str, y: str) -> str:
    value = v.intrinsic("sqrt", v.fma(x, x, v.mul(y, y)))
    for side in (x, y):
        infinite = _compare(v, "oeq", v.intrinsic("fabs", side), v.const(math.inf))
        value = v.choose(infinite, v.const(math.inf), value)
    return value


def _compare(v: Values, word: str, x: str, y: str) -> str:
    return v.b.op(f"fcmp {word} {v.type} {x}, {y}")


_WIDE: dict[str, Callable[..., str]] = {
    "exp2": _exp2,
    "exp10": _exp10,
    "expm1": _expm1,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "atan2": _atan2,
    "hypot": _hypot,
}
OPERATIONS = frozenset({*_WIDE, "fmod", "copysign", "trunc", "nextafter"})
"""The operations on floats that are written here."""
