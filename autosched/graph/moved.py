"""Functions that only move elements, without the axes that say nothing.

A transposition of (1569, 2, 6272, 1) to (6272, 2, 1, 1569) reads along its third axis, which is not
the last: loops and vectors look at the last axis of memory. Without axes of one element it is one
of (1569, 2, 6272) to (6272, 2, 1569), the same memory; and (64, 112, 112) to (112, 112, 64) is one
of (64, 12544).
"""

from __future__ import annotations

from math import prod

from autosched.graph.ir import Atom, Binding, Body, Call, Function, Var
from autosched.graph.joined import RESHAPES
from autosched.graph.types import TensorType


def with_few_axes(function: Function) -> Function:
    """A function that transposes, slices, reshapes and scatters slices, without axes of one
    element; a single transposition with those axes as one that stay beside each other. Others, and
    those whose values have a layout, are as they were."""
    types = [v.type for v in function.params]
    types += [v.type for b in function.body.bindings for v in b.vars]
    if len(function.body.results) != 1 or not function.body.bindings:
        return function
    if not all(isinstance(t, TensorType) and t.is_static and not t.layout for t in types):
        return function
    if any(isinstance(t, TensorType) and t.elements == 0 for t in types):
        return function
    return _single(function) or _each(function) or function


def _single(function: Function) -> Function | None:
    """The one transposition that a function is, with few axes."""
    if len(function.body.bindings) != 1:
        return None
    (b,) = function.body.bindings
    value, given = b.value, function.params[0]
    if not isinstance(value, Call) or value.callee != "Transpose":
        return None
    shape = _shape(given)
    perm = [d for d in value.attr("perm", range(len(shape))[::-1]) if shape[d] != 1]
    kept = [d for d in range(len(shape)) if shape[d] != 1]
    groups: list[list[int]] = []
    for d in perm:
        if groups and kept.index(d) == kept.index(groups[-1][-1]) + 1:
            groups[-1].append(d)
        else:
            groups.append([d])
    order = sorted(groups)
    param = _var(given, [prod(shape[d] for d in g) for g in order])
    result = _var(b.vars[0], [prod(shape[d] for d in g) for g in groups])
    turned = Call("Transpose", (param,), (("perm", tuple(order.index(g) for g in groups)),))
    body = Body((Binding((result,), turned),), (result,))
    return Function(function.name, (param,), body, function.attrs)


def _each(function: Function) -> Function | None:
    """Each operator of a function without axes of one element; None where one is another."""
    calls = [b.value for b in function.body.bindings]
    indices = {id(c.args[1]) for c in calls if isinstance(c, Call) and c.callee == "ScatterND"}
    params = [p if id(p) in indices else _var(p, _long(_shape(p))) for p in function.params]
    known = {id(p): made for p, made in zip(function.params, params, strict=True)}
    bindings: list[Binding] = []
    for b in function.body.bindings:
        value, v = b.value, b.vars[0]
        if not isinstance(value, Call) or len(b.vars) != 1 or id(v) in indices:
            return None
        args = [x for x in value.args if isinstance(x, Var)]
        if not args or len(args) != len(value.args) or id(args[0]) in indices:
            return None
        made = known[id(v)] = _var(v, _long(_shape(v)))
        if len(args) == 1:
            found = _moved(value, known[id(args[0])], _shape(args[0]), v, made)
        else:
            found = _scattered(value, args, known, v, made)
        if found is None:
            return None
        bindings += found
    (result,) = function.body.results
    body = Body(tuple(bindings), (known[id(result)],))
    return Function(function.name, tuple(params), body, function.attrs)


def _moved(value: Call, arg: Var, before: list[int], v: Var, made: Var) -> list[Binding] | None:
    """A move of `arg`, which had the shape `before`, to `made`, which was `v`."""
    place = {d: n for n, d in enumerate(d for d in range(len(before)) if before[d] != 1)}
    if value.callee in RESHAPES:
        return [_reshaped(arg, made)]
    if value.callee == "Transpose":
        perm = value.attr("perm", range(len(before))[::-1])
        turned = (("perm", tuple(place[d] for d in perm if d in place)),)
        return [Binding((made,), Call("Transpose", (arg,), turned))]
    if value.callee != "Slice" or value.attr("axes") is None:
        return None
    sliced, after = _var(v, [_shape(v)[d] for d in place]), len(before)
    cut = [n for n, d in enumerate(value.attr("axes")) if d % after in place]
    attrs = {k: tuple(a[n] for n in cut) for k, a in value.attrs if a is not None}
    attrs["axes"] = tuple(place[d % after] for d in attrs["axes"])
    return [
        Binding((sliced,), Call("Slice", (arg,), tuple(attrs.items()))),
        _reshaped(sliced, made),
    ]


def _scattered(
    value: Call, args: list[Var], known: dict[int, Var], v: Var, made: Var
) -> list[Binding] | None:
    """A ScatterND: of the slices alone axes of one element go."""
    if value.callee != "ScatterND":
        return None
    x, indices, updates = args
    shape, (*lead, width) = _shape(x), _shape(indices)
    if known.get(id(indices)) is not indices or [*lead, *shape[width:]] != _shape(updates):
        return None
    slices = _long(shape[width:])
    result = _as(made, v, [*shape[:width], *slices])
    bindings: list[Binding] = []
    parts: list[Atom] = []
    for before, extents in ((x, [*shape[:width], *slices]), (updates, [*lead, *slices])):
        part = _as(known[id(before)], before, extents)
        # A routine reads what is stored: what a reshape makes is a copy.
        if part is not known[id(before)]:
            bindings.append(_reshaped(known[id(before)], part))
        parts.append(part)
    call = Call("ScatterND", (parts[0], indices, parts[1]), value.attrs)
    bindings.append(Binding((result,), call))
    return bindings if result is made else [*bindings, _reshaped(result, made)]


def _as(now: Var, like: Var, shape: list[int]) -> Var:
    """A variable of a shape: the one that there is where it has it."""
    return now if _shape(now) == shape else _var(like, shape)


def _shape(v: Var) -> list[int]:
    assert isinstance(v.type, TensorType)
    return [int(n) for n in v.type.known]


def _long(shape: list[int]) -> list[int]:
    return [n for n in shape if n != 1]


def _var(like: Var, shape: list[int]) -> Var:
    assert isinstance(like.type, TensorType)
    return Var(like.name, TensorType(tuple(shape), like.type.dtype))


def _reshaped(x: Atom, made: Var) -> Binding:
    return Binding((made,), Call("Reshape", (x,), (("shape", tuple(_shape(made))),)))
