"""Reductions: a table, and the arguments of maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any, NamedTuple

from autosched import te
from autosched.graph.ops.registry import Operator, add, operator
from autosched.graph.ops.tensors import (
    TensorLike,
    constant,
    count,
    in_wider,
    is_empty,
    normal_axes,
    normal_axis,
    stage,
)
from autosched.tir import dtypes


class Reduction(NamedTuple):
    """combine(before(x)), then `after(total, number of elements)`."""

    combine: Callable[..., Any] = te.sum
    before: Callable[[Any], Any] = lambda x: x
    after: Callable[[Any, int], Any] | None = None

    def of(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """An operator's definition that reduces so: float16 but for maxima and minima in float32,
        as the total may be out of its range where the result is not."""
        return compute if self.combine in (te.max, te.min) else in_wider(compute)


REDUCTIONS = {
    "ReduceL1": Reduction(before=te.abs),
    "ReduceL2": Reduction(before=lambda x: x * x, after=lambda t, n: _real(te.sqrt, t)),
    "ReduceLogSum": Reduction(after=lambda t, n: _real(te.log, t)),
    "ReduceMax": Reduction(te.max),
    "ReduceMean": Reduction(after=lambda t, n: _over(t, n)),
    "ReduceMin": Reduction(te.min),
    "ReduceProd": Reduction(te.prod),
    "ReduceSum": Reduction(),
    "ReduceSumSquare": Reduction(before=lambda x: x * x),
}


IDENTITIES: dict[Any, Callable[[str], Any]] = {
    te.sum: lambda dtype: 0,
    te.prod: lambda dtype: 1,
    te.max: lambda dtype: -inf if dtypes.is_float(dtype) else te.min_value(dtype).value,
    te.min: lambda dtype: inf if dtypes.is_float(dtype) else te.max_value(dtype).value,
}
"""What is combined from nothing."""


def _real(function: Callable[[Any], Any], total: Any) -> Any:
    """The function of a number; of an integer the part before the point, as onnxruntime."""
    if dtypes.is_float(total.dtype):
        return function(total)
    return te.cast(function(te.cast(total, "float64")), total.dtype)


def _over(total: Any, n: int) -> Any:
    if dtypes.is_float(total.dtype):
        return total * (1 / n if n else nan)
    return te.truncdiv(total, n)  # as onnxruntime, towards zero


def reduced(x: TensorLike, axes: Sequence[int], keepdims: bool, rule: Reduction, name: str) -> Any:
    """`x` reduced over `axes`."""
    rank = len(x.shape)
    kept = [d for d in range(rank) if d not in axes]
    shape = [1 if d in axes else x.shape[d] for d in range(rank) if keepdims or d not in axes]
    places = {d: n if keepdims else kept.index(d) for n, d in enumerate(range(rank)) if d in kept}

    def element(*at: Any) -> Any:
        over = {d: te.reduce_axis((0, x.shape[d]), name=f"r{d}") for d in axes}
        e = rule.before(x(*(over[d] if d in over else at[places[d]] for d in range(rank))))
        return rule.combine(e, axis=list(over.values()))

    if not axes:
        return stage(x.shape, lambda *at: rule.before(x(*at)), name)
    if is_empty([x.shape[d] for d in axes]):
        total = constant(IDENTITIES[rule.combine](x.dtype), x.dtype, shape)
    else:
        total = stage(shape, element, name)
    if rule.after is None:
        return total
    after, n = rule.after, count([x.shape[d] for d in axes])
    return stage(shape, lambda *at: after(total(*at), n), f"{name}_end")


def _reduction(name: str, rule: Reduction) -> None:
    def compute(
        x: TensorLike,
        *,
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Any:
        if not axes:
            axes = [] if noop_with_empty_axes else None
        over = normal_axes(axes, len(x.shape))
        if not over and rule.after is not None:
            rest = rule.after
            return stage(x.shape, lambda *at: rest(rule.before(x(*at)), 1), name.lower())
        return reduced(x, over, bool(keepdims), rule, name.lower())

    add(Operator(name, rule.of(compute), {1: "axes"}))


for _name, _rule in REDUCTIONS.items():
    _reduction(_name, _rule)


@operator("ReduceLogSumExp", static={1: "axes"})
@in_wider
def reduce_log_sum_exp(
    x: TensorLike,
    *,
    axes: Sequence[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Any:
    """log(sum(exp(x))), with the maximum taken out before, where it is finite."""
    if not axes:
        axes = [] if noop_with_empty_axes else None
    over, dtype = normal_axes(axes, len(x.shape)), x.dtype
    if not dtypes.is_float(dtype):
        whole = x
        x = stage(x.shape, lambda *at: te.cast(whole(*at), "float64"), "wide")
    largest = reduced(x, over, True, Reduction(te.max), "largest")
    top = stage(
        largest.shape, lambda *at: te.select(te.isfinite(largest(*at)), largest(*at), 0), "top"
    )
    moved = stage(
        x.shape,
        lambda *at: te.exp(x(*at) - top(*(0 if d in over else i for d, i in enumerate(at)))),
        "moved",
    )
    total = reduced(moved, over, True, Reduction(), "total")
    kept = [d for d in range(len(x.shape)) if keepdims or d not in over]

    def element(*at: Any) -> Any:
        places = dict(zip(kept, at, strict=True))
        where = [places.get(d, 0) for d in range(len(x.shape))]
        return te.cast(te.log(total(*where)) + top(*where), dtype)

    return stage([total.shape[d] for d in kept], element, "reducelogsumexp")


def best_index(
    name: str, better: Callable[[Any, Any], Any], worst: Callable[[str], Any]
) -> Callable[..., Any]:
    """The definition of the index of the best element along an axis."""

    def compute(
        x: TensorLike, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Any:
        at_axis = normal_axis(axis, len(x.shape))
        n: Any = x.shape[at_axis]
        # The index of no element, which stands where all are NaN, or none is better than the worst.
        none: Any = n - 1 if select_last_index else 0
        if not x.dtype.startswith(("float", "bfloat")):  # the worst may occur: any index is better
            none = (te.min_value if select_last_index else te.max_value)("int64")

        def combine(a: Any, b: Any) -> Any:
            later = b[1] > a[1] if select_last_index else b[1] < a[1]
            take = te.any(better(b[0], a[0]), te.all(b[0] == a[0], later))
            return te.select(take, b[0], a[0]), te.select(take, b[1], a[1])

        find = te.comm_reducer(
            combine, lambda d, i: (worst(d), none + te.const(0, "int64")), name="arg"
        )
        shape = [
            1 if d == at_axis else m for d, m in enumerate(x.shape) if keepdims or d != at_axis
        ]

        def element(*at: Any) -> Any:
            k = te.reduce_axis((0, n), name="k")
            outer = [i for d, i in enumerate(at) if d != at_axis] if keepdims else list(at)
            return find((x(*outer[:at_axis], k, *outer[at_axis:]), k + 0), axis=k)

        return stage(shape, element, name.lower())[1]

    return compute


add(Operator("ArgMax", best_index("ArgMax", lambda b, a: b > a, te.min_value)))
add(Operator("ArgMin", best_index("ArgMin", lambda b, a: b < a, te.max_value)))


STRETCH = 32
"""Elements of a running sum that are added up by themselves."""


def _cumulative(name: str, combine: Callable[..., Any], both: Callable[[Any, Any], Any]) -> None:
    def compute(x: TensorLike, *, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
        along = normal_axis(int(axis if isinstance(axis, int) else axis[0]), len(x.shape))
        n = x.shape[along]
        if is_empty(x.shape):
            return x
        if isinstance(n, int) and n > 2 * STRETCH:
            return by_stretches(x, along, n, exclusive, reverse)

        def element(*at: Any) -> Any:
            k = te.reduce_axis((0, n), name="k")
            i = at[along]
            if reverse:
                inside = k > i if exclusive else k >= i
            else:
                inside = k < i if exclusive else k <= i
            return combine(x(*at[:along], k, *at[along + 1 :]), axis=k, where=inside)

        return stage(x.shape, element, name.lower())

    def by_stretches(x: TensorLike, along: int, n: int, exclusive: int, reverse: int) -> Any:
        """Sums of whole stretches, what is before each of them, and sums inside each: of n elements
        n * STRETCH additions in place of n * n."""
        many = -(-n // STRETCH)

        def placed(at: Any, *places: Any) -> tuple[Any, ...]:
            return (*at[:along], *places, *at[along + 1 :])

        def read(at: Any, s: Any, k: Any) -> Any:
            place = s * STRETCH + k
            return x(*placed(at, n - 1 - place if reverse else place))

        def total(*at: Any) -> Any:
            k = te.reduce_axis((0, STRETCH), name="k")
            s = at[along]
            return combine(read(at, s, k), axis=k, where=s * STRETCH + k < n)

        def inside(*at: Any) -> Any:
            k = te.reduce_axis((0, STRETCH), name="k")
            s, j = at[along : along + 2]
            at = (*at[:along], s, *at[along + 2 :])
            counted = k < j if exclusive else k <= j
            return combine(read(at, s, k), axis=k, where=te.all(counted, s * STRETCH + k < n))

        sums = stage(placed(x.shape, many), total, f"{name.lower()}_total")
        before = compute(sums, axis=along, exclusive=1)
        parts = stage(placed(x.shape, many, STRETCH), inside, f"{name.lower()}_inside")

        def element(*at: Any) -> Any:
            i = n - 1 - at[along] if reverse else at[along]
            s, j = te.floordiv(i, STRETCH), te.floormod(i, STRETCH)
            return both(before(*placed(at, s)), parts(*placed(at, s, j)))

        return stage(x.shape, element, name.lower())

    add(Operator(name, in_wider(compute), {1: "axis"}))


_cumulative("CumSum", te.sum, lambda a, b: a + b)
_cumulative("CumProd", te.prod, lambda a, b: a * b)
