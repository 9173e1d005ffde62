"""Reductions whose written element moves while they reduce: histograms, scatter-add, col2im.

`H[bin(A[v])] += 1`, `Y[i + k] += X[i] * W[k]`: the element depends on a reduction axis, through an
index or through memory. Nothing may keep such an element in a register over a loop that moves it,
and iterations that may meet in an element may not run at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autosched.tir.affine import Affine, Extents, same_int
from autosched.tir.expr import Expr, Slot, Var, walk
from autosched.tir.nodes import Access, Block, Index


def deciding(index: Index, reads: Sequence[Access]) -> set[Var]:
    """The axes on which an index depends, also through elements that it is read from."""
    return set(index.variables()) if isinstance(index, Affine) else axes_of(index, reads)


def axes_of(e: Expr, reads: Sequence[Access]) -> set[Var]:
    """The axes on which an expression depends, also through the indices of what it reads."""
    out: set[Var] = set()
    for x in walk(e):
        if isinstance(x, Var):
            out.add(x)
        elif isinstance(x, Slot):
            for index in reads[x.index].indices:
                out |= deciding(index, reads)
    return out


def moving_axes(block: Block) -> tuple[Var, ...]:
    """The reduction axes, longer than 1, that move the element which the block combines into."""
    reduced = [it for it in block.iters if it.kind == "reduce"]
    if block.reducer is None or not reduced:
        return ()
    used = {v for a in block.writes for i in a.indices for v in deciding(i, block.reads)}
    return tuple(it.var for it in reduced if it.var in used and not same_int(it.extent, 1))


def scatters(block: Block) -> bool:
    """Whether the block is a reduction whose element moves while it reduces."""
    return bool(moving_axes(block))


def moved_by(block: Block, access: Access, loops: Iterable[Var], extents: Extents) -> list[Var]:
    """Those of `loops` that move the element: they stand in its indices, or data that they choose
    decide it."""
    values = block.values()
    used: set[Var] = set()
    for index in access.indices:
        if isinstance(index, Affine):
            used |= set(index.substitute(values, extents).variables())
        else:
            for axis in axes_of(index, block.reads):
                used |= set(values[axis].variables()) if axis in values else {axis}
    return [v for v in loops if v in used]
