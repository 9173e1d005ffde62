"""What comes back to values: of which types it is, none of it, sums of it.

To a tensor a tensor comes back; to a tuple what comes back to its fields that have floats in them;
to a value of a data type one of another data type, which `Adjoints` makes:

    class List:                      class ListAdjoint:
        Cons: (A, List[A])               ConsAdjoint: (A, ListAdjoint[A])
        Nil: ()                          ListZero: ()

If a list as long came back to each list, n functions that each read the first item of a rest would
pass back in n² steps; `ListZero` stands for what nothing comes back to, of any length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from autosched.graph.builder import const, make_call
from autosched.graph.data import DataType, constructors
from autosched.graph.errors import Unsupported
from autosched.graph.infer import infer
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Function,
    Global,
    Item,
    Match,
    Pattern,
    TupleExpr,
    Var,
    type_of,
)
from autosched.graph.ops.registry import python_name
from autosched.graph.types import DataRef, TensorType, TupleType, Type, TypeVar, substituted
from autosched.te.prim_func import free_name
from autosched.tir import dtypes
from autosched.tir.module import GraphFunction


class Bindings:
    """Binds values to variables: `out` has the bindings in order."""

    def __init__(self) -> None:
        self.out: list[Binding] = []

    def bind(self, value: Any, types: Sequence[Type], name: str) -> tuple[Var, ...]:
        """Variables of these types for the results of a value."""
        made = tuple(Var(name, t) for t in types)
        self.out.append(Binding(made, value))
        return made

    def operator(self, name: str, args: Sequence[Atom | None], **attrs: Any) -> Var:
        """The result of an operator."""
        call, _ = make_call(name, args, attrs)
        (made,) = self.bind(call, infer(call, 1), python_name(name).rstrip("_"))
        return made


class Returned(NamedTuple):
    """The data type of what comes back to a data type: by constructor of the one a constructor of
    the other; one whose fields have no floats has none. `zero` is the constructor of nothing."""

    type: DataRef
    constructors: dict[str, str]
    zero: str


class Adjoints:
    """The types of what comes back to values of a module, and functions on them.

    `made` has the data types and functions that were asked for."""

    def __init__(self, graphs: Mapping[str, GraphFunction]) -> None:
        self.graphs = graphs
        self.constructors = constructors(graphs)
        self.made: dict[str, GraphFunction] = {}
        self.taken = {*graphs, *self.constructors}
        self.known: dict[Type, Returned] = {}
        self.helpers: dict[tuple[str, Type], str] = {}
        self.packs: dict[int, tuple[Var, Sequence[Atom]]] = {}
        """What `pack` has made, by id, with its parts."""
        self.zeros: dict[int, Atom] = {}
        """What `zero` has made, by id: nothing is added to these."""

    # Types

    def carries(self, t: Type) -> bool:
        """Whether a value of a type has floats in it, so that something comes back to it."""
        seen: set[Type] = set()
        work = [t]
        while work:
            one = work.pop()
            if isinstance(one, TensorType) and (not one.dtype or dtypes.is_float(one.dtype)):
                return True
            if isinstance(one, TupleType):
                work += one.fields
            if isinstance(one, DataRef) and one not in seen:
                seen.add(one)
                work += [x for fields in self.fields(one).values() for x in fields]
        return False

    def carried(self, types: Sequence[Type]) -> list[int]:
        """The numbers of those to which something comes back."""
        return [n for n, t in enumerate(types) if self.carries(t)]

    def fields(self, t: DataRef) -> dict[str, tuple[Type, ...]]:
        """The constructors of a data type with the types of their fields."""
        data = self.graphs.get(t.name)
        if not isinstance(data, DataType):
            raise Unsupported(
                f"a value of the data type {t} has no adjoint here; pass the module: "
                "graph.gradient(module)"
            )
        types: dict[Type, Type] = dict(zip(map(TypeVar, data.params), t.args, strict=True))
        return {
            name: tuple(substituted(x, types, {}) for x in fields)
            for name, fields in data.constructors
        }

    def type(self, t: Type) -> Type:
        """The type of what comes back to a value of a type."""
        if isinstance(t, TupleType):
            return self.packed(t.fields)
        return self.returned(t).type if isinstance(t, DataRef) else t

    def packed(self, types: Sequence[Type]) -> Type:
        """The type of what comes back to values of several types at once."""
        return together([self.type(types[n]) for n in self.carried(types)])

    def returned(self, t: DataRef) -> Returned:
        """The data type of what comes back to a data type."""
        if t not in self.known:
            every = self.fields(t)
            have = [c for c, types in every.items() if self.carried(types)]
            names = {c: free_name(f"{c}Adjoint", self.taken) for c in have}
            made = Returned(
                DataRef(free_name(f"{t.name}Adjoint", self.taken), ()),
                names,
                free_name(f"{t.name}Zero", self.taken),
            )
            self.known[t] = made  # before its fields, which may be of it
            rows = [
                (names[c], tuple(self.type(every[c][n]) for n in self.carried(every[c])))
                for c in have
            ]
            self.made[made.type.name] = DataType(made.type.name, (), (*rows, (made.zero, ())))
        return self.known[t]

    # What comes back to several values, as one

    def pack(self, to: Bindings, parts: Sequence[Atom], types: Sequence[Type]) -> Atom:
        """One value of what comes back to values of these types, without those that have none."""
        if len(parts) == 1:
            return parts[0]
        (made,) = to.bind(TupleExpr(tuple(parts)), [self.packed(types)], "d")
        self.packs[id(made)] = made, parts
        return made

    def unpack(self, to: Bindings, d: Atom, types: Sequence[Type]) -> list[Atom]:
        """The parts of what `pack` has made."""
        parts = [self.type(types[n]) for n in self.carried(types)]
        if len(parts) == 1:
            return [d]
        if id(d) in self.packs:
            return [*self.packs[id(d)][1]]
        return [to.bind(Item(d, n), [x], "d")[0] for n, x in enumerate(parts)]

    # None and sums

    def zero(self, to: Bindings, t: Type, name: str) -> Atom:
        """What comes back where nothing does. Raises Unsupported, with the name of the value, where
        the size of a tensor is no number."""
        if isinstance(t, TupleType):
            parts = [self.zero(to, t.fields[n], name) for n in self.carried(t.fields)]
            return self.pack(to, parts, t.fields)
        if isinstance(t, DataRef):
            made = self.returned(t)
            (found,) = to.bind(Call(Global(made.zero), ()), [made.type], "zero")
            self.zeros[id(found)] = found
            return found
        if not isinstance(t, TensorType) or not t.is_static:
            raise Unsupported(
                f"{name} of type {t} has no gradient: its sizes are not numbers; write them"
            )
        none = const(np.zeros([int(n) for n in t.known], t.dtype))
        self.zeros[id(none)] = none
        return none

    def plus(self, to: Bindings, x: Atom, y: Atom, t: Type) -> Atom:
        """The sum of what comes back to a value of type `t` in two ways."""
        if id(x) in self.zeros or id(y) in self.zeros:
            return y if id(x) in self.zeros else x
        if isinstance(t, TupleType):
            pairs = zip(self.unpack(to, x, t.fields), self.unpack(to, y, t.fields), strict=True)
            carried = [t.fields[n] for n in self.carried(t.fields)]
            sums = [self.plus(to, *pair, p) for pair, p in zip(pairs, carried, strict=True)]
            return self.pack(to, sums, t.fields)
        if isinstance(t, DataRef):
            call = Call(Global(self.sum_of(t)), (x, y))
            return to.bind(call, [self.type(t)], "sum")[0]
        return to.operator("Add", [x, y])

    def sum_of(self, t: DataRef) -> str:
        """The name of the function that adds what comes back to a data type."""
        if ("sum", t) not in self.helpers:
            name = self.helpers["sum", t] = free_name(f"sum_{t.name.lower()}", self.taken)
            made = self.returned(t)
            params = (Var("x", made.type), Var("y", made.type))
            clauses: list[tuple[Pattern | Var | None, Body]] = []
            for c, its in made.constructors.items():
                types = [x for x in self.fields(t)[c] if self.carries(x)]
                rows = [tuple(Var("d", self.type(x)) for x in types) for _ in params]
                inner = Bindings()
                sums = [self.plus(inner, x, y, p) for x, y, p in zip(*rows, types, strict=True)]
                end = inner.bind(Call(Global(its), tuple(sums)), [made.type], "sum")
                both = Pattern("", tuple(Pattern(its, row) for row in rows))
                clauses.append((both, Body(tuple(inner.out), end)))
            nothing = Pattern("", (Pattern(made.zero, ()), None))
            clauses += [(nothing, Body((), params[1:])), (None, Body((), params[:1]))]
            self.made[name] = matched(name, params, clauses, made.type)
        return self.helpers["sum", t]

    # Of the type of the value

    def full(self, to: Bindings, a: Atom, d: Atom | None) -> Atom:
        """What comes back to a value as a value of its type: with its own integers and conditions,
        and zeros where nothing has come back."""
        t = type_of(a)
        if not self.carries(t):
            return a
        if isinstance(t, TupleType):
            found = [] if d is None else self.unpack(to, d, t.fields)
            parts = []
            for n, x in enumerate(t.fields):
                (own,) = to.bind(Item(a, n), [x], "part")
                back = found.pop(0) if found and self.carries(x) else None
                parts.append(self.full(to, own, back))
            return to.bind(TupleExpr(tuple(parts)), [t], "full")[0]
        if d is None:
            d = self.zero(to, t, a.name if isinstance(a, (Var, Global)) else "a constant")
        if not isinstance(t, DataRef):
            return d
        return to.bind(Call(Global(self.full_of(t)), (a, d)), [t], "full")[0]

    def full_of(self, t: DataRef) -> str:
        """The name of the function that makes of a value, and of what comes back to it, one of the
        type of the value."""
        if ("full", t) not in self.helpers:
            name = self.helpers["full", t] = free_name(f"full_{t.name.lower()}", self.taken)
            made = self.returned(t)
            params = (Var("x", t), Var("d", made.type))
            clauses: list[tuple[Pattern | Var | None, Body]] = []
            for c, types in self.fields(t).items():
                for its in [made.constructors.get(c), None] if c in made.constructors else [None]:
                    own = tuple(Var("x", x) for x in types)
                    back = {n: Var("d", self.type(types[n])) for n in self.carried(types) if its}
                    inner = Bindings()
                    fields = [self.full(inner, x, back.get(n)) for n, x in enumerate(own)]
                    end = inner.bind(Call(Global(c), tuple(fields)), [t], "full")
                    fits = Pattern(its, tuple(back.values())) if its else None
                    clauses.append(
                        (Pattern("", (Pattern(c, own), fits)), Body(tuple(inner.out), end))
                    )
            self.made[name] = matched(name, params, clauses, t)
        return self.helpers["full", t]


def matched(
    name: str,
    params: tuple[Var, ...],
    clauses: Sequence[tuple[Pattern | Var | None, Body]],
    result: Type,
) -> Function:
    """A function that matches all its parameters at once."""
    to = Bindings()
    both = to.bind(TupleExpr(params), [TupleType(tuple(p.type for p in params))], "both")
    end = to.bind(Match(both[0], tuple(clauses)), [result], "made")
    return Function(name, params, Body(tuple(to.out), end))


def together(types: Sequence[Type]) -> Type:
    """The type of one value, or of a tuple of several."""
    return types[0] if len(types) == 1 else TupleType(tuple(types))
