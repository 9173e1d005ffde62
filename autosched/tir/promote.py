"""The dtype in which two dtypes meet.

A float and an integer or a condition meet in the float; two floats in the wider one, float16 and
bfloat16 in float32; two integers of one signedness in the wider one, of different signedness in the
narrowest signed type that holds both; a condition and a number in the number.
"""

from __future__ import annotations

from functools import cache

from autosched.tir import dtypes


@cache
def promoted(a: str, b: str) -> str | None:
    """The dtype in which operands of `a` and `b` are combined; None for uint64 and a signed
    integer, which no integer dtype holds both of."""
    if a == b:
        return a
    if dtypes.is_float(a) or dtypes.is_float(b):
        floats = [t for t in (a, b) if dtypes.is_float(t)]
        if len(floats) == 1:
            return floats[0]
        if {a, b} == {"float16", "bfloat16"}:
            return "float32"
        return max(floats, key=dtypes.itemsize)
    if "bool" in (a, b):
        return b if a == "bool" else a
    if (a in dtypes.UNSIGNED) == (b in dtypes.UNSIGNED):
        return max(a, b, key=dtypes.itemsize)
    signed, unsigned = (b, a) if a in dtypes.UNSIGNED else (a, b)
    if dtypes.itemsize(signed) > dtypes.itemsize(unsigned):
        return signed
    bits = 16 * dtypes.itemsize(unsigned)
    return f"int{bits}" if bits <= 64 else None
