"""Where in a Python file functions of TVMScript stand, and which constants they may name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from autosched.script.migrate.recent import NAMESPACES
from autosched.script.migrate.several import with_tuples
from autosched.script.migrate.things import (
    FLOAT,
    INT,
    Several,
    Thing,
    Value,
    number,
    number_of,
)
from autosched.tir import dtypes

Names: TypeAlias = "dict[str, Thing | ast.FunctionDef | None]"
"""Names that are defined, as constants, as functions, or as something else."""


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
    """The file with one name for the namespace."""
    new = _Renamed(namespaces(tree)).visit(tree)
    assert isinstance(new, ast.Module)
    return new


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, dict[str, Thing]]]:
    """Every function decorated as one of TVMScript, or typed as one in a class, and the constants
    around it."""
    for s, of_class, known in scopes(tree):
        if _is_program(s, of_class):
            things = {k: x for k, x in known.items() if not isinstance(x, ast.FunctionDef)}
            constants = {k: x for k, x in things.items() if x is not None}
            yield with_tuples(s, constants), constants


def scopes(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, bool, Names]]:
    """Every function that is in no program, whether it stands in a class, and the names that are
    defined around it where it stands."""

    def visit(nodes: list[ast.stmt], here: Names, of_class: bool = False) -> Iterator[Any]:
        for s in nodes:
            if isinstance(s, ast.FunctionDef):
                yield s, of_class, dict(here)
                here[s.name] = s
                if not _is_program(s, of_class):
                    yield from visit(s.body, _with_defaults(here, s))
            elif isinstance(s, ast.ClassDef):
                yield from visit(s.body, dict(here), True)
                here[s.name] = None
            elif isinstance(s, ast.With):
                here.update(dict.fromkeys(_given(s.items)))
                yield from visit(s.body, here)
            elif isinstance(s, (ast.If, ast.Try, ast.For, ast.While)):
                given = dict.fromkeys(_given([s]))
                before = {**here, **given} if isinstance(s, (ast.For, ast.While)) else here
                handlers = [h.body for h in getattr(s, "handlers", [])]
                for part in (s.body, *handlers, s.orelse, getattr(s, "finalbody", [])):
                    yield from visit(part, dict(before))
                here.update(given)  # which of the parts ran is not known
            else:
                _note(here, s)

    yield from visit(tree.body, {})


def _with_defaults(known: Names, s: ast.FunctionDef) -> Names:
    """What is known in a Python function: its parameters are what they are by default."""
    inner = {**known, **dict.fromkeys(a.arg for a in s.args.args)}
    defaults = s.args.defaults
    named = s.args.args[len(s.args.args) - len(defaults) :]
    for arg, value in zip(named, defaults, strict=True):
        _define(inner, ast.Name(arg.arg), value, known)
    return inner


def _note(known: Names, s: ast.stmt) -> None:
    """Note the names that a statement defines."""
    found = dict(known)
    known.update(dict.fromkeys(_given([s])))
    if isinstance(s, ast.Assign):
        for target in s.targets:
            _define(known, target, s.value, found)
    elif isinstance(s, ast.AnnAssign) and s.value is not None:
        _define(known, s.target, s.value, found)
    elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
        before = ast.Name(s.target.id, ast.Load())
        _define(known, s.target, ast.BinOp(before, s.op, s.value), found)


def _given(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements may give another value where they stand."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(x.asname or x.name).split(".")[0] for x in node.names}
        if isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        found |= _given(ast.iter_child_nodes(node))
    return found


def _is_program(s: ast.FunctionDef, of_class: bool) -> bool:
    return _is_decorated(s) or (of_class and _is_typed(s))


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


def _define(known: Names, target: ast.expr, value: ast.expr, before: Names) -> None:
    """Note a name for a number, a dtype or several, or for something else, of which nothing is
    known; names in the value mean what they meant `before`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        found = _constant(before, value)
        if isinstance(found, Several) and len(found.things) == len(target.elts):
            for t, thing in zip(target.elts, found.things, strict=True):
                if isinstance(t, ast.Name):
                    known[t.id] = thing
        elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for t, v in zip(target.elts, value.elts, strict=True):
                _define(known, t, v, before)
    elif isinstance(target, ast.Name):
        known[target.id] = _constant(before, value)


def _constant(known: Names, node: ast.expr) -> Thing | None:
    if isinstance(node, (ast.Tuple, ast.List)):
        return _several(_constant(known, x) for x in node.elts)
    if isinstance(node, ast.Subscript):
        of, at = _constant(known, node.value), _constant(known, node.slice)
        n = number_of(at.node) if isinstance(at, Value) else None
        inside = isinstance(of, Several) and n is not None and -len(of.things) <= n < len(of.things)
        return of.things[n] if inside else None  # type: ignore[union-attr,index]
    if isinstance(node, ast.Constant):
        return thing_of(node.value)
    if isinstance(node, ast.Name):
        found = known.get(node.id)
        return None if isinstance(found, ast.FunctionDef) else found
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


def _several(found: Iterable[Thing | None]) -> Several | None:
    """A tuple of what is a number or a text each."""
    every = list(found)
    things = tuple(x for x in every if isinstance(x, (Value, str)))
    return Several(things) if len(things) == len(every) else None


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
    """What a Python constant is in a function: a number, a text such as a dtype, or several."""
    if isinstance(value, (tuple, list)):
        return _several(map(thing_of, value))
    if isinstance(value, bool):
        return Value(ast.Constant(value), "bool")
    if isinstance(value, int):
        return Value(number(value), INT)
    if isinstance(value, float):
        return Value(ast.Constant(value), FLOAT)
    if isinstance(value, str) and value in dtypes.DTYPES:
        return value
    return None
