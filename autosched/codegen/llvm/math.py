"""Elementary functions on vectors, written out as LLVM IR.

LLVM turns its own `llvm.exp` on vectors into one call of libm a lane. Here functions are short
polynomials evaluated with fused multiply-adds, branch-free, for any number of lanes; the error
bounds of `MAX_ULP` count on every operation being rounded as written, so no instruction carries a
fast-math flag. float16 is computed in float32 and rounded. The functions of `LIBM`, and those of
float64 where no instruction fuses, call libm a lane at a time.

Subnormal inputs and results are computed, never flushed; infinities and NaN behave as in C99.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from autosched.codegen.llvm.formats import (
    ATANH,
    ERF_LARGE,
    ERF_SMALL,
    ERF_SPLIT,
    EXP2,
    FORMATS,
    LOG,
)
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
        "pow": 1.0,
        "sin": 1.0,
        "cos": 1.0,
    },
    "float64": {"exp": 1.0, "log": 1.0, "tanh": 2.0, "sigmoid": 2.0},
    "float16": dict.fromkeys(
        ("exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "pow", "sin", "cos"), 0.51
    ),
}
"""Largest error in units in the last place of the exact result; what is not listed is exact
(floor, ceil, round, abs). The polynomials were measured on every seventh float32. Functions of
`LIBM` have the C library's error (glibc's is given for float32), and so have all of float64 without
fused multiply-adds, to which sigmoid adds two ulp and rsqrt one."""

LIBM = {"float32": ("pow", "sin", "cos"), "float64": ("pow", "sin", "cos", "erf")}
"""Functions that call libm for every lane."""

_EXACT = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs", "sqrt": "sqrt"}
_LLVM = {"float16": "half", "float32": "float", "float64": "double"}
_INTRINSIC = {"half": "f16", "float": "f32", "double": "f64"}

_LOG2E = 1.4426950408889634


class Writer(Protocol):
    """What is needed of a builder."""

    def op(self, text: str) -> str:
        """Emit a pure instruction; returns its SSA name."""

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function."""


def emit(b: Writer, op: str, args: Sequence[str], dtype: str, lanes: int, target: Target) -> str:
    """IR of `op` on `lanes` elements of `dtype` (one lane: a scalar); returns the SSA name.

    `op` is one of exp, log, tanh, erf, sigmoid, sqrt, rsqrt, pow, sin, cos, floor, ceil, round and
    abs, which also takes integers. Raises CodegenError for any other.
    """
    if dtype not in _LLVM:
        if op == "abs":
            return _integer_abs(b, args[0], dtype, lanes)
        raise CodegenError(f"{op} is not defined on {dtype}")
    if dtype == "float16":
        return _half(b, op, args, lanes, target)
    v = _Values(b, _LLVM[dtype], lanes, target)
    if op in _EXACT:
        return v.intrinsic(_EXACT[op], args[0])
    if op == "rsqrt":
        return v.div(v.const(1.0), v.intrinsic("sqrt", args[0]))
    if op in LIBM[dtype]:
        return v.libm(op, args)
    if dtype == "float64" and op in _POLYNOMIAL and not target.has_fma:
        if op == "sigmoid":
            return _sigmoid(v, args[0], lambda x: v.libm("exp", [x]))
        return v.libm(op, args)
    if op in _POLYNOMIAL:
        return _POLYNOMIAL[op](v, args[0])
    known = ", ".join(sorted({*_POLYNOMIAL, *LIBM[dtype], *_EXACT, "rsqrt"}))
    raise CodegenError(f"no code for {op} on {dtype}; there is code for {known}")


