"""Type inference of a module: holes are filled, what does not fit is an error.

Functions are inferred in the order of their calls. A function whose parameters or results are not
written is general in what its body leaves open; the types of local variables are single types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from autosched.checks import instance
from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.checking import BodyChecker, Scheme
from autosched.graph.exhaustive import missing_cases
from autosched.graph.ir import (
    Call,
    Function,
    Global,
    Var,
    reads,
)
from autosched.graph.notes import Notes
from autosched.graph.relations import Relation
from autosched.graph.retype import Retyping
from autosched.graph.types import (
    FuncType,
    Hole,
    TensorType,
    Type,
    TypeVar,
    leaves,
)
from autosched.graph.unify import LITERALS
from autosched.tir.module import GraphFunction, IRModule


def check(module: IRModule) -> IRModule:
    """The module with the types that follow from it; names that annotations leave open are found.

    Raises WorkloadError where types do not fit, a match misses a case, or a name is not defined.
    """
    instance("the module to check", module, IRModule, "an IRModule", ArgumentError)
    return IRModule(module.functions, completed(module.graphs, Notes(), frozenset()))


def completed(
    graphs: Mapping[str, GraphFunction], notes: Notes, given: frozenset[str]
) -> dict[str, GraphFunction]:
    """The definitions with all types; those of `given` are known to be right."""
    checker = _Checker(graphs, notes)
    for name in given:
        f = graphs[name]
        if isinstance(f, Function):
            checker.schemes[name] = Scheme(_params(f), f.type)
    functions = {n: f for n, f in graphs.items() if isinstance(f, Function) and n not in given}
    done: dict[str, GraphFunction] = {}
    for group in _groups(_calls(functions)):
        done.update(checker.group({n: functions[n] for n in group}))
    for a, _, _ in notes.ascribed:
        if isinstance(a, Global):  # also where nothing uses it
            checker.stated(a, checker.instance_of(a.name, (), a)[0])
    return {n: done.get(n, g) for n, g in graphs.items()}


class _Checker(BodyChecker):
    """Infers functions in groups."""

    # Groups of functions that call each other

    def group(self, functions: Mapping[str, Function]) -> dict[str, GraphFunction]:
        """Infer functions that call each other; the functions with their types."""
        try:
            return self._group(functions)
        except WorkloadError as e:  # without a place
            raise self.notes.error(self.u.now, str(e)) from e

    def _group(self, functions: Mapping[str, Function]) -> dict[str, GraphFunction]:
        signatures: dict[str, FuncType] = {}
        for name, f in functions.items():
            _, declared = self.notes.results.get(id(f), (f, None))
            if declared is None and self.notes.source is None:
                declared = _declared(f)
            results = declared or tuple(Hole() for _ in f.body.results)
            signatures[name] = FuncType(tuple(p.type for p in f.params), results)
            written = not any(isinstance(x, Hole) for x in leaves(signatures[name]))
            params = _params(f) if written else ()
            self.schemes[name] = Scheme(params, signatures[name])
        owned: dict[str, list[Relation]] = {}
        for name, f in functions.items():
            before = self.pending
            self.pending = []
            self.function(f, signatures[name].results)
            owned[name], self.pending = self.pending, before
        self.solve(owned)
        self.check_matches()
        made = self.generalise(functions, signatures, owned)
        retyping = Retyping(self.u, self.notes, self.literals, self.uses)
        return {n: retyping.function(f) for n, f in made.items()}

    def solve(self, owned: dict[str, list[Relation]]) -> None:
        """Fire relations until nothing moves, then guess, one at a time."""
        while True:
            moved = False
            for name, relations in owned.items():
                left = []
                for r in relations:
                    self.u.now = r.binding
                    if r.fire(self):
                        moved = True
                    else:
                        left.append(r)
                owned[name] = left
            if moved:
                continue
            every = [r for relations in owned.values() for r in relations]
            if not any(r.force(self, last) for last in (False, True) for r in every):
                return

    def generalise(
        self,
        functions: Mapping[str, Function],
        signatures: Mapping[str, FuncType],
        owned: Mapping[str, Sequence[Relation]],
    ) -> dict[str, Function]:
        """What signatures leave open becomes type parameters; relations that wait for them are
        part of the function's type."""
        made = {}
        taken = {x.name for f in functions.values() for x in _params(f)}
        waiting = {
            self.u.resolve(t) for relations in owned.values() for r in relations for t in r.types()
        }
        for h in self.literals.values() if waiting else ():
            t = self.u.resolve(h)
            if isinstance(t, Hole) and t in waiting:
                # A number's dtype is never general: nothing has asked for another one.
                self.u.unify(t, TensorType((), LITERALS[t.literal]))
        shared: set[TypeVar] = set()
        for name in functions:
            for hole in leaves(self.u.full(signatures[name])):
                if isinstance(hole, Hole) and self.u.resolve(hole) is hole and not hole.literal:
                    fresh = next(x for x in _letters() if x not in taken and x not in self.graphs)
                    taken.add(fresh)
                    made_up = TypeVar(fresh, hole.kind)
                    self.u.found[hole] = made_up
                    shared.add(made_up)
        for name, f in functions.items():
            t = self.u.full(signatures[name])
            assert isinstance(t, FuncType)
            used = {x for x in leaves(t) if isinstance(x, TypeVar)} | shared
            before = _params(f)
            params = (*before, *sorted(used - set(before), key=lambda v: v.name))
            rest = tuple((k, v) for k, v in f.attrs if k != "types")
            types = tuple(v.declared for v in params)
            made[name] = replace(f, attrs=(*rest, ("types", types)) if params else rest)
            # What one function of the group asks of a shared type, a call of another asks, too.
            holds = (
                [r for relations in owned.values() for r in relations] if shared else owned[name]
            )
            full: dict[Type, Type] = {
                h: self.u.full(h)
                for r in holds
                for x in r.types()
                for h in leaves(x)
                if isinstance(h, Hole)
            }
            kept = tuple(r.copied(r.binding, full, self.u.sizes) for r in holds)
            self.schemes[name] = Scheme(params, t, kept)
            for r in kept:
                if not params:
                    raise self.notes.error(r.binding, self.unknown(r))
        return made

    def unknown(self, r: Relation) -> str:
        """An error message for a relation that nothing decides."""
        args = r.binding.value.args if isinstance(r.binding.value, Call) else ()
        open_ = [a for a in args if isinstance(a, Var) and isinstance(self.u.resolve(a.type), Hole)]
        what = self.described(open_[0]) if open_ else "a value here"
        return f"the type of {what} does not follow from the program; write it: name: G.Tensor(…)"

    def check_matches(self) -> None:
        """Every match has a clause for every value."""
        for binding, match, t in self.matches:
            full = self.u.full(t)
            if isinstance(full, Hole):
                continue
            missing = missing_cases([p for p, _ in match.clauses], full, self.known)
            if missing:
                raise self.notes.error(
                    binding,
                    f"the match of a value of type {full} has no case for {', '.join(missing)}",
                )
        self.matches.clear()


