"""partition: what a code generator takes of a module becomes functions of its own.

A region is convex: no path leaves it and comes back, so that it can run as one call. Matches of
the generator's patterns are regions; where one feeds the other they are merged while that holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from autosched.checks import instance, listed
from autosched.errors import WorkloadError
from autosched.graph.external import generator
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    reads,
)
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.fuse import structure
from autosched.graph.pattern import Pattern, chosen
from autosched.graph.scopes import outlined
from autosched.graph.types import TensorType
from autosched.tir.module import IRModule


def partition(module: IRModule, name: str, patterns: Sequence[Pattern] | None = None) -> IRModule:
    """The module whose regions that the generator `name` takes are functions with the attribute
    compiler=name, which `graph.build` has it compile; bodies inside others are looked at, too.

    `patterns`, where given, take the place of the generator's own. What has a size that is not
    known when a model is compiled is left. Run it on a module as it was made or imported, or after
    passes such as `simplify`; equal regions are one function. Raises WorkloadError where there is
    no such generator.
    """
    instance("the module", module, IRModule, "a module of graph functions", WorkloadError)
    row = generator(name)
    if patterns is not None:
        listed("patterns", patterns, Pattern, "patterns", WorkloadError)
    return cut(module, row.name, row.patterns if patterns is None else patterns, row.merge)


def cut(
    module: IRModule,
    name: str,
    patterns: Sequence[Pattern],
    merge: bool = True,
    whole: bool = False,
) -> IRModule:
    """The module whose regions of what patterns match are functions with the attribute
    compiler=name. With `merge` matches that feed each other are one; with `whole` a function has
    the constants that it reads, else only those of one element, and takes the others."""
    regions = _Regions(name, patterns, merge, whole, {*module.functions, *module.graphs})
    made = body_pass("partition")(regions.body)(module)
    return IRModule(made.functions, {**made.graphs, **regions.functions})


class _Graph:
    """The bindings of a body in groups: `group[n]` of binding n, whose members are `members[g]`,
    from `first[g]` to `last[g]`. `readers[g]` are the bindings outside a group that read it,
    `read[g]` those that it reads."""

    def __init__(self, body: Body) -> None:
        self.bindings = body.bindings
        count = range(len(body.bindings))
        maker = {id(v): n for n, b in enumerate(body.bindings) for v in b.vars}
        self.sources = [
            list(dict.fromkeys(maker[id(a)] for a in reads(b.value) if id(a) in maker))
            for b in body.bindings
        ]
        self.users: list[list[int]] = [[] for _ in count]
        for n, made in enumerate(self.sources):
            for m in made:
                self.users[m].append(n)
        self.group = list(count)
        self.members: dict[int, list[int]] = {}
        self.first, self.last = list(count), list(count)
        self.readers: dict[int, set[int]] = {}
        self.read: dict[int, set[int]] = {}
        for n in count:
            self.alone(n)

    def alone(self, n: int) -> None:
        """A binding is a group of its own."""
        self.group[n] = self.first[n] = self.last[n] = n
        self.members[n] = [n]
        self.readers[n], self.read[n] = set(self.users[n]), set(self.sources[n])

    def after(self, g: int) -> set[int]:
        """The other groups that read what a group computes."""
        return {self.group[u] for u in self.readers[g]}

    def before(self, g: int) -> set[int]:
        """The other groups that a group reads."""
        return {self.group[m] for m in self.read[g]}

    def around(self, first: int, last: int) -> bool:
        """Whether a path of at least one other group leads from a group to a group."""
        end = self.last[last]
        stack = [g for g in self.after(first) if g != last]
        seen = {first}
        while stack:
            g = stack.pop()
            if g == last or (g == first and first == last):
                return True
            # Paths run forwards: what begins after the end of the last group does not reach it.
            if g in seen or self.first[g] > end:
                continue
            seen.add(g)
            after = self.after(g)
            if last in after:
                return True
            stack += after
        return False

    def join(self, groups: Sequence[int]) -> int:
        """One group of several: the largest takes in the others."""
        into, *others = sorted(set(groups), key=lambda g: -len(self.members[g]))
        for g in others:
            for n in self.members[g]:
                self.group[n] = into
            self.members[into] += self.members.pop(g)
            self.first[into] = min(self.first[into], self.first[g])
            self.last[into] = max(self.last[into], self.last[g])
            for sides in (self.readers, self.read):
                large, small = sorted((sides[into], sides.pop(g)), key=len, reverse=True)
                large |= small
                sides[into] = large
        for sides in (self.readers, self.read):
            sides[into] -= {n for n in sides[into] if self.group[n] == into}
        return into

    def split(self, g: int) -> None:
        """Every member of a group by itself again."""
        for n in self.members.pop(g):
            self.alone(n)

    def order(self) -> list[int]:
        """The groups, each after those that it reads, otherwise as their last members stand."""
        waits = {g: len(self.before(g)) for g in self.members}
        ready = [(self.last[g], g) for g in self.members if not waits[g]]
        heapq.heapify(ready)
        out = []
        while ready:
            _, g = heapq.heappop(ready)
            out.append(g)
            for other in self.after(g):
                waits[other] -= 1
                if not waits[other]:
                    heapq.heappush(ready, (self.last[other], other))
        return out


class _Regions:
    def __init__(
        self, name: str, patterns: Sequence[Pattern], merge: bool, whole: bool, taken: set[str]
    ) -> None:
        self.name, self.patterns, self.taken = name, patterns, taken
        self.merge, self.whole = merge, whole
        self.functions: dict[str, Function] = {}
        self.names: dict[object, str] = {}

    def body(self, body: Body) -> Body:
        """A body whose regions are calls."""
        graph = _Graph(body)
        regions = self._grown(graph, body)
        if not regions:
            return body
        results = {id(a) for a in body.results}
        out: list[Binding] = []
        for g in graph.order():
            if g in regions:
                out.append(self._call(graph, g, results))
            else:
                out += [body.bindings[n] for n in sorted(graph.members[g])]
        return Body(tuple(out), body.results)

    def _grown(self, graph: _Graph, body: Body) -> set[int]:
        number = {id(b): n for n, b in enumerate(body.bindings)}
        units = [
            sorted(number[id(b)] for b in match.bindings)
            for match in chosen(self.patterns, body).values()
            if all(map(_is_static, match.bindings))
        ]
        regions: set[int] = set()
        for unit in sorted(units, key=lambda u: u[-1]):
            if any(graph.group[n] != n or n in regions for n in unit):
                continue
            g = graph.join(unit)
            if graph.around(g, g):
                graph.split(g)
                continue
            regions.add(g)
            if self.merge:
                g = self._merged(graph, g, regions)
        return regions

    def _merged(self, graph: _Graph, g: int, regions: set[int]) -> int:
        """A region with those that feed it."""
        while True:
            feeding = sorted(graph.before(g) & regions, key=lambda f: graph.first[f])
            fits = next((f for f in feeding if not graph.around(f, g)), None)
            if fits is None:
                return g
            regions -= {g, fits}
            g = graph.join([g, fits])
            regions.add(g)

    def _call(self, graph: _Graph, g: int, results: set[int]) -> Binding:
        members = sorted(graph.members[g])
        bindings = [graph.bindings[n] for n in members]
        inside = {id(v) for b in bindings for v in b.vars}
        outside = [u for n in members for u in graph.users[n] if graph.group[u] != g]
        used = results | {id(a) for u in set(outside) for a in reads(graph.bindings[u].value)}
        seen = [a for b in bindings for a in reads(b.value) if id(a) not in inside]
        inputs = [a for a in {id(a): a for a in seen}.values() if not self._stands_inside(a)]
        out = tuple(v for b in bindings for v in b.vars if id(v) in used) or bindings[-1].vars
        made = outlined(self.name, bindings, inputs, out, ("compiler", self.name))
        return Binding(out, Call(Global(self._named(made)), tuple(inputs)))

    def _stands_inside(self, a: Atom) -> bool:
        """Whether a function has a constant itself."""
        return isinstance(a, Const) and (self.whole or a.type.elements <= 1)

    def _named(self, function: Function) -> str:
        key = structure(function)
        if key not in self.names:
            n = 0
            while f"{function.name}_{n}" in self.taken:
                n += 1
            name = f"{function.name}_{n}"
            self.taken.add(name)
            self.names[key] = name
            self.functions[name] = function.renamed(name)
        return self.names[key]


def _is_static(b: Binding) -> bool:
    """Whether all sizes of a call are known."""
    types = [a.type for a in (*b.vars, *reads(b.value)) if not isinstance(a, Global)]
    return all(isinstance(t, TensorType) and t.is_static for t in types)