class _Values:
    """Writes instructions on one type: `lanes` elements of an LLVM floating-point type."""

    def __init__(self, b: Writer, scalar: str, lanes: int, target: Target) -> None:
        self.b = b
        self.scalar = scalar
        self.lanes = lanes
        self.target = target
        self.type = _vector(scalar, lanes)
        self.format = FORMATS[scalar] if scalar in FORMATS else FORMATS["float"]
        self.int_scalar = f"i{self.format.bits}"
        self.ints = _vector(self.int_scalar, lanes)
        self.bools = _vector("i1", lanes)

    def const(self, value: float) -> str:
        """A constant, rounded to the element type."""
        rounded = value
        if self.scalar == "float":
            rounded = struct.unpack("f", struct.pack("f", value))[0]
        bits: int = struct.unpack("<Q", struct.pack("<d", rounded))[0]
        return _splat(self.scalar, f"0x{bits:016X}", self.lanes)

    def int_const(self, value: int) -> str:
        """A constant of `ints`."""
        return _splat(self.int_scalar, str(value), self.lanes)

    def add(self, x: str, y: str) -> str:
        return self.b.op(f"fadd {self.type} {x}, {y}")

    def sub(self, x: str, y: str) -> str:
        return self.b.op(f"fsub {self.type} {x}, {y}")

    def mul(self, x: str, y: str) -> str:
        return self.b.op(f"fmul {self.type} {x}, {y}")

    def div(self, x: str, y: str) -> str:
        return self.b.op(f"fdiv {self.type} {x}, {y}")

    def intrinsic(self, name: str, *args: str) -> str:
        """A call of an LLVM intrinsic on this type."""
        element = _INTRINSIC[self.scalar]
        suffix = f"v{self.lanes}{element}" if self.lanes > 1 else element
        full = f"llvm.{name}.{suffix}"
        types = ", ".join([self.type] * len(args))
        self.b.declare(full, f"{self.type} @{full}({types})")
        values = ", ".join(f"{self.type} {x}" for x in args)
        return self.b.op(f"call {self.type} @{full}({values})")

    def fma(self, x: str, y: str, z: str) -> str:
        """x * y + z, rounded once."""
        return self.intrinsic("fma", x, y, z)

    def horner(self, x: str, coefficients: Sequence[float]) -> str:
        """A polynomial, lowest coefficient first."""
        value = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.const(c))
        return value

    def at_most(self, x: str, limit: float) -> str:
        """The smaller of both; NaN stays (one instruction on x86)."""
        c = self.const(limit)
        return self.choose(self.b.op(f"fcmp olt {self.type} {c}, {x}"), c, x)

    def at_least(self, x: str, limit: float) -> str:
        """The larger of both; NaN stays."""
        c = self.const(limit)
        return self.choose(self.b.op(f"fcmp ogt {self.type} {c}, {x}"), c, x)

    def choose(self, condition: str, x: str, y: str) -> str:
        return self.b.op(f"select {self.bools} {condition}, {self.type} {x}, {self.type} {y}")

    def int_op(self, name: str, x: str, y: str) -> str:
        return self.b.op(f"{name} {self.ints} {x}, {y}")

    def bits(self, x: str) -> str:
        """The float's bits as integers."""
        return self.b.op(f"bitcast {self.type} {x} to {self.ints}")

    def float_of(self, x: str) -> str:
        """Bits as floats."""
        return self.b.op(f"bitcast {self.ints} {x} to {self.type}")

    def round_to_int(self, x: str) -> tuple[str, str]:
        """x, |x| < 2^22, rounded to an integer: as a float, and in the low part of the bits."""
        magic = self.const(self.format.magic)
        shifted = self.add(x, magic)
        return self.sub(shifted, magic), self.bits(shifted)

    def power_of_two(self, bits: str) -> str:
        """2^n, n in the low bits of `bits` and of a normal number."""
        kind = self.format
        exponent = self.int_op("shl", bits, self.int_const(kind.fraction))
        return self.float_of(
            self.int_op("add", exponent, self.int_const(kind.bias << kind.fraction))
        )

    def libm(self, name: str, args: Sequence[str]) -> str:
        """One call a lane, of the function `name` for float64."""
        name += "f" if self.scalar == "float" else ""
        types = ", ".join([self.scalar] * len(args))
        self.b.declare(name, f"{self.scalar} @{name}({types})")
        if self.lanes == 1:
            values = ", ".join(f"{self.scalar} {x}" for x in args)
            return self.b.op(f"call {self.scalar} @{name}({values})")
        result = "poison"
        for lane in range(self.lanes):
            picked = [self.b.op(f"extractelement {self.type} {x}, i64 {lane}") for x in args]
            values = ", ".join(f"{self.scalar} {x}" for x in picked)
            value = self.b.op(f"call {self.scalar} @{name}({values})")
            result = self.b.op(
                f"insertelement {self.type} {result}, {self.scalar} {value}, i64 {lane}"
            )
        return result


def _vector(scalar: str, lanes: int) -> str:
    return f"<{lanes} x {scalar}>" if lanes > 1 else scalar


def _splat(scalar: str, text: str, lanes: int) -> str:
    return f"splat ({scalar} {text})" if lanes > 1 else text


def _reduce_exp(v: _Values, x: str) -> tuple[str, str, str]:
    """n and its bits, and x - n ln 2 in +-ln2/2, for |x| below 2^20."""
    magic = v.const(v.format.magic)
    shifted = v.fma(x, v.const(_LOG2E), magic)
    n = v.sub(shifted, magic)
    r = v.fma(n, v.const(-v.format.ln2_high), x)
    return n, v.bits(shifted), v.fma(n, v.const(-v.format.ln2_low), r)


