"""LLVM types, constants and values."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from autosched.tir import dtypes

SCALAR = {
    "float16": "half",
    "float32": "float",
    "float64": "double",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "bool": "i1",
    "bfloat16": "i16",  # the bit pattern: no processor needs a library function to load it
}
SUFFIX = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "bool": "i1",
    "bfloat16": "i16",
}


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value or literal `ref` of `lanes` elements (1 = a scalar)."""

    ref: str
    dtype: str
    lanes: int = 1

    @property
    def type(self) -> str:
        """LLVM type in registers."""
        return type_of(self.dtype, self.lanes)


def type_of(dtype: str, lanes: int = 1) -> str:
    """LLVM type in registers: `float`, `<16 x float>`; bool is i1."""
    return SCALAR[dtype] if lanes == 1 else f"<{lanes} x {SCALAR[dtype]}>"


def memory_type(dtype: str, lanes: int = 1) -> str:
    """LLVM type in memory: as in registers, but a bool takes a byte."""
    return type_of("uint8" if dtype == "bool" else dtype, lanes)


def suffix(dtype: str, lanes: int = 1) -> str:
    """Overload suffix of intrinsics: `f32`, `v16f32`."""
    return SUFFIX[dtype] if lanes == 1 else f"v{lanes}{SUFFIX[dtype]}"


def literal(value: float | int | bool, dtype: str) -> str:
    """A constant's text; floats in hexadecimal, so that they are exact."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "bfloat16":
        return str(int(dtypes.from_float32(value)))
    if not dtypes.is_float(dtype):
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = float(np.dtype(dtype).type(value))
    if math.isnan(rounded):
        rounded = math.nan  # one NaN, so that it can be recognised
    if dtype == "float16":
        return "0xH" + struct.pack(">e", rounded).hex().upper()
    return "0x" + struct.pack(">d", rounded).hex().upper()


def splat(text: str, dtype: str, lanes: int) -> str:
    """A constant vector with one literal in all lanes."""
    if lanes == 1:
        return text
    return f"splat ({SCALAR[dtype]} {text})"
