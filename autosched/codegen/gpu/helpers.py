"""Small functions that generated code calls where C has no operator with the meaning wanted."""

from __future__ import annotations

import numpy as np

from autosched.codegen.gpu.dialect import Dialect
from autosched.errors import CodegenError
from autosched.tir import dtypes

_SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
}


def short(dtype: str) -> str:
    """A dtype in the name of a helper."""
    return _SHORT[dtype]


class Helpers:
    """The helpers that a source uses; `text` defines them."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.found: dict[str, str] = {}

    @property
    def text(self) -> str:
        """Definitions, in the order of first use."""
        return "".join(self.found.values())

    def extreme(self, op: str, dtype: str) -> str:
        """`min` or `max`; of floats NaN if either is, as NumPy has it."""
        sign = "<" if op == "min" else ">"
        if dtypes.is_float(dtype):
            body = f"a {sign} b || a != a ? a : b"
        else:
            body = f"a {sign} b ? a : b"
        return self._define(f"{op}_{short(dtype)}", dtype, ("a", "b"), f"return {body};")

    def floor_division(self, op: str, dtype: str) -> str:
        """`floordiv` or `floormod`: rounded to minus infinity; of integers 0 for a divisor 0."""
        if dtypes.is_float(dtype):
            return self._float_division(op, dtype)
        if dtype in dtypes.UNSIGNED:
            sign = "/" if op == "floordiv" else "%"
            return self._define(
                f"{op}_{short(dtype)}", dtype, ("a", "b"), f"return b == 0 ? 0 : a {sign} b;"
            )
        t = self.dialect.value_type(dtype)
        u = self.dialect.unsigned.get(dtype, t)
        wraps = "r != 0 && (r < 0) != (b < 0)"
        if op == "floordiv":
            body = (
                f"if (b == 0) return 0; if (b == -1) return ({t})(0 - ({u})a); "
                f"{t} r = a % b; return a / b - ({wraps});"
            )
        else:
            body = f"if (b == 0 || b == -1) return 0; {t} r = a % b; return {wraps} ? r + b : r;"
        return self._define(f"{op}_{short(dtype)}", dtype, ("a", "b"), body)

    def _float_division(self, op: str, dtype: str) -> str:
        """From the remainder of C: the floor of a rounded quotient may be one too many."""
        kind = "float32" if dtype == "float16" else dtype
        t, math = self.dialect.value_type(kind), self.dialect.math
        one = "1.0" if kind == "float64" else "1.0f"
        half = "0.5" if kind == "float64" else "0.5f"
        zero = "0.0" if kind == "float64" else "0.0f"
        wraps = f"r != {zero} && (r < {zero}) != (b < {zero})"
        start = f"{t} r = {math('fmod', kind)}(a, b); "
        sign = math("copysign", kind)
        if op == "floordiv":
            body = (
                f"if (b == {zero}) return a / b; {start}{t} q = (a - r) / b; "
                f"if ({wraps}) q -= {one}; if (q == {zero}) return {sign}({zero}, a / b); "
                f"{t} f = {math('floor', kind)}(q); return q - f > {half} ? f + {one} : f;"
            )
        else:
            body = f"{start}if (r == {zero}) return {sign}({zero}, b); return {wraps} ? r + b : r;"
        return self._define(f"{op}_{short(kind)}", kind, ("a", "b"), body)

    def to_integer(self, source: str, dtype: str, ends: tuple[str, str] | None) -> str:
        """A float as an integer: truncated; what does not fit is the least or the largest, which
        `ends` are as text, and NaN is 0. None: nothing but NaN is beyond them."""
        of, end = ("float64", "") if source == "float64" else ("float32", "f")
        t, kind = self.dialect.value_type(of), self.dialect.value_type(dtype)
        low, beyond = float(dtypes.minimum(dtype)), float(int(dtypes.maximum(dtype)) + 1)
        if ends is None:
            body = f"return x == x ? ({kind})x : 0;"
        else:
            body = (
                f"if (x >= {beyond}{end}) return {ends[1]}; "
                f"return x > {low}{end} ? ({kind})x : x == x ? {ends[0]} : 0;"
            )
        name = f"{short(dtype)}_{'in' if ends is None else 'of'}_{short(of)}"
        text = f"{self.dialect.helper} {kind} {name}({t} x) {{ {body} }}\n"
        self.found.setdefault(name, text)
        return name

    def bits(self, source: str, dtype: str) -> str:
        """The bits of a value as another type of as many."""
        t, kind = self.dialect.value_type(source), self.dialect.value_type(dtype)
        name = f"{short(dtype)}_bits_of_{short(source)}"
        body = f"union {{ {t} of; {kind} as; }} u; u.of = x; return u.as;"
        self.found.setdefault(name, f"{self.dialect.helper} {kind} {name}({t} x) {{ {body} }}\n")
        return name

    def shift(self, op: str, dtype: str) -> str:
        """`shift_left` or `shift_right`; by no number from 0 to the width, everything goes out."""
        t, bits = self.dialect.value_type(dtype), np.dtype(dtype).itemsize * 8
        u = self.dialect.unsigned["int64" if bits == 64 else "int32"]
        if op == "shift_left":
            body = f"return ({u})b < {bits} ? ({t})(({u})a << b) : ({t})0;"
        else:
            out = "(a < 0 ? -1 : 0)" if dtype in dtypes.SIGNED else "0"
            body = f"return ({t})(({u})b < {bits} ? a >> b : {out});"
        return self._define(f"{op}_{short(dtype)}", dtype, ("a", "b"), body)

    def bit_count(self, op: str, dtype: str) -> str:
        """`popcount` or `clz` of an integer, counted in 64 bits."""
        t, bits = self.dialect.value_type(dtype), np.dtype(dtype).itemsize * 8
        u = self.dialect.unsigned["int64"]
        cuda = {"popcount": "__popcll", "clz": "__clzll"}
        name = cuda[op] if self.dialect.shuffle else op
        mask = "" if bits == 64 else f" & {(1 << bits) - 1}u"
        beyond = f" - {64 - bits}" if op == "clz" and bits < 64 else ""
        body = f"return ({t})((int){name}(({u})a{mask}){beyond});"
        return self._define(f"{op}_{short(dtype)}", dtype, ("a",), body)

    def absolute(self, dtype: str) -> str:
        """The absolute value of an integer; the lowest stays what it is."""
        t = self.dialect.value_type(dtype)
        u = self.dialect.unsigned.get(dtype, t)
        return self._define(
            f"abs_{short(dtype)}", dtype, ("a",), f"return a < 0 ? ({t})(0 - ({u})a) : a;"
        )

    def sigmoid(self, dtype: str) -> str:
        """`1 / (1 + exp(-x))`."""
        kind = "float32" if dtype == "float16" else dtype
        one = "1.0" if kind == "float64" else "1.0f"
        exp = self.dialect.math("exp", kind)
        return self._define(
            f"sigmoid_{short(kind)}", kind, ("x",), f"return {one} / ({one} + {exp}(-x));"
        )

    def half(self, name: str) -> str:
        """`f16_load`, `f16_store` or `f16_round`."""
        self.found.setdefault("half", self.dialect.half)
        return name

    def asynchronous(self, name: str) -> str:
        """`copied`, or `copy_16` and its like."""
        self.found.setdefault(name, self.dialect.asynchronous[name])
        return name

    def warp(self, name: str) -> str:
        """`ldmatrix_x4` and its like, or a product of a warp. Raises CodegenError where threads
        have none."""
        text = self.dialect.warp(name)
        if text is None:
            raise CodegenError(f"{self.dialect.name} has no {name}: schedule without tensorize")
        self.found.setdefault(name, text)
        return name

    def bfloat16(self, name: str) -> str:
        """`bf16_load` (bits to float) or `bf16_store` (float to bits, to nearest, ties to even)."""
        bits, value = self.dialect.bits
        u, s = self.dialect.unsigned["int32"], self.dialect.value_type("bfloat16")
        text = (
            f"{self.dialect.helper} float bf16_load({s} bits) {{\n"
            f"  return {value}(({u})bits << 16);\n}}\n"
            f"{self.dialect.helper} {s} bf16_store(float value) {{\n"
            f"  {u} bits = {bits}(value);\n"
            f"  if (value != value) return ({s})(bits >> 16 | 0x40);\n"
            f"  return ({s})((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n}}\n"
        )
        self.found.setdefault("bfloat16", text)
        return name

    def _define(self, name: str, dtype: str, params: tuple[str, ...], body: str) -> str:
        t = self.dialect.value_type(dtype)
        args = ", ".join(f"{t} {p}" for p in params)
        self.found.setdefault(name, f"{self.dialect.helper} {t} {name}({args}) {{ {body} }}\n")
        return name