def _exp(v: _Values, x: str) -> str:
    """exp of float32: 12 instructions with AVX-512, 21 otherwise."""
    # The clamp keeps n small for infinities; both ends round to infinity and to zero.
    highest, lowest = v.format.exp_range
    x = v.at_least(x, lowest)
    if not _has_scalef(v):
        x = v.at_most(x, highest)
    n, bits, r = _reduce_exp(v, x)
    p = v.horner(r, (1.0, 1.0, *v.format.exp))
    if _has_scalef(v):
        # Above the range r means nothing. But p, of even degree, is positive everywhere, so that
        # scaling overflows; and where r is no number n is infinite, which the instruction takes
        # for the result.
        return _scalef(v, p, n)
    # Half of the exponent goes in exactly; the other half rounds a subnormal result once, and
    # overflows to infinity. (Adding to the bits of p would be shorter, but lose NaN.)
    if v.scalar == "double":  # AVX2 has no arithmetic shift of 64 bits
        low, half = v.round_to_int(v.mul(n, v.const(0.5)))
        _, rest = v.round_to_int(v.sub(n, low))
    else:
        whole = v.int_op("sub", bits, v.int_const(v.format.magic_bits))
        half = v.int_op("ashr", whole, v.int_const(1))
        rest = v.int_op("sub", whole, half)
    return v.mul(v.mul(p, v.power_of_two(half)), v.power_of_two(rest))


def _has_scalef(v: _Values) -> bool:
    """Whether one instruction scales by a power of two."""
    least = 128 // v.format.bits
    return v.target.vector_bytes == 64 and v.lanes in [least << k for k in range(5)]


def _scalef(v: _Values, x: str, n: str) -> str:
    """x * 2^n in one instruction, correctly rounded when subnormal; infinite if n is, even if x is
    no number."""
    lanes = min(v.lanes, 512 // v.format.bits)
    part = _Values(v.b, v.scalar, lanes, v.target)
    pieces = [
        _scalef_part(part, _lanes_of(v, x, start, lanes), _lanes_of(v, n, start, lanes))
        for start in range(0, v.lanes, lanes)
    ]
    while len(pieces) > 1:
        pieces = [_join(v.b, v.scalar, lanes, pieces[k : k + 2]) for k in range(0, len(pieces), 2)]
        lanes *= 2
    return pieces[0]


def _scalef_part(v: _Values, x: str, n: str) -> str:
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


def _lanes_of(v: _Values, x: str, start: int, count: int) -> str:
    """`count` lanes of x."""
    if count == v.lanes:
        return x
    picked = ", ".join(f"i32 {start + k}" for k in range(count))
    return v.b.op(f"shufflevector {v.type} {x}, {v.type} poison, <{count} x i32> <{picked}>")


def _join(b: Writer, scalar: str, lanes: int, pieces: Sequence[str]) -> str:
    """Two vectors of `lanes` lanes as one."""
    kind = _vector(scalar, lanes)
    order = ", ".join(f"i32 {k}" for k in range(2 * lanes))
    return b.op(
        f"shufflevector {kind} {pieces[0]}, {kind} {pieces[1]}, <{2 * lanes} x i32> <{order}>"
    )


def _log(v: _Values, x: str) -> str:
    """log, by x = m 2^e with m in [sqrt(1/2), sqrt(2))."""
    fraction, bias = v.format.fraction, v.format.bias
    tiny = v.b.op(f"fcmp olt {v.type} {x}, {v.const(2.0 ** (1 - bias))}")
    scaled = v.choose(tiny, v.mul(x, v.const(2.0**fraction)), x)
    shift = v.choose(tiny, v.const(-float(fraction)), v.const(0.0))
    lowest = _SQRT_HALF[v.scalar]
    offset = v.int_op("sub", v.bits(scaled), v.int_const(lowest))
    e = v.add(_exponent(v, offset), shift)
    inside = v.int_op("and", offset, v.int_const((1 << fraction) - 1))
    m = v.float_of(v.int_op("add", inside, v.int_const(lowest)))
    f = v.sub(m, v.const(1.0))
    value = (_log_64 if v.scalar == "double" else _log_32)(v, e, f)
    # Zero and below, infinity and NaN.
    infinity = v.const(math.inf)
    finite = v.b.op(f"fcmp olt {v.type} {x}, {infinity}")
    value = v.choose(finite, value, x)
    zero = v.b.op(f"fcmp oeq {v.type} {x}, {v.const(0.0)}")
    value = v.choose(zero, v.const(-math.inf), value)
    negative = v.b.op(f"fcmp olt {v.type} {x}, {v.const(0.0)}")
    return v.choose(negative, v.const(math.nan), value)


_SQRT_HALF = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}


