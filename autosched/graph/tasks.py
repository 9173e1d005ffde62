"""What there is to tune in a model: its distinct kernels, and how often each runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from autosched.graph.compile import main_of, primitives
from autosched.graph.ir import Body, Call, Const, Function, Global, bodies
from autosched.graph.kernels import Alternative, alternatives
from autosched.target import Target
from autosched.tir.module import IRModule
from autosched.tir.opaque import has_opaque


@dataclass(frozen=True)
class KernelGroup:
    """Primitive functions that are one workload: `names`; how many `calls` of them a run of the
    model makes; `alternatives`, the implementations that a build chooses from, of which the first
    is taken without records."""

    names: tuple[str, ...]
    calls: int
    alternatives: tuple[Alternative, ...]

    @property
    def title(self) -> str:
        """The first function, and how many there are besides."""
        more = len(self.names) - 1
        return f"{self.names[0]} + {more}" if more else self.names[0]


def kernel_groups(ready: IRModule, target: Target) -> list[KernelGroup]:
    """The groups of a module as `autosched.graph.compile.prepared` gives it, in its order.

    A kernel in the body of a Loop counts as often as the loop runs if that is a constant, else
    once; one in a branch, or in a function that calls itself, counts once.
    """
    counts = calls(main_of(ready).body)
    for f in ready.graphs.values():
        if isinstance(f, Function) and f.name != "main" and not (f.is_primitive or f.is_external):
            counts += calls(f.body)
    found: dict[tuple[str, ...], list[Function]] = {}
    rows: dict[tuple[str, ...], tuple[Alternative, ...]] = {}
    for function in primitives(ready):
        made = tuple(alternatives(function, target))
        if has_opaque(made[0].func):  # nothing of it is scheduled
            continue
        keys = tuple(a.key for a in made)
        found.setdefault(keys, []).append(function)
        rows.setdefault(keys, made)
    return [
        KernelGroup(
            tuple(f.name for f in functions), sum(counts[f.name] for f in functions), rows[keys]
        )
        for keys, functions in found.items()
    ]


def calls(body: Body, times: int = 1) -> Counter[str]:
    """How often each global function is called in a body and the bodies in it."""
    trips = dict(_trips(body))
    found: Counter[str] = Counter()
    for b in body.bindings:
        if isinstance(b.value, Call) and isinstance(b.value.callee, Global):
            found[b.value.callee.name] += times
        for inner in bodies(b.value):
            found += calls(inner, times * trips.get(id(b.vars[0]), 1))
    return found


def _trips(body: Body) -> Iterator[tuple[int, int]]:
    """Ids of the functions that loops call, and how often, where that is a constant."""
    for b in body.bindings:
        if isinstance(b.value, Call) and b.value.callee == "Loop":
            limit, _, function = b.value.args[:3]
            if isinstance(limit, Const):
                yield id(function), max(int(limit.value.reshape(-1)[0]), 1)
