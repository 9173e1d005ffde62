"""Other ways to compute convolutions and products, and the strategies that offer them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched import te
from autosched.graph.ops import running as running  # the strategies of running sums
from autosched.graph.ops.conv import Window, biased, conv, convolved, with_bias
from autosched.graph.ops.linear import gemm
from autosched.graph.ops.quantised import SUMS, conv_sums, padding_value, sums_of
from autosched.graph.ops.tensors import (
    TensorLike,
    View,
    in_wider,
    is_empty,
    parameter,
    rounded,
    stage,
    widened,
)
from autosched.graph.ops.window_rows import Row, by_rows, row_of, row_of_vectors, summed_by_rows
from autosched.graph.ops.winograd import F2, F4, Whole, results, tiled, whole_results
from autosched.graph.strategies import Input, Strategy, strategy
from autosched.target import Target
from autosched.tir import dtypes

Array = npt.NDArray[Any]
LANES = 16
VNNI = frozenset(("avx512vnni", "avxvnni"))
"""Features of targets whose vectors multiply bytes."""


def _window(x: TensorLike | Input, kernel: Sequence[int], attrs: Mapping[str, Any]) -> Window:
    """The window of a convolution whose weight's shape does not tell it."""
    names = ("strides", "dilations", "pads", "auto_pad")
    given = {n: attrs[n] for n in names if n in attrs}
    return Window(x.shape[2:], kernel_shape=kernel, **given)


def conv_winograd(x: TensorLike, w: TensorLike, b: TensorLike | None = None, **attrs: Any) -> Any:
    """Convolution by 3 x 3 windows at stride 1 along the last two axes as products of 6 x 6 tiles.
    w is transformed beforehand: (6, 6, ..., CI, CO)."""
    kernel = (*(int(n) for n in w.shape[2:-2]), 3, 3)
    window = _window(x, kernel, attrs)
    products = tiled(x, w, window, F4, te.const(0, x.dtype), x.dtype)
    return biased(results(products, window, F4.tile, F4.output, x.dtype), b, window)


def sums_by(whole: Whole) -> Callable[..., Any]:
    """`conv_sums` by 3 x 3 windows at stride 1, as products of tiles of 16 bits; its w is
    transformed beforehand."""

    def compute(x: TensorLike, w: TensorLike, fill: TensorLike | None = None, **attrs: Any) -> Any:
        window = _window(x, (3, 3), attrs)
        products = tiled(x, w, window, whole.transform, padding_value(x, fill), "int32")
        return whole_results(products, window, whole)

    return compute


def conv_groups(x: TensorLike, w: TensorLike, b: TensorLike | None = None, **attrs: Any) -> Any:
    """A convolution in groups whose weights lie group by group: w is (group, window, CI / group,
    CO / group), transformed beforehand by `by_group`.

    In one array of all filters a group's rows are as far apart as all filters are wide, most often
    a power of two: then they share a few sets of the first cache.
    """
    group, *kernel = (int(n) for n in w.shape[:-2])
    return with_bias(x, _by_filter(w), b, group, _window(x, kernel, attrs), free=w)


