"""Formulas of symbolic sizes, as text: what a kernel's description says of its shapes.

Sums, differences, products and quotients (`//` by positive integers) of integers and of names of
sizes. Text, so that a description is plain data in any format.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from operator import add, floordiv, mul, sub
from typing import Any, TypeVar, Union

from autosched.errors import ArgumentError

Extent = Union[int, str]
"""A constant, or a formula such as "(n + 7) // 8"."""
_T = TypeVar("_T")
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
}
_MEANING: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "//": floordiv}


def evaluate(formula: Extent, sizes: Mapping[str, int]) -> int:
    """The value of a formula.

    Raises ArgumentError for anything else in it, and for a size that is not given.
    """
    if isinstance(formula, int):
        return formula

    def size(name: str) -> int:
        if name not in sizes:
            have = ", ".join(sizes) or "none"
            raise ArgumentError(f"{formula!r} needs the size {name}; those given: {have}")
        return sizes[name]

    return fold(formula, size, int, lambda op, a, b: _MEANING[op](a, b))


def fold(
    formula: Extent,
    size: Callable[[str], _T],
    number: Callable[[int], _T],
    combine: Callable[[str, _T, _T], _T],
) -> _T:
    """What the formula becomes with every size, number and operation replaced, operands first."""
    found: _T = _fold(_tree(str(formula)), str(formula), size, number, combine)
    return found


@cache
def _tree(formula: str) -> ast.expr:
    try:
        return ast.parse(formula, mode="eval").body
    except SyntaxError as e:
        raise ArgumentError(f"{formula!r} is no formula of sizes: {e.msg}") from e


def _fold(node: ast.expr, formula: str, size: Any, number: Any, combine: Any) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return number(node.value)
    if isinstance(node, ast.Name):
        return size(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return combine("-", number(0), _fold(node.operand, formula, size, number, combine))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        a, b = (_fold(x, formula, size, number, combine) for x in (node.left, node.right))
        return combine(_OPERATORS[type(node.op)], a, b)
    raise ArgumentError(f"{ast.unparse(node)} in {formula!r} is no part of a formula of sizes")
