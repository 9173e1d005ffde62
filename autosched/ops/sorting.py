"""Sorting and writing to places that data name, as tensor expressions.

A tensor expression says what an element is, so an order is found by counting: an element's rank is
the number of elements before it. That is n comparisons an element, all in vectors and in parallel;
for rows of up to some thousands. Equal elements keep their order, and NaN come last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from autosched import te
from autosched.checks import shown
from autosched.errors import WorkloadError
from autosched.integers import as_int
from autosched.te import Tensor
from autosched.tir import dtypes
from autosched.tir.expr import Expr

Reduction = Literal["none", "add", "mul", "max", "min"]


def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The indices (int64) that sort x along an axis; NumPy's `argsort(kind="stable")`."""
    at = _axis("argsort", x, axis)
    return _order("argsort", x, at, _ranks(x, at, descending), x.shape[at])


def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """x sorted along an axis."""
    at = _axis("sort", x, axis)
    return _taken("sort", x, argsort(x, at, descending), at)


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, best first, and their indices (int64).
    Raises WorkloadError for a k that is not from 1 to the extent of the axis."""
    at = _axis("topk", x, axis)
    number, extent = as_int(k), x.shape[at]
    if number is None or not isinstance(extent, int) or not 1 <= number <= extent:
        raise WorkloadError(f"k of topk is {shown(k)}; expected an int from 1 to {extent}")
    order = _order("topk", x, at, _ranks(x, at, largest), number)
    return _taken("topk_values", x, order, at), order


def unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(values, inverse, counts, number) of x (n,): the different elements in order, which of them
    each element is, how often each occurs, and, of shape (), how many there are (int64).

    Shapes do not depend on data: values and counts are (n,), the largest element and 0 standing
    beyond `number`. Elements are compared by ==, so every NaN is another one.
    """
    if len(x.shape) != 1:
        raise WorkloadError(f"unique takes one dimension, found the shape {x.shape}; flatten it")
    (n,) = x.shape
    ordered = sort(x)
    first = te.compute(
        (n,),
        lambda i: te.if_then_else(
            i == 0, te.const(1, "int64"), (ordered[te.max(i - 1, 0)] != ordered[i]).astype("int64")
        ),
        name="unique_first",
    )
    k = te.reduce_axis((0, n), name="k")
    place = te.compute(
        (n,),
        lambda i: te.sum(te.select(k <= i, first[k], 0), axis=k),
        name="unique_place",
    )
    number = te.compute((), lambda: te.sum(first[k], axis=k), name="unique_number")
    r = te.reduce_axis((0, n), name="r")
    start = te.compute(
        (n,), lambda i: te.min(te.select(place[r] == i + 1, r, n - 1), axis=r), name="unique_start"
    )
    values = te.compute((n,), lambda i: ordered[te.clamp_index(start[i], n)], name="unique_values")
    counts = te.compute(
        (n,), lambda i: te.sum((place[k] == i + 1).astype("int64"), axis=k), name="unique_counts"
    )
    rank = _ranks(x, 0, False)
    inverse = te.compute(
        (n,), lambda i: place[te.clamp_index(rank[i], n)] - 1, name="unique_inverse"
    )
    return values, inverse, counts, number


