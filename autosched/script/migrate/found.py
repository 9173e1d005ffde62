"""Where in a Python file functions of TVMScript stand, and which constants they may name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from autosched.script.migrate.macros import expanded
from autosched.script.migrate.recent import NAMESPACES, as_before
from autosched.script.migrate.things import FLOAT, INT, Thing, Value, number
from autosched.tir import dtypes

_DECORATORS = ("prim_func", "script")


class _Renamed(ast.NodeTransformer):
    """`tir.serial` as `T.serial`, whatever the file calls the namespace."""

    def __init__(self, spaces: set[str]) -> None:
        self.spaces = spaces

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        text = ast.unparse(node.value) if isinstance(node.value, (ast.Attribute, ast.Name)) else ""
        if text in self.spaces:
            node.value = ast.copy_location(ast.Name("T", ast.Load()), node.value)
        return node


def namespaces(tree: ast.Module) -> set[str]:
    """What a file calls the namespace T."""
    found = {"Ts", *NAMESPACES}
    found |= {f"tvm.{x}" for x in NAMESPACES} | {f"tvm.script.{x}" for x in NAMESPACES}
    for x in ast.walk(tree):
        if isinstance(x, ast.ImportFrom) and (x.module or "").endswith("script"):
            found |= {a.asname or a.name for a in x.names if a.name in NAMESPACES}
    return found


def renamed(tree: ast.Module) -> ast.Module:
    """The file with one name for the namespace, in the spelling that is read here."""
    new = _Renamed(namespaces(tree)).visit(tree)
    assert isinstance(new, ast.Module)
    return as_before(expanded(new))


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, dict[str, Thing]]]:
    """Every function decorated as one of TVMScript, or typed as one in a class, and the constants
    around it."""

    def visit(
        nodes: list[ast.stmt], known: dict[str, Thing], of_class: bool = False
    ) -> Iterator[Any]:
        here = dict(known)
        for s in nodes:
            if isinstance(s, ast.Assign) and len(s.targets) == 1:
                _define(here, s.targets[0], s.value)
            if isinstance(s, ast.FunctionDef) and (_is_decorated(s) or (of_class and _is_typed(s))):
                yield s, dict(here)
            elif isinstance(s, (ast.FunctionDef, ast.ClassDef)):
                inner = dict(here)
                if isinstance(s, ast.FunctionDef):
                    defaults = s.args.defaults
                    named = s.args.args[len(s.args.args) - len(defaults) :]
                    for arg, value in zip(named, defaults, strict=True):
                        _define(inner, ast.Name(arg.arg), value)
                yield from visit(s.body, inner, isinstance(s, ast.ClassDef))
            elif isinstance(s, (ast.If, ast.With, ast.Try, ast.For)):
                yield from visit(s.body, here)
                yield from visit(getattr(s, "orelse", []), here)

    yield from visit(tree.body, {})


def _is_decorated(s: ast.FunctionDef) -> bool:
    for d in s.decorator_list:
        text = ast.unparse(d.func if isinstance(d, ast.Call) else d)
        if text == "T.prim_func" or text == "prim_func" or text.endswith(".script.tir"):
            return True
    return False


def _is_typed(s: ast.FunctionDef) -> bool:
    """Whether all parameters have types of T, as those of functions without a decorator in classes
    that are given to a test harness."""
    hints = [a.annotation for a in s.args.args]
    return (
        not s.decorator_list
        and bool(hints)
        and all(h is not None and ast.unparse(h).startswith("T.") for h in hints)
    )


def _define(known: dict[str, Thing], target: ast.expr, value: ast.expr) -> None:
    """Note a name for a number or a dtype; forget one that becomes something else."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for t, v in zip(target.elts, value.elts, strict=False):
            _define(known, t, v)
        return
    if not isinstance(target, ast.Name):
        return
    found = _constant(known, value)
    if found is None:
        known.pop(target.id, None)
    else:
        known[target.id] = found


def _constant(known: Mapping[str, Thing], node: ast.expr) -> Thing | None:
    if isinstance(node, ast.Constant):
        return thing_of(node.value)
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(known, node.operand)
        value = inner.node.value if _is_number(inner) else None  # type: ignore[union-attr]
        return None if value is None else thing_of(-value)
    if isinstance(node, ast.BinOp):
        a, b = _constant(known, node.left), _constant(known, node.right)
        if _is_number(a) and _is_number(b):
            x, y = a.node.value, b.node.value  # type: ignore[union-attr]
            return thing_of(_arithmetic(node.op, x, y))
    return None


def _is_number(thing: Thing | None) -> bool:
    return isinstance(thing, Value) and isinstance(thing.node, ast.Constant)


def _arithmetic(op: ast.operator, x: Any, y: Any) -> Any:
    if isinstance(op, ast.Add):
        return x + y
    if isinstance(op, ast.Sub):
        return x - y
    if isinstance(op, ast.Mult):
        return x * y
    if isinstance(op, (ast.FloorDiv, ast.Mod)) and y and isinstance(x, int) and isinstance(y, int):
        return x // y if isinstance(op, ast.FloorDiv) else x % y
    return None


def thing_of(value: object) -> Thing | None:
    """What a Python constant is in a function: a number, or a text such as a dtype."""
    if isinstance(value, bool):
        return Value(ast.Constant(value), "bool")
    if isinstance(value, int):
        return Value(number(value), INT)
    if isinstance(value, float):
        return Value(ast.Constant(value), FLOAT)
    if isinstance(value, str) and value in dtypes.DTYPES:
        return value
    return None
