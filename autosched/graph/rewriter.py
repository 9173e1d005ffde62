"""Rewriting what a pattern matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched.checks import instance, shown, text
from autosched.errors import WorkloadError
from autosched.graph.builder import Value, producers
from autosched.graph.ir import Binding, Body, Call, Const, Function, Var
from autosched.graph.passes.bodies import Renaming, body_pass
from autosched.graph.passes.clean import dead_code
from autosched.graph.pattern import Match, Pattern, chosen
from autosched.graph.scopes import free_variables
from autosched.integers import as_int
from autosched.passes.base import Pass
from autosched.tir.module import IRModule

Replace = Callable[[Match], Any]
"""From a match to a value, as many values as its root has results, or None to leave it."""


def rewrite(module: IRModule, pattern: Pattern, callback: Replace, most: int = 1) -> IRModule:
    """The module with what `pattern` matches replaced by what `callback` makes of the match.

    rewrite:
        a = op.mul(x, G.const(1.0, …))           ->      (nothing: callback returns match["x"])
        b = op.relu(a)                                   b = op.relu(x)

    Matches do not overlap; the larger one of an optional part is taken. The callback gets a `Match`
    and returns a value of the same type, made with operators of the values in the match; None
    leaves the place as it is. What nothing needs any more goes. `most` is how often to begin anew
    while something changes. Raises WorkloadError, naming the value, where the type is another.
    """
    count = as_int(most)
    if count is None or count < 1:
        raise WorkloadError(f"most is {shown(most)}; expected how often to rewrite, from 1 up")
    instance("the module", module, IRModule, "a module of graph functions", WorkloadError)
    for _ in range(count):
        changes: list[str] = []
        module = dead_code(_pass("rewrite", pattern, callback, changes)(module))
        if not changes:
            break
    return module


def rewrite_pass(name: str, pattern: Pattern, callback: Replace) -> Pass:
    """`rewrite` as a pass, for `at.passes.Sequential` and beside the passes of `graph.passes`."""
    name = text("the name of a pass", name, WorkloadError)
    one = _pass(name, pattern, callback, [])
    return Pass(name, lambda module: dead_code(one(module)))


def _pass(name: str, pattern: Pattern, callback: Replace, changes: list[str]) -> Pass:
    instance("the pattern", pattern, Pattern, "a pattern of graph.pattern", WorkloadError)
    if not callable(callback):
        raise WorkloadError(f"the callback is {shown(callback)}; expected a function of a match")

    @body_pass(name)
    def change(body: Body) -> Body:
        return _rewritten(body, pattern, callback, changes)

    return Pass(name, lambda module: _scoped(change(module)))


def _scoped(module: IRModule) -> IRModule:
    """The module. Raises WorkloadError where a callback used a variable from somewhere else."""
    for name, f in module.graphs.items():
        free = free_variables(f.body, f.params) if isinstance(f, Function) else ()
        if free:
            raise WorkloadError(
                f"what the callback made in {name} uses the variable {free[0].name}, which is not "
                "bound before it; use the values of the match"
            )
    return module


def _rewritten(body: Body, pattern: Pattern, callback: Replace, changes: list[str]) -> Body:
    found = chosen([pattern], body)
    now = Renaming()
    for b in body.bindings:
        match = found.get(id(b))
        made = None if match is None else callback(_as_now(match, now))
        # What is made may read what it stands for; if not, that is dead code.
        now.out.append(Binding(b.vars, now.value(b.value)))
        if made is None:
            continue
        values = _values(made, b)
        changes.append(b.vars[0].name)
        now.out += producers(values)[0]
        now.known.update({id(v): x.atom for v, x in zip(b.vars, values, strict=True)})
    return now.body(body.results)


def _as_now(match: Match, now: Renaming) -> Match:
    """A match over the atoms that stand now."""
    renamed = {n: now.known.get(id(a), a) for n, a in match.names.items()}
    at = [Binding(b.vars, now.value(b.value)) for b in match.bindings]
    root = next(x for x, b in zip(at, match.bindings, strict=True) if b is match.root)
    return Match(root, tuple(at), renamed)


def _values(made: Any, b: Binding) -> Sequence[Value]:
    values = list(made) if isinstance(made, (tuple, list)) else [made]
    values = [Value(v) if isinstance(v, (Const, Var)) else v for v in values]
    wrong = next((v for v in values if not isinstance(v, Value)), None)
    where = f"the rewriting of {b.vars[0].name}"
    if isinstance(b.value, Call) and isinstance(b.value.callee, str):
        where += f" ({b.value.callee})"
    if wrong is not None or len(values) != len(b.vars):
        found = shown(wrong) if wrong is not None else f"{len(values)} values"
        raise WorkloadError(f"{where} gives {found}; expected {len(b.vars)} values of the graph")
    for v, old in zip(values, b.vars, strict=True):
        if v.type != old.type:
            raise WorkloadError(f"{where} gives {v.type}; what it stands for is {old.type}")
    return values