def _params(f: Function) -> tuple[TypeVar, ...]:
    """The type parameters of a function."""
    return tuple(map(TypeVar.read, f.attr("types", ())))


def _declared(f: Function) -> tuple[Type, ...] | None:
    """Types of results as they stand on the atoms, for functions that no text has."""
    if any(a.type is None for a in f.body.results):
        return None
    return tuple(a.type for a in f.body.results if a.type is not None)


def _letters() -> Iterator[str]:
    """Names of type parameters: a, b, …, a1, b1, …"""
    for n in count():
        for c in "abcdefghijklmnopqrstuvwxyz":
            yield f"{c}{n or ''}"


def _calls(functions: Mapping[str, Function]) -> dict[str, list[str]]:
    """The functions among these that each one calls, or has as values."""
    return {
        n: sorted(
            {
                a.name
                for a in (*(x for b in f.body.bindings for x in reads(b.value)), *f.body.results)
                if isinstance(a, Global) and a.name in functions
            }
        )
        for n, f in functions.items()
    }


def recursive(graphs: Mapping[str, GraphFunction]) -> frozenset[str]:
    """The functions of a module that are called by what they call."""
    calls = _calls({n: f for n, f in graphs.items() if isinstance(f, Function)})
    return frozenset(n for g in _groups(calls) for n in g if len(g) > 1 or n in calls[n])


def _groups(calls: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected functions, callees first (Tarjan's algorithm, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    place: dict[str, int] = {}
    """Where the names of `open_` stand."""
    out: list[list[str]] = []
    for root in calls:
        work = [(root, 0)] if root not in index else []
        while work:
            name, at = work.pop()
            if name not in index:
                index[name] = low[name] = len(index)
                place[name] = len(open_)
                open_.append(name)
            for n in range(at, len(calls[name])):
                other = calls[name][n]
                if other not in index:
                    work += [(name, n), (other, 0)]
                    break
                if other in place:
                    low[name] = min(low[name], low[other])
            else:
                if low[name] == index[name]:
                    out.append(open_[place[name] :])
                    del open_[place[name] :]
                    for other in out[-1]:
                        del place[other]
    return out
