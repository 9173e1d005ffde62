"""Variables of bodies: what a body takes from around it, copies with variables of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Match,
    Pattern,
    Value,
    Var,
    bodies,
    reads,
    type_of,
    with_atoms,
    with_bodies,
)


def free_variables(body: Body, params: Sequence[Var]) -> list[Var]:
    """Variables that a body uses and does not bind, in order of first use."""
    bound = {id(p) for p in params}
    found: dict[int, Var] = {}

    def walk(inner: Body) -> None:
        for b in inner.bindings:
            if isinstance(b.value, Function):
                bound.update(id(v) for v in (*b.vars, *b.value.params))
            if isinstance(b.value, Match):
                bound.update(id(v) for p, _ in b.value.clauses for v in _bound(p))
            for nested in bodies(b.value):
                walk(nested)
            for a in reads(b.value):
                if isinstance(a, Var) and id(a) not in bound:
                    found.setdefault(id(a), a)
            bound.update(id(v) for v in b.vars)
        for a in inner.results:
            if isinstance(a, Var) and id(a) not in bound:
                found.setdefault(id(a), a)

    walk(body)
    return list(found.values())


def _bound(p: Pattern | Var | None) -> list[Var]:
    """The variables that a pattern binds."""
    if isinstance(p, Pattern):
        return [v for x in p.parts for v in _bound(x)]
    return [] if p is None else [p]


class Copying:
    """Writes bodies anew with variables of their own.

    `known` has what stands for variables, by id, and gets what stands for those that are bound."""

    def __init__(self, known: dict[int, Atom] | None = None) -> None:
        self.known: dict[int, Atom] = {} if known is None else known

    def var(self, v: Var) -> Var:
        """The variable in the place of one that is bound."""
        made = Var(v.name, v.type)
        self.known[id(v)] = made
        return made

    def atom(self, a: Atom) -> Atom:
        """What stands for an atom that is read."""
        return self.known.get(id(a), a)

    def function(self, f: Function) -> Function:
        """A function."""
        return Function(f.name, tuple(map(self.var, f.params)), self.body(f.body), f.attrs)

    def body(self, body: Body) -> Body:
        """Bindings with their results."""
        bindings = tuple(map(self.binding, body.bindings))
        return Body(bindings, tuple(map(self.atom, body.results)))

    def binding(self, b: Binding) -> Binding:
        """A binding."""
        if isinstance(b.value, Function):  # which may call itself
            names = tuple(map(self.var, b.vars))
            return Binding(names, self.function(b.value))
        value = self.value(b.value)
        return Binding(tuple(map(self.var, b.vars)), value)

    def value(self, v: Value) -> Value:
        """What is bound."""
        if isinstance(v, Call):
            return self.call(v)
        if isinstance(v, Function):
            return self.function(v)
        if isinstance(v, Match):
            clauses = tuple((self.pattern(p), self.body(b)) for p, b in v.clauses)
            return replace(v, value=self.atom(v.value), clauses=clauses)
        return with_bodies(with_atoms(v, self.atom), self.body)

    def call(self, v: Call) -> Call:
        """A call."""
        made = with_atoms(v, self.atom)
        assert isinstance(made, Call)
        return made

    def pattern(self, p: Pattern | Var | None) -> Pattern | Var | None:
        """A pattern."""
        if isinstance(p, Pattern):
            return Pattern(p.constructor, tuple(map(self.pattern, p.parts)))
        return None if p is None else self.var(p)


def outlined(
    name: str,
    bindings: Sequence[Binding],
    inputs: Sequence[Atom],
    results: Sequence[Var],
    attr: tuple[str, object],
) -> Function:
    """A function of its own for calls of operators: of what they read, `inputs`, to `results`."""
    params = tuple(
        Var(a.name if isinstance(a, Var) else f"c{n}", type_of(a)) for n, a in enumerate(inputs)
    )
    copy = Copying({id(a): p for a, p in zip(inputs, params, strict=True)})
    inner = tuple(map(copy.binding, bindings))
    constants = tuple(n for n, a in enumerate(inputs) if isinstance(a, Const))
    body = Body(inner, tuple(map(copy.atom, results)))
    return Function(name, params, body, tuple(sorted((("constants", constants), attr))))
