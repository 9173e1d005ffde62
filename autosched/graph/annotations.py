"""Types, sizes and literals of script text."""

from __future__ import annotations

import ast
from typing import Any

from autosched.errors import ScriptError
from autosched.graph.types import (
    DataRef,
    Dtype,
    Extents,
    FuncType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    tensor_of,
)
from autosched.script.limits import Budget
from autosched.script.source import Place, Source
from autosched.tir import dtypes
from autosched.tir.size import Size, SizeVar

EXAMPLE = 'G.Tensor((1, 64), "float32")'
"""A type, for error messages."""


class AnnotationReader:
    """Reads what stands in annotations. `params`: the number of type parameters of each data type;
    `type_vars`: the type parameters of the function that is being read."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source, self.budget = source, budget
        self.sizes: dict[str, SizeVar] = {}
        self.params: dict[str, int] = {}
        self.type_vars: dict[str, TypeVar] = {}

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
        if isinstance(e, ast.Call) and dotted(e.func) == "G.Tensor" and e.args:
            return self.tensor(e)
        raise self.error(e, f"expected a type, such as {EXAMPLE}")

    def named(self, e: ast.expr, name: str, args: list[ast.expr]) -> Type:
        """A type parameter, or a data type with its arguments."""
        if name in self.type_vars and not args:
            return self.of_kind(e, name, "Type")
        if name in dtypes.DTYPES and name not in self.params and not args:
            return TensorType((), name)
        if name not in self.params:
            have = ", ".join([*self.type_vars, *self.params]) or "none"
            raise self.error(
                e,
                f"no type is named {name}; type parameters and data types here: {have}. A tensor's "
                f'type is {EXAMPLE}; type parameters are declared by @G.function("{name}")',
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

    def of_kind(self, e: ast.expr, name: str, kind: str) -> TypeVar:
        """A type parameter of a kind."""
        v = self.type_vars[name]
        if v.kind != kind:
            what = f'@G.function("{name}: {kind}")' if kind != "Type" else f'@G.function("{name}")'
            raise self.error(
                e, f"{name} is declared as of kind {v.kind}; expected one of kind {kind}, as by "
                f"{what}"
            )  # fmt: skip
        return v

    def argument(self, e: ast.expr, v: TypeVar) -> Type:
        """What is given for a type parameter."""
        if v.kind == "Type":
            return self.type(e)
        if isinstance(e, ast.Name) and e.id in self.type_vars and v.kind != "ShapeVar":
            return self.of_kind(e, e.id, v.kind)
        if v.kind == "BaseType":
            return Dtype(self.dtype(e))
        alone = v.kind == "ShapeVar" and not isinstance(e, ast.Tuple)
        shape = (self.size(e),) if alone else self.shape(e)
        if shape is None or (v.kind == "ShapeVar" and len(shape) != 1):
            raise self.error(e, f"expected what is of kind {v.kind}")
        return Extents(shape)

    def dtype(self, e: ast.expr) -> str:
        """The name of a dtype."""
        dtype = self.literal(e)
        if dtype not in (*dtypes.DTYPES, ""):
            raise self.error(e, f"no dtype; expected one of {', '.join(dtypes.DTYPES)}")
        return str(dtype)

    def tensor(self, e: ast.Call) -> Type:
        """`G.Tensor(shape, "dtype")`."""
        layout: tuple[int, ...] = ()
        given = e.args[1:]
        for k in e.keywords:
            if k.arg == "dtype" and not given:
                given = [k.value]
            elif k.arg == "layout":
                layout = self.literal(k.value)
            else:
                raise self.error(k.value, f"expected a shape and a dtype: {EXAMPLE}")
        if len(given) != 1:
            raise self.error(e, f"expected a shape and a dtype: {EXAMPLE}")
        first, last = e.args[0], given[0]
        open_dtype = isinstance(last, ast.Name) and last.id in self.type_vars
        if isinstance(first, ast.Name) or open_dtype:
            return self.open_tensor(e, first, last, layout)
        dtype, shape = self.dtype(last), self.shape(first)
        if layout and (shape is None or sorted(layout) != list(range(len(shape)))):
            raise self.error(e, "the layout is no order of the axes")
        return TensorType(shape, dtype, layout)

    def open_tensor(
        self, e: ast.Call, first: ast.expr, last: ast.expr, layout: tuple[int, ...]
    ) -> Type:
        """`G.Tensor(s, d)`, of which one or both are type parameters."""
        shape: Type
        if isinstance(first, ast.Name):
            if first.id not in self.type_vars:
                raise self.error(
                    first,
                    f"expected a shape: a tuple of sizes, such as ({first.id},), or a type "
                    f'parameter that @G.function("{first.id}: Shape") declares',
                )
            shape = self.of_kind(first, first.id, "Shape")
        else:
            sizes = self.shape(first)
            if sizes is None:
                raise self.error(first, "a shape that depends on data goes with a dtype alone")
            shape = Extents(sizes)
        if layout:
            raise self.error(e, "a layout goes with a shape and a dtype that are written out")
        if isinstance(last, ast.Name) and last.id in self.type_vars:
            return tensor_of(shape, self.of_kind(last, last.id, "BaseType"))
        return tensor_of(shape, Dtype(self.dtype(last)))

    def shape(self, e: ast.expr) -> tuple[Any, ...] | None:
        """A tuple of sizes; None where it depends on data."""
        if isinstance(e, ast.Constant) and e.value is None:
            return None
        if not isinstance(e, ast.Tuple):
            raise self.error(e, "expected a shape: a tuple of sizes, such as (1, 64), (3,) or ()")
        return tuple(map(self.size, e.elts))

    def size(self, e: ast.expr) -> Any:
        """A number, or an expression of symbolic sizes."""
        self.budget.spend(e)
        if isinstance(e, ast.Constant) and type(e.value) is int and 0 <= e.value < 1 << 62:
            return e.value
        if isinstance(e, ast.Name):
            if e.id in self.type_vars:
                self.of_kind(e, e.id, "ShapeVar")
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
