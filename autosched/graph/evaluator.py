"""The evaluator: any program of the graph level, by NumPy. It is slow, and the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.checks import instance, shown
from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.higher import HIGHER
from autosched.graph.infer import evaluate_operator
from autosched.graph.ir import (
    Array,
    Atom,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Item,
    Match,
    TupleExpr,
    Value,
    Var,
)
from autosched.graph.types import TensorType
from autosched.tir.module import IRModule

Env = dict[int, Any]


def evaluate(module: IRModule, name: str = "main", *args: Any) -> Any:
    """The results of a graph function on arrays: one, or a tuple of several.

    Raises ArgumentError on a wrong number of arguments, Unsupported, naming the operator, for what
    cannot be computed."""
    instance("the module to evaluate", module, IRModule, "an IRModule", ArgumentError)
    function = module.graphs.get(name) if isinstance(name, str) else None
    if not isinstance(function, Function):
        have = ", ".join(module.graphs) or "none"
        raise WorkloadError(f"no graph function is named {shown(name)}; the module has {have}")
    for p, a in zip(function.params, args, strict=False):
        if not isinstance(p.type, TensorType) or p.type.shape is None:
            continue
        rank = len(p.type.shape)
        array = isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind not in "OUSMm"
        if not (array and a.ndim == rank):
            raise ArgumentError(f"{p.name} is {shown(a)}; expected an array of {rank} dimensions")
    results = _Evaluator(module).call(function, args, {})
    return results[0] if len(results) == 1 else tuple(results)


class _Evaluator:
    def __init__(self, module: IRModule) -> None:
        self.module = module

    def call(self, f: Function, args: Sequence[Any], outer: Env) -> list[Any]:
        if len(args) != len(f.params):
            raise ArgumentError(f"{f.name} takes {len(f.params)} arguments, found {len(args)}")
        env = {**outer, **{id(p): a for p, a in zip(f.params, args, strict=True)}}
        return self.body(f.body, env)

    def body(self, body: Body, env: Env) -> list[Any]:
        for b in body.bindings:
            made = self.value(b.value, env, len(b.vars))
            env.update({id(v): x for v, x in zip(b.vars, made, strict=True)})
        return [self.atom(a, env) for a in body.results]

    def atom(self, a: Atom, env: Env) -> Any:
        if isinstance(a, Var):
            return env[id(a)]
        if isinstance(a, Const):
            return a.value
        return self.closure(self.named(a), {})

    def named(self, g: Global) -> Function:
        found = self.module.graphs.get(g.name)
        if not isinstance(found, Function):
            raise WorkloadError(f"no graph function is named {g.name!r} in the module")
        return found

    def closure(self, f: Function, env: Env) -> Callable[..., list[Any]]:
        return lambda *args: self.call(f, args, env)

    def value(self, v: Value, env: Env, outputs: int) -> Sequence[Any]:
        if isinstance(v, Function):
            return [self.closure(v, dict(env))]
        if isinstance(v, If):
            taken = v.then if bool(np.any(self.atom(v.condition, env))) else v.other
            return self.body(taken, dict(env))
        if isinstance(v, TupleExpr):
            return [tuple(self.atom(a, env) for a in v.items)]
        if isinstance(v, Item):
            return [self.atom(v.value, env)[v.index]]
        if isinstance(v, Match):
            raise WorkloadError("match is not evaluated yet: there are no data types")
        return self.applied(v, env, outputs)

    def applied(self, v: Call, env: Env, outputs: int) -> Sequence[Any]:
        args = [None if a is None else self.atom(a, env) for a in v.args]
        if not isinstance(v.callee, str):
            made: list[Any] = self.atom(v.callee, env)(*args)
            return made
        if v.callee in HIGHER:
            return HIGHER[v.callee](*args, **dict(v.attrs))[:outputs]
        arrays: list[Array | None] = [None if a is None else np.asarray(a) for a in args]
        return evaluate_operator(v.callee, arrays, dict(v.attrs), outputs)
