"""A function written anew with the types that inference found."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Item,
    Match,
    Pattern,
    TupleExpr,
    Value,
    Var,
)
from autosched.graph.notes import Notes
from autosched.graph.types import ANY, Hole, OpenTensor, TensorType, Type, leaves, substituted
from autosched.graph.unify import LITERALS, Unifier


class Retyping:
    """Makes variables with their types in the place of those with holes."""

    def __init__(
        self,
        u: Unifier,
        notes: Notes,
        literals: Mapping[int, Hole],
        uses: Mapping[int, tuple[Global, Type]],
    ) -> None:
        self.u, self.notes, self.literals, self.uses = u, notes, literals, uses
        self.known: dict[int, Atom] = {}

    def type(self, t: Type) -> Type:
        """A type without holes. What is open in it is of no matter: nothing reads it."""
        if isinstance(t, TensorType) and not self.u.sizes:
            return t
        full = self.u.full(t)
        if isinstance(full, OpenTensor) and any(isinstance(x, Hole) for x in leaves(full)):
            return ANY
        rest: dict[Type, Type] = {
            h: TensorType((), LITERALS[h.literal]) if h.literal else ANY
            for h in leaves(full)
            if isinstance(h, Hole)
        }
        return substituted(full, rest, {}) if rest else full

    def var(self, v: Var) -> Var:
        """The variable with its type; the one that there is where it has it already."""
        t = self.type(v.type)
        made = v if t is v.type else Var(v.name, t)
        self.known[id(v)] = made
        return made

    def parameter(self, v: Var, f: Function) -> Var:
        """A parameter. Raises an error for one of which nothing is known."""
        t = self.u.full(v.type)
        if isinstance(t, Hole) and not t.literal:
            raise self.notes.error(
                v,
                f"the type of the parameter {v.name} of {f.name} does not follow from the "
                f"program; write it: {v.name}: G.Tensor(…)",
            )
        return self.var(v)

    def function(self, f: Function) -> Function:
        """A function."""
        params = tuple(self.parameter(p, f) for p in f.params)
        return Function(f.name, params, self.body(f.body), f.attrs)

    def body(self, body: Body) -> Body:
        """Bindings with their results."""
        bindings = []
        for b in body.bindings:
            if isinstance(b.value, Function):  # which may call itself
                names = tuple(map(self.var, b.vars))
                bindings.append(Binding(names, self.value(b.value)))
            else:
                value = self.value(b.value)
                bindings.append(Binding(tuple(map(self.var, b.vars)), value))
        return Body(tuple(bindings), tuple(map(self.atom, body.results)))

    def atom(self, a: Atom) -> Atom:
        """An atom; a number gets its dtype."""
        found = self.known.get(id(a))
        if found is not None:
            return found
        if isinstance(a, Global) and id(a) in self.uses:
            return Global(a.name, self.type(self.uses[id(a)][1]))
        hole = self.literals.get(id(a))
        if hole is None or not isinstance(a, Const):
            return a
        t = self.u.resolve(hole)
        kind = LITERALS[t.literal] if isinstance(t, Hole) else ""
        dtype = kind or (t.dtype if isinstance(t, TensorType) else a.type.dtype)
        made = a if a.type.dtype == dtype else cast(a, dtype)
        self.known[id(a)] = made
        return made

    def value(self, v: Value) -> Value:
        """What is bound."""
        if isinstance(v, Call):
            callee = self.known.get(id(v.callee), v.callee)
            args = tuple(None if a is None else self.atom(a) for a in v.args)
            return Call(callee, args, v.attrs)  # type: ignore[arg-type]
        if isinstance(v, TupleExpr):
            return TupleExpr(tuple(map(self.atom, v.items)))
        if isinstance(v, Item):
            return Item(self.atom(v.value), v.index)
        if isinstance(v, If):
            return If(self.atom(v.condition), self.body(v.then), self.body(v.other))
        if isinstance(v, Match):
            value = self.atom(v.value)
            return Match(value, tuple((self.pattern(p), self.body(b)) for p, b in v.clauses))
        return self.function(v)

    def pattern(self, p: Pattern | Var | None) -> Pattern | Var | None:
        """A pattern."""
        if isinstance(p, Pattern):
            return Pattern(p.constructor, tuple(map(self.pattern, p.parts)))
        return None if p is None else self.var(p)


def cast(a: Const, dtype: str) -> Const:
    """A number of another dtype."""
    made = a.value.astype(dtype)
    made.flags.writeable = False
    return Const(TensorType((), dtype), made)
