"""How high and how large expressions are, and what is in them, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from autosched.tir.expr import Expr, children

MAX_HEIGHT = 200
"""Of an expression: what reads, proves, prints and compiles expressions recurses into them."""
MAX_SIZE = 1_000_000
"""Nodes of an expression, parts that are used several times counted as often: what prints and
compiles expressions writes them out."""


def height(expr: Expr) -> int:
    """Nodes on the longest way down; 1 for a leaf."""
    return _counted(expr, lambda below: max(below, default=0))


def size(expr: Expr) -> int:
    """Nodes, each counted as often as it is used."""
    return _counted(expr, sum)


def nodes(expr: Expr) -> Iterator[Expr]:
    """The expression and all below it, parents first, a part that is used several times once."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        e = stack.pop()
        if id(e) not in seen:
            seen.add(id(e))
            yield e
            stack += reversed(children(e))


def _counted(expr: Expr, together: Callable[[Iterable[int]], int]) -> int:
    """1 more than what the figures of those below a node come to, without recursion."""
    known: dict[int, int] = {}
    stack = [expr]
    while stack:
        e = stack[-1]
        below = [x for x in children(e) if id(x) not in known]
        if below:
            stack += below
        else:
            known[id(e)] = 1 + together(known[id(x)] for x in children(e))
            stack.pop()
    return known[id(expr)]