def _by_filter(w: TensorLike) -> View:
    """Weights (group, window, CI / group, CO / group) as (CO, CI / group, window)."""
    group, *kernel, depth, each = (int(n) for n in w.shape)
    return View(
        (group * each, depth, *kernel),
        w.dtype,
        lambda co, ci, *r: w(co // each, *r, ci, co % each),
        "filters",
    )


def by_group(group: int) -> Callable[[Array], Array]:
    """What makes of a weight (CO, CI / group, window) one that `conv_groups` takes."""

    def prepare(weight: Array) -> Array:
        parts = weight.reshape(group, -1, *weight.shape[1:])
        return np.ascontiguousarray(np.moveaxis(parts, (1, 2), (-1, -2)))

    return prepare


def conv_product(x: TensorLike, w: TensorLike, b: TensorLike | None = None, **attrs: Any) -> Any:
    """A 1 x 1 convolution at stride 1 as a product: all positions are one axis of rows."""
    weight, kind = parameter(w), x.dtype
    x, w = widened(x), widened(w)
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

    return rounded(stage((images, w.shape[0], *spatial), result, "conv"), kind)


@in_wider
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
    lhs, rhs = widened(a), widened(b)
    parts = te.compute(
        (rows, columns, LANES),
        lambda i, j, v: te.sum(lhs(i, k * LANES + v) * rhs(j, k * LANES + v), axis=k),
        name="parts",
    )
    v = te.reduce_axis((0, LANES), name="v")
    total = te.compute((rows, columns), lambda i, j: te.sum(parts[i, j, v], axis=v), name="total")
    wide = None if c is None or beta == 0 else c

    def element(i: Any, j: Any) -> Any:
        e = total[i, j] * te.const(alpha, lhs.dtype)
        if wide is None:
            return te.cast(e, a.dtype)
        at = [i if n != 1 else 0 for n in wide.shape[:-1]] + [j if wide.shape[-1] != 1 else 0]
        return te.cast(e + te.cast(wide(*at), e.dtype) * te.const(beta, e.dtype), a.dtype)

    return stage((rows, columns), element, "gemm", axes=("i", "j"))


FEW, MANY = (49, 10), (9, 24)
"""Tiles, and CI * CO / (CI + CO) channels, from which on Winograd's form is the faster one."""
FEW_OF_BYTES = (49, 28)
"""The same where the target multiplies twice as many bytes as words at a time. Weights are 8 times
as large then; few tiles take less time than these take from memory."""


def _winograd_gains(
    data: Input,
    weight: Input,
    tile: int = F4.tile,
    least: tuple[tuple[int, int], ...] = (FEW, MANY),
) -> bool:
    """Whether Winograd's form is the faster one untuned (`docs/lab/graph-speed-2026-11.md`).

    It saves 3/4 of the products, in proportion to CI * CO; its transforms cost in proportion to
    CI + CO; and its weights, four times as large, are read once whatever the number of tiles.
    float16 loses too many bits in the transforms.
    """
    (images, depth, *spatial), filters = data.shape, weight.shape[0]
    if data.dtype == "float16" or not _known((images, depth, filters, *spatial)):
        return False
    *outer, h, wide = spatial
    tiles = images * math.prod(outer) * -(-h // tile) * -(-wide // tile)
    channels = depth * filters / (depth + filters)
    return any(tiles >= n and channels >= c for n, c in least)


@strategy("Conv")
def conv_strategy(s: Strategy, attrs: Any, inputs: Sequence[Input | None], target: Target) -> None:
    """Directly; by Winograd's transform; by groups; 1 x 1 as a product."""
    s.add(conv, name="conv.direct", plevel=10)
    data, weight = inputs[:2]
    assert data is not None
    assert weight is not None
    ones = all(n == 1 for n in (*attrs.strides, *attrs.dilations)) and attrs.group == 1
    if target.is_gpu or not data.dtype.startswith("float"):
        return
    last = (*attrs.strides[-2:], *attrs.dilations[-2:])
    near = attrs.group == 1 and attrs.kernel_shape[-2:] == (3, 3) and set(last) == {1}
    s.add(
        conv_winograd,
        name="conv.winograd",
        plevel=15 if near and _winograd_gains(data, weight) else 8,
        when=near and weight.constant and data.dtype != "float16",
        prepare={1: F4.weights},
    )
    if weight.constant and attrs.group > 1 and _known(weight.shape):
        each, lanes = weight.shape[0] // attrs.group, target.vector_bytes // 4
        s.add(
            conv_groups,
            name="conv.groups",
            plevel=12,
            when=each >= lanes and weight.shape[1] > 1,
            prepare={1: by_group(attrs.group)},
        )
    flat = all(n == 1 for n in attrs.kernel_shape) and not any(attrs.pads)
    s.add(conv_product, name="conv.product", plevel=7, when=ones and flat)


def conv_sums_wide(
    x: TensorLike, w: TensorLike, fill: TensorLike | None = None, **attrs: Any
) -> Any:
    """`conv_sums` of a copy of x in 16 bits; w is int16."""
    around = fill if fill is None else View(fill.shape, w.dtype, _cast(fill, w.dtype))
    return conv_sums(stage(x.shape, _cast(x, w.dtype), "wide"), w, around, **attrs)


def conv_sums_float(x: TensorLike, w: TensorLike, **attrs: Any) -> Any:
    """`conv_sums` of bfloat16, padded with zeros, as products of float32, which are the same
    numbers; w is float32."""
    return conv(View(x.shape, w.dtype, _cast(x, w.dtype), "wide"), w, None, **attrs)


def _cast(x: TensorLike, dtype: str) -> Callable[..., Any]:
    return lambda *at: te.cast(x(*at), dtype)


def _is_wider_faster(data: Input, weight: Input, target: Target) -> bool:
    """Whether products of bytes are faster in 16 bits (`docs/lab/low-precision-2026-11.md`): where
    the target multiplies pairs of 16 bits (vpmaddwd) and no bytes."""
    return not {*VNNI, "amx-int8"} & target.features and _multiplies_words(data, weight, target)


def _multiplies_words(data: Input, weight: Input, target: Target) -> bool:
    """Whether bytes may be multiplied as 16 bits, in pairs (vpmaddwd, vpdpwssd): tile registers
    multiply eight times as many bytes."""
    pairs = "avx2" in target.features and "amx-int8" not in target.features
    return pairs and {data.dtype, weight.dtype} <= {"uint8", "int8"}


def sums_groups(x: TensorLike, w: TensorLike, fill: TensorLike | None = None, **attrs: Any) -> Any:
    """`conv_sums` in groups whose weights lie group by group, as those of `conv_groups`; w is
    transformed beforehand by `by_joined_groups`."""
    group, *kernel = (int(n) for n in w.shape[:-2])
    window, around = _window(x, kernel, attrs), padding_value(x, fill)
    return convolved(x, _by_filter(w), group, window, around, sums_of(x), free=w)


def by_joined_groups(group: int, joined: int) -> Callable[[Array], Array]:
    """What makes of a weight (CO, CI / group, window) one of fewer groups, each of so many joined,
    that `sums_groups` takes: an element between two of these is 0."""

    def prepare(weight: Array) -> Array:
        filters, depth, *kernel = weight.shape
        each = filters // group
        wide = np.zeros((group // joined, joined, each, joined, depth, *kernel), weight.dtype)
        parts = weight.reshape(group // joined, joined, each, depth, *kernel)
        for n in range(joined):
            wide[:, n, :, n] = parts[:, n]
        whole = wide.reshape(-1, joined * depth, *kernel)
        return by_group(group // joined)(whole)

    return prepare


def sums_rows(kernel: Sequence[int], row: Row) -> Callable[..., Any]:
    """`conv_sums` by rows of windows of this shape (`window_rows.py`); its w is transformed
    beforehand."""

    def compute(x: TensorLike, w: TensorLike, fill: TensorLike | None = None, **attrs: Any) -> Any:
        window, around = _window(x, kernel, attrs), padding_value(x, fill)
        return summed_by_rows(x, w, window, row, around, sums_of(x))

    return compute


def _row(attrs: Any, data: Input, weight: Input, target: Target) -> Row | None:
    """How a convolution is computed by rows of windows on the target's tiles or, of bytes, vectors;
    None where that is no gain."""
    kinds, filters = {data.dtype, weight.dtype}, weight.shape[0]
    if attrs.group > 1 or not _known(data.shape[1:]):
        return None
    window = _window(data, attrs.kernel_shape, vars(attrs))
    if kinds == {"bfloat16"} and "amx-bf16" in target.features:
        return row_of(data.shape[1], filters, window, 32, 2, finite=False)
    if kinds <= {"uint8", "int8"} and "amx-int8" in target.features:
        return row_of(data.shape[1], filters, window, 64, 4, finite=True)
    if (data.dtype, weight.dtype) == ("uint8", "int8") and VNNI & target.features:
        return row_of_vectors(data.shape[1], window, 4)
    return None


MOST_JOINED = 4
"""Groups: of products with so many joined all but a fourth are with zeros."""
WORTH_JOINING = range(4, 33)
"""Channels a group of which more than two groups may be joined: with fewer there are few products,
with more too many with zeros."""


SHALLOW = range(2, 9)
"""Channels of an image that leave most of a tile's 32 terms empty."""


def _joined(
    group: int, each: int, depth: int, kinds: tuple[str, str], target: Target
) -> int | None:
    """How many groups make one of whole vectors of results, and of whole groups of terms of an
    instruction; None where their weights are better left as they are."""
    if depth == 1:
        return None
    if kinds == ("bfloat16", "bfloat16"):  # not joined: 0 times what is not finite is no 0
        fits = "avx512bf16" in target.features and each % 16 == 0 and depth % 2 == 0
        return 1 if fits else None
    if kinds != ("uint8", "int8"):
        return None
    lanes = [16] if "avx512vnni" in target.features else []
    lanes += [8] if "avxvnni" in target.features else []
    most = MOST_JOINED if depth in WORTH_JOINING else 2
    numbers = [n for n in range(1, min(group, most) + 1) if group % n == 0 and n * depth % 4 == 0]
    fitting = (n for width in lanes for n in numbers if n * each % width == 0)
    return next(fitting, None)


WHOLE = (Whole(F4), Whole(F2))
"""The faster first."""
WIDE_ROWS = 32
"""Results of an element of the weights from which on it matters little that they take twice the
memory."""


def _is_exact(whole: Whole, data: Input, weight: Input, bits: int) -> bool:
    """Whether no result can be too large for a transform in integers, whatever the data."""
    kinds = (data.dtype, weight.dtype)
    largest = (max(-dtypes.minimum(t), dtypes.maximum(t)) for t in kinds)
    most = min(math.prod(largest) * math.prod(weight.shape[1:]), (1 << bits - 1) - 1)
    return bool(most < whole.most)


@strategy(SUMS["Conv"])
def conv_sums_strategy(
    s: Strategy, attrs: Any, inputs: Sequence[Input | None], target: Target
) -> None:
    """Directly; by groups; by rows; in float32; in 16 bits; by Winograd's transform in integers."""
    s.add(conv_sums, name="conv_sums.direct", plevel=10)
    data, weight = inputs[:2]
    assert data is not None
    assert weight is not None
    if not weight.constant:
        return
    group = attrs.group
    if group > 1 and _known(weight.shape):
        kinds = (data.dtype, weight.dtype)
        n = _joined(group, weight.shape[0] // group, weight.shape[1], kinds, target)
        if n is not None:
            prepare = {1: by_joined_groups(group, n)}
            s.add(sums_groups, name="conv_sums.groups", plevel=12, prepare=prepare)
    row = _row(attrs, data, weight, target)
    if row is not None:
        compute, prepare = sums_rows(attrs.kernel_shape, row), {1: by_rows(row)}
        s.add(compute, name="conv_sums.rows", plevel=14, prepare=prepare)
    if "bfloat16" in (data.dtype, weight.dtype):
        # Few terms fill no tile, and products of vectors are slow (`sketch/rules/dots.py`).
        few = "amx-bf16" in target.features and group == 1 and weight.shape[1] in SHALLOW
        few = few and not any(inputs[2:])
        prepare = {1: dtypes.to_float32}
        s.add(conv_sums_float, name="conv_sums.float", plevel=12, when=few, prepare=prepare)
        return
    if _is_wider_faster(data, weight, target):
        pixels = data.shape[2:]
        many = _known(pixels) and math.prod(pixels) >= WIDE_ROWS and attrs.group == 1
        level = 12 if many else 8
        s.add(conv_sums_wide, name="conv_sums.wide", plevel=level, prepare={1: _widened})
    ones = all(n == 1 for n in (*attrs.strides, *attrs.dilations)) and attrs.group == 1
    if not ones or attrs.kernel_shape != (3, 3) or not _known(data.shape):
        return
    if not _multiplies_words(data, weight, target):
        return
    whole = next((t for t in WHOLE if _is_exact(t, data, weight, attrs.bits)), None)
    words = _is_wider_faster(data, weight, target)
    if whole is None or (whole.transform is F2 and not words):
        return  # F(2 x 2) saves 5/9 of the products, and words take twice the time of bytes
    least = (FEW, MANY) if words else (FEW_OF_BYTES,)
    tile = whole.transform.tile
    level = 15 if _winograd_gains(data, weight, tile, least) else 7
    s.add(
        sums_by(whole), name=f"conv_sums.winograd{tile}", plevel=level, prepare={1: whole.weights}
    )


def _widened(weight: Array) -> Array:
    return np.ascontiguousarray(weight, np.int16)


def _known(sizes: Sequence[Any]) -> bool:
    return all(isinstance(n, int) for n in sizes)


@strategy("Gemm")
def dense_strategy(s: Strategy, attrs: Any, inputs: Sequence[Input | None], target: Target) -> None:
    """As a product; row by row, for few rows."""
    s.add(gemm, name="dense.product", plevel=10)
    data = inputs[0]
    assert data is not None
    few = data.shape[0] <= 4 and data.shape[-1] % LANES == 0 and not is_empty(data.shape)
    turned = bool(attrs.transB) and not attrs.transA
    floats = data.dtype.startswith("float")
    s.add(gemm_rows, name="dense.rows", plevel=8, when=few and turned and floats)
