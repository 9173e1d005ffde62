"""Quantised numbers: what is stored is round(x / scale) + zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autosched import te
from autosched.graph.ops.conv import convolved, window_of
from autosched.graph.ops.linear import matmul
from autosched.graph.ops.reduce import Reduction, reduced
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import (
    TensorLike,
    View,
    broadcast,
    broadcast_shape,
    normal_axis,
    stage,
)
from autosched.tir.expr import Const


def _along(t: TensorLike | None, x: TensorLike, axis: int, block: int = 0) -> Any:
    """Elements of a scale or zero point: one for all, one an index along `axis`, or one for
    `block` indices along it."""
    if t is not None and block:
        blocked = normal_axis(axis, len(x.shape))
        return lambda at: t(*(i // block if d == blocked else i for d, i in enumerate(at)))
    if t is None or not len(t.shape) or (len(t.shape) == 1 and t.shape[0] == 1):
        return lambda at: t(*(0 for _ in t.shape)) if t is not None else None
    along = normal_axis(axis, len(x.shape))
    return lambda at: t(at[along])


@operator("DequantizeLinear")
def dequantize_linear(
    x: TensorLike,
    scale: TensorLike,
    zero: TensorLike | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: str | None = None,
) -> Any:
    """(x - zero point) * scale."""
    by, less = _along(scale, x, axis, block_size), _along(zero, x, axis, block_size)

    def element(*at: Any) -> Any:
        e = te.cast(x(*at), "int32")
        if zero is not None:
            e = e - te.cast(less(at), "int32")
        return te.cast(te.cast(e, scale.dtype) * by(at), output_dtype or scale.dtype)

    return stage(x.shape, element, "dequantize")


@operator("QuantizeLinear")
def quantize_linear(
    x: TensorLike,
    scale: TensorLike,
    zero: TensorLike | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: str | None = None,
    saturate: int = 1,
    precision: int = 0,
) -> Any:
    """round(x / scale) + zero point, halves to even, saturated."""
    kind = output_dtype or (zero.dtype if zero is not None else "uint8")
    by, plus = _along(scale, x, axis, block_size), _along(zero, x, axis, block_size)
    low, high = (float(bound(kind).value) for bound in (te.min_value, te.max_value))

    def element(*at: Any) -> Any:
        unit = by(at)
        e = x(*at)
        e = te.round(e if isinstance(unit, Const) and unit.value == 1 else e / unit)
        if zero is not None:
            e = e + te.cast(plus(at), x.dtype)
        return te.cast(te.max(te.min(e, high), low), kind)

    return stage(x.shape, element, "quantize")


SUMS = {"MatMul": "autosched.MatMulSums", "Conv": "autosched.ConvSums"}
"""What the pass `integers` makes of products of quantised numbers."""


@operator(SUMS["MatMul"])
def matmul_sums(a: TensorLike, b: TensorLike) -> Any:
    """int32 sums of the products of integers as they are stored, no zero points taken off, or
    float32 ones of bfloat16; of matrices (..., M, K) and (..., K, N), the other axes broadcast."""
    total = sums_of(a)
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if len(a.shape) + len(b.shape) > 4 else ()
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    lhs, rhs = broadcast(a, (*batch, rows, depth)), broadcast(b, (*batch, depth, columns))

    def element(*at: Any) -> Any:
        *outer, i, j = at
        k = te.reduce_axis((0, depth), name="k")
        factors = lhs(*outer, i, k), rhs(*outer, k, j)
        return te.sum(te.cast(factors[0], total) * te.cast(factors[1], total), axis=k)

    axes = [*(f"b{n}" for n in range(len(batch))), "i", "j"]
    free = b if len(b.shape) == 2 else None
    return stage((*batch, rows, columns), element, "matmul", free=free, axes=axes)


@operator(SUMS["Conv"], spatial=True, attrs_of=window_of)
def conv_sums(
    x: TensorLike,
    w: TensorLike,
    fill: TensorLike | None = None,
    *,
    group: int = 1,
    bits: int = 32,
    **attrs: Any,
) -> Any:
    """int32 sums of the products of integers as they are stored, no zero points taken off, or
    float32 ones of bfloat16; around x is `fill`, which stands for 0. `bits` hold every sum."""
    window = window_of(x, w, group=group, **attrs)
    return convolved(x, w, group, window, padding_value(x, fill), sums_of(x))


NARROW = 26
"""Bits of sums whose weights have no large sums themselves."""
LARGEST_SUM = 1 << NARROW - 9
"""Of the weights of one sign, which bytes multiply by 256 at most, for sums of NARROW bits."""


def bits_of_sums(weight: npt.NDArray[Any]) -> int:
    """Bits that hold every sum of products of bytes by a weight (CO, ...) of 8 or 16 bits: NARROW
    or 32, so that few kernels differ by it. A sum is largest where bytes are 0 beside the weights
    of one sign and 255 beside the others, or -128 beside all."""
    rows = weight.reshape(len(weight), -1)
    sides = (side(rows, 0).sum(1, dtype=np.int64) for side in (np.maximum, np.minimum))
    largest = max(np.abs(sums).max(initial=0) for sums in sides)
    return NARROW if largest < LARGEST_SUM else 32


def padding_value(x: TensorLike, fill: TensorLike | None) -> Any:
    """The element that pads x: that of `fill`, or 0."""
    return te.const(0, x.dtype) if fill is None else fill(*(0 for _ in fill.shape))


LOOKUP = "autosched.Lookup"
"""What the pass `tables` makes of functions of one byte."""


@operator(LOOKUP)
def lookup(x: TensorLike, table: TensorLike) -> Any:
    """Elements of a table (256,), by number: x is uint8."""
    return stage(x.shape, lambda *at: table(te.cast(x(*at), "int32")), "lookup")


ROWS = "autosched.QuantizeRows"
"""What the pass `int8` makes of the other operand of products with weights of 8 bits."""
ROW_STEPS = 255
"""Of a row: the steps from its least element to its largest."""


@operator(ROWS)
def quantize_rows(x: TensorLike) -> Any:
    """Rows (..., K) as uint8, with the scale and the least element of each (..., 2), and the sums
    (..., 1) of each row's bytes as int32.

    scale = (max x - min x) / 255 and byte = round((x - min x) / scale), halves to even; 0 in a row
    of equal elements. An element is about byte * scale + min x, to half a scale. Where a row has
    NaN or infinity, its scale or its least element is no finite number either.
    """
    *rows, terms = x.shape
    zero, one = te.const(0, x.dtype), te.const(1, x.dtype)

    def end(*at: Any) -> Any:
        # Both in one stage, which the others follow from row by row: max x, and max -x.
        *row, which = at
        k = te.reduce_axis((0, terms), name="k")
        e = x(*row, k)
        return te.max(te.select(which == 0, e, -e), axis=k)

    ends = stage((*rows, 2), end, "ends")

    def scale(*row: Any) -> Any:
        return (ends(*row, 0) + ends(*row, 1)) * (1 / ROW_STEPS)

    def element(*at: Any) -> Any:
        *row, _ = at
        unit = scale(*row)
        e = te.round((x(*at) + ends(*row, 1)) * te.select(unit > zero, one / unit, zero))
        return te.cast(te.max(te.min(e, float(ROW_STEPS)), 0.0), "uint8")

    made = stage(x.shape, element, "bytes")
    steps = stage(
        (*rows, 2), lambda *at: te.select(at[-1] == 0, scale(*at[:-1]), -ends(*at[:-1], 1)), "steps"
    )
    whole = Reduction(before=lambda e: te.cast(e, "int32"))
    return made, steps, reduced(made, (len(rows),), True, whole, "sums")


def sums_of(x: TensorLike) -> str:
    """The dtype in which products with x are added."""
    return "float32" if x.dtype == "bfloat16" else "int32"


def _whole(x: TensorLike, zero: TensorLike | None, axis: int, name: str) -> TensorLike:
    """x, its zero point taken off: as int16, which has all differences of bytes."""
    if zero is None:
        return x
    less = _along(zero, x, axis)
    stored = "int16" if x.dtype in ("int8", "uint8") else "int32"
    made: TensorLike = stage(
        x.shape, lambda *at: te.cast(x(*at), stored) - te.cast(less(at), stored), name
    )
    return made


@operator("MatMulInteger")
def matmul_integer(
    a: TensorLike,
    b: TensorLike,
    a_zero: TensorLike | None = None,
    b_zero: TensorLike | None = None,
) -> Any:
    """Products of integers as int32, zero points taken off."""
    left, right = _whole(a, a_zero, -2, "a"), _whole(b, b_zero, -1, "b")
    if min(len(a.shape), len(b.shape)) > 1:
        return matmul_sums(left, right)
    whole = (
        View(t.shape, "int32", lambda *at, t=t: te.cast(t(*at), "int32")) for t in (left, right)
    )
    return matmul(*whole)


@operator("ConvInteger", spatial=True, attrs_of=window_of)
def conv_integer(
    x: TensorLike,
    w: TensorLike,
    x_zero: TensorLike | None = None,
    w_zero: TensorLike | None = None,
    **attrs: Any,
) -> Any:
    """A convolution of integers as int32, zero points taken off."""
    return conv_sums(_whole(x, x_zero, 1, "x"), _whole(w, w_zero, 0, "w"), **attrs)
