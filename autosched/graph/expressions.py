"""Expressions of script text: each becomes an atom, what it takes is bound before it."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.errors import AutoschedError
from autosched.graph.annotations import AnnotationReader, dotted
from autosched.graph.builder import const, make_call
from autosched.graph.conversion import held
from autosched.graph.higher import HIGHER
from autosched.graph.ir import (
    Array,
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Item,
    TupleExpr,
    Value,
    Var,
    tensor_type,
)
from autosched.graph.notes import Notes
from autosched.graph.ops.registry import OPERATORS, named, python_name
from autosched.graph.relay_operators import OTHERS, PLAIN, RENAMED
from autosched.graph.types import FuncType, Hole, TensorType, Type, TypeVar
from autosched.script.limits import Budget
from autosched.script.source import Place, Source
from autosched.tir import dtypes

BINARY: dict[type, str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.Mod: "Mod",
    ast.MatMult: "MatMul",
}
COMPARED: dict[type, str] = {
    ast.Lt: "Less",
    ast.LtE: "LessOrEqual",
    ast.Gt: "Greater",
    ast.GtE: "GreaterOrEqual",
    ast.Eq: "Equal",
    ast.NotEq: "Equal",
}


@dataclass
class Block:
    """Bindings as they are made, and what names stand for here."""

    names: dict[str, Atom]
    out: list[Binding] = field(default_factory=list)

    def inner(self) -> Block:
        """A block inside, which sees these names."""
        return Block(dict(self.names))

    def body(self, *results: Atom) -> Body:
        """The bindings with results."""
        return Body(tuple(self.out), results)


class ExpressionReader(AnnotationReader):
    """Reads expressions. `globals` are the functions and constructors of the module with the number
    of their results; `constructors` those without fields and with."""

    def __init__(self, source: Source, budget: Budget, constants: Mapping[str, Array]) -> None:
        super().__init__(source, budget)
        self.constants = constants
        self.notes = Notes(source)
        self.globals: dict[str, int] = {}
        self.type_params: dict[str, tuple[TypeVar, ...]] = {}
        """Type parameters of functions of the module."""
        self.partial: dict[str, int] = {}
        """Names that one branch alone gives a value, with the line of the statement."""
        self.constructors: dict[str, int] = {}
        self.counts: dict[int, tuple[Var, int]] = {}
        """Variables that are functions of another number of results than one."""

    def emit(
        self,
        block: Block,
        value: Value,
        place: Place,
        names: Sequence[str],
        types: Sequence[Type] = (),
    ) -> tuple[Var, ...]:
        """Bind a value; the variables."""
        made = tuple(
            Var(n, t) for n, t in zip(names, types or [Hole() for _ in names], strict=True)
        )
        binding = Binding(made, value)
        self.notes.put(binding, place)
        for v in made:
            self.notes.put(v, place)
        block.out.append(binding)
        return made

    def expr(self, e: ast.expr, block: Block, hint: str = "") -> Atom:
        """The atom that an expression is; `hint` names what is bound for it."""
        self.budget.spend(e)
        read: Callable[..., Atom] | None = _READERS.get(type(e))
        if read is None:
            raise self.error(e, "expected a value: a name, a number, a call, or arithmetic")
        return read(self, e, block, hint)

    def name(self, e: ast.Name, block: Block, hint: str) -> Atom:
        """A variable, a function of the module, or a constructor."""
        found = block.names.get(e.id)
        if found is not None:
            literal = self.notes.literals.get(id(found))
            if literal is None:
                return found
            return self.literal_const(literal[0].value, literal[1], self.notes.place(found) or e)
        if self.constructors.get(e.id) == 0:
            return self.emit(block, Call(Global(e.id), ()), e, [hint or e.id.lower()])[0]
        if e.id in self.globals:
            return Global(e.id)
        if e.id in self.partial:
            raise self.error(
                e, f"{e.id} has no value where another branch of the statement in line "
                f"{self.partial[e.id]} is taken; give it one before that, or in every branch"
            )  # fmt: skip
        raise self.error(e, f"{e.id} is not defined before this line")

    def number(self, e: ast.Constant, block: Block, hint: str) -> Atom:
        """A number, whose dtype is the one that its use asks for."""
        value = e.value
        if isinstance(value, bool):
            return self.literal_const(np.asarray(value), "bool", e)
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise self.error(e, "an integer beyond 64 bits")
            small = -(1 << 31) <= value < 1 << 31
            array = np.asarray(value, "int32" if small else "int64")
            return self.literal_const(array, "int" if small else "long", e)
        if isinstance(value, float):
            return self.literal_const(np.asarray(value, "float64"), "float", e)
        raise self.error(e, "expected a number; None stands only for an input that is left out")

    def literal_const(self, array: Array, kind: str, place: Place) -> Const:
        """A constant whose dtype is open."""
        made = const(array.copy())
        self.notes.put(made, place)
        self.notes.literals[id(made)] = (made, kind)
        return made

    def binary(self, e: ast.BinOp, block: Block, hint: str) -> Atom:
        """Arithmetic."""
        op = BINARY.get(type(e.op))
        if op is None:
            raise self.error(e, "there is no such operator here; expected + - * / % or @")
        args = [self.expr(e.left, block), self.expr(e.right, block)]
        return self.operate(op, args, e, block, hint)

    def operate(self, op: str, args: list[Atom], e: ast.expr, block: Block, hint: str) -> Atom:
        """A call of an operator by its name."""
        names = [hint or python_name(op).rstrip("_")]
        return self.emit(block, make_call(op, args, {})[0], e, names)[0]

    def unary(self, e: ast.UnaryOp, block: Block, hint: str) -> Atom:
        """-x and `not x`."""
        if isinstance(e.op, ast.USub) and isinstance(e.operand, ast.Constant):
            value = e.operand.value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return self.number(ast.copy_location(ast.Constant(-value), e), block, hint)
        names: dict[type, str] = {ast.USub: "Neg", ast.Not: "Not"}
        if type(e.op) not in names:
            raise self.error(e, "expected - or not")
        return self.operate(names[type(e.op)], [self.expr(e.operand, block)], e, block, hint)

    def compare(self, e: ast.Compare, block: Block, hint: str) -> Atom:
        """A comparison; of several in a row the first that fails decides."""
        left = self.expr(e.left, block)
        last = len(e.ops) - 1
        found, inner, open_ = left, block, []
        for n, (sign, right) in enumerate(zip(e.ops, e.comparators, strict=True)):
            op = COMPARED.get(type(sign))
            if op is None:
                raise self.error(e, "expected a comparison: < <= > >= == or !=")
            other = self.expr(right, inner)
            name = hint if last == 0 and not isinstance(sign, ast.NotEq) else ""
            found = self.operate(op, [left, other], e, inner, name)
            if isinstance(sign, ast.NotEq):
                found = self.operate("Not", [found], e, inner, hint if last == 0 else "")
            left = other
            if n < last:
                open_.append((inner, found))
                inner = inner.inner()
        for outer, decided in reversed(open_):
            both = inner.body(found), Body((), (decided,))
            (found,) = self.emit(outer, If(decided, *both), e, [hint or "both"])
            inner = outer
        return found

    def boolean(self, e: ast.BoolOp, block: Block, hint: str) -> Atom:
        """`and` and `or`: the right-hand side is computed only where it decides."""
        found = self.expr(e.values[0], block)
        for right in e.values[1:]:
            inner = block.inner()
            decides = inner.body(self.expr(right, inner))
            known = Body((), (found,))
            both = (decides, known) if isinstance(e.op, ast.And) else (known, decides)
            (found,) = self.emit(block, If(found, *both), e, [hint or "both"])
        return found

    def choice(self, e: ast.IfExp, block: Block, hint: str) -> Atom:
        """`a if c else b`."""
        condition = self.expr(e.test, block)
        then, other = block.inner(), block.inner()
        bodies = then.body(self.expr(e.body, then)), other.body(self.expr(e.orelse, other))
        return self.emit(block, If(condition, *bodies), e, [hint or "choice"])[0]

    def fn(self, e: ast.Lambda, block: Block, hint: str) -> Atom:
        """A function value."""
        v = Var(hint or "fn", Hole())
        self.notes.put(v, e)
        inner = block.inner()
        if hint and not (hint in inner.names or hint in self.globals or hint in self.constructors):
            inner.names[hint] = v  # it may call itself
        params = self.parameters(e.args, inner)
        result = self.expr(e.body, inner)
        made = Function(v.name, params, inner.body(result))
        return self.bind_function(made, v, e, block)

    def bind_function(self, made: Function, v: Var, place: Place, block: Block) -> Var:
        """Bind a function value to a variable that it may use itself."""
        binding = Binding((v,), made)
        self.notes.put(binding, place)
        self.notes.put(made, place)
        block.out.append(binding)
        return v

    def parameters(self, args: ast.arguments, block: Block) -> tuple[Var, ...]:
        """Parameters; a type that is not written is found by inference."""
        if args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults:
            place = (args.args or [args.vararg or args.kwarg or args.kwonlyargs[0]])[0]
            assert place is not None
            raise self.error(place, "expected plain parameters")
        params: list[Var] = []
        for a in args.args:
            t = Hole() if a.annotation is None else self.type(a.annotation)
            v = Var(a.arg, t)
            if any(p.name == a.arg for p in params):
                raise self.error(a, f"two parameters are named {a.arg}")
            if isinstance(t, FuncType) and len(t.results) != 1:
                self.counts[id(v)] = (v, len(t.results))
            self.notes.put(v, a)
            block.names[a.arg] = v
            params.append(v)
        return tuple(params)

    def several_as_one(self, e: ast.Tuple, block: Block, hint: str) -> Atom:
        """Several values as one."""
        items = tuple(self.expr(x, block) for x in e.elts)
        return self.emit(block, TupleExpr(items), e, [hint or "tuple"])[0]

    def subscript(self, e: ast.Subscript, block: Block, hint: str) -> Atom:
        """`t[0]` of a tuple."""
        index = e.slice.value if isinstance(e.slice, ast.Constant) else None
        if type(index) is not int or index < 0:
            raise self.error(e.slice, "expected the number of a part of a tuple, from 0")
        return self.emit(block, Item(self.expr(e.value, block), index), e, [hint or "item"])[0]

    def called(self, e: ast.Call, block: Block, hint: str) -> Atom:
        """A call with one result, or a constant."""
        name = dotted(e.func)
        if name == "G.const":
            return self.written(e)
        if name == "G.data":
            return self.stored(e)
        if name == "float" and "float" not in block.names:
            return self.number(ast.copy_location(ast.Constant(self.literal(e)), e), block, hint)
        return self.call(e, block, [hint] if hint else [])[0]

    def call(self, e: ast.Call, block: Block, names: Sequence[str]) -> tuple[Var, ...]:
        """A call of an operator, a function or a constructor, with the names of its results."""
        if dotted(e.func).startswith("op."):
            return self.call_operator(e, block, names)
        if e.keywords:
            raise self.error(e.keywords[0], "functions take arguments by position")
        types: tuple[tuple[str, Any], ...] = ()
        func = e.func
        if isinstance(func, ast.Subscript) and dotted(func.value) in self.globals:
            types = (("types", self.type_arguments(func)),)
            func = func.value
        if (
            isinstance(func, ast.Name)
            and func.id in self.constructors
            and func.id not in block.names
        ):
            callee: Atom = Global(func.id)
        elif isinstance(func, ast.Attribute):
            raise self.error(
                func, f"there is no function {dotted(func) or func.attr}; operators are op.name(), "
                "functions of the module and of the prelude have plain names"
            )  # fmt: skip
        else:
            callee = self.expr(func, block)
        if isinstance(callee, Const):
            raise self.error(func, "expected op.name, or a function")
        args = tuple(self.expr(a, block) for a in e.args)
        base = callee.name.lower() if isinstance(callee, Global) else f"{callee.name}_of"
        return self.emit(block, Call(callee, args, types), e, names or [base])

    def type_arguments(self, func: ast.Subscript) -> tuple[Type, ...]:
        """The types in brackets behind the name of a function, as its type parameters want them."""
        name = dotted(func.value)
        params = self.type_params.get(name, ())
        several = isinstance(func.slice, ast.Tuple) and (
            len(params) != 1 or params[0].kind == "Type"
        )
        given = func.slice.elts if several and isinstance(func.slice, ast.Tuple) else [func.slice]
        if len(given) != len(params):
            raise self.error(
                func, f"{name} has {len(params)} type parameters, found {len(given)} types"
            )
        return tuple(self.argument(e, p) for e, p in zip(given, params, strict=True))

    def call_operator(self, e: ast.Call, block: Block, names: Sequence[str]) -> tuple[Var, ...]:
        """`op.name(values, attribute=literal)`."""
        name = dotted(e.func)[3:]
        row, higher = named(name), name.title() if name.title() in HIGHER else ""
        if row is None and not higher:
            raise self.error(e.func, _no_operator(name))
        args = [
            None if isinstance(a, ast.Constant) and a.value is None else self.expr(a, block)
            for a in e.args
        ]
        for k in e.keywords:
            if row and k.arg not in row.attributes and not isinstance(k.value, ast.Constant):
                have = ", ".join(row.attributes) or "none"
                raise self.error(
                    k.value, f"{row.name} has no attribute {k.arg or '**'} (it has {have}); values "
                    "are given by position"
                )  # fmt: skip
        attrs = {k.arg or "": self.literal(k.value) for k in e.keywords}
        if row is None:
            value = Call(higher, tuple(args), tuple(sorted(attrs.items())))
        else:
            try:
                value = make_call(row.name, args, attrs)[0]
            except AutoschedError as error:
                raise self.error(e, str(error)) from error
        return self.emit(block, value, e, names or [name.rstrip("_")])

    def several(self, callee: ast.expr, block: Block) -> int | None:
        """How many results a call has; None where it has as many as are asked for."""
        if dotted(callee).startswith("op."):
            return None
        if not isinstance(callee, ast.Name):
            return 1
        found = block.names.get(callee.id)
        if found is not None:
            return self.counts.get(id(found), (found, 1))[1]
        return self.globals.get(callee.id, 1)

    def written(self, e: ast.Call) -> Const:
        """`G.const(values, "dtype")`; without a dtype int32, float32 or bool."""
        if len(e.args) not in (1, 2) or e.keywords:
            raise self.error(e, 'expected G.const(values, "dtype")')
        values = self.literal(e.args[0])
        dtype = self.literal(e.args[1]) if len(e.args) == 2 else None
        try:
            array = np.asarray(values)
            if dtype is None and array.dtype.kind in "if":
                dtype = "float32" if array.dtype.kind == "f" else "int32"
            made = const(array, dtype)
            self.notes.put(made, e)
            return made
        except (AutoschedError, TypeError, ValueError, OverflowError) as error:
            what = f"no array of dtype {dtype!r}" if dtype is not None else "no array of numbers"
            raise self.source.error(e, f"{what}: {error}") from error

    def stored(self, e: ast.Call) -> Const:
        """`G.data("digest", shape, "dtype")`."""
        if len(e.args) != 3 or e.keywords:
            raise self.error(e, 'expected G.data("digest", shape, "dtype")')
        digest, dtype = self.literal(e.args[0]), self.literal(e.args[2])
        shape = self.shape(e.args[1])
        if not isinstance(digest, str) or not isinstance(dtype, str) or shape is None:
            raise self.error(e, 'expected G.data("digest", shape, "dtype")')
        t = TensorType(shape, dtype)
        found = self.constants.get(digest)
        if found is None and t.is_static and t.elements == 0 and dtype in dtypes.ARITHMETIC:
            found = np.empty([int(n) for n in t.known], dtype)
        if found is None:
            return Const(t, None, digest)
        made = const(held(found, dtype))
        if made.digest != digest or tensor_type(made) != t:
            raise self.error(e, f"the constant {digest} that is given is another array")
        return made


def _no_operator(name: str) -> str:
    """An error message for an operator that there is not, with the nearest."""
    theirs = RENAMED[name][0] if name in RENAMED else PLAIN.get(name, OTHERS.get(name))
    if theirs is None:
        theirs = RENAMED.get(f"nn.{name}", [PLAIN.get(f"nn.{name}", "")])[0]
    if theirs:
        return f"there is no operator op.{name}; here it is op.{python_name(theirs)}"
    every = [python_name(n) for n in OPERATORS]
    near = difflib.get_close_matches(name.rsplit(".", 1)[-1], every, 3, 0.6)
    listed = ", ".join(f"op.{n}" for n in near)
    return f"there is no operator op.{name}" + (f"; there is {listed}" if near else "")


_READERS: dict[type, Callable[..., Atom]] = {
    ast.Name: ExpressionReader.name,
    ast.Constant: ExpressionReader.number,
    ast.BinOp: ExpressionReader.binary,
    ast.UnaryOp: ExpressionReader.unary,
    ast.Compare: ExpressionReader.compare,
    ast.BoolOp: ExpressionReader.boolean,
    ast.IfExp: ExpressionReader.choice,
    ast.Lambda: ExpressionReader.fn,
    ast.Tuple: ExpressionReader.several_as_one,
    ast.Subscript: ExpressionReader.subscript,
    ast.Call: ExpressionReader.called,
}
