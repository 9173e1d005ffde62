"""Adjoints of tensor expressions: reverse-mode differentiation of a computation.

Nothing is declared by operator: the chain rule goes through the computations backwards, and where
one reads element f(i) of a tensor at point i, element j of that tensor's adjoint sums over the
points with f(i) = j (`autosched.te.inverse`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from autosched.errors import TensorExprError
from autosched.te.axes import reduced_like
from autosched.te.compute import compute
from autosched.te.derivative import derivative
from autosched.te.inverse import guarded, inverse, moved, settled
from autosched.te.prim_func import topological
from autosched.te.reduction import comm_reducer
from autosched.te.reduction import prod as reduce_prod
from autosched.te.reduction import sum as reduce_sum
from autosched.te.scan_adjoint import scan_adjoints
from autosched.te.tensor import (
    ComputeOp,
    ExternOp,
    IterVar,
    PlaceholderOp,
    ScanOp,
    Tensor,
    TensorRead,
)
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr, Var
from autosched.tir.height import nodes
from autosched.tir.reducers import known_name

Element = Callable[..., Expr]
"""The element at indices: a tensor is one."""


def adjoint(
    outputs: Sequence[Tensor],
    given: Sequence[Element | None],
    wrt: Tensor,
    fixed: frozenset[int] = frozenset(),
) -> Tensor | None:
    """The adjoint of `wrt` where those of `outputs` are `given` (None: zero); None where it is
    zero. `wrt` may be an input or a computation, which is then taken for an input; so are the
    operations whose ids are in `fixed`, which are held fast.

    Raises TensorExprError for a recurrence over more than one step back, a reduction that is no
    sum, product, maximum or minimum, and an operation without a derivative.
    """
    order = topological([t.op for t in outputs])
    depends = _depending(order, wrt, fixed)
    every = [*outputs, *(t for op in order for t in op.input_tensors)]
    tensors = {(id(t.op), t.value_index): t for t in reversed(every)}
    parts: dict[tuple[int, int], list[Element]] = {}
    for t, g in zip(outputs, given, strict=True):
        if g is not None:
            parts.setdefault((id(t.op), t.value_index), []).append(g)
    for op in reversed(order):
        if id(op) not in depends or op is wrt.op:
            continue
        found = [parts.pop((id(op), n), []) for n in range(_results(op))]
        if not any(found):
            continue
        if isinstance(op, ScanOp):
            for t, back in scan_adjoints(op, [_sum(g) if g else None for g in found], depends,
                                         adjoint):  # fmt: skip
                parts.setdefault((id(t.op), t.value_index), []).append(back)
            continue
        if isinstance(op, ExternOp):
            raise TensorExprError(
                f"the gradient passes through the extern {op.name}, of which no derivative is known"
            )
        assert isinstance(op, ComputeOp)
        total = [_total(g, op) for g in found]
        results = [tensors.get((id(op), n)) for n in range(len(found))]
        for read, made in _reads(op, results, total, depends, wrt):
            parts.setdefault((id(read.tensor.op), read.tensor.value_index), []).append(made)
    last = parts.get((id(wrt.op), wrt.value_index), [])
    if len(last) == 1 and isinstance(last[0], Tensor):
        return last[0]
    return _computed(wrt.shape, _sum(last), f"d_{wrt.name}") if last else None


def _results(op: Any) -> int:
    return 1 if isinstance(op, PlaceholderOp) else int(op.num_outputs)


def _depending(order: Sequence[Any], wrt: Tensor, fixed: frozenset[int]) -> set[int]:
    """Ids of the operations that read `wrt`, directly or not, and of its own; none of `fixed`."""
    found = {id(wrt.op)}
    for op in order:
        if id(op) not in fixed and any(id(t.op) in found for t in op.input_tensors):
            found.add(id(op))
    return found


def _sum(parts: Sequence[Element]) -> Element:
    if len(parts) == 1:
        return parts[0]

    def element(*at: Any) -> Expr:
        first, *rest = (p(*at) for p in parts)
        for e in rest:
            first = first + e
        return first

    return element


def _total(parts: Sequence[Element], op: ComputeOp) -> Element | None:
    """The adjoint of a result; where it is a sum of several, computed once."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return _computed(op.shape, _sum(parts), f"d_{op.name}")


