"""A function written anew with the types that inference found."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.errors import WorkloadError
from autosched.graph.conversion import kept
from autosched.graph.ir import Atom, Const, Function, Global, Var
from autosched.graph.notes import Notes
from autosched.graph.scopes import Copying
from autosched.graph.types import ANY, Hole, OpenTensor, TensorType, Type, leaves, substituted
from autosched.graph.unify import LITERALS, Unifier


class Retyping(Copying):
    """Makes variables with their types in the place of those with holes."""

    def __init__(
        self,
        u: Unifier,
        notes: Notes,
        literals: Mapping[int, Hole],
        uses: Mapping[int, tuple[Global, Type]],
    ) -> None:
        self.u, self.notes, self.literals, self.uses = u, notes, literals, uses
        super().__init__()

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
        try:
            made = a if a.type.dtype == dtype else cast(a, dtype)
        except WorkloadError as e:
            raise self.notes.error(a, str(e)) from e
        self.known[id(a)] = made
        return made


def cast(a: Const, dtype: str) -> Const:
    """A number of another dtype. Raises WorkloadError where it is no value of it."""
    made = kept(a.value, dtype)
    made.flags.writeable = False
    return Const(TensorType((), dtype), made)
