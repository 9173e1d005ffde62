"""The reference schedule: the program as written, only faster.

Every element is computed by the same operations in the same order as in the untransformed program:
only *which elements* are worked on at a time changes (vectors of neighbours, rows on all cores).
So its results are the untransformed program's, bit for bit, in a fraction of the time that a scalar
loop nest over strided memory takes. A test holds the two equal.
"""

from __future__ import annotations

from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.nodes import PrimFunc

VECTORS = 4
"""Vectors of neighbours worked on at a time: independent chains of additions."""


def reference_schedule(func: PrimFunc, target: Target) -> Schedule:
    """`func` with each block's spatial axes outermost, the last in vectors, the first in parallel.

    A block that a primitive refuses to move stays as it is.
    """
    schedule = Schedule(func)
    for rv in schedule.get_blocks():
        for inside in (False, True):
            trial = schedule.copy()
            try:
                _spread(trial, schedule.get(rv).name, target, inside)
            except ScheduleError:
                continue
            schedule = trial
            break
    return schedule


def _spread(schedule: Schedule, name: str, target: Target, inside: bool) -> None:
    """`inside`: the loops over a recurrence's steps stay outermost, and one thread runs them."""
    rv = schedule.get_block(name)
    block = schedule.get(rv)
    loops = schedule.get_loops(rv)
    kinds = {b.single_var(): it.kind for it, b in zip(block.iters, block.bindings, strict=True)}
    spatial = [x for x in loops if kinds.get(schedule.get(x).var) == "spatial"]
    steps = [x for x in loops if kinds.get(schedule.get(x).var) == "sequential"]
    others = [x for x in loops if x not in spatial and not (inside and x in steps)]
    if not spatial:
        return
    size = max(dtypes.itemsize(a.buffer.dtype) for a in (*block.reads, *block.writes))
    width = VECTORS * target.vector_bytes // size
    outer, lanes = schedule.split(spatial[-1], factors=[None, width])
    schedule.reorder(*spatial[:-1], outer, *others, lanes)
    schedule.vectorize(lanes)
    if not (inside and steps):
        schedule.parallel((*spatial[:-1], outer)[0])