def scatter(
    x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: Reduction = "none"
) -> Tensor:
    """x with updates[i, …] combined into place indices[i, …] along an axis; with "none" it replaces
    what is there, the last of several to one place counting. ONNX's ScatterElements.

    `indices` and `updates` have one shape, of x's rank, that of x but along the axis; an index from
    -n counts from the end, and one beyond writes nothing. Every element looks at all updates of its
    line. Raises WorkloadError on other shapes, dtypes and reductions.
    """
    at = _axis("scatter", x, axis)
    rest = [tuple(n for d, n in enumerate(t.shape) if d != at) for t in (x, indices, updates)]
    if indices.shape != updates.shape or len(x.shape) != len(indices.shape) or rest[0] != rest[1]:
        raise WorkloadError(
            f"scatter into {x.shape} along axis {at} takes indices and updates of one shape, equal "
            f"but along that axis; found {indices.shape} and {updates.shape}"
        )
    if updates.dtype != x.dtype or not dtypes.is_int(indices.dtype):
        raise WorkloadError(
            f"scatter into {x.dtype} takes updates of that dtype and indices of an integer one; "
            f"found {updates.dtype} and {indices.dtype}"
        )
    if reduction not in _COMBINED and reduction != "none":
        raise WorkloadError(
            f"reduction of scatter is {shown(reduction)}; expected one of none, "
            f"{', '.join(_COMBINED)}"
        )
    n = x.shape[at]
    j = te.reduce_axis((0, updates.shape[at]), name="j")

    def meant(p: Sequence[Any]) -> Expr:
        """Whether update j of the line is for this place."""
        index = te.cast(indices(*p[:at], j, *p[at + 1 :]), "int64")
        return te.any(index == p[at], index + n == p[at])

    if reduction == "none":
        last = te.compute(
            x.shape,
            lambda *p: te.max(te.select(meant(p), te.cast(j, "int64"), -1), axis=j),
            name="scatter_last",
        )

        def chosen(*p: Any) -> Expr:
            found = te.clamp_index(last(*p), updates.shape[at])
            return te.if_then_else(last(*p) >= 0, updates(*p[:at], found, *p[at + 1 :]), x(*p))

        out: Tensor = te.compute(x.shape, chosen, name="scatter")
        return out
    combine = _COMBINED[reduction]
    total = te.compute(
        x.shape,
        lambda *p: combine(updates(*p[:at], j, *p[at + 1 :]), axis=j, where=meant(p), init=x(*p)),
        name="scatter",
    )
    assert isinstance(total, Tensor)
    return total


_COMBINED: dict[str, Callable[..., Expr]] = {
    "add": te.sum,
    "mul": te.prod,
    "max": te.max,
    "min": te.min,
}

SORTING: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (argsort, sort, topk, unique, scatter)
}
"""By name."""


def _axis(what: str, x: Any, axis: Any) -> int:
    """The axis counted from the front."""
    if not isinstance(x, Tensor):
        raise WorkloadError(f"{what} takes a tensor, found {shown(x)}")
    number, rank = as_int(axis), len(x.shape)
    if number is None or not -rank <= number < rank:
        raise WorkloadError(
            f"axis of {what} is {shown(axis)}; expected an int from {-rank} to {rank - 1}"
        )
    return number % rank


def _before(a: Expr, b: Expr, descending: bool) -> Expr:
    """Whether a comes before b, as numbers; NaN come last."""
    less = a > b if descending else a < b
    return te.any(less, te.all(te.isnan(b), a == a)) if dtypes.is_float(a.dtype) else less


def _ranks(x: Tensor, at: int, descending: bool) -> Tensor:
    """How many elements of its line come before each."""
    k = te.reduce_axis((0, x.shape[at]), name="k")

    def rank(*p: Any) -> Expr:
        other, mine = x(*p[:at], k, *p[at + 1 :]), x(*p)
        first = _before(other, mine, descending)
        tied = te.logical_not(te.any(first, _before(mine, other, descending)))
        return te.sum(te.any(first, te.all(tied, k < p[at])).astype("int64"), axis=k)

    out: Tensor = te.compute(x.shape, rank, name="rank")
    return out


def _order(what: str, x: Tensor, at: int, rank: Tensor, length: Any) -> Tensor:
    """The index of the element of each rank below `length`."""
    k = te.reduce_axis((0, x.shape[at]), name="k")
    shape = (*x.shape[:at], length, *x.shape[at + 1 :])
    out: Tensor = te.compute(
        shape,
        lambda *p: te.sum(te.select(rank(*p[:at], k, *p[at + 1 :]) == p[at], k, 0), axis=k),
        name=what,
    )
    return out


def _taken(what: str, x: Tensor, order: Tensor, at: int) -> Tensor:
    """The elements of x at indices along an axis."""
    out: Tensor = te.compute(
        order.shape,
        lambda *p: x(*p[:at], te.clamp_index(order(*p), x.shape[at]), *p[at + 1 :]),
        name=what,
    )
    return out
