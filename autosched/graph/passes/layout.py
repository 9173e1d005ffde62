"""layout: activations of convolutions and pools lie channels last.

A value's layout is a permutation in its type, so no transposition is ever an operator: a kernel
reads and writes its arguments as they lie. What the caller gives and gets keeps its layout.
"""

from __future__ import annotations

from autosched.graph.ir import (
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Match,
    Value,
    Var,
    reads,
)
from autosched.graph.ops.registry import OPERATORS
from autosched.graph.types import TensorType
from autosched.passes.base import Pass
from autosched.tir.module import IRModule

_WEIGHTS = {"Conv": (1, 0), "ConvTranspose": (0, 1), "autosched.ConvSums": (1, 0)}
"""Operator -> the order of the axes of its weight behind the window: depth, filters."""


def channels_last(rank: int) -> tuple[int, ...]:
    """N, spatial, C."""
    return (0, *range(2, rank), 1)


def is_spatial(function: Function) -> bool:
    """Whether any of its operators is over N, C and spatial axes."""
    return any(
        isinstance(b.value, Call)
        and isinstance(b.value.callee, str)
        and OPERATORS[b.value.callee].spatial
        for b in function.body.bindings
    )


class _Layouts:
    def __init__(self, module: IRModule) -> None:
        graphs = {n: f for n, f in module.graphs.items() if isinstance(f, Function)}
        self.primitive = {n: f for n, f in graphs.items() if f.is_primitive}
        self.spatial = {n: is_spatial(f) for n, f in self.primitive.items()}
        self.others = {n: f for n, f in graphs.items() if not f.is_primitive}
        self.made: dict[object, str] = {}
        self.out: dict[str, Function] = {}

    def run(self, module: IRModule) -> IRModule:
        for name, f in self.others.items():
            self.out[name] = Function(name, f.params, self.body(f.body), f.attrs)
        kept = {n: self.out[n] for n in self.others}
        return IRModule(module.functions, {**kept, **self.out})

    def callee(self, b: Binding) -> Function | None:
        """The primitive function that a binding calls."""
        if isinstance(b.value, Call) and isinstance(b.value.callee, Global):
            return self.primitive.get(b.value.callee.name)
        return None

    def body(self, body: Body) -> Body:
        fixed = {id(a) for a in body.results}
        wanted: set[int] = set()
        for b in body.bindings:
            f = self.callee(b)
            if f is None:
                fixed |= {id(a) for a in reads(b.value)} | {id(v) for v in b.vars}
            elif self.spatial[f.name]:
                assert isinstance(b.value, Call)
                wanted |= {id(a) for a in (*b.value.args, *b.vars) if isinstance(a, Var)}
        last: dict[int, Var] = {}
        bindings = []
        for b in body.bindings:
            f = self.callee(b)
            if f is None:
                bindings.append(Binding(b.vars, self.inside(b.value)))
                continue
            assert isinstance(b.value, Call)
            moved = any(id(a) in last and id(a) in wanted for a in b.value.args)
            variables = []
            for v in b.vars:
                t = v.type
                follows = id(v) in wanted or (moved and keeps_rank(f))
                if (
                    follows
                    and id(v) not in fixed
                    and len(b.vars) == 1
                    and isinstance(t, TensorType)
                    and t.shape is not None
                    and 3 <= len(t.shape) <= 5
                ):
                    wanted.add(id(v))
                    new = Var(v.name, TensorType(t.shape, t.dtype, channels_last(len(t.shape))))
                    last[id(v)] = new
                    variables.append(new)
                else:
                    variables.append(v)
            args = tuple(a if a is None else last.get(id(a), a) for a in b.value.args)
            name = self.specialised(f, args, tuple(variables))
            bindings.append(Binding(tuple(variables), Call(Global(name), args, b.value.attrs)))
        results = tuple(last.get(id(a), a) for a in body.results)
        return Body(tuple(bindings), results)

    def inside(self, value: Value) -> Value:
        """A value with the bodies in it laid out."""
        if isinstance(value, If):
            return If(value.condition, self.body(value.then), self.body(value.other))
        if isinstance(value, Match):
            return Match(value.value, tuple((p, self.body(b)) for p, b in value.clauses))
        if isinstance(value, Function):
            return Function(value.name, value.params, self.body(value.body), value.attrs)
        return value

    def specialised(self, f: Function, args: tuple[object, ...], variables: tuple[Var, ...]) -> str:
        """The function with its parameters and results laid out as a call has them."""
        given = [
            self.weight(f, n) if isinstance(a, Const) else a.type
            for n, a in enumerate(args)
            if isinstance(a, (Var, Const))
        ]
        key = (f.name, tuple(given), tuple(v.type for v in variables))
        if key not in self.made:
            params = tuple(Var(p.name, t) for p, t in zip(f.params, given, strict=True))
            known: dict[int, Var] = {id(p): q for p, q in zip(f.params, params, strict=True)}
            results = {id(a): v.type for a, v in zip(f.body.results, variables, strict=True)}
            inner = []
            for b in f.body.bindings:
                assert isinstance(b.value, Call)
                call = Call(
                    b.value.callee,
                    tuple(None if a is None else known.get(id(a), a) for a in b.value.args),
                    b.value.attrs,
                )
                fresh = tuple(Var(v.name, results.get(id(v), v.type)) for v in b.vars)
                known.update({id(v): w for v, w in zip(b.vars, fresh, strict=True)})
                inner.append(Binding(fresh, call))
            body = Body(tuple(inner), tuple(known.get(id(a), a) for a in f.body.results))
            attrs = f.attrs if not self.spatial[f.name] else (*f.attrs, ("spatial", True))
            name, n = f.name, 0
            while name in self.out or name in self.others:
                n += 1
                name = f"{f.name}_{n}"
            self.made[key] = name
            self.out[name] = Function(name, params, body, attrs)
        return self.made[key]

    def weight(self, f: Function, n: int) -> TensorType:
        """A constant's type: of a convolution's weight the window is outermost, the filters
        innermost."""
        p = f.params[n]
        t = p.type
        assert isinstance(t, TensorType)
        for b in f.body.bindings:
            v = b.value
            if isinstance(v, Call) and v.callee in _WEIGHTS and v.args[1] is p:
                rank = len(t.known)
                return TensorType(t.shape, t.dtype, (*range(2, rank), *_WEIGHTS[str(v.callee)]))
        return t


def keeps_rank(f: Function) -> bool:
    """Whether all of a function's tensors of many elements have one rank."""
    values = [*f.params, *(v for b in f.body.bindings for v in b.vars)]
    shapes = [v.type.shape for v in values if isinstance(v.type, TensorType) and v.type.shape]
    return len({len(s) for s in shapes if sum(n != 1 for n in s) > 1}) == 1


layout = Pass("layout", lambda module: _Layouts(module).run(module))
"""The pass."""
