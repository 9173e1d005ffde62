"""Pooling over any number of spatial axes: N, C, spatial."""

from __future__ import annotations

from typing import Any

from autosched import te
from autosched.graph.ops.conv import Window
from autosched.graph.ops.reduce import Reduction, reduced
from autosched.graph.ops.registry import Operator, add, operator
from autosched.graph.ops.tensors import TensorLike, in_wider, row_major, stage


@operator("MaxPool", spatial=True, attrs_of=Window)
def max_pool(x: TensorLike, *, storage_order: int = 0, outputs: int = 1, **attrs: Any) -> Any:
    """The largest element of each window."""
    window = Window(x.shape[2:], **attrs)
    source = window.padded(x, te.min_value(x.dtype))
    if outputs > 1:
        return _with_places(x, source, window, storage_order)

    def element(n: Any, c: Any, *at: Any) -> Any:
        r = window.axes()
        return te.max(source(n, c, *window.at(at, r)), axis=r)

    return stage([*x.shape[:2], *window.out], element, "max_pool", axes=window.labels)


def _with_places(x: TensorLike, source: TensorLike, window: Window, by_columns: int) -> Any:
    """The largest element of each window, and its number in x: row by row, or with `by_columns`
    the first spatial axis fastest."""
    find = te.comm_reducer(
        lambda a, b: (
            te.select(b[0] > a[0], b[0], a[0]),
            te.select(b[0] > a[0], b[1], a[1]),
        ),
        lambda dtype, index: (te.min_value(dtype), te.const(0, index)),
        name="max_place",
    )
    spatial = list(x.shape[2:])

    def element(n: Any, c: Any, *at: Any) -> Any:
        r = window.axes()
        where = window.at(at, r)
        inner = [i - b for i, b in zip(where, window.before, strict=True)]
        sizes = [*x.shape[:2], *(spatial[::-1] if by_columns else spatial)]
        place = row_major([n, c, *(inner[::-1] if by_columns else inner)], sizes)
        return find((source(n, c, *where), place + te.const(0, "int64")), axis=r)

    return stage([*x.shape[:2], *window.out], element, "max_pool", axes=window.labels)


@operator("AveragePool", spatial=True, attrs_of=Window)
@in_wider
def average_pool(x: TensorLike, *, count_include_pad: int = 0, **attrs: Any) -> Any:
    """The mean of each window; padding counts only with `count_include_pad`."""
    window = Window(x.shape[2:], **attrs)
    source = window.padded(x, te.const(0, x.dtype))

    def element(n: Any, c: Any, *at: Any) -> Any:
        r = window.axes()
        return te.sum(source(n, c, *window.at(at, r)), axis=r)

    def mean(n: Any, c: Any, *at: Any) -> Any:
        number: Any = 1
        for d, y in enumerate(at):
            number = number * _inside(window, d, y, bool(count_include_pad))
        if isinstance(number, int):
            return total(n, c, *at) * (1 / number)
        return total(n, c, *at) / te.cast(number, x.dtype)

    shape = [*x.shape[:2], *window.out]
    total = stage(shape, element, "pool_sum", axes=window.labels)
    return stage(shape, mean, "average_pool", axes=window.labels)


def _inside(window: Window, d: int, y: Any, padding: bool) -> Any:
    """How many elements of the window at position y are elements of the input (or padding)."""
    stride, dilation, k = window.strides[d], window.dilations[d], window.kernel[d]
    low = 0 if padding else window.before[d]
    high = window.spatial[d] + window.before[d] + (window.after[d] if padding else 0)
    last = (window.out[d] - 1) * stride + window.reach(d)
    if low == 0 and last <= high:
        return k
    first = y * stride
    # Elements first + r * dilation in [low, high).
    skipped = te.floordiv(te.max(low - first, 0) + (dilation - 1), dilation)
    reached = te.floordiv(te.max(high - first, 0) + (dilation - 1), dilation)
    return te.min(reached, k) - te.min(skipped, k)


def _global(name: str, rule: Reduction) -> None:
    def compute(x: TensorLike) -> Any:
        return reduced(x, tuple(range(2, len(x.shape))), True, rule, name.lower())

    add(Operator(name, rule.of(compute), spatial=True))


@operator("LpPool", spatial=True, attrs_of=Window)
@in_wider
def lp_pool(x: TensorLike, *, p: int = 2, **attrs: Any) -> Any:
    """The norm of each window: the p-th root of the sum of p-th powers."""
    window = Window(x.shape[2:], **attrs)
    source = window.padded(x, te.const(0, x.dtype))

    def element(n: Any, c: Any, *at: Any) -> Any:
        r = window.axes()
        return te.sum(_power(te.abs(source(n, c, *window.at(at, r))), p), axis=r)

    shape = [*x.shape[:2], *window.out]
    total = stage(shape, element, "pool_sum", axes=window.labels)
    return stage(shape, lambda *at: _power(total(*at), 1 / p), "lp_pool", axes=window.labels)


def _power(x: Any, p: float) -> Any:
    if p == 1:
        return x
    if p in (2, 0.5):
        return x * x if p == 2 else te.sqrt(x)
    return te.power(x, te.const(p, x.dtype))


@operator("GlobalLpPool", spatial=True)
@in_wider
def global_lp_pool(x: TensorLike, *, p: int = 2) -> Any:
    """The norm of each channel's elements."""
    rule = Reduction(before=lambda e: _power(te.abs(e), p), after=lambda t, n: _power(t, 1 / p))
    return reduced(x, tuple(range(2, len(x.shape))), True, rule, "global_lp_pool")


_global("GlobalAveragePool", Reduction(after=lambda total, n: total * (1 / n)))
_global("GlobalMaxPool", Reduction(te.max))
