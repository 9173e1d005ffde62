"""layout: activations of convolutions and pools lie channels last.

A value's layout is a permutation in its type: a kernel reads and writes its arguments as they lie.
What the caller gives and gets keeps its layout. Where a convolution reads or makes it, a kernel of
its own copies it, since the convolution would read or write one element a cache line. The same goes
for interpolations, and pools of short rows whose windows overlap; other pools, convolutions of few
channels by rows, normalisations and the like that nothing of this kind is connected with take their
arguments as they lie.

The result of a kernel lies as its operators leave it: channels last behind a convolution, rows last
behind a product, and through a Transpose in the order that makes it a copy. Where they leave it
open, it lies as the convolutions want it that read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from autosched.graph.ir import (
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    Var,
    reads,
    with_bodies,
)
from autosched.graph.ops.registry import OPERATORS
from autosched.graph.types import TensorType
from autosched.passes.base import Pass
from autosched.tir.module import IRModule

Layout = tuple[int, ...]
_PRODUCTS = frozenset({"MatMul", "Gemm", "autosched.MatMulSums"})
"""Operators whose result has its rows last, however the operands lie."""
_REARRANGED = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Einsum"})
"""Operators whose result has other axes than its operand."""
_WEIGHTS = {"Conv": (1, 0), "ConvTranspose": (0, 1), "autosched.ConvSums": (1, 0)}
"""Operator -> the order of the axes of its weight behind the window: depth, filters."""
CONVOLUTIONS = frozenset({*_WEIGHTS, "ConvInteger"})
POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
SMALL = 4096
"""Elements: so few stay in the first cache, where the order in which they are read is no matter."""
SHORT_ROW = 24
"""Results of a row of a pool: fewer fill no two vectors, of which each window's rows are read."""
LONG_ROW = 64
"""Results of a row of a convolution: so many leave few lanes of their vectors empty."""
LANES = 16
"""Results in the longest vectors."""
FEWEST_CHANNELS = 8
"""Of what a convolution reads, for it to be copied: fewer lie in a cache line as they stand."""


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
        self.copies = {n: _copies(f) for n, f in self.primitive.items()}
        self.others = {n: f for n, f in graphs.items() if not f.is_primitive}
        self.made: dict[object, str] = {}
        self.out: dict[str, Function] = {}

    def run(self, module: IRModule) -> IRModule:
        for name, f in self.others.items():
            self.out[name] = Function(name, f.params, self.body(f.body), f.attrs)
        kept = {n: self.out.get(n, g) for n, g in module.graphs.items() if n not in self.primitive}
        return IRModule(module.functions, {**kept, **self.out})

    def callee(self, b: Binding) -> Function | None:
        """The primitive function that a binding calls."""
        if isinstance(b.value, Call) and isinstance(b.value.callee, Global):
            return self.primitive.get(b.value.callee.name)
        return None

    def by_channels(self, body: Body) -> set[int]:
        """The numbers of the bindings that want channels last: those over N, C and spatial axes
        that a convolution or the like is connected with, through values that kernels hand on."""
        group: dict[int, int] = {}

        def root(n: int) -> int:
            while group.setdefault(n, n) != n:
                group[n] = n = group[group[n]]
            return n

        found: list[int] = []
        gathers: list[int] = []
        for n, b in enumerate(body.bindings):
            f = self.callee(b)
            if f is None:
                continue
            assert isinstance(b.value, Call)
            first, *others = [*b.vars, *(a for a in b.value.args if isinstance(a, Var))]
            for a in others:
                if _rank(a) >= 3:
                    group[root(id(a))] = root(id(first))
            if self.spatial[f.name]:
                found.append(n)
            if _gathers(f):
                gathers.append(id(first))
        reached = {root(n) for n in gathers}
        return {n for n in found if root(id(body.bindings[n].vars[0])) in reached}

    def body(self, body: Body) -> Body:
        by_channels = self.by_channels(body)
        fixed = {id(a) for a in body.results}
        wanted: set[int] = set()
        for n, b in enumerate(body.bindings):
            f = self.callee(b)
            if f is None:
                fixed |= {id(a) for a in reads(b.value)} | {id(v) for v in b.vars}
            elif n in by_channels:
                assert isinstance(b.value, Call)
                wanted |= {id(a) for a in (*b.value.args, *b.vars) if isinstance(a, Var)}
        last: dict[int, Var] = {}
        twice: set[int] = set()  # values that lie as they did, too
        bindings: list[Binding] = []
        for n, b in enumerate(body.bindings):
            f = self.callee(b)
            if f is None:
                bindings.append(Binding(b.vars, with_bodies(b.value, self.body)))
                continue
            assert isinstance(b.value, Call)
            spatial = n in by_channels
            given, made = self.copies[f.name] if spatial else ((), False)
            for x in (b.value.args[k] for k in given):
                if isinstance(x, Var) and id(x) not in last and _moves(x):
                    last[id(x)] = _laid(x, channels_last(_rank(x)))
                    bindings.append(self.copied(x, last[id(x)]))
                    twice.add(id(x))
            moved = {id(a) for a in b.value.args if id(a) in last}
            if not spatial and moved <= twice:
                moved = set()
            args = tuple(last[id(a)] if id(a) in moved else a for a in b.value.args)
            variables = b.vars
            copy = None
            if len(variables) == 1:
                v = variables[0]
                order = left_by(f, args, spatial)
                if order is None and id(v) in wanted:
                    order = channels_last(_rank(v))
                free = id(v) not in fixed or (made and _moves(v))
                if free and order and 3 <= _rank(v) <= 5 and order != tuple(range(_rank(v))):
                    last[id(v)] = _laid(v, order)
                    variables = (last[id(v)],)
                    if id(v) in fixed:
                        copy = self.copied(last[id(v)], v)
                        twice.add(id(v))
            name = self.specialised(f, args, variables, spatial)
            bindings.append(Binding(variables, Call(Global(name), args, b.value.attrs)))
            if copy is not None:
                bindings.append(copy)
        return Body(tuple(bindings), body.results)

    def copied(self, given: Var, made: Var) -> Binding:
        """A call of a kernel that copies a value to another layout."""
        x = Var("x", given.type)
        inner = Binding((Var("y", made.type),), Call("Identity", (x,)))
        copy = Function(
            "autosched_laid_out", (x,), Body((inner,), inner.vars), (("primitive", True),)
        )
        return Binding((made,), Call(Global(self.specialised(copy, (given,), (made,))), (given,)))

    def specialised(
        self,
        f: Function,
        args: tuple[object, ...],
        variables: tuple[Var, ...],
        spatial: bool = False,
    ) -> str:
        """The function with its parameters and results laid out as a call has them."""
        given = [
            self.weight(f, n) if isinstance(a, Const) else a.type
            for n, a in enumerate(args)
            if isinstance(a, (Var, Const))
        ]
        key = (f.name, tuple(given), tuple(v.type for v in variables), spatial)
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
            attrs = (*f.attrs, ("spatial", True)) if spatial else f.attrs
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


