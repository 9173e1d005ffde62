"""The baseline: the untransformed program, its loops in the order of memory.

Written down as it is, a matrix product walks one operand by columns and takes 15 times as long as
in the order of memory, which is what anybody would write by hand. Exchanging a block's loops, but
not its reduction axes among themselves, adds up every element's terms one after the other as
before: the result is the same in every bit. So it is where neighbours are computed in vectors, as
any C compiler does it: a block of much work is given those, since a run of nothing but the
untransformed program would else take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autosched.errors import ScheduleError
from autosched.schedule import LoopRV, Schedule, Trace
from autosched.target import Target
from autosched.tir.affine import Affine
from autosched.tir.dtypes import itemsize
from autosched.tir.nodes import For, PrimFunc, Site, sites, strides

LINE = 64
SCALAR_WORK = 1 << 27
"""Points of a block up to which it stays scalar: about 0.1 s."""
VECTORS = 4
"""Vectors of neighbours that are worked on at a time."""


def memory_order(func: PrimFunc, target: Target | None = None) -> Trace:
    """The schedule that brings every block's loops into the order of memory, strides falling; with
    a `target`, neighbours in vectors of that processor where a block is much work."""
    sch = Schedule(func)
    for site in sites(func):
        kinds = [_kind(site, loop) for loop in site.loops]
        order = _memory_order(site, kinds)
        if not order:
            continue
        loops = sch.get_loops(sch.get_block(site.block.name))
        if order != sorted(order):
            sch.reorder(*(loops[n] for n in order))
        extents = [int(loop.extent) for loop in site.loops]
        if target is not None and prod(extents) > SCALAR_WORK and kinds[order[-1]] == "spatial":
            size = max(itemsize(a.buffer.dtype) for a in site.block.writes)
            width = VECTORS * target.vector_bytes // size
            if extents[order[-1]] >= width:
                sch = _in_vectors(sch, loops[order[-1]], width)
    return sch.trace


def _in_vectors(sch: Schedule, loop: LoopRV, width: int) -> Schedule:
    """With that loop in vectors of `width` elements; as it is where that is refused."""
    trial = sch.copy()
    try:
        trial.vectorize(trial.split(loop, factors=[None, width])[1])
    except ScheduleError:
        return sch
    return trial


def _memory_order(site: Site, kinds: Sequence[str]) -> list[int]:
    """Places of the loops in the wanted order; none where moving them is not plainly legal."""
    count = len(site.loops)
    alone = all(len(loop.body) == 1 and loop.kind == "serial" for loop in site.loops)
    if not alone or site.block.predicates or any(k not in ("spatial", "reduce") for k in kinds):
        return []
    wanted = sorted(range(count), key=lambda n: -_cost(site, site.loops[n]))
    reduced = iter(n for n in range(count) if kinds[n] == "reduce")
    return [next(reduced) if kinds[n] == "reduce" else n for n in wanted]


def _kind(site: Site, loop: For) -> str:
    """Kind of the one axis that is this loop; empty where a binding is anything else."""
    found = [
        it.kind
        for it, binding in zip(site.block.iters, site.block.bindings, strict=True)
        if binding.single_var() is loop.var
    ]
    return found[0] if len(found) == 1 else ""


def _cost(site: Site, loop: For) -> int:
    """Bytes of cache lines that all accesses move by in one step of a loop; writes count twice."""
    values = site.block.values()
    total = 0
    for weight, accesses in ((1, site.block.reads), (2, site.block.writes)):
        for access in accesses:
            step = 0
            for index, stride in zip(access.indices, strides(access.buffer.shape), strict=True):
                if isinstance(index, Affine):
                    step += abs(int(index.substitute(values).coefficient(loop.var))) * int(stride)
            total += weight * min(LINE, step * itemsize(access.buffer.dtype))
    return total
