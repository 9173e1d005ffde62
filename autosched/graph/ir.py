"""The graph IR: one A-normal form.

    Function(name, params, body)
    Body(bindings, results)
    Binding(vars, value)        value: Call | Function | If | Match | TupleExpr | Item
    atoms: Var | Const | Global

Every intermediate value is bound once; what a binding reads are atoms, never expressions. So every
pass is a loop over bindings with a dictionary, and sharing is explicit. A binding has as many
variables as its value has results: a call of an operator with two results binds two variables.
Nodes are frozen and compare by identity; `same` compares structure. Types hang on variables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from autosched.checks import instance
from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.types import FuncType, TensorType, Type, alike
from autosched.tir.dtypes import to_float32
from autosched.tir.module import GraphFunction, IRModule

Array = npt.NDArray[Any]
Attr = Any
"""Ints, floats, bools, strings, None, and tuples of these."""


@dataclass(frozen=True, eq=False)
class Var:
    """A value's name, bound once. `name` is for people: identity is what counts."""

    name: str
    type: Type


@dataclass(frozen=True, eq=False)
class Const:
    """An array. Of a *skeleton* the array is elsewhere: `digest` names it."""

    type: TensorType
    array: Array | None
    stripped: str = ""

    @cached_property
    def digest(self) -> str:
        """Hash of dtype, shape and bytes."""
        if self.array is None:
            return self.stripped
        head = f"{self.array.dtype.str}{self.array.shape}".encode()
        data = np.ascontiguousarray(self.array)
        return hashlib.blake2b(head + data.tobytes(), digest_size=12).hexdigest()

    @property
    def value(self) -> Array:
        """The array. Raises WorkloadError for a constant of a skeleton."""
        if self.array is None:
            raise WorkloadError(
                f"the constant {self.digest} of type {self.type} is not in the text that its "
                "module was read from; pass it to parse(text, constants=other.constants)"
            )
        return self.array

    @property
    def number(self) -> Any:
        """The value of a constant of one element, as a number of Python."""
        one = self.value.reshape(-1)[0]
        return (to_float32(one) if self.type.dtype == "bfloat16" else one).item()

    def strip(self) -> None:
        """Let go of the array: the constant is one of a skeleton from now on."""
        object.__setattr__(self, "stripped", self.digest)
        object.__setattr__(self, "array", None)


@dataclass(frozen=True, eq=False)
class Global:
    """A function of the module or a constructor of one of its data types, by name. `type` is its
    type where it stands as a value, set by inference."""

    name: str
    type: Type | None = None


