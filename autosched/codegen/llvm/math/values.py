"""Instructions on vectors of floating-point numbers, as elementary functions are written in."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.math.formats import FORMATS
from autosched.target import Target

_INTRINSIC = {"half": "f16", "float": "f32", "double": "f64"}
_SQRT_HALF = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
"""Bits of sqrt(1/2)."""


class Values:
    """Writes instructions on one type: `lanes` elements of an LLVM floating-point type."""

    def __init__(self, b: Builder, scalar: str, lanes: int, target: Target) -> None:
        self.b = b
        self.scalar = scalar
        self.lanes = lanes
        self.target = target
        self.type = vector(scalar, lanes)
        self.format = FORMATS[scalar] if scalar in FORMATS else FORMATS["float"]
        self.int_scalar = f"i{self.format.bits}"
        self.ints = vector(self.int_scalar, lanes)
        self.bools = vector("i1", lanes)

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

    def split(self, x: str) -> tuple[str, str]:
        """e and m - 1 of a positive normal number x = m 2^e, m in [sqrt(1/2), sqrt(2))."""
        fraction, bias = self.format.fraction, self.format.bias
        lowest = _SQRT_HALF[self.scalar]
        offset = self.int_op("sub", self.bits(x), self.int_const(lowest))
        inside = self.int_op("and", offset, self.int_const((1 << fraction) - 1))
        m = self.float_of(self.int_op("add", inside, self.int_const(lowest)))
        f = self.sub(m, self.const(1.0))
        if self.scalar == "float":
            exponent = self.int_op("ashr", offset, self.int_const(fraction))
            return self.b.op(f"sitofp {self.ints} {exponent} to {self.type}"), f
        # AVX2 neither shifts 64 bits arithmetically nor converts them.
        positive = self.int_op("add", offset, self.int_const(bias << fraction))
        exponent = self.int_op("lshr", positive, self.int_const(fraction))
        shifted = self.float_of(
            self.int_op("add", exponent, self.int_const(self.format.magic_bits))
        )
        return self.sub(shifted, self.const(self.format.magic + bias)), f

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


def vector(scalar: str, lanes: int) -> str:
    return f"<{lanes} x {scalar}>" if lanes > 1 else scalar


def _splat(scalar: str, text: str, lanes: int) -> str:
    return f"splat ({scalar} {text})" if lanes > 1 else text
