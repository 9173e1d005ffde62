"""What operator definitions are written with: views, stages, broadcasting.

An operator is a function from tensors to tensors. What it takes is a te.Tensor or a `View`; what it
returns is made by `stage`, which computes, or is a View, which never does: the reader composes
its index map with its own. `within` sets how the stages of a group are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from math import prod
from types import MappingProxyType
from typing import Any, Union

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.te.tensor import ComputeOp, Extent, ExternOp, PlaceholderOp, Tensor
from autosched.tir.expr import Expr

Layouts = Mapping[int, tuple[int, ...]]
_NONE: Layouts = MappingProxyType({})
_layouts: ContextVar[Layouts] = ContextVar("autosched_graph_layouts", default=_NONE)


class View:
    """A tensor whose element at an index is an expression: a transposition, a slice, a constant.

    `base` is the tensor, stored in the order `layout` of the axes, that it is a view of and nothing
    else; None for all others.
    """

    __slots__ = ("base", "dtype", "element", "layout", "name", "shape")

    def __init__(
        self,
        shape: Sequence[Extent],
        dtype: str,
        element: Callable[..., Expr],
        name: str = "view",
        base: Tensor | None = None,
        layout: tuple[int, ...] = (),
    ) -> None:
        self.shape, self.dtype, self.element = tuple(shape), dtype, element
        self.name, self.base, self.layout = name, base, layout

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __call__(self, *indices: Any) -> Expr:
        """The element at `indices`."""
        return self.element(*indices)

    def __getitem__(self, indices: Any) -> Expr:
        return self(*indices) if isinstance(indices, tuple) else self(indices)


TensorLike = Union[Tensor, View]


@contextmanager
def within(layouts: Layouts) -> Iterator[None]:
    """While the block runs, stages of a rank are stored with their axes in this order."""
    token = _layouts.set(layouts)
    try:
        yield
    finally:
        _layouts.reset(token)


def stored(tensor: Tensor, layout: tuple[int, ...]) -> TensorLike:
    """What is stored as `tensor`, its axes in the order `layout`, as it is meant."""
    if not layout:
        return tensor
    shape = [tensor.shape[layout.index(d)] for d in range(len(layout))]
    return View(
        shape,
        tensor.dtype,
        lambda *at: tensor(*(at[d] for d in layout)),
        tensor.name,
        tensor,
        layout,
    )


def stage(
    shape: Sequence[Extent],
    element: Callable[..., Any],
    name: str,
    free: TensorLike | Sequence[TensorLike] | None = None,
    axes: Sequence[str] | None = None,
) -> Any:
    """A computation: `te.compute`, numbered where its name is taken. `free`: weights whose layouts
    are free where they are parameters. A tuple of elements gives a tuple of tensors."""
    rank = len(shape)
    if is_empty(shape):
        return _nothing(shape, element, name)
    layout = _layouts.get().get(rank, ())
    order = layout or tuple(range(rank))
    labels = tuple(axes or (f"i{n}" for n in range(rank)))
    given = free if isinstance(free, (list, tuple)) else [free]
    weights = [w for w in map(parameter, given) if w is not None]
    made = te.compute(
        tuple(shape[d] for d in order),
        lambda *at: element(*(at[order.index(d)] for d in range(rank))),
        name=name,
        varargs_names=[labels[d] for d in order],
        attrs={"layout_free_placeholders": weights} if weights else {},
    )
    several = isinstance(made, tuple)
    parts = made if several else (made,)
    op = replace(parts[0].op, auto_named=True)
    out = tuple(stored(Tensor(t.name, t.shape, t.dtype, op, t.value_index), layout) for t in parts)
    return out if several else out[0]


def sums(
    shape: Sequence[Extent],
    element: Callable[..., Any],
    over: Sequence[Extent],
    dtype: str,
    name: str,
    free: TensorLike | Sequence[TensorLike] | None = None,
    axes: Sequence[str] | None = None,
) -> Any:
    """A stage of sums over the extents `over`; 0 where one of them is 0, which te cannot say."""
    if is_empty(over):
        return constant(0, dtype, shape)
    return stage(shape, element, name, free=free, axes=axes)


def is_empty(shape: Sequence[Extent]) -> bool:
    """Whether a tensor of this shape has no elements. Such a tensor is a view that nothing reads:
    te has no empty ones."""
    return any(isinstance(n, int) and n == 0 for n in shape)


def _nothing(shape: Sequence[Extent], element: Callable[..., Any], name: str) -> Any:
    # What the elements would be, for their types only.
    axes = [te.placeholder((1,), "int64", f"i{n}")(0) for n in range(len(shape))]
    made = element(*axes)
    several = isinstance(made, tuple)
    views = tuple(
        View(shape, e.dtype, lambda *at, e=e: te.const(0, e.dtype), name)
        for e in (made if several else (made,))
    )
    return views if several else views[0]


def parameter(tensor: TensorLike | None) -> Tensor | None:
    """The placeholder that a tensor is, however it is stored."""
    base = tensor.base if isinstance(tensor, View) else tensor
    return base if base is not None and isinstance(base.op, PlaceholderOp) else None


def constant(value: Any, dtype: str, shape: Sequence[Extent] = ()) -> View:
    """A number everywhere."""
    element = te.const(value, dtype)
    return View(shape, dtype, lambda *at: element, "const")


def computed(tensor: TensorLike, layout: tuple[int, ...] = (), copy: bool = False) -> Tensor:
    """`tensor` as the result of a computation, stored in the order `layout`: itself where it is
    one, else a copy."""
    base = tensor.base if isinstance(tensor, View) else tensor
    kept = tensor.layout if isinstance(tensor, View) else ()
    made_here = base is not None and isinstance(base.op, (ComputeOp, ExternOp))
    if base is not None and made_here and kept == layout and not copy:
        return base
    with within({len(tensor.shape): layout} if layout else {}):
        made = stage(tensor.shape, tensor, "copy")
    found = made.base if isinstance(made, View) else made
    assert isinstance(found, Tensor)
    return found


def broadcast_shape(*shapes: Sequence[Extent]) -> tuple[Extent, ...]:
    """The shape that operands of these shapes have together, by NumPy's rules."""
    rank = max(map(len, shapes))
    out: list[Extent] = []
    for d in range(-rank, 0):
        found = [s[d] for s in shapes if len(s) >= -d]
        wide = [n for n in found if not (isinstance(n, int) and n == 1)]
        if any(not _equal(n, wide[0]) for n in wide):
            listed = " and ".join(str(tuple(s)) for s in shapes)
            raise Unsupported(f"shapes {listed} do not go together")
        out.append(wide[0] if wide else 1)
    return tuple(out)


