"""Products of matrices."""

from __future__ import annotations

from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import (
    TensorLike,
    broadcast,
    broadcast_shape,
    rounded,
    stage,
    sums,
    widened,
)
from autosched.graph.ops.views import reshaped


@operator("MatMul")
def matmul(a: TensorLike, b: TensorLike) -> Any:
    """NumPy's matmul: products of the last two axes, the others broadcast. Sums of float16 are
    taken in float32."""
    left = reshaped(a, [1, *a.shape]) if len(a.shape) == 1 else a
    right = reshaped(b, [*b.shape, 1]) if len(b.shape) == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise Unsupported(f"shapes {a.shape} and {b.shape} do not go together")
    batch = (
        broadcast_shape(left.shape[:-2], right.shape[:-2])
        if max(len(left.shape), len(right.shape)) > 2
        else ()
    )
    rows, depth, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    lhs = broadcast(widened(left), (*batch, rows, depth))
    rhs = broadcast(widened(right), (*batch, depth, columns))

    def element(*at: Any) -> Any:
        *outer, i, j = at
        k = te.reduce_axis((0, depth), name="k")
        return te.sum(lhs(*outer, i, k) * rhs(*outer, k, j), axis=k)

    axes = [*(f"b{n}" for n in range(len(batch))), "i", "j"]
    free = right if len(right.shape) == 2 else None
    shape = (*batch, rows, columns)
    out = sums(shape, element, (depth,), a.dtype, "matmul", free=free, axes=axes)
    out = rounded(out, a.dtype, axes)
    if len(a.shape) > 1 and len(b.shape) > 1:
        return out
    kept = [*batch, *([rows] if len(a.shape) > 1 else []), *([columns] if len(b.shape) > 1 else [])]
    return reshaped(out, kept)


@operator("Gemm")
def gemm(
    a: TensorLike,
    b: TensorLike,
    c: TensorLike | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """alpha * A @ B + beta * C; of float16 in float32."""
    rows, depth = (a.shape[1], a.shape[0]) if transA else a.shape
    columns, inner = b.shape if transB else (b.shape[1], b.shape[0])
    if depth != inner:
        raise Unsupported(f"shapes {a.shape} and {b.shape} do not go together")
    left, right, axes = widened(a), widened(b), ("i", "j")

    def element(i: Any, j: Any) -> Any:
        k = te.reduce_axis((0, depth), name="k")
        factor = left(k, i) if transA else left(i, k)
        return te.sum(factor * (right(j, k) if transB else right(k, j)), axis=k)

    def total(i: Any, j: Any) -> Any:
        sum_ = product(i, j)
        e = sum_ if alpha == 1 else sum_ * te.const(alpha, sum_.dtype)
        if addend is None:
            return te.cast(e, a.dtype)
        added = te.cast(addend(i, j), sum_.dtype)
        return te.cast(e + (added if beta == 1 else added * te.const(beta, added.dtype)), a.dtype)

    product = sums((rows, columns), element, (depth,), left.dtype, "gemm", free=b, axes=axes)
    if c is None and alpha == 1:
        return rounded(product, a.dtype, axes)
    addend = None if c is None or beta == 0 else broadcast(c, (rows, columns))
    return stage((rows, columns), total, "gemm_end", axes=axes)