def _exponent(v: _Values, offset: str) -> str:
    """The exponent of a number from its bits less those of sqrt(1/2), as a float."""
    fraction, bias = v.format.fraction, v.format.bias
    if v.scalar == "float":
        exponent = v.int_op("ashr", offset, v.int_const(fraction))
        return v.b.op(f"sitofp {v.ints} {exponent} to {v.type}")
    # AVX2 neither shifts 64 bits arithmetically nor converts them.
    positive = v.int_op("add", offset, v.int_const(bias << fraction))
    exponent = v.int_op("lshr", positive, v.int_const(fraction))
    shifted = v.float_of(v.int_op("add", exponent, v.int_const(v.format.magic_bits)))
    return v.sub(shifted, v.const(v.format.magic + bias))


def _log_32(v: _Values, e: str, f: str) -> str:
    """log((1 + f) 2^e)."""
    square = v.mul(f, f)
    tail = v.mul(v.mul(v.horner(f, LOG), f), square)
    tail = v.fma(square, v.const(-0.5), tail)
    tail = v.fma(e, v.const(v.format.ln2_low), tail)
    return v.fma(e, v.const(v.format.ln2_high), v.add(f, tail))


def _log_64(v: _Values, e: str, f: str) -> str:
    """The same: f - (f^2/2 - s (f^2/2 + R)), s = f / (2 + f), R = s^2 ATANH(s^2), the large terms
    last."""
    s = v.div(f, v.add(f, v.const(2.0)))
    z = v.mul(s, s)
    half = v.mul(v.mul(f, f), v.const(0.5))
    rest = v.fma(z, v.horner(z, ATANH), half)
    tail = v.fma(s, rest, v.mul(e, v.const(v.format.ln2_low)))
    tail = v.sub(half, tail)
    return v.fma(e, v.const(v.format.ln2_high), v.sub(f, tail))


def _tanh(v: _Values, x: str) -> str:
    """tanh(x) = d / (d + 2) with d = exp(2 |x|) - 1."""
    size = v.at_most(v.intrinsic("fabs", x), v.format.tanh_limit)
    _, bits, r = _reduce_exp(v, v.add(size, size))
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


def _quotient(v: _Values, x: str, x_lost: str, y: str, y_lost: str) -> str:
    """(x + x_lost) / (y + y_lost), what rounding of two sums lost being known."""
    reciprocal = v.div(v.const(1.0), y)
    value = v.mul(x, reciprocal)
    negative = v.b.op(f"fneg {v.type} {value}")
    rest = v.add(v.fma(negative, y, x), v.fma(negative, y_lost, x_lost))
    return v.fma(rest, reciprocal, value)


def _erf(v: _Values, x: str) -> str:
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


def _sigmoid(v: _Values, x: str, exp: Callable[[str], str]) -> str:
    """1 / (1 + exp(-x)), by the exponential of -|x|: nothing overflows."""
    s = exp(v.b.op(f"fneg {v.type} {v.intrinsic('fabs', x)}"))
    negative = v.b.op(f"fcmp olt {v.type} {x}, {v.const(0.0)}")
    numerator, total = v.choose(negative, s, v.const(1.0)), v.add(s, v.const(1.0))
    if v.scalar == "float" or not v.target.has_fma:
        return v.div(numerator, total)
    lost = v.sub(s, v.sub(total, v.const(1.0)))
    return _quotient(v, numerator, v.const(0.0), total, lost)


_POLYNOMIAL: dict[str, Callable[[_Values, str], str]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": lambda v, x: _sigmoid(v, x, lambda y: _exp(v, y)),
}


def _half(b: Writer, op: str, args: Sequence[str], lanes: int, target: Target) -> str:
    """float16 through float32."""
    if op == "abs":
        return _Values(b, "half", lanes, target).intrinsic("fabs", args[0])
    narrow, wide = _vector("half", lanes), _vector("float", lanes)
    extended = [b.op(f"fpext {narrow} {x} to {wide}") for x in args]
    value = emit(b, op, extended, "float32", lanes, target)
    return b.op(f"fptrunc {wide} {value} to {narrow}")


def _integer_abs(b: Writer, x: str, dtype: str, lanes: int) -> str:
    """|x|; the lowest integer stays what it is, as in NumPy."""
    if not dtype.startswith("int"):
        return x
    bits = f"i{dtype.removeprefix('int')}"
    kind = _vector(bits, lanes)
    name = f"llvm.abs.{f'v{lanes}' if lanes > 1 else ''}{bits}"
    b.declare(name, f"{kind} @{name}({kind}, i1)")
    return b.op(f"call {kind} @{name}({kind} {x}, i1 false)")
