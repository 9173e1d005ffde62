"""Script text to graph functions: the inverse of `printer`, by Python's own parser, under the
limits of `autosched.script`. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from autosched.errors import AutoschedError, ScriptError
from autosched.graph.builder import const, make_call
from autosched.graph.infer import infer
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
    Match,
    Pattern,
    TupleExpr,
    Var,
    tensor_type,
    type_of,
)
from autosched.graph.ops.registry import named
from autosched.graph.types import ANY, FuncType, TensorType, TupleType, Type, joined
from autosched.script.limits import Budget
from autosched.script.source import Place, Source
from autosched.tir import dtypes
from autosched.tir.size import Size, SizeVar

CONSTANTS: Mapping[str, Array] = {}


class ModuleReader:
    """Reads the functions of one module. `constants`: arrays by digest; what is not among them
    stays a digest."""

    def __init__(
        self, source: Source, budget: Budget, constants: Mapping[str, Array] = CONSTANTS
    ) -> None:
        self.source, self.budget, self.constants = source, budget, constants
        self.types: dict[str, FuncType] = {}
        self.sizes: dict[str, SizeVar] = {}

    def declare(self, node: ast.FunctionDef) -> None:
        """Note the type of a function, so that others may call it wherever they stand."""
        params = [self.type(self.annotation(a)) for a in node.args.args]
        if node.returns is None:
            raise self.error(node, "expected the types of the results after ->")
        self.types[node.name] = FuncType(tuple(params), self.results(node.returns))

    def read(self, node: ast.FunctionDef) -> Function:
        """The function of a `def`."""
        return self.function(node, {})

    def error(self, place: Place, message: str) -> ScriptError:
        """An error that shows where in the text something is wrong."""
        return self.source.error(place, message)

    # Types and literals

    def annotation(self, a: ast.arg) -> ast.expr:
        if a.annotation is None:
            raise self.error(
                a, f'the parameter {a.arg} has no type; expected {a.arg}: G.Tensor((1,), "…")'
            )
        return a.annotation

    def results(self, e: ast.expr) -> tuple[Type, ...]:
        several = e.elts if isinstance(e, ast.Tuple) else [e]
        return tuple(map(self.type, several))

    def type(self, e: ast.expr) -> Type:
        self.budget.spend(e)
        if isinstance(e, ast.Subscript) and _dotted(e.value) == "G.Tuple":
            parts = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
            return TupleType(tuple(map(self.type, parts)))
        if isinstance(e, ast.Subscript) and _dotted(e.value) == "G.Fn":
            sides = e.slice.elts if isinstance(e.slice, ast.Tuple) else []
            if len(sides) == 2 and all(isinstance(s, ast.List) for s in sides):
                params, results = (
                    tuple(map(self.type, s.elts)) for s in sides if isinstance(s, ast.List)
                )
                return FuncType(params, results)
        if isinstance(e, ast.Call) and _dotted(e.func) == "G.Tensor" and len(e.args) == 2:
            layout: tuple[int, ...] = ()
            for k in e.keywords:
                if k.arg != "layout":
                    raise self.error(k, "expected layout=(…)")
                layout = self.literal(k.value)
            dtype = self.literal(e.args[1])
            shape = self.shape(e.args[0])
            if dtype not in (*dtypes.DTYPES, ""):
                raise self.error(e.args[1], f"no dtype; expected one of {', '.join(dtypes.DTYPES)}")
            if layout and (shape is None or sorted(layout) != list(range(len(shape)))):
                raise self.error(e, "the layout is no order of the axes")
            return TensorType(shape, dtype, layout)
        raise self.error(e, 'expected a type, such as G.Tensor((1, 64), "float32")')

    def shape(self, e: ast.expr) -> tuple[Any, ...] | None:
        if isinstance(e, ast.Constant) and e.value is None:
            return None
        if not isinstance(e, ast.Tuple):
            raise self.error(e, "expected a shape: a tuple of sizes")
        return tuple(map(self.size, e.elts))

    def size(self, e: ast.expr) -> Any:
        self.budget.spend(e)
        if isinstance(e, ast.Constant) and type(e.value) is int and 0 <= e.value < 1 << 62:
            return e.value
        if isinstance(e, ast.Name):
            return Size.of(self.sizes.setdefault(e.id, SizeVar(e.id)))
        if isinstance(e, ast.BinOp):
            a, b = self.size(e.left), self.size(e.right)
            if isinstance(e.op, ast.Add):
                return a + b
            if isinstance(e.op, ast.Sub):
                return a - b
            if isinstance(e.op, ast.Mult):
                return a * b
            if isinstance(e.op, ast.FloorDiv):
                return a // b
        raise self.error(
            e, "expected a size: a number, a name, or sums, products and quotients of these"
        )

    def literal(self, e: ast.expr) -> Any:
        self.budget.spend(e)
        if isinstance(e, ast.Constant) and not isinstance(e.value, (bytes, complex)):
            return e.value
        if isinstance(e, ast.Tuple):
            return tuple(map(self.literal, e.elts))
        if isinstance(e, ast.List):
            return list(map(self.literal, e.elts))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            found = self.literal(e.operand)
            if isinstance(found, (int, float)):
                return -found
        if isinstance(e, ast.Call) and _dotted(e.func) == "float" and len(e.args) == 1:
            text = self.literal(e.args[0])
            if text in ("inf", "-inf", "nan"):
                return float(text)
        raise self.error(e, "expected a number, a string, None, or tuples of these")

    # Functions

    def function(self, node: ast.FunctionDef, outer: Mapping[str, Var]) -> Function:
        """A function; one inside another sees the variables around it."""
        args = node.args
        if args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults:
            raise self.error(node, "expected plain parameters")
        scope = dict(outer)
        params = []
        for a in args.args:
            v = Var(a.arg, self.type(self.annotation(a)))
            scope[a.arg] = v
            params.append(v)
        if not node.body or not isinstance(node.body[-1], ast.Return):
            raise self.error(node, "expected `return` as the last statement")
        last = node.body[-1]
        bindings = self.statements(node.body[:-1], scope)
        results = () if last.value is None else self.atoms(last.value, scope)
        made = Function(node.name, tuple(params), Body(bindings, results), self.attrs(node))
        if node.returns is not None:
            declared, found = self.results(node.returns), made.type.results
            if declared != found:
                raise self.error(
                    node.returns, f"the results have the types {', '.join(map(str, found))}"
                )
        return made

    def attrs(self, node: ast.FunctionDef) -> tuple[tuple[str, Any], ...]:
        """Attributes of a function, from its decorator."""
        (d,) = node.decorator_list
        if not isinstance(d, ast.Call):
            return ()
        if d.args:
            raise self.error(d, "expected attributes by name")
        return tuple((k.arg or "", self.literal(k.value)) for k in d.keywords)

    def statements(self, body: Sequence[ast.stmt], scope: dict[str, Var]) -> tuple[Binding, ...]:
        return tuple(self.statement(s, scope) for s in body)

    def statement(self, s: ast.stmt, scope: dict[str, Var]) -> Binding:
        self.budget.spend(s)
        if isinstance(s, ast.FunctionDef):
            if len(s.decorator_list) != 1:
                raise self.error(s, "expected the decorator @G.function")
            closure = self.function(s, scope)
            return self.bind([s.name], [closure.type], closure, scope)
        if isinstance(s, ast.If):
            condition = self.atom(s.test, scope)
            then, names = self.branch(s.body, scope, s)
            other, again = self.branch(s.orelse, scope, s)
            if names != again:
                raise self.error(
                    s, f"both branches must end by giving values to {', '.join(names)}"
                )
            return self.bind(names, _joined([then, other]), If(condition, then, other), scope)
        if isinstance(s, ast.Match):
            return self.match(s, scope)
        if isinstance(s, ast.AnnAssign) and isinstance(s.value, ast.Call):
            return self.stated(s, s.value, scope)
        if not isinstance(s, ast.Assign) or len(s.targets) != 1:
            raise self.error(s, "expected an assignment, if, match, a function, or return")
        target = s.targets[0]
        names = self.names(target)
        if isinstance(s.value, ast.Tuple) and isinstance(target, ast.Name):
            items = self.atoms(s.value, scope)
            return self.bind(
                names, [TupleType(tuple(map(type_of, items)))], TupleExpr(items), scope
            )
        if isinstance(s.value, ast.Subscript):
            value, index = self.atom(s.value.value, scope), self.literal(s.value.slice)
            t = type_of(value)
            if not isinstance(t, TupleType) or index not in range(len(t.fields)):
                raise self.error(
                    s.value, f"the value has the type {t}, which has no part {index!r}"
                )
            return self.bind(names, [t.fields[index]], Item(value, index), scope)
        if not isinstance(s.value, ast.Call):
            raise self.error(s.value, "expected a call")
        call, types = self.typed(s.value, len(names), scope)
        return self.bind(names, types, call, scope)

    def typed(
        self, e: ast.Call, outputs: int, scope: Mapping[str, Var]
    ) -> tuple[Call, Sequence[Type]]:
        """A call and the types of its results."""
        call = self.call(e, scope)
        try:
            return call, self.types_of(call, outputs, e)
        except ScriptError:
            raise
        except AutoschedError as error:
            raise self.source.error(e, str(error)) from error

    def stated(self, s: ast.AnnAssign, value: ast.Call, scope: dict[str, Var]) -> Binding:
        """`name: type = call`: the type says how the result is stored."""
        call, (found, *_) = self.typed(value, 1, scope)
        t = self.type(s.annotation)
        plain = [(x.shape, x.dtype) if isinstance(x, TensorType) else x for x in (t, found)]
        if plain[0] != plain[1]:
            raise self.error(s.annotation, f"the call has the type {found}")
        return self.bind(self.names(s.target), [t], call, scope)

    def match(self, s: ast.Match, scope: dict[str, Var]) -> Binding:
        value = self.atom(s.subject, scope)
        clauses: list[tuple[Pattern | Var | None, Body]] = []
        found: list[list[str]] = []
        for case in s.cases:
            if case.guard is not None:
                raise self.error(case.guard, "a case has no condition here")
            inner = dict(scope)
            pattern = self.pattern(case.pattern, inner, s)
            body, names = self.branch(case.body, inner, s)
            if found and names != found[0]:
                raise self.error(s, f"all cases must end by giving values to {', '.join(found[0])}")
            found.append(names)
            clauses.append((pattern, body))
        types = _joined([b for _, b in clauses])
        return self.bind(found[0], types, Match(value, tuple(clauses)), scope)

    def pattern(self, p: ast.pattern, scope: dict[str, Var], s: ast.stmt) -> Pattern | Var | None:
        if isinstance(p, ast.MatchAs) and p.pattern is None:
            if p.name is None:
                return None
            scope[p.name] = Var(p.name, ANY)
            return scope[p.name]
        if isinstance(p, ast.MatchClass) and isinstance(p.cls, ast.Name) and not p.kwd_attrs:
            parts = tuple(self.pattern(x, scope, s) for x in p.patterns)
            return Pattern(p.cls.id, parts)
        raise self.error(s, "expected patterns such as Cons(x, _)")

    def branch(
        self, body: Sequence[ast.stmt], scope: Mapping[str, Var], place: ast.stmt
    ) -> tuple[Body, list[str]]:
        """Statements that end by giving values to names outside."""
        if not body or not isinstance(body[-1], ast.Assign) or len(body[-1].targets) != 1:
            raise self.error(place, "expected a branch that ends with `names = values`")
        inner = dict(scope)
        bindings = self.statements(body[:-1], inner)
        names = self.names(body[-1].targets[0])
        results = self.atoms(body[-1].value, inner)
        if len(results) != len(names):
            raise self.error(body[-1], f"{len(results)} values for {len(names)} names")
        return Body(bindings, results), names

    def bind(
        self, names: Sequence[str], types: Sequence[Type], value: Any, scope: dict[str, Var]
    ) -> Binding:
        variables = tuple(Var(n, t) for n, t in zip(names, types, strict=True))
        scope.update(zip(names, variables, strict=True))
        return Binding(variables, value)

    def names(self, target: ast.expr) -> list[str]:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        for p in parts:
            if not isinstance(p, ast.Name):
                raise self.error(p, "expected a name")
        return [p.id for p in parts if isinstance(p, ast.Name)]

    # Values

    def call(self, e: ast.Call, scope: Mapping[str, Var]) -> Call:
        name = _dotted(e.func)
        args = [
            None if isinstance(a, ast.Constant) and a.value is None else self.atom(a, scope)
            for a in e.args
        ]
        attrs = {k.arg or "": self.literal(k.value) for k in e.keywords}
        if name.startswith("op."):
            row = named(name[3:])
            if row is None:
                raise self.error(e.func, f"there is no operator {name}")
            return make_call(row.name, args, attrs)[0]
        callee = self.atom(e.func, scope)
        if isinstance(callee, Const):
            raise self.error(e.func, "expected op.name, or a function")
        return Call(callee, tuple(args), tuple(sorted(attrs.items())))

    def types_of(self, call: Call, outputs: int, place: ast.expr) -> Sequence[Type]:
        if isinstance(call.callee, str):
            return infer(call, outputs)
        t = (
            self.types.get(call.callee.name)
            if isinstance(call.callee, Global)
            else call.callee.type
        )
        if not isinstance(t, FuncType):
            raise self.error(place, "only functions can be called")
        fits = len(t.params) == len(call.args) and all(map(_fits, call.args, t.params))
        if not fits or outputs != len(t.results):
            raise self.error(place, f"the arguments and results do not fit the function's type {t}")
        return t.results

    def atoms(self, e: ast.expr, scope: Mapping[str, Var]) -> tuple[Atom, ...]:
        if isinstance(e, ast.Constant) and e.value is None:
            return ()
        parts = e.elts if isinstance(e, ast.Tuple) else [e]
        return tuple(self.atom(p, scope) for p in parts)

    def atom(self, e: ast.expr, scope: Mapping[str, Var]) -> Atom:
        self.budget.spend(e)
        if isinstance(e, ast.Name):
            if e.id in scope:
                return scope[e.id]
            if e.id in self.types:
                return Global(e.id)
            raise self.error(e, f"{e.id} is not defined before this line")
        if isinstance(e, ast.Call):
            name = _dotted(e.func)
            maker = {"G.const": self.written, "G.data": self.stored}.get(name)
            if maker is not None and not e.keywords:
                return maker(e)
        raise self.error(
            e, "expected a variable or a constant: bind what is computed to a name first"
        )

    def written(self, e: ast.Call) -> Const:
        if len(e.args) != 2:
            raise self.error(e, 'expected G.const(values, "dtype")')
        values, dtype = self.literal(e.args[0]), self.literal(e.args[1])
        try:
            return const(np.asarray(values, dtype))
        except (TypeError, ValueError, OverflowError) as error:
            raise self.source.error(e, f"no array of dtype {dtype!r}: {error}") from error

    def stored(self, e: ast.Call) -> Const:
        if len(e.args) != 3:
            raise self.error(e, 'expected G.data("digest", shape, "dtype")')
        digest, dtype = self.literal(e.args[0]), self.literal(e.args[2])
        shape = self.shape(e.args[1])
        if not isinstance(digest, str) or not isinstance(dtype, str) or shape is None:
            raise self.error(e, 'expected G.data("digest", shape, "dtype")')
        found = self.constants.get(digest)
        t = TensorType(shape, dtype)
        if found is None:
            return Const(t, None, digest)
        made = const(found)
        if made.digest != digest or tensor_type(made) != t:
            raise self.error(e, f"the constant {digest} that is given is another array")
        return made


def _fits(a: Atom | None, t: Type) -> bool:
    """Whether an argument is of a parameter's type; constants are stored as their reader wants."""
    if isinstance(a, Const) and isinstance(t, TensorType):
        return (a.type.shape, a.type.dtype) == (t.shape, t.dtype)
    return a is not None and type_of(a) == t


def _joined(branches: Sequence[Body]) -> list[Type]:
    """Types of what is of one of several bodies."""
    rows = [[type_of(a) for a in b.results] for b in branches]
    return [reduce(joined, row) for row in zip(*rows, strict=True)]


def _dotted(e: ast.expr) -> str:
    if isinstance(e, ast.Name):
        return e.id
    return f"{_dotted(e.value)}.{e.attr}" if isinstance(e, ast.Attribute) else ""
