"""Element types, by NumPy's names."""

from __future__ import annotations

from functools import cache

import numpy as np

from autosched.errors import TensorExprError

FLOATS = ("float16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8",)
DTYPES = (*FLOATS, *SIGNED, *UNSIGNED, "bool")
INDEX = "int64"
"""The type of every loop variable, axis and index."""


def check(dtype: str, where: str = "") -> str:
    """Return `dtype` if it is supported; raise TensorExprError otherwise."""
    if dtype not in DTYPES:
        place = f" of {where}" if where else ""
        raise TensorExprError(f"dtype{place} is {dtype!r}; expected one of {', '.join(DTYPES)}")
    return dtype


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a floating-point type."""
    return dtype in FLOATS


def is_int(dtype: str) -> bool:
    """Whether `dtype` is an integer type (bool is not)."""
    return dtype in SIGNED or dtype in UNSIGNED


@cache
def itemsize(dtype: str) -> int:
    """Bytes of one element; bool takes one."""
    return np.dtype(dtype).itemsize


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
