"""Chains of elementwise stages."""

from __future__ import annotations

from autosched import te
from autosched.ops.registry import operator, require
from autosched.te import Tensor


@operator
def mul_add_relu(N: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """out = max(x * scale + shift, 0) in three stages; all are (N, M)."""
    require("mul_add_relu", 1, N=N, M=M)
    x, scale, shift = (te.placeholder((N, M), name=n, dtype=dtype) for n in ("x", "scale", "shift"))
    mul = te.compute((N, M), lambda i, j: x[i, j] * scale[i, j], name="mul")
    add = te.compute((N, M), lambda i, j: mul[i, j] + shift[i, j], name="add")
    out = te.compute((N, M), lambda i, j: te.max(add[i, j], 0), name="relu")
    return [x, scale, shift, out]
