"""The iterations of a loop that predicates leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.codegen.llvm.index import Indexer
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Var
from autosched.tir.nodes import For, Predicate


def trip_count(
    index: Indexer, loop: For, predicates: Sequence[Predicate], inner: Mapping[Var, Int]
) -> int | str:
    """Iterations of `loop` for which all `predicates` hold, with `inner` loops at the values
    given."""
    b = index.b
    count = index.number(loop.extent)
    for p in predicates:
        c = int(p.form.coefficient(loop.var))
        rest = p.form - Affine.of(loop.var, c)
        rest = rest.substitute({v: Affine(n) for v, n in inner.items()})
        bound = index.number(p.bound)
        linear = index.linear(rest)
        if not any(linear.terms.values()) and isinstance(bound, int):
            here: int | str = max(0, -((linear.const - bound) // c))
        else:
            room = b.op(f"sub nsw i64 {bound}, {index.scalar(linear)}")
            if c != 1:
                up = b.op(f"add nsw i64 {room}, {c - 1}")
                room = b.op(f"sdiv i64 {up}, {c}")
            here = room
        if isinstance(count, int) and isinstance(here, int):
            count = min(count, here)
        else:
            count = b.smaller(count, here)
    if isinstance(count, str):
        count = b.larger(count, 0)
    return count


def first_iteration(index: Indexer, loop: For, predicates: Sequence[Predicate]) -> int | str:
    """The first iteration of `loop` for which all `predicates` hold; they fall with it."""
    b = index.b
    low: int | str = 0
    for p in predicates:
        c = -int(p.form.coefficient(loop.var))
        over = p.form + Affine.of(loop.var, c) - p.bound + c  # iteration >= over // c
        linear = index.linear(over)
        if not any(linear.terms.values()):
            here: int | str = max(0, linear.const // c)
        else:
            room = index.scalar(linear)
            here = b.larger(room, 0)
            if c != 1:
                here = b.op(f"udiv i64 {here}, {c}")
        if isinstance(low, int) and isinstance(here, int):
            low = max(low, here)
        else:
            low = b.larger(low, here)
    return low
