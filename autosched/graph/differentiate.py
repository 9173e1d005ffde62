"""Gradients of graph functions: reverse mode over the A-normal form.

A gradient is a function like any other, whose kernels are fused, tuned and compiled as they are;
`reverse` makes its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from autosched.checks import instance, shown
from autosched.errors import WorkloadError
from autosched.graph.builder import const
from autosched.graph.compile import main_of
from autosched.graph.errors import Unsupported
from autosched.graph.inference import check
from autosched.graph.ir import Atom, Body, Call, Function, Var, tensor_type, type_of
from autosched.graph.passes.calling import control, reachable
from autosched.graph.passes.clean import dead_code
from autosched.graph.passes.lift import lambda_lift
from autosched.graph.passes.partial_eval import partial_eval
from autosched.graph.reverse import Reverse, is_float
from autosched.graph.reverse_calls import Functions
from autosched.graph.types import ANY
from autosched.tir.module import IRModule


@overload
def gradient(
    function: Function, wrt: Sequence[str] | None = None, seeds: bool = False
) -> Function: ...


@overload
def gradient(
    function: IRModule, wrt: Sequence[str] | None = None, seeds: bool = False
) -> IRModule: ...


def gradient(
    function: Function | IRModule, wrt: Sequence[str] | None = None, seeds: bool = False
) -> Function | IRModule:
    """The function of the same parameters whose results are those of `function`, then the gradient
    by each parameter of floats, or by those named in `wrt`, each once, in that order. Of a module:
    the module whose `main` is the gradient of its `main`, beside the functions that it calls;
    parameters may be tuples and values of data types with floats in them.

    The only floating-point result has to have one element: the gradient is that of it. With
    `seeds`, a parameter `d_NAME` a floating-point result follows the others, and the gradients are
    those of the sum of all results times their seeds. Operators whose results are integers or
    conditions pass nothing back. A recurrent layer goes back through its steps one by one, a Loop
    over the states of its iterations, which it keeps; the bodies of a branch are computed again.
    Recursion, data types and `match` need the module: they go back through function values.

    Raises Unsupported, naming the operator, for one that has no adjoint: a result whose
    shape depends on data, a function value that is not known, a state that changes its shape.
    """
    instance("the function", function, (Function, IRModule), "a graph function", WorkloadError)
    instance("seeds", seeds, bool, "True or False", WorkloadError)
    if isinstance(function, Function):
        return _gradient(function, wrt, seeds, Functions({}))
    module, main = function, main_of(function)
    if control(module, main):
        module = lambda_lift(partial_eval(module))
        main = main_of(module)
    functions = Functions(module.graphs)
    made = _gradient(main, wrt, seeds, functions)
    graphs = {**module.graphs, **functions.finish(), "main": made}
    return check(reachable(dead_code(IRModule(module.functions, graphs)), ["main"]))


def _gradient(
    function: Function, wrt: Sequence[str] | None, seeds: bool, functions: Functions
) -> Function:
    wanted = _wanted(function, wrt, functions)
    to = Reverse(functions, {}, {id(p) for p in wanted}, {})
    steps, results = to.forward(function.body)
    floats = [n for n, a in enumerate(results) if is_float(a)]
    if not floats:
        for b in function.body.bindings:
            if isinstance(b.value, Call) and any(v.type == ANY for v in b.vars):
                raise Unsupported(
                    f"{b.vars[0].name} has no gradient: what {b.value.callee} gives has a type "
                    "that depends on data; it is known where the sizes of its inputs are numbers "
                    "and inputs that say its shape are constants"
                )
        raise WorkloadError(f"{function.name} has no floating-point result to differentiate")
    more: list[Var] = []
    for n in floats:
        a = results[n]
        if seeds:
            more.append(Var(f"d_{a.name if isinstance(a, Var) else f'result{n}'}", type_of(a)))
            to.add(a, more[-1])
        else:
            to.add(a, _one(function, a, len(floats)))
    to.backward(steps)
    grads = [functions.full(to, p, to.given.get(id(p))) for p in wanted]
    body = Body(tuple(to.out), (*results, *grads))
    made = Function(function.name, (*function.params, *more), body, _attrs(function, more, wanted))
    (done,) = dead_code(IRModule({}, {made.name: made})).graphs.values()
    assert isinstance(done, Function)
    return done


def _one(function: Function, a: Atom, count: int) -> Atom:
    """What comes back to the only result."""
    t = tensor_type(a)
    if count > 1 or not t.is_static or t.elements != 1:
        have = f"{count} of them" if count > 1 else f"one of type {t}"
        raise WorkloadError(
            f"the gradient of {function.name} needs one floating-point result of one element, "
            f"found {have}; reduce it, or pass seeds=True for a parameter a result"
        )
    return const(np.ones([int(m) for m in t.known], t.dtype))


def _attrs(
    function: Function, more: Sequence[Var], wanted: Sequence[Var]
) -> tuple[tuple[str, object], ...]:
    """Names of inputs and outputs."""
    old = function.attr("outputs") or tuple(
        getattr(a, "name", f"output{n}") for n, a in enumerate(function.body.results)
    )
    attrs = {"outputs": (*old, *(f"d_{p.name}" for p in wanted))}
    if function.attr("inputs"):
        attrs["inputs"] = (*function.attr("inputs"), *(v.name for v in more))
    return tuple(sorted(attrs.items()))


def _wanted(function: Function, wrt: Sequence[str] | None, functions: Functions) -> list[Var]:
    floats = [p for p in function.params if functions.carries(p.type)]
    if wrt is None:
        if not floats:
            raise WorkloadError(f"{function.name} has no floating-point parameter")
        return floats
    if isinstance(wrt, str) or not isinstance(wrt, (list, tuple)):
        raise WorkloadError(f"wrt is {shown(wrt)}; expected names of parameters")
    for n in wrt:
        if n not in [p.name for p in floats]:
            raise WorkloadError(
                f"wrt has {shown(n)}; the floating-point parameters of {function.name} are "
                f"{', '.join(p.name for p in floats) or 'none'}"
            )
    return [p for n in dict.fromkeys(wrt) for p in floats if p.name == n]
