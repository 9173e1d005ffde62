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
    """A function of one operand that transposes, slices and reshapes without axes of one element;
    a single transposition with those axes as one that stay beside each other. Others, and those
    whose values have a layout, are as they were."""
    types = [v.type for v in function.params]
    types += [v.type for b in function.body.bindings for v in b.vars]
    if len(function.params) != 1 or len(function.body.results) != 1:
        return function
    if not all(isinstance(t, TensorType) and t.is_static and not t.layout for t in types):
        return function
    (given,) = function.params
    made = _single(function) or _each(function)
    if made is None:
        return function
    param, bindings = made
    result = bindings[-1].vars[0] if function.body.results[0] is not given else param
    return Function(function.name, (param,), Body(tuple(bindings), (result,)), function.attrs)


def _single(function: Function) -> tuple[Var, list[Binding]] | None:
    """The one transposition that a function is, with few axes."""
    if len(function.body.bindings) != 1:
        return None
    (b,) = function.body.bindings
    value, (given,) = b.value, function.params
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
    sizes = [prod(shape[d] for d in g) for g in groups]
    turned = Call("Transpose", (param,), (("perm", tuple(order.index(g) for g in groups)),))
    return param, [Binding((_var(b.vars[0], sizes),), turned)]


def _each(function: Function) -> tuple[Var, list[Binding]] | None:
    """Each operator of a function without axes of one element."""
    (given,) = function.params
    known: dict[int, Var] = {id(given): _var(given, _long(_shape(given)))}
    bindings: list[Binding] = []
    for b in function.body.bindings:
        value, v = b.value, b.vars[0]
        if not isinstance(value, Call) or len(b.vars) != 1:
            return None
        x = value.args[0] if value.args else None
        if not isinstance(x, Var) or any(a is not None for a in value.args[1:]):
            return None
        arg, before, after = known[id(x)], _shape(x), _shape(v)
        made = known[id(v)] = _var(v, _long(after))
        if value.callee in RESHAPES:
            bindings.append(Binding((made,), _reshaped(arg, made)))
            continue
        place = {d: n for n, d in enumerate(d for d in range(len(before)) if before[d] != 1)}
        if value.callee == "Transpose":
            perm = value.attr("perm", range(len(before))[::-1])
            turned = (("perm", tuple(place[d] for d in perm if d in place)),)
            bindings.append(Binding((made,), Call("Transpose", (arg,), turned)))
        elif value.callee == "Slice" and value.attr("axes") is not None:
            sliced = _var(v, [after[d] for d in place])
            cut = [n for n, d in enumerate(value.attr("axes")) if d % len(before) in place]
            attrs = {k: tuple(a[n] for n in cut) for k, a in value.attrs if a is not None}
            attrs["axes"] = tuple(place[d % len(before)] for d in attrs["axes"])
            bindings.append(Binding((sliced,), Call("Slice", (arg,), tuple(attrs.items()))))
            bindings.append(Binding((made,), _reshaped(sliced, made)))
        else:
            return None
    return known[id(given)], bindings


def _shape(v: Var) -> list[int]:
    assert isinstance(v.type, TensorType)
    return [int(n) for n in v.type.known]


def _long(shape: list[int]) -> list[int]:
    return [n for n in shape if n != 1]


def _var(like: Var, shape: list[int]) -> Var:
    assert isinstance(like.type, TensorType)
    return Var(like.name, TensorType(tuple(shape), like.type.dtype))


def _reshaped(x: Atom, made: Var) -> Call:
    return Call("Reshape", (x,), (("shape", tuple(_shape(made))),))
