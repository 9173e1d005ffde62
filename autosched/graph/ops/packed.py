"""Weights of four bits, two in a byte, with a scale and a zero point for each block of terms."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Array
from autosched.graph.ops.conv import pad
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import TensorLike, stage

PRODUCT = "autosched.MatMulPacked4"


@operator(PRODUCT)
def matmul_packed4(
    a: TensorLike, b: TensorLike, scale: TensorLike, zero: TensorLike | None = None
) -> Any:
    """The product of a (..., M, K) and of weights of four bits, which are never stored as floats.

    b (blocks, terms of a block / 2, N) is uint8: term 2 t of a block in the low half of byte t,
    term 2 t + 1 in the high one. A weight is (number - zero) * scale, of its block and column:
    scale and zero are (blocks, N) of the dtype of a; zero left out is 8. What K lacks to whole
    blocks counts as 0.
    """
    blocks, half, columns = b.shape
    depth = blocks * half * 2
    if scale.shape != (blocks, columns) or not 0 <= depth - a.shape[-1] < half * 2:
        raise Unsupported(
            f"weights of the shape {b.shape} have {depth} terms in {blocks} blocks; a has the "
            f"shape {a.shape}, scales {scale.shape}"
        )
    rank = len(a.shape)
    more = [0] * (rank - 1) + [depth - a.shape[-1]]
    source = pad(a, [0] * rank, more, te.const(0, a.dtype))

    def element(*at: Any) -> Any:
        *row, n = at
        block, t = te.reduce_axis((0, blocks), name="kb"), te.reduce_axis((0, half), name="kt")
        first = block * (half * 2) + t * 2
        even, odd = source(*row, first), source(*row, first + 1)
        byte = te.cast(b(block, t, n), "int32")
        low, high = (
            te.cast(e, a.dtype) for e in (te.bitwise_and(byte, 15), te.shift_right(byte, 4))
        )
        less = te.const(8, a.dtype) if zero is None else zero(block, n)
        sums = even * low + odd * high - (even + odd) * less
        return te.sum(sums * scale(block, n), axis=[block, t])

    axes = [*(f"b{n}" for n in range(rank - 2)), "i", "j"][-rank:]
    free = [b, scale] if zero is None else [b, scale, zero]
    return stage((*a.shape[:-1], columns), element, "packed", free=free, axes=axes)


def packed4(numbers: Array, block: int) -> Array:
    """Numbers 0 to 15 of the shape (K, N) as `matmul_packed4` has them, in blocks of an even number
    of terms; the last block is filled up with zeros."""
    depth, columns = numbers.shape
    blocks = -(-depth // block)
    full = np.zeros((blocks * block, columns), np.uint8)
    full[:depth] = numbers
    pairs = full.reshape(blocks, block // 2, 2, columns)
    return np.ascontiguousarray(pairs[:, :, 0] | pairs[:, :, 1] << 4)
