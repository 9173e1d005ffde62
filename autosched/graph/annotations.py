"""Types, sizes and literals of script text."""

from __future__ import annotations

import ast
from typing import Any

from autosched.errors import ScriptError
from autosched.graph.types import DataRef, FuncType, TensorType, TupleType, Type, TypeVar
from autosched.script.limits import Budget
from autosched.script.source import Place, Source
from autosched.tir import dtypes
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


class AnnotationReader:
    """Reads what stands in annotations. `params`: the number of type parameters of each data type;
    `type_vars`: the type parameters of the function that is being read."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source, self.budget = source, budget
        self.sizes: dict[str, SizeVar] = {}
        self.params: dict[str, int] = {}
        self.type_vars: tuple[str, ...] = ()

    def error(self, place: Place, message: str) -> ScriptError:
        """An error that shows where in the text something is wrong."""
        return self.source.error(place, message)

    def results(self, e: ast.expr) -> tuple[Type, ...]:
        """The types after ->; a tuple of them is that of a function with as many results."""
        several = e.elts if isinstance(e, ast.Tuple) else [e]
        return tuple(map(self.type, several))

    def type(self, e: ast.expr) -> Type:
        """A type."""
        self.budget.spend(e)
        if isinstance(e, ast.Name):
            return self.named(e, e.id, [])
        if isinstance(e, ast.Subscript):
            inside = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
            if dotted(e.value) == "G.Tuple":
                return TupleType(tuple(map(self.type, inside)))
            if dotted(e.value) == "G.Fn":
                return self.function_type(e, inside)
            if isinstance(e.value, ast.Name):
                return self.named(e, e.value.id, inside)
        if isinstance(e, ast.Call) and dotted(e.func) == "G.Tensor" and len(e.args) == 2:
            return self.tensor(e)
        raise self.error(e, 'expected a type, such as G.Tensor((1, 64), "float32")')

    def named(self, e: ast.expr, name: str, args: list[ast.expr]) -> Type:
        """A type parameter, or a data type with its arguments."""
        if name in self.type_vars and not args:
            return TypeVar(name)
        if name not in self.params:
            have = ", ".join([*self.type_vars, *self.params]) or "none"
            raise self.error(
                e,
                f"no type is named {name}; type parameters and data types here: {have}. Type "
                f'parameters are declared by @G.function("{name}")',
            )
        if len(args) != self.params[name]:
            raise self.error(
                e, f"{name} has {self.params[name]} type parameters, found {len(args)} types"
            )
        return DataRef(name, tuple(map(self.type, args)))

    def function_type(self, e: ast.expr, sides: list[ast.expr]) -> Type:
        """`G.Fn[[A, B], C]`, or with several results `G.Fn[[A], [B, C]]`."""
        if len(sides) != 2 or not isinstance(sides[0], ast.List):
            raise self.error(e, "expected G.Fn[[types of parameters], type of the result]")
        results = sides[1].elts if isinstance(sides[1], ast.List) else [sides[1]]
        return FuncType(tuple(map(self.type, sides[0].elts)), tuple(map(self.type, results)))

    def tensor(self, e: ast.Call) -> TensorType:
        """`G.Tensor(shape, "dtype")`."""
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

    def shape(self, e: ast.expr) -> tuple[Any, ...] | None:
        """A tuple of sizes; None where it depends on data."""
        if isinstance(e, ast.Constant) and e.value is None:
            return None
        if not isinstance(e, ast.Tuple):
            raise self.error(e, "expected a shape: a tuple of sizes")
        return tuple(map(self.size, e.elts))

    def size(self, e: ast.expr) -> Any:
        """A number, or an expression of symbolic sizes."""
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
        """A number, a string, None, or tuples and lists of these."""
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
        if isinstance(e, ast.Call) and dotted(e.func) == "float" and len(e.args) == 1:
            text = self.literal(e.args[0])
            if text in ("inf", "-inf", "nan"):
                return float(text)
        raise self.error(e, "expected a number, a string, None, or tuples of these")


def dotted(e: ast.expr) -> str:
    """`a.b` of names; empty for anything else."""
    if isinstance(e, ast.Name):
        return e.id
    return f"{dotted(e.value)}.{e.attr}" if isinstance(e, ast.Attribute) else ""