def _computed(shape: Sequence[Any], element: Callable[..., Any], name: str) -> Tensor:
    """A tensor of elements; of several results of an element, the last."""
    names = [f"j{n}" for n in range(len(shape))]
    made = compute(tuple(shape), lambda *at: element(*at), name=name, varargs_names=names)
    made = made[-1] if isinstance(made, tuple) else made
    op = replace(made.op, auto_named=True)
    return Tensor(made.name, made.shape, made.dtype, op, made.value_index)


def _reads(
    op: ComputeOp,
    results: Sequence[Tensor | None],
    given: Sequence[Element | None],
    depends: set[int],
    wrt: Tensor,
) -> list[tuple[TensorRead, Tensor]]:
    """For each distinct read of what depends on `wrt`: what it adds to its tensor's adjoint."""
    out = []
    for n, g in enumerate(given):
        if g is None or not dtypes.is_float(op.body[n].dtype):
            continue
        weight = _weight(op, n, results[n])
        for read in _distinct(op.body[n], depends, wrt):
            partial = derivative(op.body[n], read)
            if partial is not None:
                at = g(*op.axis)
                term = at if weight is None else at * weight
                term = partial if _is_one(term) else term if _is_one(partial) else term * partial
                out.append((read, _gathered(op, op.body[n], read, term)))
    return out


def _is_one(e: Expr) -> bool:
    return isinstance(e, ex.Const) and e.value == 1


def _distinct(body: Expr, depends: set[int], wrt: Tensor) -> list[TensorRead]:
    found: list[TensorRead] = []
    for e in nodes(body):
        if (
            isinstance(e, TensorRead)
            and dtypes.is_float(e.dtype)
            and id(e.tensor.op) in depends
            and (e.tensor.op is not wrt.op or e.tensor.value_index == wrt.value_index)
            and not any(e.same_leaf(f) for f in found)
        ):
            found.append(e)
    return found


def _weight(op: ComputeOp, n: int, result: Tensor | None) -> Expr | None:
    """The derivative of a reduction by one of its terms, over the axes; None for 1."""
    if op.reducer is None:
        return None
    name = known_name(op.reducer, commuted=True)
    if name == "sum":
        return None
    body = op.body[n]
    if name in ("max", "min"):
        assert result is not None
        return _of_best(op, name, body, result)
    if name == "prod":
        # The product of the others, not that of all over this one, which may be 0.
        def others(at: Callable[[Expr], Expr], axes: list[IterVar], own: list[Var]) -> Expr:
            same: Expr = ex.const(True, "bool")
            for a, b in zip(axes, own, strict=True):
                same = ex.binary("and", same, a == b)
            return reduce_prod(
                ex.call("select", same, ex.const(1.0, body.dtype), at(body)), axis=axes
            )

        rest = _over(op, op.reduce_axis, others, "others")
        begins = [a - a.begin for a in op.reduce_axis]
        return TensorRead(rest, (*op.axis, *(ex.cast(b, "int64") for b in begins)))
    raise TensorExprError(
        f"the reduction {op.reducer.name} of {op.name} has no adjoint: te.sum, te.prod, te.max and "
        "te.min have one; reduce what is differentiated by one of these in a te.compute of its own"
    )


def _of_best(op: ComputeOp, name: str, body: Expr, result: Tensor) -> Expr:
    """1 where an element is the largest (or least), 0 elsewhere."""
    one, zero = ex.const(1.0, body.dtype), ex.const(0.0, body.dtype)
    if not _is_exact(body):
        # What is computed again in another kernel may differ from the largest in its last bit.
        best = _over(op, [], lambda at, axes: _first(name, at(body), axes), "place")
        return ex.call("select", _place(op.reduce_axis) == TensorRead(best, op.axis), one, zero)
    # Of several that are equal each has an equal part. float16 counts to 2048.
    same = body == TensorRead(result, op.axis)
    single = ex.call("select", same, ex.const(1.0, "float32"), ex.const(0.0, "float32"))
    ties = _over(op, [], lambda at, axes: reduce_sum(at(single), axis=axes), "ties")
    share = ex.cast(ex.const(1.0, "float32") / TensorRead(ties, op.axis), body.dtype)
    return ex.call("select", same, share, zero)