def _gathers(f: Function) -> bool:
    """Whether one of its operators reads neighbours again and again, for which vectors run over the
    channels best: most convolutions, a pool of short rows whose windows overlap, an
    interpolation."""
    return any(
        isinstance(b.value, Call) and _reads_again(b.value, b.vars[0]) for b in f.body.bindings
    )


def _reads_again(call: Call, result: Var) -> bool:
    if call.callee in CONVOLUTIONS:
        return not _runs_along_rows(call, result)
    attrs = dict(call.attrs)
    if call.callee == "Resize":
        again = attrs.get("mode", "nearest") != "nearest"
    elif call.callee in POOLS:
        window = attrs["kernel_shape"]
        strides = attrs.get("strides") or (1,) * len(window)
        again = any(k > s for k, s in zip(window, strides, strict=True))
        again = again and _shape(call.args[0])[-1] < SHORT_ROW * strides[-1]
    else:
        return False
    return again and _channels(call.args[0]) >= FEWEST_CHANNELS


def _runs_along_rows(call: Call, result: Var) -> bool:
    """Whether vectors over a row of results are as good as vectors over filters: in a convolution
    of few channels, whose rows are read one element after the other, by few filters or in rows
    that leave few lanes empty. Then nothing turns what is stored with channels first."""
    strides = dict(call.attrs).get("strides") or (1,)
    if call.callee != "Conv" or strides[-1] != 1:
        return False
    if not 1 <= _channels(call.args[0]) < FEWEST_CHANNELS:
        return False
    filters, row = _channels(result), _shape(result)[-1]
    whole = row >= 2 * LANES and row % LANES == 0
    return whole or row >= LONG_ROW or filters < LANES <= row