Atom = Union[Var, Const, Global]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an operator (its name in the registry), of a function of the module, of a
    constructor, or of a function value. An argument is None where an optional input is left out.
    The attribute "types" has the type arguments that a call of a function gives."""

    callee: Union[str, Global, Var]
    args: tuple[Atom | None, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()

    def attr(self, key: str, default: Attr = None) -> Attr:
        """An attribute."""
        return dict(self.attrs).get(key, default)


@dataclass(frozen=True, eq=False)
class TupleExpr:
    """Several values as one."""

    items: tuple[Atom, ...]


@dataclass(frozen=True, eq=False)
class Item:
    """A part of a tuple."""

    value: Atom
    index: int


@dataclass(frozen=True, eq=False)
class If:
    """One of two bodies, by a scalar of dtype bool. Their results are those of the binding."""

    condition: Atom
    then: Body
    other: Body


@dataclass(frozen=True, eq=False)
class Pattern:
    """`constructor(parts)`; a variable takes the value there, None is a wildcard. A tuple has the
    constructor ""."""

    constructor: str
    parts: tuple[Pattern | Var | None, ...]


@dataclass(frozen=True, eq=False)
class Match:
    """The first clause whose pattern fits. Where a match is not `complete`, a value that no clause
    takes is an error of the evaluation; else it is one of the program."""

    value: Atom
    clauses: tuple[tuple[Pattern | Var | None, Body], ...]
    complete: bool = True


@dataclass(frozen=True, eq=False)
class Body:
    """Bindings in order, and what they are for."""

    bindings: tuple[Binding, ...]
    results: tuple[Atom, ...]


@dataclass(frozen=True, eq=False)
class Function(GraphFunction):
    """A function of the module, or a closure: then its body may use variables around it, and the
    variable that it is bound to.

    Attributes: "primitive", True for what becomes one kernel (it only calls operators);
    "compiler", the external code generator whose it is;
    "constants", the numbers of the parameters that every call gives constants; "types", the names
    of the type parameters.
    """

    name: str
    params: tuple[Var, ...]
    body: Body
    attrs: tuple[tuple[str, Attr], ...] = ()

    @property
    def type(self) -> FuncType:
        """Types of parameters and results."""
        results = tuple(type_of(a) for a in self.body.results)
        return FuncType(tuple(p.type for p in self.params), results)

    @property
    def is_primitive(self) -> bool:
        """Whether it becomes one kernel."""
        return bool(self.attr("primitive", False))

    @property
    def is_external(self) -> bool:
        """Whether an external code generator compiles it."""
        return self.attr("compiler") is not None

    def attr(self, key: str, default: Attr = None) -> Attr:
        """An attribute."""
        return dict(self.attrs).get(key, default)

    def script(self) -> str:
        """The function as script text."""
        from autosched.graph.printer import function_text

        return function_text(self)

    def same(self, other: GraphFunction) -> bool:
        """Whether both are structurally equal: the names of variables do not count."""
        return isinstance(other, Function) and same(self, other)

    def renamed(self, name: str) -> Function:
        """The same function under another name."""
        return Function(name, self.params, self.body, self.attrs)


Value = Union[Call, TupleExpr, Item, If, Match, Function]


@dataclass(frozen=True, eq=False)
class Binding:
    """`vars` are the results of `value`."""

    vars: tuple[Var, ...]
    value: Value = field()


def type_of(atom: Atom) -> Type:
    """Type of an atom; functions of the module have theirs in the module."""
    if atom.type is None:
        raise WorkloadError(f"the type of function {atom.name} is known to its module only")
    return atom.type


def tensor_type(atom: Atom) -> TensorType:
    """Type of an atom that is a tensor. Raises WorkloadError for others."""
    found = type_of(atom)
    if not isinstance(found, TensorType):
        raise WorkloadError(f"expected a tensor, found a value of type {found}")
    return found


def bodies(value: Value) -> tuple[Body, ...]:
    """The bodies directly inside a value."""
    if isinstance(value, If):
        return (value.then, value.other)
    if isinstance(value, Match):
        return tuple(body for _, body in value.clauses)
    return (value.body,) if isinstance(value, Function) else ()


def atoms(value: Value) -> tuple[Atom, ...]:
    """The atoms that a value itself reads; what bodies inside it read is `reads`."""
    if isinstance(value, Call):
        callee = () if isinstance(value.callee, str) else (value.callee,)
        return (*callee, *(a for a in value.args if a is not None))
    if isinstance(value, TupleExpr):
        return value.items
    if isinstance(value, If):
        return (value.condition,)
    return (value.value,) if isinstance(value, (Item, Match)) else ()


def reads(value: Value) -> Iterator[Atom]:
    """All atoms that a value reads, those of the bodies inside it included."""
    stack = [value]
    while stack:
        one = stack.pop()
        yield from atoms(one)
        for body in bodies(one):
            yield from body.results
            stack += [b.value for b in body.bindings]


def with_bodies(value: Value, change: Callable[[Body], Body]) -> Value:
    """The value with what `change` makes of the bodies directly inside it."""
    if isinstance(value, If):
        return If(value.condition, change(value.then), change(value.other))
    if isinstance(value, Match):
        return replace(value, clauses=tuple((p, change(b)) for p, b in value.clauses))
    if isinstance(value, Function):
        return Function(value.name, value.params, change(value.body), value.attrs)
    return value


def with_atoms(value: Value, one: Callable[[Atom], Atom]) -> Value:
    """The value with what `one` makes of the atoms that it itself reads."""
    if isinstance(value, Call):
        callee = value.callee if isinstance(value.callee, str) else one(value.callee)
        assert not isinstance(callee, Const)
        return Call(callee, tuple(None if a is None else one(a) for a in value.args), value.attrs)
    if isinstance(value, TupleExpr):
        return TupleExpr(tuple(map(one, value.items)))
    if isinstance(value, Item):
        return Item(one(value.value), value.index)
    if isinstance(value, If):
        return If(one(value.condition), value.then, value.other)
    return replace(value, value=one(value.value)) if isinstance(value, Match) else value


def mapped(value: Value, atom: Mapping[int, Atom]) -> Value:
    """`value` with atoms replaced, by id, inside the bodies in it as well."""

    def one(a: Atom) -> Atom:
        return atom.get(id(a), a)

    def body(b: Body) -> Body:
        bindings = tuple(Binding(x.vars, mapped(x.value, atom)) for x in b.bindings)
        return Body(bindings, tuple(map(one, b.results)))

    return with_bodies(with_atoms(value, one), body)


def constants_of(function: Function) -> Iterator[Const]:
    """The constants in a function, each once."""
    seen: set[int] = set()
    found = [a for b in function.body.bindings for a in reads(b.value)]
    for a in (*found, *function.body.results):
        if isinstance(a, Const) and id(a) not in seen:
            seen.add(id(a))
            yield a


def constants(module: IRModule) -> list[Const]:
    """The constants in the graph functions of a module, each once. Raises ArgumentError for what is
    no module."""
    instance("constants of", module, IRModule, "an IRModule", ArgumentError)
    functions = [f for f in module.graphs.values() if isinstance(f, Function)]
    return list({id(c): c for f in functions for c in constants_of(f)}.values())


def same(a: Function, b: Function) -> bool:
    """Structural equality of two functions; the names of variables do not count."""
    return _Same().function(a, b)


class _Same:
    """Compares while it notes which variable of one side is which of the other."""

    def __init__(self) -> None:
        self.pairs: dict[int, Var] = {}

    def bind(self, xs: tuple[Var, ...], ys: tuple[Var, ...]) -> bool:
        self.pairs.update({id(x): y for x, y in zip(xs, ys, strict=False)})
        return len(xs) == len(ys) and all(
            alike(x.type, y.type) for x, y in zip(xs, ys, strict=True)
        )

    def function(self, a: Function, b: Function) -> bool:
        return a.attrs == b.attrs and self.bind(a.params, b.params) and self.body(a.body, b.body)

    def body(self, a: Body, b: Body) -> bool:
        return (
            len(a.bindings) == len(b.bindings)
            and all(map(self.binding, a.bindings, b.bindings))
            and self.part(a.results, b.results)
        )

    def binding(self, x: Binding, y: Binding) -> bool:
        if isinstance(x.value, Function):  # which may call itself
            return self.bind(x.vars, y.vars) and self.part(x.value, y.value)
        return self.part(x.value, y.value) and self.bind(x.vars, y.vars)

    def part(self, a: Any, b: Any) -> bool:
        """A value, an atom, a clause, or what else these have in them."""
        if isinstance(a, Var):
            return self.pairs.get(id(a)) is b
        if type(a) is not type(b):
            return False
        if isinstance(a, Function):
            return self.function(a, b)
        if isinstance(a, Body):
            return self.body(a, b)
        if isinstance(a, Global):
            return bool(a.name == b.name)
        if isinstance(a, Const):
            return a is b or (a.type == b.type and a.digest == b.digest)
        if isinstance(a, Call):
            same_callee = self.part(a.callee, b.callee) and a.attrs == b.attrs
            return same_callee and self.part(a.args, b.args)
        if isinstance(a, Match):
            clauses = zip(a.clauses, b.clauses, strict=False)
            return (
                self.part((a.value, a.complete), (b.value, b.complete))
                and len(a.clauses) == len(b.clauses)
                and all(self.pattern(p, q) and self.body(x, y) for (p, x), (q, y) in clauses)
            )
        if isinstance(a, tuple):
            return len(a) == len(b) and all(map(self.part, a, b))
        if isinstance(a, (TupleExpr, Item, If)):
            return all(self.part(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
        return bool(a == b)

    def pattern(self, p: Pattern | Var | None, q: Pattern | Var | None) -> bool:
        if isinstance(p, Pattern) and isinstance(q, Pattern):
            same_shape = p.constructor == q.constructor and len(p.parts) == len(q.parts)
            return same_shape and all(map(self.pattern, p.parts, q.parts))
        if isinstance(p, Var) and isinstance(q, Var):
            return self.bind((p,), (q,))
        return p is q is None
