"""The operations that caching and rfactor add to a graph of tensor expressions.

They say what the new stages compute. The program itself is changed by the primitives of
`autosched.schedule`; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.te.intrinsics import all as all_of
from autosched.te.intrinsics import if_then_else
from autosched.te.stage.nest import Fuse, LoopCall, Split
from autosched.te.tensor import ComputeOp, IterVar, Tensor, TensorRead
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import sometimes
from autosched.tir.expr import Expr, Var


def rewritten(
    e: Expr, axes: Mapping[Var, Expr], tensors: Mapping[int, Tensor] | None = None
) -> Expr:
    """`e` with variables replaced, and reads of tensors (by id) made reads of others."""

    def leaf(x: Expr) -> Expr | None:
        if isinstance(x, Var):
            return axes.get(x)
        if isinstance(x, TensorRead):
            target = (tensors or {}).get(id(x.tensor), x.tensor)
            return TensorRead(target, tuple(ex.rewrite(i, leaf) for i in x.indices))
        return None

    return ex.rewrite(e, leaf)


def axis_like(axis: IterVar, name: str, owner: str) -> IterVar:
    """A fresh spatial axis over the domain of another."""
    return IterVar(name, dtypes.INDEX, 0, axis.extent, "spatial", owner)


def copy_of(tensor: Tensor, name: str) -> ComputeOp:
    """The operation that copies a tensor."""
    axis = tuple(
        IterVar(f"ax{n}", dtypes.INDEX, 0, extent, "spatial", name)
        for n, extent in enumerate(tensor.shape)
    )
    return ComputeOp(name, axis, (), (TensorRead(tensor, axis),), None, {})


def reading(op: ComputeOp, old: Sequence[Tensor], new: Tensor) -> ComputeOp:
    """`op` with its reads of `old` (one tensor, maybe under several objects) made reads of
    `new`."""
    tensors = {id(t): new for t in old}
    return replace(op, body=tuple(rewritten(e, {}, tensors) for e in op.body), written=None)


def moved(op: ComputeOp, name: str) -> ComputeOp:
    """The computation of `op` under another name; its spatial axes are new, its reduction axes
    stay."""
    axis = tuple(axis_like(a, f"{a.name}.c", name) for a in op.axis)
    values: dict[Var, Expr] = dict(zip(op.axis, axis, strict=True))
    body = tuple(rewritten(e, values) for e in op.body)
    return replace(op, name=name, axis=axis, body=body, auto_named=False, written=None)


def copying(op: ComputeOp, sources: Sequence[Tensor]) -> ComputeOp:
    """`op` made a copy of `sources`, one for each output, axis by axis."""
    body = tuple(TensorRead(t, op.axis) for t in sources)
    return replace(op, reduce_axis=(), body=body, reducer=None, attrs={}, written=None)


@dataclass(frozen=True, eq=False, slots=True)
class Factored:
    """The two operations that rfactor makes of one, and the tensors between them."""

    partial: ComputeOp
    final: ComputeOp
    tensors: tuple[Tensor, ...]


def factored(
    op: ComputeOp,
    calls: Sequence[LoopCall],
    leaves: Sequence[IterVar],
    axis: IterVar,
    factor_axis: int,
    name: str,
) -> Factored:
    """Partial results of `op`, one for each value of the reduction loop `axis`, and their
    reduction. `leaves` are the loops that `calls` have made of the reduction axes."""
    reducer = op.reducer
    assert reducer is not None
    lane = axis_like(axis, axis.name, name)
    spatial = tuple(axis_like(a, a.name, name) for a in op.axis)
    values: dict[Var, Expr] = dict(zip(op.axis, spatial, strict=True))
    values |= {a: a for a in leaves if a is not axis}
    values[axis] = lane + axis.begin  # the axis of the partial results counts from 0
    conditions = _unsplit(values, calls)
    body = tuple(rewritten(e, values) for e in op.body)
    if conditions:
        valid = all_of(*conditions)
        body = tuple(if_then_else(valid, e, i) for e, i in zip(body, reducer.identity, strict=True))
    axes = (*spatial[:factor_axis], lane, *spatial[factor_axis:])
    rest = tuple(a for a in leaves if a is not axis)
    partial = ComputeOp(name, axes, rest, body, reducer if rest else None, op.attrs, op.tag)
    many = len(body) > 1
    tensors = tuple(
        Tensor(f"{name}_v{n}" if many else name, partial.shape, e.dtype, partial, n)
        for n, e in enumerate(body)
    )
    reduced = IterVar(axis.name, dtypes.INDEX, 0, axis.extent, "reduce", op.name)
    indices = (*op.axis[:factor_axis], reduced, *op.axis[factor_axis:])
    final = replace(
        op,
        reduce_axis=(reduced,),
        body=tuple(TensorRead(t, indices) for t in tensors),
        attrs={},
    )
    return Factored(partial, final, tensors)


def _unsplit(values: dict[Var, Expr], calls: Sequence[LoopCall]) -> list[Expr]:
    """Give `values` every axis that `calls` replaced, in terms of the leaves; returns the
    conditions under which those are inside their domains."""
    conditions: list[Expr] = []
    for call in reversed(calls):
        if isinstance(call, Split):
            form = values[call.outer] * call.inner.extent + values[call.inner]
            if sometimes(call.outer.extent * call.inner.extent > call.parent.extent):
                conditions.append(form < call.parent.extent)
            values[call.parent] = form + call.parent.begin
        elif isinstance(call, Fuse):
            rest = values[call.fused]
            for part in reversed(call.parts):
                digit = rest if part is call.parts[0] else rest % part.extent
                values[part] = digit + part.begin
                rest = rest // part.extent
    return conditions
