"""Checking of bodies: what each binding says of the types of its variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.graph.data import Constructor, constructors
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
    Var,
)
from autosched.graph.notes import Notes
from autosched.graph.relations import Applies, Decides, Joins, Part, Relation
from autosched.graph.types import (
    ANY,
    Dtype,
    Extent,
    Extents,
    FuncType,
    Hole,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    leaves,
    substituted,
)
from autosched.graph.unify import Mismatch, Unifier
from autosched.tir.module import GraphFunction
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


@dataclass
class Scheme:
    """The type of a function of the module: general in `params` and its sizes, where `relations`
    hold."""

    params: tuple[TypeVar, ...]
    type: FuncType
    relations: tuple[Relation, ...] = ()


class BodyChecker:
    """Walks bodies; relations that have to wait are `pending`."""

    def __init__(self, graphs: Mapping[str, GraphFunction], notes: Notes) -> None:
        self.graphs, self.notes, self.u = graphs, notes, Unifier()
        self.known: dict[str, Constructor] = constructors(graphs)
        self.schemes: dict[str, Scheme] = {
            n: Scheme(tuple(map(TypeVar, c.data.params)), c.type) for n, c in self.known.items()
        }
        self.pending: list[Relation] = []
        self.literals: dict[int, Hole] = {}
        self.opened: dict[int, Hole] = {}
        self.uses: dict[int, tuple[Global, Type]] = {}
        self.matches: list[tuple[Binding, Match, Type]] = []
        self.ascribed = {id(a): (t, p) for a, t, p in notes.ascribed}

    # Bodies

    def function(self, f: Function, results: Sequence[Type]) -> None:
        """Check a body against the types of its results."""
        self.body(f.body)
        if len(results) != len(f.body.results):
            raise self.notes.error(
                f, f"{f.name} returns {len(f.body.results)} values, declared are {len(results)}"
            )
        for a, t in zip(f.body.results, results, strict=True):
            self.u.now = f
            known = id(f) in self.notes.results or self.notes.source is None
            because = f"declared{self.notes.at(f)} is" if known else "it is used as"
            self.expect(a, t, f, f"{f.name}: the result", because)

    def body(self, body: Body) -> None:
        for b in body.bindings:
            self.u.now = b
            self.binding(b)
            for v in b.vars:
                self.ascribe(v)

    def ascribe(self, a: Atom) -> None:
        """`name: type = value` states what the type is."""
        found = self.ascribed.pop(id(a), None)
        if found is not None:
            t, place = found
            self.notes.put(t, place)
            self.expect(a, t, t, "the value", "stated is")

    def expect(self, a: Atom, t: Type, where: object, what: str, because: str) -> None:
        """Require the type of an atom."""
        self._equal(a, self.type_of(a), t, where, what, because)

    def _equal(self, a: Atom, found: Type, t: Type, where: object, what: str, because: str) -> None:
        try:
            self.u.unify(found, t)
        except Mismatch as e:
            raise self.notes.error(
                where,
                f"{what}, {self.described(a)}, has the type {self.u.full(found)}; {because} "
                f"{self.u.full(t)}{'; ' + str(e) if e.telling else ''}",
            ) from e

    def described(self, a: Atom | None) -> str:
        """An atom for an error message, with the line that it is from."""
        if isinstance(a, Var):
            reason = self.u.reason.get(a.type) if isinstance(a.type, Hole) else None
            line, since = self.notes.line(a), self.notes.line(reason)
            if line is None:
                return a.name
            more = f", its type by line {since}" if since not in (None, line) else ""
            return f"{a.name} (line {line}{more})"
        if isinstance(a, Global):
            node = self.graphs.get(a.name)
            return f"the function {a.name}{self.notes.at(node)}" if node else a.name
        at = self.notes.at(a)
        if isinstance(a, Const) and a.array is not None and a.array.size == 1:
            return f"the number {a.number}{at}"
        return f"the constant{at}" if at else "a constant"

    def type_of(self, a: Atom) -> Type:
        """The type of an atom as far as it is known."""
        if isinstance(a, Var):
            return self.open(a)
        if isinstance(a, Const):
            literal = self.notes.literals.get(id(a))
            if literal is None:
                return a.type
            return self.literals.setdefault(id(a), Hole(literal[1]))
        t, relations = self.instance_of(a.name, (), a)
        self.stated(a, t)
        self.pending += relations
        self.uses[id(a)] = (a, t)
        return t

    def stated(self, a: Global, t: Type) -> None:
        """A function of the module has the type that `name: type = function` states."""
        if id(a) not in self.ascribed:
            return
        stated, place = self.ascribed[id(a)]
        self.notes.put(stated, place)
        self._equal(a, t, stated, stated, "the value", "stated is")

    def open(self, v: Var) -> Type:
        """The type of a variable. Of a module that no text stands for, a tensor of which nothing is
        known may be one whose type hangs on type parameters: it is found again."""
        if self.notes.source is None and v.type == ANY:
            return self.opened.setdefault(id(v), Hole())
        return v.type

    def instance_of(
        self, name: str, given: Sequence[Type], where: object
    ) -> tuple[FuncType, list[Relation]]:
        """The type of a function where it is used, with new holes for what it is general in."""
        scheme = self.schemes.get(name)
        if scheme is None:
            have = ", ".join(self.schemes) or "none"
            raise self.notes.error(
                where, f"{name} is not defined in the module; its functions: {have}"
            )
        if given and len(given) != len(scheme.params):
            raise self.notes.error(
                where,
                f"{name} has {len(scheme.params)} type parameters, found {len(given)} types",
            )
        types: dict[Type, Type] = {
            p: given[n] if given else Hole(kind=p.kind) for n, p in enumerate(scheme.params)
        }
        for p, t in zip(scheme.params, given, strict=False):
            if _kind(t, p.kind) != p.kind:
                raise self.notes.error(
                    where, f"{p.name} of {name} is of kind {p.kind}; {t} is none"
                )
        wanted = {p.name: t for p, t in zip(scheme.params, given, strict=False)}
        for r in scheme.relations:
            for t in r.types():
                for h in leaves(t):
                    if isinstance(h, Hole):
                        types.setdefault(h, Hole(h.literal, h.kind))
        sizes: dict[SizeVar, object] = {}
        everywhere = (scheme.type, *(t for r in scheme.relations for t in r.types()))
        for shape in (s for t in everywhere for s in _shapes(t)):
            for n in shape:
                for v in () if isinstance(n, int) else n.variables():
                    if v in sizes:
                        continue
                    chosen = wanted.get(v.name)
                    if isinstance(chosen, Extents):
                        sizes[v] = chosen.shape[0]
                    else:
                        new = SizeVar(v.name)
                        self.u.open.add(new)
                        sizes[v] = Size.of(new)
        t = substituted(scheme.type, types, sizes) if types or sizes else scheme.type
        assert isinstance(t, FuncType)
        binding = where if isinstance(where, Binding) else None
        return t, [r.copied(binding or r.binding, types, sizes) for r in scheme.relations]

    def binding(self, b: Binding) -> None:
        v = b.value
        if isinstance(v, Call):
            self.call(b, v)
        elif isinstance(v, TupleExpr):
            self.result(b, TupleType(tuple(map(self.type_of, v.items))))
        elif isinstance(v, Item):
            self.add(Part(b, v.value, self.type_of(v.value), v.index, self.open(b.vars[0])))
        elif isinstance(v, Function):
            self.closure(b, v)
        elif isinstance(v, If):
            self.add(Decides(b, v.condition, self.type_of(v.condition)))
            self.joined(b, (v.then, v.other))
        else:
            self.match(b, v)

    def result(self, b: Binding, t: Type) -> None:
        """The binding's value has this type."""
        try:
            self.u.unify(t, self.open(b.vars[0]))
        except Mismatch as e:
            raise self.notes.error(
                b,
                f"{b.vars[0].name} is of type {self.u.full(t)}; it is used as "
                f"{self.u.full(self.open(b.vars[0]))}",
            ) from e

    def add(self, r: Relation) -> None:
        """Fire a relation, or let it wait."""
        if not r.fire(self):
            self.pending.append(r)

    def call(self, b: Binding, v: Call) -> None:
        results = tuple(map(self.open, b.vars))
        if isinstance(v.callee, str):
            args = tuple(None if a is None else self.type_of(a) for a in v.args)
            self.add(Applies(b, v, args, results))
            return
        if isinstance(v.callee, Global):
            t, relations = self.instance_of(v.callee.name, v.attr("types", ()), b)
            self.stated(v.callee, t)
            self.arguments(b, v, t)
            for r in relations:
                self.add(r)
            return
        found = self.u.resolve(self.open(v.callee))
        if isinstance(found, FuncType):
            self.arguments(b, v, found)
        elif isinstance(found, Hole) and not found.literal:
            given = tuple(self.type_of(a) for a in v.args if a is not None)
            self.expect(v.callee, FuncType(given, results), b, "the function", "it is called as")
        else:
            raise self.notes.error(
                b,
                f"{self.described(v.callee)} has the type {self.u.full(found)}; only functions can "
                "be called",
            )

    def arguments(self, b: Binding, v: Call, t: FuncType) -> None:
        """The arguments of a call fit the parameters, the results the names."""
        callee: Atom = v.callee  # type: ignore[assignment]
        name = callee.name if isinstance(callee, (Global, Var)) else "the function"
        if len(v.args) != len(t.params):
            raise self.notes.error(
                b, f"{name} takes {len(t.params)} arguments, found {len(v.args)}; its type is "
                f"{self.u.full(t)}",
            )  # fmt: skip
        for n, (a, p) in enumerate(zip(v.args, t.params, strict=True)):
            if a is None:
                raise self.notes.error(b, f"argument {n + 1} of {name} is left out")
            p = self.u.resolve(p)
            if isinstance(a, Const) and isinstance(p, TensorType) and p.layout:
                p = TensorType(p.shape, p.dtype)  # a constant is stored as its reader wants it
            parameter = self.parameter(callee, n)
            self.expect(a, p, b, f"{name}: argument {n + 1}", f"{parameter} is of type")
        if len(b.vars) != len(t.results):
            raise self.notes.error(
                b, f"{name} has {len(t.results)} results, expected {len(b.vars)}"
            )
        for x, r in zip(b.vars, t.results, strict=True):
            try:
                self.u.unify(r, self.open(x))
            except Mismatch as e:
                raise self.notes.error(
                    b,
                    f"{name} gives the type {self.u.full(r)}; {x.name} has to be of type "
                    f"{self.u.full(self.open(x))}",
                ) from e

    def parameter(self, callee: Atom, n: int) -> str:
        """A parameter of a function, for an error message."""
        f = self.graphs.get(callee.name) if isinstance(callee, Global) else None
        if isinstance(f, Function):
            return f"the parameter {f.params[n].name}{self.notes.at(f.params[n])}"
        if isinstance(callee, Global):
            return f"field {n + 1} of {callee.name}"
        return "the parameter"

    def closure(self, b: Binding, f: Function) -> None:
        _, declared = self.notes.results.get(id(f), (f, None))
        results = declared or tuple(Hole() for _ in f.body.results)
        self.result(b, FuncType(tuple(p.type for p in f.params), results))
        self.function(f, results)

    def joined(self, b: Binding, bodies: Sequence[Body]) -> None:
        """The results of branches are those of the binding."""
        for body in bodies:
            self.body(body)
        self.u.now = b
        for n, x in enumerate(b.vars):
            atoms = tuple(body.results[n] for body in bodies)
            self.add(Joins(b, n, tuple(map(self.type_of, atoms)), self.open(x), atoms))

    def match(self, b: Binding, v: Match) -> None:
        t = self.type_of(v.value)
        for p, _ in v.clauses:
            self.pattern(p, t, b, v.value)
        if v.complete:
            self.matches.append((b, v, t))
        self.joined(b, [body for _, body in v.clauses])

    def pattern(self, p: Pattern | Var | None, t: Type, b: Binding, value: Atom | None) -> None:
        """A pattern takes values of type `t`; its variables get their types."""
        if isinstance(p, Var):
            self.u.unify(self.open(p), t)
        if not isinstance(p, Pattern):
            return
        if p.constructor:
            found, _ = self.instance_of(p.constructor, (), b)
            whole, fields = found.results[0], found.params
        else:
            fields = tuple(Hole() for _ in p.parts)
            whole = TupleType(fields)
        if len(fields) != len(p.parts):
            raise self.notes.error(
                b, f"{p.constructor} has {len(fields)} fields, found {len(p.parts)} patterns"
            )
        try:
            self.u.unify(whole, t)
        except Mismatch as e:
            what = f"{self.described(value)} has" if value is not None else "the field has"
            raise self.notes.error(
                p if self.notes.place(p) else b,
                f"a pattern of type {self.u.full(whole)}; {what} the type {self.u.full(t)}",
            ) from e
        for x, f in zip(p.parts, fields, strict=True):
            self.pattern(x, f, b, None)


def _shapes(t: Type) -> Iterator[tuple[Extent, ...]]:
    """The shapes that stand in a type."""
    return (x.shape for x in leaves(t) if isinstance(x, (TensorType, Extents)) and x.shape)


def _kind(t: Type, kind: str) -> str:
    """The kind of a type argument; a shape of one extent is also one of kind ShapeVar."""
    if isinstance(t, TypeVar):
        return t.kind
    if isinstance(t, Extents):
        return "ShapeVar" if kind == "ShapeVar" and len(t.shape) == 1 else "Shape"
    return "BaseType" if isinstance(t, Dtype) else "Type"
