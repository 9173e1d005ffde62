"""What functions of a module call, and whether that is what a build takes."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.graph.data import DataType
from autosched.graph.ir import Call, Function, Global, Item, Match, TupleExpr, bodies, reads
from autosched.graph.types import TensorType
from autosched.tir.module import IRModule


def _named(f: Function) -> set[str]:
    found = [a for b in f.body.bindings for a in reads(b.value)]
    return {a.name for a in (*found, *f.body.results) if isinstance(a, Global)}


def reachable(module: IRModule, names: Sequence[str]) -> IRModule:
    """Without the functions that nothing calls any more; data types stay while functions do."""
    kept: set[str] = set()
    work = list(names)
    while work:
        name = work.pop()
        f = module.graphs.get(name)
        if name not in kept and isinstance(f, Function):
            kept.add(name)
            work += _named(f)
    graphs = {n: g for n, g in module.graphs.items() if n in kept or isinstance(g, DataType)}
    return IRModule(module.functions, graphs)


def control(module: IRModule, f: Function, calls: bool = False) -> str:
    """What a function has that is neither an operator, a kernel nor a branch, which is all that a
    build takes; "" where there is nothing else. With `calls`, calls of functions on tensors are
    taken, too, if these have nothing else either."""
    work, seen = [f.body], {f.name}
    while work:
        body = work.pop()
        for b in body.bindings:
            v = b.value
            if isinstance(v, (TupleExpr, Item, Match)):
                return {TupleExpr: "a tuple", Item: "a part of a tuple", Match: "a match"}[type(v)]
            if isinstance(v, Call) and not isinstance(v.callee, str):
                callee = module.graphs.get(v.callee.name)
                if callee is None and isinstance(v.callee, Global):
                    return f"a value of a data type, made by {v.callee.name}"
                if not isinstance(callee, Function) or not isinstance(v.callee, Global):
                    return f"a call of {v.callee.name}"
                if callee.is_primitive or callee.is_external:
                    continue
                if not calls or not _on_tensors(callee):
                    return f"a call of {v.callee.name}"
                if callee.name not in seen:
                    seen.add(callee.name)
                    work.append(callee.body)
            work += bodies(v)
    return ""


def _on_tensors(f: Function) -> bool:
    """Whether a function takes and gives tensors of fixed sizes."""
    types = [*(p.type for p in f.params), *(a.type for a in f.body.results)]
    return not f.attr("types") and all(isinstance(t, TensorType) and t.is_static for t in types)
