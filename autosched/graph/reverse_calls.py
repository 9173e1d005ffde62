"""Reverse mode through functions of the module, data types and matches.

A function that is called has another one beside it, which gives the results of the first and a
function value: from what comes back to the results to what goes back to the parameters. What comes
back to a value has the type of the value: to a list a list as long, to an integer the integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.graph.data import DataType, constructors
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
from autosched.graph.reverse import Reverse, Step, zeros
from autosched.graph.types import (
    DataRef,
    FuncType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    substituted,
)
from autosched.tir import dtypes
from autosched.tir.module import GraphFunction


class Functions:
    """The functions of a module, and those that their gradients need, made as they are asked for.

    Without a module there are none."""

    def __init__(self, graphs: Mapping[str, GraphFunction]) -> None:
        self.graphs = graphs
        self.constructors = constructors(graphs)
        self.made: dict[str, GraphFunction] = {}
        self.names: dict[object, str] = {}
        self.waiting: list[Function] = []

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
                work += [x for _, fields in self.fields(one) for x in fields]
        return False

    def fields(self, t: DataRef) -> list[tuple[str, tuple[Type, ...]]]:
        """The constructors of a data type with the types of their fields."""
        data = self.graphs[t.name]
        assert isinstance(data, DataType)
        types: dict[Type, Type] = dict(zip(map(TypeVar, data.params), t.args, strict=True))
        return [
            (name, tuple(substituted(x, types, {}) for x in fields))
            for name, fields in data.constructors
        ]

    # Values of these types

    def zeros(self, to: Reverse, a: Atom) -> Atom:
        """What comes back to a value that nothing comes back to."""
        t = type_of(a)
        if not self.carries(t):
            return a
        if isinstance(t, TensorType):
            return zeros(a)
        if isinstance(t, TupleType):
            parts = [to.bind(Item(a, n), [x], "part")[0] for n, x in enumerate(t.fields)]
            (made,) = to.bind(TupleExpr(tuple(self.zeros(to, x) for x in parts)), [t], "zeros")
            return made
        (made,) = to.bind(Call(Global(self.of_data("zeros", t)), (a,)), [t], "zeros")
        return made

    def plus(self, to: Reverse, a: Atom, b: Atom, t: Type) -> Atom:
        """The sum of what comes back to a value in two ways."""
        if not self.carries(t):
            return a
        if isinstance(t, TensorType):
            return to.operator("Add", [a, b])
        if isinstance(t, TupleType):
            pairs = [
                [to.bind(Item(x, n), [part], "part")[0] for x in (a, b)]
                for n, part in enumerate(t.fields)
            ]
            sums = [self.plus(to, x, y, p) for (x, y), p in zip(pairs, t.fields, strict=True)]
            (made,) = to.bind(TupleExpr(tuple(sums)), [t], "sum")
            return made
        (made,) = to.bind(Call(Global(self.of_data("plus", t)), (a, b)), [t], "sum")
        return made

    def of_data(self, what: str, t: Type) -> str:
        """The name of the function that gives zeros, or sums, of a data type."""
        if not isinstance(t, DataRef):
            raise Unsupported(
                f"a value of type {t} has no gradient; pass what it uses as arguments"
            )
        if (what, t) not in self.names:
            name = self.names[what, t] = self.new(f"{what}_{t.name.lower()}")
            count = 2 if what == "plus" else 1
            params = tuple(Var(f"x{n}", t) for n in range(count))
            to = Reverse(self, {}, set(), {})
            asked: Atom = params[0]
            if count == 2:
                (asked,) = to.bind(TupleExpr(params), [TupleType((t, t))], "both")
            clauses: list[tuple[Pattern | None, Body]] = []
            for constructor, fields in self.fields(t):
                inner = to.inside()
                rows = [tuple(Var("x", x) for x in fields) for _ in params]
                made = [
                    self.plus(inner, xs[0], xs[1], xs[0].type)
                    if count == 2
                    else self.zeros(inner, xs[0])
                    for xs in zip(*rows, strict=True)
                ]
                (out,) = inner.bind(Call(Global(constructor), tuple(made)), [t], "made")
                patterns = [Pattern(constructor, row) for row in rows]
                fits = Pattern("", tuple(patterns)) if count == 2 else patterns[0]
                clauses.append((fits, Body(tuple(inner.out), (out,))))
            if count == 2 and len(clauses) > 1:
                clauses.append((None, Body((), params[:1])))  # never: both are made alike
            (out,) = to.bind(Match(asked, tuple(clauses)), [t], "made")
            self.made[name] = Function(name, params, Body(tuple(to.out), (out,)))
        return self.names[what, t]

    def new(self, name: str) -> str:
        """A name that nothing has."""
        taken = {*self.graphs, *self.constructors, *self.names.values()}
        found, n = name, 0
        while found in taken:
            n += 1
            found = f"{name}_{n}"
        return found

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
        carried = [v.type for v in b.vars if self.carries(v.type)]
        t = FuncType(tuple(carried), (_one([v.type for v in wanted]),))
        if isinstance(value, If):
            both = [self.clause(to, b, x, None, value.condition, wanted, t)[1]
                    for x in (value.then, value.other)]  # fmt: skip
            made: If | Match = If(value.condition, *both)
        else:
            made = Match(
                value.value,
                tuple(self.clause(to, b, x, p, value.value, wanted, t) for p, x in value.clauses),
            )
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
                params.append(Var(f"d_{v.name}", v.type))
                inner.add(a, params[-1])
        inner.backward(steps)
        inner.add(value, self.rebuilt(full, type_of(value), inner))
        back = self.backwards(inner, params, wanted)
        return full, Body((*ahead, back), (*results, *back.vars))

    def backwards(self, to: Reverse, params: Sequence[Var], wanted: Sequence[Atom]) -> Binding:
        """The function value that passes back: it gives one value, or a tuple of several."""
        ends = tuple(map(to.back, wanted))
        t = _one([type_of(a) for a in ends])
        if len(ends) != 1:
            ends = to.bind(TupleExpr(ends), [t], "ends")
        f = Function("back", tuple(params), Body(tuple(to.out), ends))
        return Binding((Var("back", f.type),), f)

    def named(
        self, p: Pattern | Var | None, t: Type, to: Reverse, active: bool
    ) -> Pattern | Var | None:
        """A pattern with variables of its own in the place of those and of wildcards."""
        if isinstance(p, Pattern):
            types = self.part_types(p, t)
            parts = [self.named(x, y, to, active) for x, y in zip(p.parts, types, strict=True)]
            return Pattern(p.constructor, tuple(parts))
        if not active:
            return p
        made = Var("part" if p is None else p.name, t)
        if p is not None:
            to.known[id(p)] = made
        if self.carries(t):
            to.active.add(id(made))
        return made

    def part_types(self, p: Pattern, t: Type) -> tuple[Type, ...]:
        """The types of what the parts of a pattern stand for."""
        if isinstance(t, TupleType):
            return t.fields
        assert isinstance(t, DataRef)
        return dict(self.fields(t))[p.constructor]

    def rebuilt(self, p: Pattern | Var | None, t: Type, to: Reverse) -> Atom | None:
        """What comes back to a value that a pattern has taken apart; None where nothing does."""
        if p is None:
            return None
        if isinstance(p, Var):
            return to.given.get(id(p))
        types = self.part_types(p, t)
        found = [self.rebuilt(x, y, to) for x, y in zip(p.parts, types, strict=True)]
        if all(x is None for x in found):
            return None
        parts = tuple(
            self.nothing(x, y, to) if d is None else d
            for x, y, d in zip(p.parts, types, found, strict=True)
        )
        value = Call(Global(p.constructor), parts) if p.constructor else TupleExpr(parts)
        return to.bind(value, [t], "d")[0]

    def nothing(self, p: Pattern | Var | None, t: Type, to: Reverse) -> Atom:
        """Zeros for what a part of a pattern stands for."""
        if isinstance(p, Var):
            return self.zeros(to, p)
        assert isinstance(p, Pattern)
        parts = tuple(
            self.nothing(x, y, to) for x, y in zip(p.parts, self.part_types(p, t), strict=True)
        )
        value = Call(Global(p.constructor), parts) if p.constructor else TupleExpr(parts)
        return to.bind(value, [t], "zeros")[0]

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
        results = tuple(type_of(a) for a in f.body.results)
        given_back = tuple(x for x in results if self.carries(x))
        t = FuncType(given_back, (_one([p.type for p in carried]),))
        back = Var("back", t)
        name = self.beside(f)
        to.out.append(Binding((*b.vars, back), Call(Global(name), value.args, value.attrs)))
        given = [a for a, p in zip(value.args, f.params, strict=True) if self.carries(p.type)]
        wanted = tuple(a if isinstance(a, Var) else Var("d", p.type)
                       for a, p in zip(given, carried, strict=True))  # fmt: skip
        return Step(b, back, wanted)

    def beside(self, f: Function) -> str:
        """The name of the function that gives the results of a function and what passes back."""
        if f.name not in self.names:
            self.names[f.name] = self.new(f"{f.name}_with_back")
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
                    come.append(Var("d", type_of(a)))
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
            for n, a in enumerate(value.items):
                if id(a) in to.active and self.carries(type_of(a)):
                    to.add(a, to.bind(Item(d, n), [type_of(a)], "d")[0])
        elif isinstance(value, Item):
            t = type_of(value.value)
            assert isinstance(t, TupleType)
            parts = []
            for n, x in enumerate(t.fields):
                (part,) = to.bind(Item(value.value, n), [x], "part")
                parts.append(d if n == value.index else self.zeros(to, part))
            to.add(value.value, to.bind(TupleExpr(tuple(parts)), [t], "d")[0])
        else:
            assert isinstance(value, Call)
            self.taken_apart(to, b, value, d)

    def taken_apart(self, to: Reverse, b: Binding, value: Call, d: Atom) -> None:
        """What comes back to the fields of a value of a data type."""
        t = b.vars[0].type
        assert isinstance(t, DataRef)
        assert isinstance(value.callee, Global)
        types = dict(self.fields(t))[value.callee.name]
        carried = [n for n, x in enumerate(types) if self.carries(x)]
        if not carried:
            return
        parts = tuple(Var("d", x) for x in types)
        clauses: list[tuple[Pattern | None, Body]] = [
            (Pattern(value.callee.name, parts), Body((), tuple(parts[n] for n in carried)))
        ]
        if len(self.fields(t)) > 1:  # never: what comes back is made alike
            inner = to.inside()
            rest = tuple(self.zeros(inner, value.args[n]) for n in carried)  # type: ignore[arg-type]
            clauses.append((None, Body(tuple(inner.out), rest)))
        found = to.bind(Match(d, tuple(clauses)), [types[n] for n in carried], "d")
        for n, part in zip(carried, found, strict=True):
            a = value.args[n]
            assert a is not None
            to.add(a, part)


def _one(types: Sequence[Type]) -> Type:
    """The type of what passes back: of one value, or of a tuple of several."""
    return types[0] if len(types) == 1 else TupleType(tuple(types))
