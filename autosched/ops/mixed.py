"""Operators of low precision, whose sums are wider: what tensor cores and byte products compute."""

from __future__ import annotations

from autosched import te
from autosched.checks import choice
from autosched.errors import WorkloadError
from autosched.ops.convolution import conv2d_inputs, convolution
from autosched.ops.linear import product
from autosched.ops.registry import operator, require
from autosched.te import Tensor
from autosched.tir.dtypes import check

SUMS = {
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
    "uint8": "int32",
}
"""dtypes of operands -> that of their sums."""


@operator
def matmul_mixed(
    N: int, L: int, M: int, dtype: str = "float16", out: str = "float16"
) -> list[Tensor]:
    """C = A @ B; A (N, L), B (L, M), C (N, M) of dtype `out`. Products of float16 and bfloat16 are
    summed in float32, of bytes in int32. B's layout is free."""
    require("matmul_mixed", 1, N=N, L=L, M=M)
    total = _sums("matmul_mixed", dtype)
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    return [A, B, _stored(product(A, B, "matmul", total), out)]


@operator
def conv2d_mixed(
    H: int,
    W: int,
    CI: int,
    CO: int,
    K: int,
    S: int,
    P: int,
    D: int = 1,
    G: int = 1,
    dtype: str = "float16",
    out: str = "float16",
) -> list[Tensor]:
    """As `conv2d`, of dtype `out`, with sums as those of `matmul_mixed`."""
    total = _sums("conv2d_mixed", dtype)
    data, weight = conv2d_inputs("conv2d_mixed", H, W, CI, CO, K, S, P, D, G, dtype)
    return [data, weight, _stored(convolution("conv2d", data, weight, S, P, D, G, total), out)]


def _sums(name: str, dtype: str) -> str:
    return SUMS[choice(f"dtype of {name}", dtype, SUMS, WorkloadError)]


def _stored(sums: Tensor, dtype: str) -> Tensor:
    if check(dtype, "out") == sums.dtype:
        return sums
    result: Tensor = te.compute(sums.shape, lambda *at: sums(*at).astype(dtype), name="out")
    return result
