"""te.compute: a tensor from a function of its indices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from autosched.checks import shown
from autosched.errors import TensorExprError
from autosched.te.reduction import Reduce
from autosched.te.tensor import (
    ComputeOp,
    IterVar,
    PlaceholderOp,
    Tensor,
    TensorRead,
    TensorSlice,
    check_attrs,
    check_name,
    check_shape,
    check_tag,
)
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.expr import Expr, Var
from autosched.tir.height import nodes
from autosched.tir.size_atoms import SizeVar

TAKES_NO_EXPRESSION = ("IterVar", "TensorRead", "Call", "Const", "valid indices")
"""What Python and NumPy say of an expression where they need a number: names of its class, or
of an index of an array."""


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """The tensor of `shape` whose element at (i, j, …) is `fcompute(i, j, …)`.

    `fcompute` takes one argument a dimension (their names become the axes' names; those of `*args`
    are i0, i1, … or `varargs_names`) and returns an expression, or a reduction made by te.sum and
    its like, which must be the whole result. A tuple of results gives a tuple of tensors.
    `attrs`: "layout_free_placeholders" (a list of weights whose layout is free), "FLOP" (overrides
    the count of this computation) and "auto_scheduler_…" hints.

    Raises TensorExprError, naming the computation and the axis, on everything that means nothing.
    """
    label = check_name("compute" if name is None else name, "a compute")
    extents = check_shape(shape, f"compute {label}")
    names = _axis_names(fcompute, len(extents), label, varargs_names)
    axis = tuple(
        IterVar(a, dtypes.INDEX, 0, n, "spatial", label)
        for a, n in zip(names, extents, strict=True)
    )
    try:
        result = fcompute(*axis)
    except TensorExprError as error:
        raise TensorExprError(f"in compute {label}: {error}") from error
    except (TypeError, IndexError) as error:
        if not any(name in str(error) for name in TAKES_NO_EXPRESSION):
            raise  # of the caller's own
        raise TensorExprError(
            f"in compute {label}: {error}; indices and elements are expressions, whose values are "
            "not known while the program is written: use te.exp and its like for functions of "
            "Python, .astype(dtype) for int and float, a te.placeholder for a table"
        ) from error
    check_tag(tag, f"compute {label}")
    many = isinstance(result, (tuple, list))
    parts = tuple(_element(e, label) for e in (result if many else (result,)))
    if not parts:
        raise TensorExprError(f"the function of compute {label} returned an empty tuple")
    kept, auto_named = _check_attrs(attrs, label), name is None
    first = parts[0]
    if isinstance(first, Reduce) and first.init is not None:
        inner = _operation(f"{label}_reduced", axis, parts, kept, "", True)
        axis, parts = _begun(inner, first, first.init)
        kept = MappingProxyType({})
    op = _operation(label, axis, parts, kept, tag, auto_named)
    if not many:
        return Tensor(label, extents, parts[0].dtype, op)
    return tuple(Tensor(f"{label}_v{n}", extents, e.dtype, op, n) for n, e in enumerate(parts))


def _axis_names(
    fcompute: Callable[..., Any], rank: int, label: str, varargs: Sequence[str] | None
) -> list[str]:
    if not callable(fcompute):
        raise TensorExprError(
            f"compute {label} expects a function of the indices, found {fcompute!r}"
        )
    names: list[str] = []
    try:
        parameters = inspect.signature(fcompute).parameters.values()
    except (TypeError, ValueError) as e:
        raise TensorExprError(
            f"compute {label} expects a function of the indices, found {shown(fcompute)}, which "
            "does not say what it takes; wrap it in a lambda"
        ) from e
    if varargs is not None and not isinstance(varargs, (list, tuple)):
        raise TensorExprError(
            f"varargs_names of compute {label} is {shown(varargs)}; expected a list of names"
        )
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            missing = rank - len(names)
            given = list(varargs) if varargs is not None else [f"i{n}" for n in range(missing)]
            if len(given) != missing:
                raise TensorExprError(
                    f"compute {label} has {missing} axes for *{p.name} and "
                    f"{len(given)} varargs_names"
                )
            names += [check_name(g, f"an axis of compute {label}") for g in given]
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            names.append(p.name)
        elif p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            raise TensorExprError(f"the function of compute {label} needs keyword {p.name}")
    if len(names) != rank:
        raise TensorExprError(
            f"compute {label} has rank {rank} and its function takes {len(names)} indices"
            f" ({', '.join(names)})"
        )
    if len(set(names)) != rank:
        raise TensorExprError(f"axes of compute {label} share a name: {', '.join(names)}")
    return names


def _element(value: Any, label: str) -> Expr:
    if isinstance(value, Tensor) and value.shape:
        raise TensorExprError(
            f"the function of compute {label} returned the tensor {value.name}; index it"
        )
    try:
        return ex.as_expr(value)
    except TensorExprError as error:
        if isinstance(value, TensorSlice):
            raise TensorExprError(f"in compute {label}: {error}") from error
        raise TensorExprError(
            f"the function of compute {label} returned {value!r}; expected an expression"
        ) from error


def _begun(
    inner: ComputeOp, reduced: Reduce, begins: tuple[Expr, ...]
) -> tuple[tuple[IterVar, ...], tuple[Expr, ...]]:
    """The axes and results of what combines the initial values with a reduction from its identity:
    `init` may be any value, and a reduction in parts may combine it only once."""
    axis = tuple(
        IterVar(a.name, a.dtype, a.begin, a.extent, a.kind, inner.name.removesuffix("_reduced"))
        for a in inner.axis
    )
    moved: dict[Var, Expr] = dict(zip(inner.axis, axis, strict=True))
    values: dict[Var, Expr] = {}
    for n, begin in enumerate(begins):
        name = inner.name if len(begins) == 1 else f"{inner.name}_v{n}"
        total = Tensor(name, inner.shape, inner.body[n].dtype, inner, n)
        values[reduced.reducer.lhs[n]] = _moved(begin, moved)
        values[reduced.reducer.rhs[n]] = TensorRead(total, axis)
    return axis, tuple(ex.substitute(e, values) for e in reduced.reducer.combine)


def _moved(e: Expr, axes: Mapping[Var, Expr]) -> Expr:
    """`e` over other axes."""

    def leaf(x: Expr) -> Expr | None:
        if isinstance(x, TensorRead):
            return TensorRead(x.tensor, tuple(_moved(i, axes) for i in x.indices))
        return axes.get(x) if isinstance(x, Var) else None

    return ex.rewrite(e, leaf)


def _operation(
    label: str,
    axis: tuple[IterVar, ...],
    parts: tuple[Expr, ...],
    attrs: Mapping[str, Any],
    tag: str,
    auto_named: bool,
) -> ComputeOp:
    first = parts[0]
    if isinstance(first, Reduce):
        whole = len(parts) == len(first.source) and all(
            isinstance(e, Reduce) and e.source is first.source and e.value_index == n
            for n, e in enumerate(parts)
        )
        if not whole:
            raise TensorExprError(
                f"compute {label} must return all {len(first.source)} elements of the reduction "
                f"{first.reducer.name} in their order, and nothing else"
            )
        body, reduced, reducer = first.source, first.axes, first.reducer
    else:
        body, reduced, reducer = parts, (), None
    _check_axes(label, axis, reduced, body)
    return ComputeOp(label, axis, reduced, body, reducer, attrs, tag, auto_named)


def _check_axes(
    label: str, axis: tuple[IterVar, ...], reduced: tuple[IterVar, ...], body: tuple[Expr, ...]
) -> None:
    mine = {id(a) for a in (*axis, *reduced)}
    taken = {a.name for a in axis}
    for a in reduced:
        if a.name in taken and not a.auto_named:
            raise TensorExprError(
                f"compute {label} has two axes named {a.name}; rename the reduction axis"
            )
        taken.add(a.name)
    for root in body:
        for e in nodes(root):
            if isinstance(e, Reduce):
                raise TensorExprError(
                    f"compute {label} uses the reduction {e!r} inside an expression; a reduction "
                    "must be the whole result: give it a te.compute of its own"
                )
            if isinstance(e, Var) and id(e) not in mine and not isinstance(e, SizeVar):
                raise TensorExprError(_foreign(label, e, axis, reduced))


def _foreign(label: str, v: Var, axis: tuple[IterVar, ...], reduced: tuple[IterVar, ...]) -> str:
    known = f"its axes are ({', '.join(a.name for a in (*axis, *reduced))})"
    if isinstance(v, IterVar) and v.kind == "reduce":
        return f"compute {label} uses reduction axis {v.name} without reducing it; {known}"
    if isinstance(v, IterVar):
        return f"compute {label} uses axis {v.name} of compute {v.owner}; {known}"
    return f"compute {label} uses the unknown axis {v.name}; {known}"


def _check_attrs(attrs: Mapping[str, Any] | None, label: str) -> Mapping[str, Any]:
    out = check_attrs(attrs, f"compute {label}")
    for key, value in out.items():
        if key == "FLOP" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise TensorExprError(f"FLOP of compute {label} is {value!r}; expected a number")
        if key == "layout_free_placeholders":
            if not isinstance(value, (list, tuple)):
                raise TensorExprError(
                    f"layout_free_placeholders of compute {label} is {shown(value)}; expected a "
                    "list of placeholders"
                )
            for t in value:
                if not isinstance(t, Tensor) or not isinstance(t.op, PlaceholderOp):
                    raise TensorExprError(
                        f"layout_free_placeholders of compute {label} holds {t!r}; "
                        "expected placeholders"
                    )
    return MappingProxyType(out)
