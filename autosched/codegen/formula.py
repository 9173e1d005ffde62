"""Formulas of symbolic sizes, as text: what a kernel's description says of its shapes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from operator import add, floordiv, mul, sub
from typing import Union

from autosched.errors import ArgumentError

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
}


def evaluate(formula: Union[int, str], sizes: Mapping[str, int]) -> int:
    """The value of a formula of integers, names of sizes, and + - * //.

    Raises ArgumentError for anything else in it, and for a size that is not given.
    """
    return formula if isinstance(formula, int) else _value(_tree(formula), formula, sizes)


@cache
def _tree(formula: str) -> ast.expr:
    try:
        return ast.parse(formula, mode="eval").body
    except SyntaxError as e:
        raise ArgumentError(f"{formula!r} is no formula of sizes: {e.msg}") from e


def _value(node: ast.expr, formula: str, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id in sizes:
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        a, b = (_value(x, formula, sizes) for x in (node.left, node.right))
        return _OPERATORS[type(node.op)](a, b)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, formula, sizes)
    have = ", ".join(sizes) or "none"
    raise ArgumentError(f"cannot evaluate {formula!r} with the sizes {have}: {ast.unparse(node)}")
