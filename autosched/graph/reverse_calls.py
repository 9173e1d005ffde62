"""Reverse mode through functions of the module, data types and matches.

A function that is called has another one beside it, which gives the results of the first and a
function value: from what comes back to the results to what goes back to the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.graph.errors import Unsupported
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Function,
    Global,
    If,
    Item,
    Match,
    Pattern,
    TupleExpr,
    Var,
    type_of,
)
from autosched.graph.reverse import Reverse, Step
from autosched.graph.reverse_types import Adjoints
from autosched.graph.types import DataRef, FuncType, TupleType, Type
from autosched.te.prim_func import free_name
from autosched.tir.module import GraphFunction


class Functions(Adjoints):
    """The functions of a module, and those that their gradients need, made as they are asked for.

    Without a module there are none."""

    def __init__(self, graphs: Mapping[str, GraphFunction]) -> None:
        super().__init__(graphs)
        self.names: dict[str, str] = {}
        self.waiting: list[Function] = []

    # Forwards

    def forwards(self, to: Reverse, b: Binding) -> Step:
        """A call of a function, a match or a branch: with a function value that passes back."""
        value = b.value
        if isinstance(value, Call) and isinstance(value.callee, Global):
            return self.forwards_call(to, b, value)
        if not isinstance(value, (If, Match)):
            what = "a call of a function value" if isinstance(value, Call) else "a function value"
            raise Unsupported(
                f"{b.vars[0].name} is made by {what}, which has no adjoint; "
                "graph.passes.lambda_lift makes functions of the module of those that are known"
            )
        wanted = to.wanted(value)
        asked = value.value if isinstance(value, Match) else None
        if isinstance(asked, Var) and id(asked) in to.active and asked not in wanted:
            wanted.append(asked)
        t = self.back_type([v.type for v in b.vars], [v.type for v in wanted])
        if isinstance(value, If):
            both = [self.clause(to, b, x, None, value.condition, wanted, t)[1]
                    for x in (value.then, value.other)]  # fmt: skip
            made: If | Match = If(value.condition, *both)
        else:
            clauses = (self.clause(to, b, x, p, value.value, wanted, t) for p, x in value.clauses)
            made = replace(value, clauses=tuple(clauses))
        back = Var("back", t)
        to.out.append(Binding((*b.vars, back), made))
        return Step(b, back, tuple(wanted))

    def clause(
        self,
        to: Reverse,
        b: Binding,
        body: Body,
        pattern: Pattern | Var | None,
        value: Atom,
        wanted: Sequence[Var],
        t: FuncType,
    ) -> tuple[Pattern | Var | None, Body]:
        """A pattern, whose every part has a name, and a body that gives what passes back too."""
        inner = to.inside()
        full = self.named(pattern, type_of(value), inner, id(value) in to.active)
        steps, results = inner.forward(body)
        ahead, inner.out = inner.out, []
        params = []
        for v, a in zip(b.vars, results, strict=True):
            if self.carries(v.type):
                params.append(Var(f"d_{v.name}", self.type(v.type)))
                inner.add(a, params[-1])
        inner.backward(steps)
        inner.add(value, self.rebuilt(full, type_of(value), inner))
        back = self.backwards(inner, params, wanted)
        return full, Body((*ahead, back), (*results, *back.vars))

    def backwards(self, to: Reverse, params: Sequence[Var], wanted: Sequence[Atom]) -> Binding:
        """The function value that passes back: it gives one value, or a tuple of several."""
        end = self.pack(to, list(map(to.back, wanted)), [type_of(a) for a in wanted])
        f = Function("back", tuple(params), Body(tuple(to.out), (end,)))
        return Binding((Var("back", f.type),), f)

    def back_type(self, results: Sequence[Type], wanted: Sequence[Type]) -> FuncType:
        """The type of a function value that passes back."""
        given = tuple(self.type(results[n]) for n in self.carried(results))
        return FuncType(given, (self.packed(wanted),))

    def named(
        self, p: Pattern | Var | None, t: Type, to: Reverse, active: bool
    ) -> Pattern | Var | None:
        """A pattern with variables of its own, where something comes back to the value."""
        if isinstance(p, Pattern):
            types = self.part_types(p, t)
            parts = [self.named(x, y, to, active) for x, y in zip(p.parts, types, strict=True)]
            return Pattern(p.constructor, tuple(parts))
        if p is None or not active:
            return p
        made = to.known[id(p)] = Var(p.name, t)
        if self.carries(t):
            to.active.add(id(made))
        return made

    def part_types(self, p: Pattern, t: Type) -> tuple[Type, ...]:
        """The types of what the parts of a pattern stand for."""
        if isinstance(t, TupleType):
            return t.fields
        assert isinstance(t, DataRef)
        return self.fields(t)[p.constructor]

    def rebuilt(self, p: Pattern | Var | None, t: Type, to: Reverse) -> Atom | None:
        """What comes back to a value that a pattern has taken apart; None where nothing does."""
        if p is None:
            return None
        if isinstance(p, Var):
            return to.given.get(id(p))
        types = self.part_types(p, t)
        carried = self.carried(types)
        found = [self.rebuilt(p.parts[n], types[n], to) for n in carried]
        if all(x is None for x in found):
            return None
        parts = [
            self.zero(to, types[n], "a part of a pattern") if d is None else d
            for n, d in zip(carried, found, strict=True)
        ]
        if isinstance(t, TupleType):
            return self.pack(to, parts, types)
        assert isinstance(t, DataRef)
        made = self.returned(t)
        call = Call(Global(made.constructors[p.constructor]), tuple(parts))
        return to.bind(call, [made.type], "d")[0]

    # Calls

    def forwards_call(self, to: Reverse, b: Binding, value: Call) -> Step:
        """A call of a function of the module: of the one beside it."""
        assert isinstance(value.callee, Global)
        f = self.graphs.get(value.callee.name)
        if not isinstance(f, Function) or f.is_external or f.is_primitive:
            raise Unsupported(
                f"{b.vars[0].name} is made by a call of {value.callee.name}, which has no adjoint "
                "here; pass the module: graph.gradient(module)"
            )
        carried = [p for p in f.params if self.carries(p.type)]
        results = [type_of(a) for a in f.body.results]
        back = Var("back", self.back_type(results, [p.type for p in carried]))
        name = self.beside(f)
        to.out.append(Binding((*b.vars, back), Call(Global(name), value.args, value.attrs)))
        given = [a for a, p in zip(value.args, f.params, strict=True) if self.carries(p.type)]
        wanted = tuple(a if isinstance(a, Var) else Var("d", p.type)
                       for a, p in zip(given, carried, strict=True))  # fmt: skip
        return Step(b, back, wanted)

    def beside(self, f: Function) -> str:
        """The name of the function that gives the results of a function and what passes back."""
        if f.name not in self.names:
            self.names[f.name] = free_name(f"{f.name}_with_back", self.taken)
            self.waiting.append(f)
        return self.names[f.name]

    def finish(self) -> dict[str, GraphFunction]:
        """All functions that were asked for."""
        while self.waiting:
            f = self.waiting.pop()
            name = self.names[f.name]
            known: dict[int, Atom] = {}
            params = tuple(Var(p.name, p.type) for p in f.params)
            known.update({id(p): q for p, q in zip(f.params, params, strict=True)})
            carried = [p for p in params if self.carries(p.type)]
            to = Reverse(self, known, {id(p) for p in carried}, {})
            steps, results = to.forward(f.body)
            ahead, to.out = to.out, []
            come = []
            for a in results:
                if self.carries(type_of(a)):
                    come.append(Var("d", self.type(type_of(a))))
                    to.add(a, come[-1])
            to.backward(steps)
            back = self.backwards(to, come, carried)
            body = Body((*ahead, back), (*results, *back.vars))
            self.made[name] = Function(name, params, body)
        return self.made

    # Tuples and constructors

    def backwards_data(self, to: Reverse, b: Binding) -> None:
        """A tuple, a part of one, a value of a data type."""
        value, d = b.value, to.given[id(b.vars[0])]
        if isinstance(value, TupleExpr):
            types = [type_of(a) for a in value.items]
            parts = self.unpack(to, d, types)
            for n, part in zip(self.carried(types), parts, strict=True):
                to.add(value.items[n], part)
        elif isinstance(value, Item):
            t = type_of(value.value)
            assert isinstance(t, TupleType)
            parts = [
                d if n == value.index else self.zero(to, t.fields[n], "a part of a tuple")
                for n in self.carried(t.fields)
            ]
            to.add(value.value, self.pack(to, parts, t.fields))
        else:
            assert isinstance(value, Call)
            self.taken_apart(to, b, value, d)

    def taken_apart(self, to: Reverse, b: Binding, value: Call, d: Atom) -> None:
        """What comes back to the fields of a value of a data type."""
        t = b.vars[0].type
        assert isinstance(t, DataRef)
        assert isinstance(value.callee, Global)
        types = self.fields(t)[value.callee.name]
        carried = self.carried(types)
        if not carried:
            return
        made = [self.type(types[n]) for n in carried]
        parts = tuple(Var("d", x) for x in made)
        inner = to.inside()
        nothing = tuple(self.zero(inner, types[n], value.callee.name) for n in carried)
        its = Pattern(self.returned(t).constructors[value.callee.name], parts)
        clauses = ((its, Body((), parts)), (None, Body(tuple(inner.out), nothing)))
        for n, part in zip(carried, to.bind(Match(d, clauses), made, "d"), strict=True):
            a = value.args[n]
            assert a is not None
            to.add(a, part)