def _equal(a: Extent, b: Extent) -> bool:
    return a is b or bool((a == b) is True)


def broadcast(tensor: TensorLike, shape: Sequence[Extent]) -> Callable[..., Expr]:
    """The element of `tensor` at an index of the wider `shape`."""
    skip = len(shape) - len(tensor.shape)
    # An extent of 1 in both is read at the axis itself, so that the read is elementwise.
    fixed = [
        isinstance(n, int) and n == 1 and not (isinstance(m, int) and m == 1)
        for n, m in zip(tensor.shape, shape[skip:], strict=True)
    ]
    return lambda *at: tensor(*(0 if f else i for f, i in zip(fixed, at[skip:], strict=True)))


def wider(dtype: str) -> str:
    """What is computed in for operands of a dtype: float32 for float16, whose sums and squares
    overflow and whose terms cancel; else itself."""
    return "float32" if dtype == "float16" else dtype


def widened(tensor: TensorLike) -> TensorLike:
    """`tensor` in the dtype of `wider`: itself, or a view, so that nothing is copied."""
    return as_dtype(tensor, wider(tensor.dtype))


def as_dtype(tensor: TensorLike, dtype: str) -> TensorLike:
    """`tensor` in another dtype: itself, or a view."""
    if tensor.dtype == dtype:
        return tensor
    return View(tensor.shape, dtype, lambda *at: te.cast(tensor(*at), dtype), tensor.name)


def rounded(tensor: TensorLike, dtype: str, axes: Sequence[str] | None = None) -> Any:
    """`tensor` in `dtype`: itself, or a stage."""
    if tensor.dtype == dtype:
        return tensor
    return stage(tensor.shape, lambda *at: te.cast(tensor(*at), dtype), "rounded", axes=axes)


def in_wider(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: a definition of one result, which has the dtype of the first input. Of float16
    it is computed in float32 and rounded once, at the end; of others as it is."""

    @wraps(compute)
    def definition(first: TensorLike, *others: TensorLike | None, **attrs: Any) -> Any:
        rest = (None if t is None else widened(t) for t in others)
        made = compute(widened(first), *rest, **attrs)
        return made if wider(first.dtype) == first.dtype else rounded(made, first.dtype)

    return definition


def normal_axis(axis: int, rank: int, name: str = "axis") -> int:
    """`axis` counted from the front. Raises Unsupported where there is none."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"{name} is {axis}; a tensor of rank {rank} has no such axis")
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order; all of them for None."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else axes
    return tuple(sorted({normal_axis(int(a), rank) for a in given}))


def row_major(indices: Sequence[Any], shape: Sequence[Extent]) -> Any:
    """The position of an element in a contiguous array."""
    at: Any = 0
    for i, n in zip(indices, shape, strict=True):
        if not (isinstance(n, int) and n == 1):
            at = at * n + i
    return at


def digits(position: Any, shape: Sequence[Extent]) -> list[Any]:
    """The inverse of `row_major`."""
    out: list[Any] = []
    inner: Any = 1
    for d in range(len(shape) - 1, -1, -1):
        n = shape[d]
        if isinstance(n, int) and n == 1:
            out.append(0)
            continue
        whole = position if isinstance(inner, int) and inner == 1 else position // inner
        first = all(isinstance(m, int) and m == 1 for m in shape[:d])
        out.append(whole if first else whole % n)
        inner = inner * n
    return out[::-1]


def count(shape: Sequence[Extent]) -> Any:
    """Number of elements."""
    return prod(shape)
