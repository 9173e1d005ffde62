"""Terms of a reduction that a condition on the axes makes its identity: a convolution's padding.

A factor `if_then_else(c, x, 0)` of a sum of products, or a whole term `if_then_else(c, x, e)` with
e the reducer's identity, adds nothing where c does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.nodes import Block
from autosched.tir.reducers import evaluate

MOST_POINTS = 2**16
"""Points of the axes of one condition that are asked; of more nothing is said."""


def tests_of(block: Block) -> Iterator[Call]:
    """The comparisons without any of which the block's term adds nothing."""
    reducer = block.reducer
    if reducer is None or len(block.body) != 1:
        return
    term, identity = block.body[0], reducer.identity[0]
    if isinstance(identity, Const):
        yield from _conditions(term, identity.value)
    if reducer.name == "sum":
        for factor in _factors(term):
            yield from _conditions(factor, 0)


def share_present(block: Block) -> float:
    """Share of the points of a reduction whose terms count, by the comparisons of its axes; 1 where
    an extent is not one number, or the points are too many to ask."""
    extents = {i.var: i.extent for i in block.iters}
    groups: list[tuple[dict[Var, int], list[Call]]] = []
    for test in tests_of(block):
        used = {x for x in ex.walk(test) if isinstance(x, (Var, Slot))}
        axes = {v: n for v, n in extents.items() if v in used and isinstance(n, int)}
        if len(axes) < len(used):
            continue
        tests = [test]
        for other in [g for g in groups if g[0].keys() & axes.keys()]:
            groups.remove(other)
            axes, tests = {**other[0], **axes}, [*other[1], *tests]
        groups.append((axes, tests))
    return math.prod(_share(axes, tests) for axes, tests in groups)


def _share(axes: Mapping[Var, int], tests: Sequence[Call]) -> float:
    """Share of the points of `axes` at which all tests hold."""
    if math.prod(axes.values()) > MOST_POINTS:
        return 1.0
    points = dict(zip(axes, np.ix_(*map(np.arange, axes.values())), strict=True))
    held = [evaluate(test, points) for test in tests]
    return float(np.broadcast_to(np.logical_and.reduce(held), tuple(axes.values())).mean())


def _factors(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Call) and e.op == "mul":
        for part in e.args:
            yield from _factors(part)
    else:
        yield e


def _conditions(e: Expr, otherwise: float | int) -> Iterator[Call]:
    if not (isinstance(e, Call) and e.op == "if_then_else" and isinstance(e.args[2], Const)):
        return
    if e.args[2].value == otherwise:
        yield from _conjuncts(e.args[0])


def _conjuncts(e: Expr) -> Iterator[Call]:
    if isinstance(e, Call) and e.op == "and":
        for part in e.args:
            yield from _conjuncts(part)
    elif isinstance(e, Call) and e.args and e.args[0].dtype == dtypes.INDEX:
        yield e
