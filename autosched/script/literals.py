"""Literals: values of annotations, names, sizes. Read from the tree, never evaluated."""

from __future__ import annotations

import ast
from typing import Any

from autosched.errors import ScriptError
from autosched.script.limits import Budget
from autosched.script.source import Place, Source
from autosched.tir import dtypes


def dictionary(source: Source, budget: Budget, node: ast.expr, what: str) -> dict[str, Any]:
    """A dict with string keys, as attributes and annotations are."""
    if not isinstance(node, ast.Dict):
        raise source.error(node, f"{what} are a dict; expected one such as {{'key': 1}}")
    out: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        name = string(source, key or node, f"a key of {what}")
        if name in out:
            raise source.error(key or node, f"{what} have the key {name!r} twice")
        out[name] = literal(source, budget, value)
    return out


def literal(source: Source, budget: Budget, node: ast.expr) -> Any:
    """A string, number, bool or None, or a list, tuple or dict of them."""
    budget.spend(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, type(None))):
        return checked_number(source, node, node.value)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [literal(source, budget, x) for x in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict):
        return _dict(source, budget, node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = literal(source, budget, node.operand)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
        text = node.args[0] if len(node.args) == 1 and not node.keywords else node
        return special_float(source, text)
    raise source.error(node, "expected a literal: a string, number, bool, list, tuple or dict")


def _dict(source: Source, budget: Budget, node: ast.Dict) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant):
            raise source.error(key or node, "expected a string or a number as the key")
        out[literal(source, budget, key)] = literal(source, budget, value)
    return out


def checked_number(source: Source, node: ast.expr, value: Any) -> Any:
    """`value`; integers must be of 64 bits."""
    if isinstance(value, int) and abs(value) > 1 << 63:
        raise source.error(node, "an integer beyond 64 bits")
    return value


def special_float(source: Source, node: ast.expr) -> float:
    """The value of "inf", "-inf" or "nan"."""
    if isinstance(node, ast.Constant) and node.value in ("inf", "-inf", "nan"):
        return float(node.value)
    raise source.error(node, 'expected "inf", "-inf" or "nan"')


def string(source: Source, node: ast.expr, what: str) -> str:
    """A string literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise source.error(node, f"{what} is a string; expected one in quotes")


def dtype(source: Source, node: ast.expr) -> str:
    """A string that names an element type."""
    name = string(source, node, "a dtype")
    if name not in dtypes.DTYPES:
        raise source.error(
            node, f"unknown dtype {name!r}; expected one of {', '.join(dtypes.DTYPES)}"
        )
    return name


class Arguments:
    """The arguments of a call, taken one by one; what is left over is an error."""

    def __init__(self, source: Source, call: ast.Call, what: str) -> None:
        self.source, self.call, self.what = source, call, what
        self.positional = list(call.args)
        self.named: dict[str, ast.expr] = {}
        for k in call.keywords:
            if k.arg is None:
                raise source.error(k.value, f"{what} takes no ** arguments")
            self.named[k.arg] = k.value

    def take(self, name: str, positional: bool = True) -> ast.expr | None:
        """The argument `name`, given by position or by name, or None."""
        if positional and self.positional:
            if name in self.named:
                raise self.source.error(
                    self.named[name], f"{name} of {self.what} is given by position, too"
                )
            return self.positional.pop(0)
        return self.named.pop(name, None)

    def need(self, name: str) -> ast.expr:
        """The argument `name`; ScriptError without it."""
        found = self.take(name)
        if found is None:
            raise self.error(self.call, f"{self.what} needs the argument {name}")
        return found

    def done(self) -> None:
        """Raise ScriptError if arguments are left."""
        for node in (*self.positional, *self.named.values()):
            name = next((f" {k}" for k, v in self.named.items() if v is node), "")
            raise self.error(node, f"{self.what} takes no more arguments; found{name or ' one'}")

    def error(self, place: Place, message: str) -> ScriptError:
        return self.source.error(place, message)