def _is_exact(e: Expr) -> bool:
    """Whether an expression has the same bits in any kernel: nothing on the way to what is stored
    rounds. Element by element computations are part of what reads them."""
    return all(
        x.op in _EXACT or not dtypes.is_float(x.dtype)
        if isinstance(x, ex.Call)
        else not isinstance(x, TensorRead) or _is_stored(x.tensor)
        for x in nodes(e)
    )


def _is_stored(t: Tensor) -> bool:
    if not isinstance(t.op, ComputeOp) or t.op.reducer is not None:
        return True
    return _is_exact(t.op.body[t.value_index])


_EXACT = ("if_then_else", "select", "max", "min", "neg", "abs", "cast")


def _first(name: str, value: Expr, axes: Sequence[IterVar]) -> tuple[Expr, Expr]:
    """The largest (or least) value and where it is first."""
    better = "gt" if name == "max" else "lt"
    bound = dtypes.minimum if name == "max" else dtypes.maximum

    def combined(x: Sequence[Expr], y: Sequence[Expr]) -> tuple[Expr, ...]:
        earlier = ex.binary("and", x[0] == y[0], x[1] < y[1])
        wins = ex.binary("or", ex.binary(better, x[0], y[0]), earlier)
        return tuple(ex.call("select", wins, a, b) for a, b in zip(x, y, strict=True))

    def neutral(*types: str) -> tuple[Expr, Expr]:
        return ex.const(bound(types[0]), types[0]), ex.const(dtypes.maximum(types[1]), types[1])

    found: tuple[Expr, Expr] = comm_reducer(combined, neutral, f"first_{name}")(
        (value, _place(axes)), axis=list(axes)
    )
    return found


def _place(axes: Sequence[IterVar]) -> Expr:
    """Of a point of reduction axes: its number in their order."""
    found: Expr = ex.const(0, dtypes.INDEX)
    for a in axes:
        found = found * Affine(a.extent).to_expr() + (a - a.begin)
    return found


def _over(op: ComputeOp, more: Sequence[IterVar], element: Callable[..., Any], name: str) -> Tensor:
    """A computation over the axes of `op` and `more` of its reduction axes, which reduces over
    axes like all of them."""
    rank = len(op.axis)

    def at(*indices: Any) -> Any:
        axes = [reduced_like(a) for a in op.reduce_axis]
        values: dict[Var, Expr] = dict(zip(op.axis, indices, strict=False))
        values.update(zip(op.reduce_axis, axes, strict=True))
        own = [i + a.begin for i, a in zip(indices[rank:], more, strict=True)]
        given = (own,) if more else ()
        return element(lambda e: moved(e, values), axes, *given)

    shape = [a.extent for a in (*op.axis, *more)]
    return _computed(shape, at, f"{op.name}_{name}")


def _gathered(op: ComputeOp, body: Expr, read: TensorRead, term: Expr) -> Tensor:
    """What a read in a body adds to the adjoint of its tensor: `term`, over the axes of `op`,
    summed over the points that read an element."""
    axes = (*op.axis, *op.reduce_axis)
    tensor = read.tensor
    # Sums of 16 bits are taken in float32.
    half = tensor.dtype in ("float16", "bfloat16")

    def element(*at: Any) -> Expr:
        points = inverse(read.indices, axes, at, tensor.shape)
        value = ex.cast(settled(points.at(term), (*points.over, *at)), tensor.dtype)
        zero = ex.const(0.0, value.dtype)
        if points.read:
            chosen = points.at(guarded(body, read, _all(points.read)))
            value = ex.call("if_then_else", chosen, value, zero)
        where = None
        if points.conditions:
            where = settled(_all(points.conditions), (*points.over, *at))
        if points.over:
            summed = ex.cast(value, "float32") if half else value
            return reduce_sum(summed, axis=list(points.over), where=where)
        if where is None:
            return value
        return ex.call("if_then_else", where, value, zero)

    made = _computed(tensor.shape, element, f"d_{tensor.name}")
    if made.dtype == tensor.dtype:
        return made
    return _computed(tensor.shape, lambda *at: ex.cast(made(*at), tensor.dtype), f"d_{tensor.name}")


def _all(conditions: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: ex.binary("and", a, b), conditions)
