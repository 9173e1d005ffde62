"""Gradients of graph functions: reverse mode over the A-normal form.

Each binding is one step backwards: what its results pass back is a call of `Adjoint` for each input
that matters, which is an operator like any other. So a gradient is a function like any other, whose
kernels are fused, tuned and compiled as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.checks import instance, shown
from autosched.errors import WorkloadError
from autosched.graph.builder import Value, call, const
from autosched.graph.errors import Unsupported
from autosched.graph.infer import inference
from autosched.graph.ir import Atom, Binding, Call, Function, Global, Var, reads
from autosched.graph.types import TensorType
from autosched.tir import dtypes


def gradient(function: Function, wrt: Sequence[str] | None = None, seeds: bool = False) -> Function:
    """The function of the same parameters whose results are those of `function`, then the gradient
    by each parameter of floats, or by those named in `wrt`.

    The only floating-point result has to have one element: the gradient is that of it. With
    `seeds`, a parameter `d_NAME` a floating-point result follows the others, and the gradients are
    those of the sum of all results times their seeds. Operators whose results are integers or
    conditions pass nothing back. A recurrent layer goes back through its steps one by one. Raises
    Unsupported, naming the operator, for one that has no adjoint: what NumPy computes, a branch, a
    loop, a call of another function (which `specialise` replaces by its body).
    """
    instance("the function", function, Function, "a graph function", WorkloadError)
    instance("seeds", seeds, bool, "True or False", WorkloadError)
    names = _wanted(function, wrt)
    params = {id(p): Value(p) for p in function.params}
    forward = _Forward(function, params)
    results = [forward.value(a) for a in function.body.results]
    backward: dict[int, list[Value]] = {}
    more: list[Value] = []
    floats = [n for n, a in enumerate(function.body.results) if _is_float(a)]
    if not floats:
        raise WorkloadError(f"{function.name} has no floating-point result to differentiate")
    for n in floats:
        a = function.body.results[n]
        t = a.type
        assert isinstance(t, TensorType)
        if seeds:
            name = a.name if isinstance(a, Var) else f"result{n}"
            more.append(Value(Var(f"d_{name}", t)))
            seed = more[-1]
        else:
            if len(floats) > 1 or not t.is_static or t.elements != 1:
                have = f"{len(floats)} of them" if len(floats) > 1 else f"one of type {t}"
                raise WorkloadError(
                    f"the gradient of {function.name} needs one floating-point result of one "
                    f"element, found {have}; reduce it, or pass seeds=True for a parameter a "
                    "result"
                )
            seed = Value(const(np.ones([int(m) for m in t.known], t.dtype)))
        backward.setdefault(id(a), []).append(seed)
    active = _active(function, names)
    for b in reversed(function.body.bindings):
        given = [_sum(backward.get(id(v), [])) for v in b.vars]
        if any(g is not None for g in given) and any(id(v) in active for v in b.vars):
            _step_back(b, given, forward, active, backward)
    grads = []
    for p in function.params:
        if p.name in names:
            found = _sum(backward.get(id(p), []))
            assert isinstance(p.type, TensorType)
            grads.append(_zeros(p.type) if found is None else found)
    made = [*params.values(), *more]
    return _function(function, made, [*results, *grads], names)


def _function(
    function: Function, params: Sequence[Value], results: Sequence[Value], names: Sequence[str]
) -> Function:
    from autosched.graph.builder import function as build

    made = build(params, results, function.name)
    attrs = dict(function.attrs)
    if "inputs" in attrs:
        seeds = tuple(
            p.atom.name for p in params[len(function.params) :] if isinstance(p.atom, Var)
        )
        attrs["inputs"] = (*attrs["inputs"], *seeds)
    old = attrs.get("outputs") or tuple(
        getattr(a, "name", f"output{n}") for n, a in enumerate(function.body.results)
    )
    attrs["outputs"] = (*old, *(f"d_{n}" for n in names))
    kept = tuple(sorted((k, v) for k, v in attrs.items() if k in ("inputs", "outputs")))
    return Function(made.name, made.params, made.body, kept)


def _wanted(function: Function, wrt: Sequence[str] | None) -> list[str]:
    names = [p.name for p in function.params if _is_float(p)]
    if wrt is None:
        if not names:
            raise WorkloadError(f"{function.name} has no floating-point parameter")
        return names
    if isinstance(wrt, str) or not isinstance(wrt, (list, tuple)):
        raise WorkloadError(f"wrt is {shown(wrt)}; expected names of parameters")
    for n in wrt:
        if n not in names:
            raise WorkloadError(
                f"wrt has {shown(n)}; the floating-point parameters of {function.name} are "
                f"{', '.join(names) or 'none'}"
            )
    return [n for n in names if n in wrt]


class _Forward:
    """The values of a function as those that calls take: each with its binding."""

    def __init__(self, function: Function, params: dict[int, Value]) -> None:
        self.known: dict[int, Value] = dict(params)
        for b in function.body.bindings:
            parents = tuple(self.value(a) for a in reads(b.value) if id(a) in self.known)
            self.known.update({id(v): Value(v, b, parents) for v in b.vars})

    def value(self, a: Atom) -> Value:
        """The value of an atom."""
        return self.known.get(id(a), Value(a))


def _is_float(a: Atom) -> bool:
    t = None if isinstance(a, Global) else a.type
    return isinstance(t, TensorType) and dtypes.is_float(t.dtype) if t is not None else False


def _active(function: Function, names: Sequence[str]) -> set[int]:
    """Ids of the variables of floats that depend on the parameters named."""
    found = {id(p) for p in function.params if p.name in names}
    for b in function.body.bindings:
        if any(id(a) in found for a in reads(b.value)):
            # Through integers nothing is passed back; through what is no tensor something may be.
            found |= {id(v) for v in b.vars if _is_float(v) or not isinstance(v.type, TensorType)}
    return found


def _sum(parts: Sequence[Value]) -> Value | None:
    total: Value | None = None
    for p in parts:
        total = p if total is None else total + p
    return total


def _zeros(t: TensorType) -> Value:
    return Value(const(np.zeros([int(n) for n in t.known], t.dtype)))


def _step_back(
    b: Binding,
    given: Sequence[Value | None],
    forward: _Forward,
    active: set[int],
    backward: dict[int, list[Value]],
) -> None:
    value = b.value
    name = b.vars[0].name
    if not isinstance(value, Call) or not isinstance(value.callee, str):
        what = "a call of a function" if isinstance(value, Call) else type(value).__name__
        raise Unsupported(f"{name} is made by {what}, which has no adjoint")
    if any(not isinstance(v.type, TensorType) or v.type.shape is None for v in b.vars):
        raise Unsupported(f"{value.callee} has no adjoint where its shape depends on data")
    if value.callee in ("Loop", "Scan"):
        raise Unsupported(f"{value.callee} has no adjoint")
    if inference(value, len(b.vars)).kind == "host":
        raise Unsupported(f"{value.callee} has no adjoint: it is computed on the host")
    for n, a in enumerate(value.args):
        if a is None or id(a) not in active or not isinstance(a, Var):
            continue
        back = _passed_back(value, n, a, given, forward)
        if back is not None:
            backward.setdefault(id(a), []).append(back)


def _passed_back(
    value: Call, n: int, a: Var, given: Sequence[Value | None], forward: _Forward
) -> Value | None:
    """What input n of a call gets back."""
    t = a.type
    assert isinstance(t, TensorType)
    first = given[0]
    same = first is not None and first.type == t
    if same and value.callee in ("Add", "Identity", "Sum"):
        return first
    if same and value.callee == "Sub":
        assert first is not None
        return first if n == 0 else -first
    if value.callee in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") and t.is_static:
        return _call("Reshape", [first], shape=tuple(int(m) for m in t.known))
    if value.callee == "Transpose" and first is not None:
        perm = value.attr("perm") or tuple(range(len(t.known)))[::-1]
        order = [p % len(perm) for p in perm]
        return _call("Transpose", [first], perm=tuple(order.index(d) for d in range(len(order))))
    if value.callee == "Conv" and n == 0 and first is not None:
        made = _transposed(value, t, first, forward)
        if made is not None:
            return made
    args = [None if x is None else forward.value(x) for x in value.args]
    attrs = tuple((k, v) for k, v in value.attrs)
    return _call(
        "Adjoint",
        [*args, *given],
        of=value.callee,
        wrt=n,
        inputs=len(args),
        results=len(given),
        attrs=attrs,
    )


def _transposed(value: Call, t: TensorType, given: Value, forward: _Forward) -> Value | None:
    """What the data of a convolution gets back, by ConvTranspose, whose schedules are known to be
    good; None where the padding is not written out."""
    weight = value.args[1]
    if value.attr("auto_pad", "NOTSET") != "NOTSET" or not t.is_static or weight is None:
        return None
    w = forward.value(weight)
    rank = len(t.known) - 2
    ones = (1,) * rank
    strides, dilations = (value.attr(k) or ones for k in ("strides", "dilations"))
    pads = value.attr("pads") or (0,) * (2 * rank)
    extra = tuple(
        int(n) - ((o - 1) * s + (k - 1) * d + 1 - before - after)
        for n, o, s, k, d, before, after in zip(
            t.known[2:], given.shape[2:], strides, w.shape[2:], dilations, pads[:rank],
            pads[rank:], strict=True,
        )
    )  # fmt: skip
    return _call(
        "ConvTranspose",
        [given, w],
        strides=tuple(strides),
        dilations=tuple(dilations),
        pads=tuple(pads),
        group=value.attr("group", 1),
        output_padding=extra,
    )


def _call(name: str, args: Sequence[Any], **attrs: Any) -> Value:
    made: Value = call(name, args, attrs)
    return made
