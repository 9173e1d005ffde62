"""Integer expressions of loop variables: their ranges; and conditions on them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import product

from autosched.script.migrate.things import loads, number, number_of

MOST_CASES = 8
"""Disjoint cases that one condition may be taken apart into."""
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def span(node: ast.expr, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """The least and the largest value of an expression over loops of these extents; None if it is
    not known. It may be wider than what is reached."""
    n = number_of(node)
    if n is not None:
        return n, n
    if isinstance(node, ast.Name) and node.id in sizes:
        return 0, max(sizes[node.id] - 1, 0)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        a = span(node.operand, sizes)
        return None if a is None else (-a[1], -a[0])
    if isinstance(node, ast.BinOp):
        a, b = span(node.left, sizes), span(node.right, sizes)
        return None if a is None or b is None else _combined(node.op, a, b)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    function = node.func.attr
    if function in ("min", "max") and len(node.args) == 2:
        a, b = span(node.args[0], sizes), span(node.args[1], sizes)
        pick = min if function == "min" else max
        return None if a is None or b is None else (pick(a[0], b[0]), pick(a[1], b[1]))
    return None


def _combined(op: ast.operator, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    if isinstance(op, ast.Add):
        return a[0] + b[0], a[1] + b[1]
    if isinstance(op, ast.Sub):
        return a[0] - b[1], a[1] - b[0]
    if isinstance(op, ast.Mult):
        corners = [x * y for x, y in product(a, b)]
        return min(corners), max(corners)
    if b[0] == b[1] and b[0] > 0:
        if isinstance(op, ast.FloorDiv):
            return a[0] // b[0], a[1] // b[0]
        if isinstance(op, ast.Mod):
            return a if a[0] >= 0 and a[1] < b[0] else (0, b[0] - 1)
    return None


def terms(node: ast.expr) -> dict[str, int] | None:
    """The factors of the names in a sum, without its constant; None for what is no such sum."""
    found: dict[str, int] = {}

    def add(e: ast.expr, factor: int) -> bool:
        if number_of(e) is not None:
            return True
        if isinstance(e, ast.Name):
            found[e.id] = found.get(e.id, 0) + factor
            return True
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return add(e.operand, -factor)
        if isinstance(e, ast.BinOp) and isinstance(e.op, (ast.Add, ast.Sub)):
            sign = 1 if isinstance(e.op, ast.Add) else -1
            return add(e.left, factor) and add(e.right, sign * factor)
        if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mult):
            for x, y in ((e.left, e.right), (e.right, e.left)):
                n = number_of(y)
                if n is not None:
                    return add(x, factor * n)
        return False

    return {k: v for k, v in found.items() if v} if add(node, 1) else None


def difference(last: ast.expr, first: ast.expr) -> int | None:
    """`last - first`, where that is a number."""
    a, b = terms(last), terms(first)
    if a is None or a != b:
        return None
    zero = dict.fromkeys(a, 1)
    ends = span(last, zero), span(first, zero)
    return None if ends[0] is None or ends[1] is None else ends[0][0] - ends[1][0]


def is_of_loops(node: ast.expr) -> bool:
    """Whether a condition is about loop variables alone: no element of a buffer stands in it."""
    return next(loads(node), None) is None


def cases(node: ast.expr, wanted: bool = True) -> list[tuple[ast.expr, ...]] | None:
    """A condition (or its opposite) as disjoint cases, each a conjunction of comparisons. None for
    what is no comparison, and beyond MOST_CASES."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [()] if node.value == wanted else []
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return cases(node.operand, not wanted)
    if isinstance(node, ast.BoolOp):
        is_all = isinstance(node.op, ast.And) == wanted
        out: list[tuple[ast.expr, ...]] = [()] if is_all else []
        before: list[tuple[ast.expr, ...]] = [()]
        for value in node.values:
            yes, no = cases(value, wanted), cases(value, not wanted)
            if yes is None or no is None:
                return None
            if is_all:
                out = [(*x, *y) for x, y in product(out, yes)]
            else:  # this one holds, and none of those before it
                out += [(*x, *y) for x, y in product(before, yes)]
                before = [(*x, *y) for x, y in product(before, no)]
            if len(out) > MOST_CASES or len(before) > MOST_CASES:
                return None
        return out
    if isinstance(node, ast.Compare):
        return _compared(node, wanted)
    return None


def _compared(node: ast.Compare, wanted: bool) -> list[tuple[ast.expr, ...]] | None:
    if len(node.ops) > 1:
        sides = [node.left, *node.comparators]
        links: list[ast.expr] = [
            ast.Compare(sides[n], [op], [sides[n + 1]]) for n, op in enumerate(node.ops)
        ]
        return cases(ast.BoolOp(ast.And(), links), wanted)
    (op,), (right,) = node.ops, node.comparators
    kind = type(op) if wanted else _OPPOSITE.get(type(op))
    if kind is None:
        return None
    if kind is ast.NotEq:
        both: tuple[type[ast.cmpop], ...] = (ast.Lt, ast.Gt)
        return [(ast.Compare(node.left, [k()], [right]),) for k in both]
    return [(ast.Compare(node.left, [kind()], [right]),)]


def below(node: ast.expr, bound: ast.expr) -> ast.expr:
    """`node < bound`."""
    return ast.Compare(node, [ast.Lt()], [bound])


def is_zero(node: ast.expr) -> ast.expr:
    """`node == 0`."""
    return ast.Compare(node, [ast.Eq()], [number(0)])