def _copies(f: Function) -> tuple[tuple[int, ...], bool]:
    """The numbers of the parameters, and whether the result, that a kernel of its own copies where
    they must lie as the caller has them.

    A global pool, and a convolution whose windows do not overlap, read each element once; those of
    floats end in vectors that are stored as they must lie: there a copy costs more than it saves.
    """
    number = {id(p): n for n, p in enumerate(f.params)}
    read, made = [], False
    for b in f.body.bindings:
        v = b.value
        assert isinstance(v, Call)
        if not (isinstance(v.callee, str) and OPERATORS[v.callee].spatial):
            continue
        if v.callee.startswith("Global"):
            continue
        floats = v.callee in ("Conv", "ConvTranspose")
        made |= not floats
        x = v.args[0]
        again = not (floats and _is_one(v.args[1])) and not _is_apart(v)
        if again and id(x) in number and _channels(x) >= FEWEST_CHANNELS:
            read.append(number[id(x)])
    return tuple(dict.fromkeys(read)), made


def _is_apart(call: Call) -> bool:
    """Whether the windows of a convolution of floats do not overlap."""
    if call.callee != "Conv":
        return False
    weight, attrs = call.args[1], dict(call.attrs)
    assert isinstance(weight, (Var, Const))
    assert isinstance(weight.type, TensorType)
    window = weight.type.known[2:]
    strides = attrs.get("strides") or (1,) * len(window)
    far = attrs.get("dilations") or (1,) * len(window)
    return all(
        isinstance(n, int) and s >= d * (n - 1) + 1 and s > 1
        for n, s, d in zip(window, strides, far, strict=True)
    )


def _is_one(weight: object) -> bool:
    """Whether a convolution's window is of one element."""
    assert isinstance(weight, (Var, Const))
    assert isinstance(weight.type, TensorType)
    return all(n == 1 for n in weight.type.known[2:])


def _laid(v: Var, order: Layout) -> Var:
    assert isinstance(v.type, TensorType)
    return Var(v.name, replace(v.type, layout=order))


def _shape(v: object) -> tuple[int, ...]:
    """The extents of N, C, spatial; 0 where they are not known."""
    t = v.type if isinstance(v, Var) else None
    if not isinstance(t, TensorType) or t.shape is None or len(t.shape) < 3:
        return (0, 0, 0)
    return tuple(n if isinstance(n, int) else 0 for n in t.shape)


def _channels(v: object) -> int:
    """The channels of N, C, spatial; 0 where they are not known."""
    return _shape(v)[1]


def _moves(v: Var) -> bool:
    """Whether many elements move when channels come last."""
    t = v.type
    if not isinstance(t, TensorType) or t.shape is None or t.layout or not 3 <= len(t.shape) <= 5:
        return False
    small = all(isinstance(n, int) for n in t.known) and prod(t.known) <= SMALL
    return not small and t.known[1] != 1 and any(n != 1 for n in t.known[2:])


def left_by(f: Function, args: Sequence[object], spatial: bool = True) -> Layout | None:
    """The layout in which a function's only result lies as its operators compute it, given how the
    arguments lie; None where they leave it open. `spatial`: whether those over N, C and spatial
    axes leave channels last."""
    known: dict[int, Layout] = {}
    for p, a in zip(f.params, args, strict=True):
        if isinstance(a, Var) and isinstance(a.type, TensorType) and a.type.layout:
            known[id(p)] = a.type.layout
    for b in f.body.bindings:
        assert isinstance(b.value, Call)
        found = _computed(b.value, b.vars[0], known, spatial)
        if found is not None:
            known[id(b.vars[0])] = found
    return known.get(id(f.body.results[0]))


def _computed(call: Call, result: Var, known: Mapping[int, Layout], spatial: bool) -> Layout | None:
    rank = _rank(result)
    if call.callee in _PRODUCTS:
        return tuple(range(rank))
    if call.callee in _REARRANGED or rank < 3:
        return None
    if spatial and isinstance(call.callee, str) and OPERATORS[call.callee].spatial:
        return channels_last(rank)
    given = [known[id(a)] for a in call.args if id(a) in known and _rank(a) == rank]
    if not given:
        return None
    # A value that was moved counts before one that lies as it stands.
    order = max(given, key=lambda g: g != tuple(range(rank)))
    if call.callee != "Transpose":
        return order
    turned = list(dict(call.attrs).get("perm") or reversed(range(rank)))
    return tuple(turned.index(axis) for axis in order)


def _rank(a: object) -> int:
    """The rank of a value, 0 where it is not known."""
    t = a.type if isinstance(a, (Var, Const)) else None
    if not isinstance(t, TensorType) or t.shape is None:
        return 0
    return len(t.shape)


layout = Pass("layout", lambda module: _Layouts(module).run(module))
"""The pass."""
