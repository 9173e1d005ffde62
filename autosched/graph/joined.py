"""Parameters that are read by position alone: height and width as one axis.

Attention over an image reads (N, C, H, W) as (N, heads, depth, H * W). By H and W an index is
(i // W, i % W); by H * W, the same memory, it is i, which loops can be tiled along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from autosched.graph.ir import Binding, Body, Call, Function, Var
from autosched.graph.ops.views import runs
from autosched.graph.types import TensorType

RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that leave elements in their order."""


def with_joined_axes(function: Function) -> Function:
    """Merge axes of parameters that lie one behind the other and that every reader reshapes as
    parts of one axis. Constants keep theirs: what packs them beforehand is made for their shape."""
    params, joined = list(function.params), {}
    constants = function.attr("constants", ())
    for n, p in enumerate(function.params):
        made = None if n in constants else _joined(p, function)
        if made is not None:
            params[n] = joined[id(p)] = Var(p.name, made)
    if not joined:
        return function
    bindings: list[Binding] = []
    for b in function.body.bindings:
        value = b.value
        if isinstance(value, Call) and value.args and id(value.args[0]) in joined:
            t = b.vars[0].type
            assert isinstance(t, TensorType)
            shape = tuple(int(n) for n in t.known)
            value = Call("Reshape", (joined[id(value.args[0])],), (("shape", shape),))
        bindings.append(Binding(b.vars, value))
    body = Body(tuple(bindings), function.body.results)
    return Function(function.name, tuple(params), body, function.attrs)


def _joined(p: Var, function: Function) -> TensorType | None:
    """The type of a parameter with merged axes; None where none are."""
    t = p.type
    if not isinstance(t, TensorType) or not t.is_static or t.elements == 0 or not t.known:
        return None
    if any(a is p for a in function.body.results):
        return None
    order = t.layout or tuple(range(len(t.known)))
    shape = [int(n) for n in t.known]
    bounds: set[int] = set()  # axes that begin a run of a reader
    read = False
    for b in function.body.bindings:
        if not isinstance(b.value, Call) or all(a is not p for a in b.value.args):
            continue
        made = b.vars[0].type
        if b.value.callee not in RESHAPES or not isinstance(made, TensorType):
            return None
        if not made.is_static:
            return None
        bounds |= {ours.start for ours, _ in runs(shape, [int(n) for n in made.known])}
        read = True
    groups = list(_groups(order, bounds))
    if not read or len(groups) == len(shape):
        return None
    logical = sorted(groups)
    sizes = tuple(prod(shape[d] for d in group) for group in logical)
    layout = tuple(logical.index(group) for group in groups)
    return TensorType(sizes, t.dtype, layout if t.layout else ())


def _groups(order: Sequence[int], bounds: set[int]) -> Iterator[tuple[int, ...]]:
    """The axes as they lie, those together that are one."""
    group: tuple[int, ...] = ()
    for d in order:
        if group and (d != group[-1] + 1 or d in bounds):
            yield group
            group = ()
        group = (*group, d)
    yield group
