"""Element types, by NumPy's names; and bfloat16, which NumPy does not have.

A bfloat16 is the upper half of a float32. Programs load, store, choose and convert it; what else is
written of it is computed in float32, and rounded after each operation. An array of it is one of
uint16, the bit patterns; `from_float32` and `to_float32` convert.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.checks import choice
from autosched.errors import TensorExprError

FLOATS = ("float16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
ARITHMETIC = (*FLOATS, *SIGNED, *UNSIGNED, "bool")
"""What operations of programs are defined on."""
DTYPES = (*ARITHMETIC, "bfloat16")
INDEX = "int64"
"""The type of every loop variable, axis and index."""


def check(dtype: str, where: str = "") -> str:
    """Return `dtype` if it is supported; raise TensorExprError otherwise."""
    return choice(f"dtype of {where}" if where else "dtype", dtype, DTYPES, TensorExprError)


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a floating-point type."""
    return dtype in FLOATS or dtype == "bfloat16"


def is_int(dtype: str) -> bool:
    """Whether `dtype` is an integer type (bool is not)."""
    return dtype in SIGNED or dtype in UNSIGNED


@cache
def array_dtype(dtype: str) -> np.dtype[Any]:
    """What NumPy arrays of it have: the same, or uint16 for the bit patterns of bfloat16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def from_float32(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """float32 values as the bit patterns of bfloat16, rounded to nearest, ties to even; NaN stays
    NaN."""
    single = np.asarray(values, np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(single), bits >> 16 | 0x40, rounded).astype(np.uint16)


def to_float32(patterns: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The values of bfloat16 bit patterns, exactly."""
    return (np.asarray(patterns, np.uint16).astype(np.uint32) << 16).view(np.float32)


def to_integer(values: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """Floats as a type of integers: truncated, what does not fit is the least or the largest
    integer, and NaN is 0."""
    given, kind = np.asarray(values), np.dtype(dtype).type
    least, most = int(minimum(dtype)), int(maximum(dtype))
    if given.ndim == 0:  # as the interpreter asks, point by point
        x = float(given)
        return np.asarray(kind(0 if x != x else int(min(max(x, least), most))))
    with np.errstate(over="ignore"):  # a bound beyond float16 is infinite, and compares rightly
        low, beyond = given.dtype.type(least), given.dtype.type(float(most) + 1.0)
    above = given >= beyond
    made = np.where((given > low) & ~above, given, 0).astype(dtype)
    return np.where(above, kind(most), np.where(given <= low, kind(least), made))


def reinterprets(source: str, dtype: str) -> bool:
    """Whether the bits of one type can be read as another: both have as many, and neither is
    bool."""
    return "bool" not in (source, dtype) and itemsize(source) == itemsize(dtype)


def converted(values: Any, source: str, dtype: str, op: str = "cast") -> Any:
    """Values of `source` as `dtype`; floats become integers as `to_integer` has it. Or, `op` being
    "reinterpret", their bits."""
    if op == "reinterpret":
        return np.asarray(values).view(array_dtype(dtype))[()]
    if dtype == "bfloat16":
        return from_float32(values)[()]
    if source == "bfloat16":
        return to_float32(values)[()]
    if is_float(source) and is_int(dtype):
        return to_integer(values, dtype)[()]
    return np.asarray(values).astype(dtype)[()]


@cache
def itemsize(dtype: str) -> int:
    """Bytes of one element; bool takes one."""
    return array_dtype(dtype).itemsize


@cache
def minimum(dtype: str) -> float | int | bool:
    """Smallest value: -inf for floats, the lowest integer, False."""
    if is_float(dtype):
        return float("-inf")
    return False if dtype == "bool" else int(np.iinfo(dtype).min)


@cache
def maximum(dtype: str) -> float | int | bool:
    """Largest value: inf for floats, the highest integer, True."""
    if is_float(dtype):
        return float("inf")
    return True if dtype == "bool" else int(np.iinfo(dtype).max)
