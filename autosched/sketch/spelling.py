"""One spelling of a computation before the rules look at it: where padding and axes stand.

Padding that a reduction writes inside its sum, `if_then_else(inside, A[...], 0)`, becomes a stage
of its own, which sketches put where they like: back into the sum among other places.

A sum over (i, j) and one over (j, i) are one computation. Rules take axes in the order in which a
block lists them, so the block lists them, and its loops stand, in the order in which the data lie:
the axis along which the reads (of a window, those it slides over) move furthest comes first. Where
that is the order written, as in all of the library, no step is made. The order of factors and
terms, names, and a product in a stage of its own make no difference to the rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.schedule.pad_read import chosen
from autosched.tir.affine import Affine
from autosched.tir.nodes import Access, Block, Iter, Site, sites, strides


def canonicalise(schedule: Schedule) -> None:
    """Bring a program into the spelling that the rules are written for, by steps of its trace;
    none, where it has that spelling."""
    separate_padding(schedule)
    order_reductions(schedule)


def separate_padding(schedule: Schedule) -> None:
    """Give padding inside reductions a stage, where `pad_read` can."""
    free = frozenset(schedule.func.attr("layout_free", ()))
    for site in list(sites(schedule.func)):
        block = site.block
        if not block.is_reduction or any(it.kind == "sequential" for it in block.iters):
            continue
        # From the last read on: a read that goes leaves those before it where they are.
        for n in reversed(range(len(block.reads))):
            if block.reads[n].buffer.name in free or chosen(block, n) is None:
                continue
            try:
                trial = schedule.copy()
                trial.pad_read(trial.get_block(block.name), n)
            except ScheduleError:
                continue  # no padding: a mask, say
            schedule.pad_read(schedule.get_block(block.name), n)


def order_reductions(schedule: Schedule) -> None:
    """Bring the reduction axes of every block, and their loops, into the order of the data."""
    free = frozenset(schedule.func.attr("layout_free", ()))
    for site in list(sites(schedule.func)):
        order = _order(site, free)
        if order is None:
            continue  # not even the block is asked for: that is a step of the trace
        block = schedule.get_block(site.block.name)
        loops = schedule.get_loops(block)
        schedule.reorder_block_iter_var(block, order)
        schedule.reorder(*(loops[n] for n in order))


def _order(site: Site, free: frozenset[str]) -> tuple[int, ...] | None:
    """The places of the axes in the order of the data; None where that is the order written, or
    where axes are not the loops around the block one by one, or have an order that counts."""
    block = site.block
    own = [b.single_var() for b in block.bindings]
    if len(own) != len(site.loops) or any(
        v is not loop.var for v, loop in zip(own, site.loops, strict=True)
    ):
        return None
    kinds = [it.kind for it in block.iters]
    reduce = [n for n, kind in enumerate(kinds) if kind == "reduce"]
    if len(reduce) < 2 or "sequential" in kinds or not block.init:
        return None
    if reduce != list(range(len(kinds) - len(reduce), len(kinds))):
        return None  # reductions among the spatial axes were put there
    # How a weight whose layout is free lies says nothing; of a window, the data it slides over do.
    fixed = [a for a in block.reads if a.buffer.name not in free] or block.reads
    fixed = [a for a in fixed if _slides(a, block)] or fixed
    moves = {n: _moves(fixed, block.iters[n]) for n in reduce}
    if any(m is None for m in moves.values()):
        return None
    wanted = sorted(reduce, key=lambda n: (-(moves[n] or 0), n))
    return None if wanted == reduce else (*range(reduce[0]), *wanted)


def _slides(access: Access, block: Block) -> bool:
    """Whether some index holds a reduction axis and another one."""
    spatial = [it.var for it in block.iters if it.kind == "spatial"]
    reduce = [it.var for it in block.iters if it.kind == "reduce"]
    affine = [i for i in access.indices if isinstance(i, Affine)]
    return any(i.uses(spatial) and i.uses(reduce) for i in affine)


def _moves(reads: Sequence[Access], axis: Iter) -> int | None:
    """Elements that all reads together move by where the axis goes one further; None where data or
    symbolic sizes decide that."""
    total = 0
    for access in reads:
        step = _step(access, axis)
        if step is None:
            return None
        total += step
    return total


def _step(access: Access, axis: Iter) -> int | None:
    steps = strides(access.buffer.shape, access.buffer.align)
    total = 0
    for index, step in zip(access.indices, steps, strict=True):
        if not isinstance(index, Affine):
            return None
        c = index.coefficient(axis.var)
        if not isinstance(c, int) or not isinstance(step, int):
            return None
        if index.uses((axis.var,)) and c == 0:
            return None  # through a digit
        total += abs(c * step)
    return total
