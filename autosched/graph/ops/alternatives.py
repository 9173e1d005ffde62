"""Other ways to compute convolutions and products, and the strategies that offer them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched import te
from autosched.graph.ops.conv import Window, conv
from autosched.graph.ops.linear import gemm
from autosched.graph.ops.tensors import TensorLike, parameter, stage
from autosched.graph.strategies import Input, Strategy, strategy
from autosched.ops.winograd import (
    DATA,
    OUTPUT,
    REACH,
    TILE,
    constant_axes,
    constant_matrix,
    winograd_weight,
)
from autosched.target import Target

LANES = 16


def winograd_weights(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A weight (CO, CI, 3, 3) as `conv_winograd` takes it: (6, 6, CI, CO)."""
    return winograd_weight(np.asarray(weight).transpose(2, 3, 1, 0))


def conv_winograd(
    x: TensorLike,
    w: TensorLike,
    b: TensorLike | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Convolution by 3 x 3 windows at stride 1 as products of 6 x 6 tiles; see
    `autosched.ops.winograd`. w is transformed beforehand: (6, 6, CI, CO)."""
    window = Window(x.shape[2:], (3, 3), None, None, pads, auto_pad)
    (images, depth), filters = x.shape[:2], w.shape[3]
    ho, wo = window.out
    ty, tx = -(-ho // TILE), -(-wo // TILE)
    (h, wide), (py, px) = x.shape[2:], window.before

    def element(n: Any, y: Any, z: Any, c: Any) -> Any:
        inside = te.all(y >= py, y < h + py, z >= px, z < wide + px)
        return te.if_then_else(inside, x(n, c, y - py, z - px), te.const(0, x.dtype))

    pad = te.compute((images, ty * TILE + 2, tx * TILE + 2, depth), element, name="winograd_pad")
    bt = constant_matrix(DATA, "bt", x.dtype)
    at = constant_matrix(OUTPUT, "at", x.dtype)
    d = [te.reduce_axis((0, REACH), name=n) for n in ("dy", "dx")]
    pack = te.compute(
        (REACH, REACH, images, ty, tx, depth),
        lambda eps, nu, n, y, z, ci: te.sum(
            pad[n, y * TILE + d[0], z * TILE + d[1], ci] * (bt[eps, d[0]] * bt[nu, d[1]]), axis=d
        ),
        name="data_pack",
        attrs=constant_axes("eps", "nu", d),
    )
    rc = te.reduce_axis((0, depth), name="rc")
    weight = parameter(w)
    products = te.compute(
        (REACH, REACH, images, ty, tx, filters),
        lambda eps, nu, n, y, z, co: te.sum(
            pack[eps, nu, n, y, z, rc] * w(eps, nu, rc, co), axis=rc
        ),
        name="bgemm",
        attrs={} if weight is None else {"layout_free_placeholders": [weight]},
    )
    m = [te.reduce_axis((0, REACH), name=n) for n in ("my", "mx")]
    inverse = te.compute(
        (TILE, TILE, images, ty, tx, filters),
        lambda vh, vw, n, y, z, co: te.sum(
            products[m[0], m[1], n, y, z, co] * (at[vh, m[0]] * at[vw, m[1]]), axis=m
        ),
        name="inverse",
        attrs=constant_axes("vh", "vw", m),
    )

    def result(n: Any, c: Any, y: Any, z: Any) -> Any:
        return inverse[y % TILE, z % TILE, n, y // TILE, z // TILE, c]

    shape = (images, filters, ho, wo)
    out = stage(shape, result, "conv", axes=window.labels)
    if b is None:
        return out
    return stage(shape, lambda n, c, y, z: out(n, c, y, z) + b(c), "bias", axes=window.labels)


def conv_product(x: TensorLike, w: TensorLike, b: TensorLike | None = None, **attrs: Any) -> Any:
    """A 1 x 1 convolution at stride 1 as a product: all positions are one axis of rows."""
    images, depth, *spatial = x.shape
    rows = 1
    for n in spatial:
        rows *= n
    k = te.reduce_axis((0, depth), name="k")

    def element(n: Any, i: Any, co: Any) -> Any:
        at, rest = [], i
        for extent in reversed(spatial[1:]):
            at.append(rest % extent)
            rest = rest // extent
        place = [rest, *reversed(at)]
        return te.sum(x(n, k, *place) * w(co, k, *(0 for _ in spatial)), axis=k)

    weight = parameter(w)
    product = te.compute(
        (images, rows, w.shape[0]),
        element,
        name="product",
        attrs={} if weight is None else {"layout_free_placeholders": [weight]},
    )

    def result(n: Any, c: Any, *at: Any) -> Any:
        i: Any = 0
        for y, extent in zip(at, spatial, strict=True):
            i = i * extent + y
        e = product[n, i, c]
        return e if b is None else e + b(c)

    return stage((images, w.shape[0], *spatial), result, "conv")


def gemm_rows(
    a: TensorLike,
    b: TensorLike,
    c: TensorLike | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """A product of few rows with a transposed weight, each sum in lanes that are added at the
    end: the weight is read along its rows."""
    rows, depth = a.shape
    columns = b.shape[0]
    k = te.reduce_axis((0, depth // LANES), name="k")
    parts = te.compute(
        (rows, columns, LANES),
        lambda i, j, v: te.sum(a(i, k * LANES + v) * b(j, k * LANES + v), axis=k),
        name="parts",
    )
    v = te.reduce_axis((0, LANES), name="v")
    total = te.compute((rows, columns), lambda i, j: te.sum(parts[i, j, v], axis=v), name="total")
    wide = None if c is None or beta == 0 else c

    def element(i: Any, j: Any) -> Any:
        e = total[i, j] * te.const(alpha, a.dtype)
        if wide is None:
            return e
        at = [i if n != 1 else 0 for n in wide.shape[:-1]] + [j if wide.shape[-1] != 1 else 0]
        return e + wide(*at) * te.const(beta, a.dtype)

    return stage((rows, columns), element, "gemm", axes=("i", "j"))


def _winograd_gains(data: Input, weight: Input) -> bool:
    """Whether Winograd's form is the faster one untuned (`docs/lab/graph-speed-2026-11.md`).

    It saves 3/4 of the products, in proportion to CI * CO; its transforms cost in proportion to
    CI + CO; and its weights, four times as large, are read once whatever the number of tiles.
    float16 loses too many bits in the transforms.
    """
    (images, depth, *spatial), filters = data.shape, weight.shape[0]
    sizes = (images, depth, filters, *spatial)
    if data.dtype not in ("float32", "float64") or not all(isinstance(n, int) for n in sizes):
        return False
    tiles = images * math.prod(-(-n // TILE) for n in spatial)
    channels = depth * filters / (depth + filters)
    return bool(tiles >= 9 and channels >= (10 if tiles >= 49 else 24))


@strategy("Conv")
def conv_strategy(s: Strategy, attrs: Any, inputs: Sequence[Input | None], target: Target) -> None:
    """Directly; by Winograd's transform; 1 x 1 as a product."""
    s.add(conv, name="conv.direct", plevel=10)
    data, weight = inputs[:2]
    assert data is not None
    assert weight is not None
    ones = all(n == 1 for n in (*attrs.strides, *attrs.dilations)) and attrs.group == 1
    if target.is_gpu or not data.dtype.startswith("float"):
        return
    s.add(
        conv_winograd,
        name="conv.winograd",
        plevel=15 if _winograd_gains(data, weight) else 8,
        when=ones and attrs.kernel_shape == (3, 3) and weight.constant,
        prepare={1: winograd_weights},
    )
    flat = all(n == 1 for n in attrs.kernel_shape) and not any(attrs.pads)
    s.add(conv_product, name="conv.product", plevel=7, when=ones and flat)


@strategy("Gemm")
def dense_strategy(s: Strategy, attrs: Any, inputs: Sequence[Input | None], target: Target) -> None:
    """As a product; row by row, for few rows."""
    s.add(gemm, name="dense.product", plevel=10)
    data = inputs[0]
    assert data is not None
    few = data.shape[0] <= 4 and data.shape[-1] % LANES == 0
    turned = bool(attrs.transB) and not attrs.transA
    floats = data.dtype.startswith("float")
    s.add(gemm_rows, name="dense.rows", plevel=8, when=few and turned and floats)
