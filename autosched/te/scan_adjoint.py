"""The adjoint of a recurrence: another one, which runs backwards.

Step t of a scan makes the states s[t] from s[t - 1]. Of the whole of them, A[t] is the adjoint of
s[t]: what is given for it, and what step t + 1 passes back to it, which is a function of A[t + 1]
and of the states, which are all stored. So A is a scan over b = T - 1 - t. Its step b goes back
through the forward step T - b, whose stages are computed anew from the stored states, over b too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autosched.errors import TensorExprError
from autosched.te.axes import reduced_like
from autosched.te.compute import compute
from autosched.te.intrinsics import if_then_else
from autosched.te.reduction import make_reduce
from autosched.te.scan import scan
from autosched.te.tensor import (
    ComputeOp,
    ScanOp,
    Tensor,
    TensorRead,
    placeholder,
)
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr, Var
from autosched.tir.from_expr import from_expr

Element = Callable[..., Expr]
Adjoint = Callable[[Sequence[Tensor], Sequence[Element | None], Tensor, frozenset[int]], Any]


def scan_adjoints(
    op: ScanOp, given: Sequence[Element | None], depends: set[int], adjoint: Adjoint
) -> Iterator[tuple[Tensor, Element]]:
    """The tensors that a scan reads and that are in `depends`, by the ids of their operations, each
    with what it gets back where the adjoints of the states are `given`.

    `adjoint(outputs, given, wrt, fixed)` is that of computations; operations of `fixed` count as
    inputs. Raises TensorExprError for a scan that reads more than one step back.
    """
    if op.init[0].shape[0] != 1:
        raise TensorExprError(
            f"{op.name} begins with {op.init[0].shape[0]} steps; a recurrence has an adjoint where "
            "each step reads the one before it"
        )
    back = _Backward(op)
    states = [
        placeholder(tuple(s.shape), s.dtype, f"d_{s.name}_state") for s in op.state
    ]  # fmt: skip
    before: list[Element | None] = [_one_back(s) for s in states]
    passed = [
        adjoint(back.updates, before, turned, frozenset()) if _is_float(turned) else None
        for turned in back.states
    ]
    last = back.steps - 1
    inits = [
        _made((1, *s.shape[1:]), lambda _, *at, g=g, s=s: _at(g, s, last, *at), "d_start")
        for g, s in zip(given, op.state, strict=True)
    ]
    updates = [
        _made(
            s.shape,
            lambda b, *at, g=g, s=s, p=p: _plus(_at(g, s, last - b, *at), p, b, *at),
            f"d_{s.name}_step",
        )
        for g, s, p in zip(given, op.state, passed, strict=True)
    ]
    found = scan(inits, updates, states, name=f"d_{op.name}")
    whole: list[Element | None] = [_guarded(a) for a in found]
    read = back.inputs()
    for t in read:
        if id(t.op) in depends and _is_float(t):
            others = {id(x.op) for x in read} - {id(t.op)}
            fixed = frozenset({*others, *(id(s.op) for s in back.states)})
            made = adjoint(back.updates, whole, t, fixed)
            if made is not None:
                yield t, made
    for t, a in zip(op.init, found, strict=True):
        if id(t.op) in depends:
            yield t, lambda _, *at, a=a: a(last, *at)


class _Backward:
    """The stages of a scan over b instead of t = T - b, on the states as they are stored."""

    def __init__(self, op: ScanOp) -> None:
        self.op = op
        self.steps = op.state[0].shape[0]
        several = len(op.state) > 1
        results = [
            Tensor(f"{op.name}_v{n}" if several else op.name, s.shape, s.dtype, op, n)
            for n, s in enumerate(op.state)
        ]
        self.states = [
            _made(r.shape, lambda b, *at, r=r: r(self.steps - 1 - b, *at), f"{r.name}_back")
            for r in results
        ]
        self.made: dict[tuple[int, int], Tensor] = {}
        for stage in op.stages:
            for n, t in enumerate(self.turned(stage)):
                self.made[id(stage), n] = t
        self.updates = [self.made[id(u.op), u.value_index] for u in op.update]

    def inputs(self) -> list[Tensor]:
        """What the stages read from outside of the scan."""
        inside = {id(s.op) for s in (*self.op.state, *self.op.update)}
        inside |= {id(s) for s in self.op.stages}
        found: dict[tuple[int, int], Tensor] = {}
        for stage in self.op.stages:
            for t in stage.input_tensors:
                if id(t.op) not in inside:
                    found.setdefault((id(t.op), t.value_index), t)
        return list(found.values())

    def turned(self, stage: ComputeOp) -> list[Tensor]:
        """One stage. At b = 0 there is no forward step: there it is 0."""

        def element(*at: Expr) -> Any:
            axes = [reduced_like(a) for a in stage.reduce_axis]
            values: dict[Var, Expr] = dict(zip(stage.axis, at, strict=True))
            values[stage.axis[0]] = self.steps - at[0]
            values.update(zip(stage.reduce_axis, axes, strict=True))
            bodies = tuple(self.moved(e, stage, values, at[0]) for e in stage.body)
            made: tuple[Expr, ...]
            if stage.reducer is not None:
                made = make_reduce(stage.reducer, bodies, axes, at[0] > 0)
            else:
                made = tuple(if_then_else(at[0] > 0, e, ex.const(0, e.dtype)) for e in bodies)
            return made if len(made) > 1 else made[0]

        names = ["b", *(f"i{n}" for n in range(1, len(stage.axis)))]
        found = compute(stage.shape, lambda *at: element(*at), name=f"{stage.name}_back",
                        varargs_names=names)  # fmt: skip
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def moved(self, e: Expr, stage: ComputeOp, values: dict[Var, Expr], b: Expr) -> Expr:
        """An expression of a stage at step T - b: states and stages are read at b."""

        def leaf(x: Expr) -> Expr | None:
            if isinstance(x, Var):
                return values.get(x)
            if not isinstance(x, TensorRead):
                return None
            indices = tuple(ex.rewrite(i, leaf) for i in x.indices)
            state = next((n for n, s in enumerate(self.op.state) if s.op is x.tensor.op), None)
            if state is not None:
                form = from_expr(x.indices[0])
                if form is None or not bool((Affine.of(stage.axis[0]) - form).is_const()):
                    raise TensorExprError(f"{x!r} is read at a step that varies")
                return TensorRead(self.states[state], (b, *indices[1:]))
            inner = self.made.get((id(x.tensor.op), x.tensor.value_index))
            if inner is not None:
                return TensorRead(inner, (b, *indices[1:]))
            return TensorRead(x.tensor, indices)

        return ex.rewrite(e, leaf)


def _is_float(t: Tensor) -> bool:
    return dtypes.is_float(t.dtype)


def _one_back(state: Tensor) -> Element:
    return lambda b, *at: state(b - 1, *at)


def _guarded(found: Tensor) -> Element:
    """The adjoint of what forward step T - b makes."""
    zero = ex.const(0, found.dtype)
    return lambda b, *at: if_then_else(b > 0, found(b - 1, *at), zero)


def _at(g: Element | None, state: Tensor, *at: Any) -> Expr:
    return ex.const(0, state.dtype) if g is None else g(*at)


def _plus(e: Expr, passed: Tensor | None, *at: Any) -> Expr:
    return e if passed is None else e + passed(*at)


def _made(shape: Sequence[Any], element: Element, name: str) -> Tensor:
    names = ["b", *(f"i{n}" for n in range(1, len(shape)))]
    made: Tensor = compute(tuple(shape), lambda *at: element(*at), name=name, varargs_names=names)
    return made
