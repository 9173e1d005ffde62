"""Elementary functions on vectors, written out as LLVM IR.

LLVM turns its own `llvm.exp` on vectors into one call of libm a lane. Here functions are short
polynomials evaluated with fused multiply-adds, branch-free but for large arguments of sin and cos,
for any number of lanes; the error bounds of `MAX_ULP` count on every operation being rounded as
written, so no instruction carries a fast-math flag. float16 is computed in float32 and rounded. The
functions of `LIBM`, those of float64 where no instruction fuses, and there pow, sin and cos of
float32 too call libm a lane at a time.

Subnormal inputs and results are computed, never flushed; infinities and NaN behave as in C99.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.math import power, trigonometry
from autosched.codegen.llvm.math.formats import (
    ATANH,
    ERF_LARGE,
    ERF_SMALL,
    ERF_SPLIT,
    EXP2,
    LOG,
)
from autosched.codegen.llvm.math.values import Values, vector
from autosched.errors import CodegenError
from autosched.target import Target

MAX_ULP: dict[str, dict[str, float]] = {
    "float32": {
        "exp": 1.0,
        "log": 1.0,
        "tanh": 2.5,
        "erf": 1.3,
        "sigmoid": 2.5,
        "sqrt": 0.5,
        "rsqrt": 1.5,
        "pow": 1.5,
        "sin": 1.2,
        "cos": 1.2,
    },
    "float64": {"exp": 1.0, "log": 1.0, "tanh": 2.0, "sigmoid": 2.0, "sin": 1.2, "cos": 1.2},
    "float16": dict.fromkeys(
        ("exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "pow", "sin", "cos"), 0.51
    ),
}
"""Largest error in units in the last place of the exact result; what is not listed is exact
(floor, ceil, round, abs). The polynomials were measured on every seventh float32 (sin and cos on
every 97th). pow is off by 0.54 but for the exponents 3 and -1/2. What libm computes has the C
library's error: sigmoid of float64 without fused multiply-adds adds two ulp to it. rsqrt of float64
adds one to that of its root."""

LIBM: dict[str, tuple[str, ...]] = {"float32": (), "float64": ("pow", "erf")}
"""Functions that call libm for every lane; pow only where the exponent is none of a few
constants."""

BRANCHING = ("sin", "cos")
"""Functions that ask in a branch whether any lane is out of the ordinary."""

_EXACT = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs", "sqrt": "sqrt"}
_LLVM = {"float16": "half", "float32": "float", "float64": "double"}

_LOG2E = 1.4426950408889634


def emit(b: Builder, op: str, args: Sequence[str], dtype: str, lanes: int, target: Target) -> str:
    """IR of `op` on `lanes` elements of `dtype` (one lane: a scalar); returns the SSA name.

    `op` is one of exp, log, tanh, erf, sigmoid, sqrt, rsqrt, pow, sin, cos, floor, ceil, round and
    abs, which also takes integers. Raises CodegenError for any other.
    """
    if dtype not in _LLVM:
        if op == "abs":
            return _integer_abs(b, args[0], dtype, lanes)
        raise CodegenError(f"{op} is not defined on {dtype}")
    if dtype == "float16":
        return half(b, op, args, lanes, target)
    v = Values(b, _LLVM[dtype], lanes, target)
    if op in _EXACT:
        return v.intrinsic(_EXACT[op], args[0])
    if op == "rsqrt":
        return v.div(v.const(1.0), v.intrinsic("sqrt", args[0]))
    if op == "pow":
        return power.by_constant(v, *args) or _power(v, *args)
    if op in LIBM[dtype]:
        return v.libm(op, args)
    if op in BRANCHING:
        return trigonometry.emit(v, op, args[0]) if target.has_fma else v.libm(op, args)
    if dtype == "float64" and op in _POLYNOMIAL and not target.has_fma:
        if op == "sigmoid":
            return _sigmoid(v, args[0], lambda x: v.libm("exp", [x]))
        return v.libm(op, args)
    if op in _POLYNOMIAL:
        return _POLYNOMIAL[op](v, args[0])
    known = ", ".join(sorted({*_POLYNOMIAL, *LIBM[dtype], *_EXACT, "rsqrt", "pow", *BRANCHING}))
    raise CodegenError(f"no code for {op} on {dtype}; there is code for {known}")


def reduce_exp(v: Values, x: str) -> tuple[str, str, str]:
    """n and its bits, and x - n ln 2 in +-ln2/2, for |x| below 2^20."""
    magic = v.const(v.format.magic)
    shifted = v.fma(x, v.const(_LOG2E), magic)
    n = v.sub(shifted, magic)
    r = v.fma(n, v.const(-v.format.ln2_high), x)
    return n, v.bits(shifted), v.fma(n, v.const(-v.format.ln2_low), r)


def exp_above(
    b: Builder, x: str, least: float, dtype: str, lanes: int, target: Target
) -> str | None:
    """exp(x) where x is `least` or more; of a smaller x it may be any number. None where that is no
    shorter than exp."""
    short = dtype == "float32" or (dtype == "float64" and target.has_fma)
    if not short:
        return None
    v = Values(b, _LLVM[dtype], lanes, target)
    subnormal = (2 - v.format.bias) / _LOG2E
    return exp_of(v, x, least) if subnormal < least <= 0 else None


def exp_of(v: Values, x: str, least: float | None = None) -> str:
    """exp of float32: 15 instructions with AVX-512, 25 otherwise; from `least` on, 4 fewer."""
    # The clamp keeps n small for infinities; both ends round to infinity and to zero.
    highest, lowest = v.format.exp_range
    x = v.at_least(x, lowest if least is None else least)
    if not _has_scalef(v):
        x = v.at_most(x, highest)
    n, bits, r = reduce_exp(v, x)
    p = v.horner(r, (1.0, 1.0, *v.format.exp))
    if least is not None and _has_scalef(v):
        return _scalef(v, p, n)
    # A result that is subnormal, or that rounds to zero, costs 100 ns a vector in Intel's
    # processors, and masked attention is full of them: there it is counted in the least floats.
    tiny = v.b.op(f"fcmp olt {v.type} {n}, {v.const(2 - v.format.bias)}")
    if _has_scalef(v):
        # Above the range r means nothing. But p, of even degree, is positive everywhere, so that
        # scaling overflows; and where r is no number n is infinite, which the instruction takes
        # for the result.
        near = v.choose(tiny, v.add(n, v.const(v.format.least_exponent)), n)
        return _counted(v, tiny, _scalef(v, p, near))
    # Half of the exponent goes in exactly; the other half rounds a subnormal result once, and
    # overflows to infinity. (Adding to the bits of p would be shorter, but lose NaN.)
    if v.scalar == "double":  # AVX2 has no arithmetic shift of 64 bits
        low, half = v.round_to_int(v.mul(n, v.const(0.5)))
        _, rest = v.round_to_int(v.sub(n, low))
        return v.mul(v.mul(p, v.power_of_two(half)), v.power_of_two(rest))
    whole = v.int_op("sub", bits, v.int_const(v.format.magic_bits))
    half = v.int_op("ashr", whole, v.int_const(1))
    rest = v.int_op("sub", whole, half)
    if least is not None:
        return v.mul(v.mul(p, v.power_of_two(half)), v.power_of_two(rest))
    more = v.int_op("add", rest, v.int_const(v.format.least_exponent))
    near = v.b.op(f"select {v.bools} {tiny}, {v.ints} {more}, {v.ints} {rest}")
    return _counted(v, tiny, v.mul(v.mul(p, v.power_of_two(half)), v.power_of_two(near)))


def _counted(v: Values, tiny: str, x: str) -> str:
    """x, but where `tiny` as many of the least floats as x says: their bits are a number."""
    element = "f32" if v.scalar == "float" else "f64"
    lanes = f"v{v.lanes}" if v.lanes > 1 else ""
    name = f"llvm.lrint.{lanes}{v.int_scalar}.{lanes}{element}"
    v.b.declare(name, f"{v.ints} @{name}({v.type})")
    return v.choose(tiny, v.float_of(v.b.op(f"call {v.ints} @{name}({v.type} {x})")), x)


def _has_scalef(v: Values) -> bool:
    """Whether one instruction scales by a power of two."""
    least = 128 // v.format.bits
    return v.target.vector_bytes == 64 and v.lanes in [least << k for k in range(5)]


def _scalef(v: Values, x: str, n: str) -> str:
    """x * 2^n in one instruction, correctly rounded when subnormal; infinite if n is, even if x is
    no number."""
    lanes = min(v.lanes, 512 // v.format.bits)
    part = Values(v.b, v.scalar, lanes, v.target)
    pieces = [
        _scalef_part(part, _lanes_of(v, x, start, lanes), _lanes_of(v, n, start, lanes))
        for start in range(0, v.lanes, lanes)
    ]
    while len(pieces) > 1:
        pieces = [_join(v.b, v.scalar, lanes, pieces[k : k + 2]) for k in range(0, len(pieces), 2)]
        lanes *= 2
    return pieces[0]


def _scalef_part(v: Values, x: str, n: str) -> str:
    """The same for as many lanes as the instruction has."""
    width = v.format.bits * v.lanes
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if v.scalar == 'float' else 'pd'}.{width}"
    mask, ones = ("i16", "i16 -1") if v.lanes == 16 else ("i8", "i8 -1")
    rounding_type, rounding = (", i32", ", i32 4") if width == 512 else ("", "")
    v.b.declare(name, f"{v.type} @{name}({v.type}, {v.type}, {v.type}, {mask}{rounding_type})")
    zero = v.const(0.0)
    return v.b.op(
        f"call {v.type} @{name}({v.type} {x}, {v.type} {n}, {v.type} {zero}, {ones}{rounding})"
    )


def _lanes_of(v: Values, x: str, start: int, count: int) -> str:
    """`count` lanes of x."""
    if count == v.lanes:
        return x
    picked = ", ".join(f"i32 {start + k}" for k in range(count))
    return v.b.op(f"shufflevector {v.type} {x}, {v.type} poison, <{count} x i32> <{picked}>")


def _join(b: Builder, scalar: str, lanes: int, pieces: Sequence[str]) -> str:
    """Two vectors of `lanes` lanes as one."""
    kind = vector(scalar, lanes)
    order = ", ".join(f"i32 {k}" for k in range(2 * lanes))
    return b.op(
        f"shufflevector {kind} {pieces[0]}, {kind} {pieces[1]}, <{2 * lanes} x i32> <{order}>"
    )


def log_of(v: Values, x: str, core: Callable[[Values, str, str], str] | None = None) -> str:
    """log, by x = m 2^e with m in [sqrt(1/2), sqrt(2)); `core`, of e and m - 1, gives a logarithm
    to another base."""
    fraction, bias = v.format.fraction, v.format.bias
    tiny = v.b.op(f"fcmp olt {v.type} {x}, {v.const(2.0 ** (1 - bias))}")
    scaled = v.choose(tiny, v.mul(x, v.const(2.0**fraction)), x)
    shift = v.choose(tiny, v.const(-float(fraction)), v.const(0.0))
    exponent, f = v.split(scaled)
    e = v.add(exponent, shift)
    core = core or (log_64 if v.scalar == "double" else _log_32)
    value = core(v, e, f)
    # Zero and below, infinity and NaN.
    infinity = v.const(math.inf)
    finite = v.b.op(f"fcmp olt {v.type} {x}, {infinity}")
    value = v.choose(finite, value, x)
    zero = v.b.op(f"fcmp oeq {v.type} {x}, {v.const(0.0)}")
    value = v.choose(zero, v.const(-math.inf), value)
    negative = v.b.op(f"fcmp olt {v.type} {x}, {v.const(0.0)}")
    return v.choose(negative, v.const(math.nan), value)


def _log_32(v: Values, e: str, f: str) -> str:
    """log((1 + f) 2^e)."""
    square = v.mul(f, f)
    tail = v.mul(v.mul(v.horner(f, LOG), f), square)
    tail = v.fma(square, v.const(-0.5), tail)
    tail = v.fma(e, v.const(v.format.ln2_low), tail)
    return v.fma(e, v.const(v.format.ln2_high), v.add(f, tail))


def log_64(v: Values, e: str, f: str) -> str:
    """The same: f - (f^2/2 - s (f^2/2 + R)), s = f / (2 + f), R = s^2 ATANH(s^2), the large terms
    last."""
    s = v.div(f, v.add(f, v.const(2.0)))
    z = v.mul(s, s)
    half = v.mul(v.mul(f, f), v.const(0.5))
    rest = v.fma(z, v.horner(z, ATANH), half)
    tail = v.fma(s, rest, v.mul(e, v.const(v.format.ln2_low)))
    tail = v.sub(half, tail)
    return v.fma(e, v.const(v.format.ln2_high), v.sub(f, tail))


def _tanh(v: Values, x: str) -> str:
    """tanh(x) = d / (d + 2) with d = exp(2 |x|) - 1."""
    size = v.at_most(v.intrinsic("fabs", x), v.format.tanh_limit)
    _, bits, r = reduce_exp(v, v.add(size, size))
    p = v.fma(v.mul(r, r), v.horner(r, v.format.expm1), r)
    power = v.power_of_two(bits)
    less = v.sub(power, v.const(1.0))
    d = v.fma(power, p, less)
    total = v.add(d, v.const(2.0))
    if v.scalar == "float":
        value = v.div(d, total)
    else:
        lost = v.fma(power, p, v.sub(less, d))
        value = _quotient(v, d, lost, total, v.add(v.sub(d, v.sub(total, v.const(2.0))), lost))
    return v.intrinsic("copysign", value, x)


def _quotient(v: Values, x: str, x_lost: str, y: str, y_lost: str) -> str:
    """(x + x_lost) / (y + y_lost), what rounding of two sums lost being known."""
    reciprocal = v.div(v.const(1.0), y)
    value = v.mul(x, reciprocal)
    negative = v.b.op(f"fneg {v.type} {value}")
    rest = v.add(v.fma(negative, y, x), v.fma(negative, y_lost, x_lost))
    return v.fma(rest, reciprocal, value)


def _erf(v: Values, x: str) -> str:
    """erf: an odd polynomial near 0, one minus the exponential of a polynomial elsewhere."""
    size = v.at_most(v.intrinsic("fabs", x), 4.0)
    small = v.fma(v.horner(v.mul(size, size), ERF_SMALL), size, size)
    y = v.mul(v.horner(size, ERF_LARGE), size)
    n, bits = v.round_to_int(y)
    r = v.sub(y, n)
    p = v.fma(v.horner(r, EXP2), r, v.const(1.0))
    large = v.sub(v.const(1.0), v.mul(p, v.power_of_two(bits)))
    near = v.b.op(f"fcmp olt {v.type} {size}, {v.const(ERF_SPLIT)}")
    return v.intrinsic("copysign", v.choose(near, small, large), x)


def _sigmoid(v: Values, x: str, exp: Callable[[str], str]) -> str:
    """1 / (1 + exp(-x)), by the exponential of -|x|: nothing overflows."""
    s = exp(v.b.op(f"fneg {v.type} {v.intrinsic('fabs', x)}"))
    negative = v.b.op(f"fcmp olt {v.type} {x}, {v.const(0.0)}")
    numerator, total = v.choose(negative, s, v.const(1.0)), v.add(s, v.const(1.0))
    if v.scalar == "float" or not v.target.has_fma:
        return v.div(numerator, total)
    lost = v.sub(s, v.sub(total, v.const(1.0)))
    return _quotient(v, numerator, v.const(0.0), total, lost)


def _power(v: Values, x: str, y: str) -> str:
    if v.scalar == "float" and v.target.has_fma:
        return power.emit(v, x, y)
    return v.libm("pow", [x, y])


_POLYNOMIAL: dict[str, Callable[[Values, str], str]] = {
    "exp": exp_of,
    "log": log_of,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": lambda v, x: _sigmoid(v, x, lambda y: exp_of(v, y)),
}


def half(
    b: Builder,
    op: str,
    args: Sequence[str],
    lanes: int,
    target: Target,
    single: Callable[..., str] | None = None,
) -> str:
    """float16 through float32, of which `single` writes the operation."""
    if op == "abs":
        return Values(b, "half", lanes, target).intrinsic("fabs", args[0])
    narrow, wide = vector("half", lanes), vector("float", lanes)
    extended = [b.op(f"fpext {narrow} {x} to {wide}") for x in args]
    value = (single or emit)(b, op, extended, "float32", lanes, target)
    return b.op(f"fptrunc {wide} {value} to {narrow}")


def _integer_abs(b: Builder, x: str, dtype: str, lanes: int) -> str:
    """|x|; the lowest integer stays what it is, as in NumPy."""
    if not dtype.startswith("int"):
        return x
    bits = f"i{dtype.removeprefix('int')}"
    kind = vector(bits, lanes)
    name = f"llvm.abs.{f'v{lanes}' if lanes > 1 else ''}{bits}"
    b.declare(name, f"{kind} @{name}({kind}, i1)")
    return b.op(f"call {kind} @{name}({kind} {x}, i1 false)")
