"""Add-rfactor: partial results where elements alone make a reduction neither parallel nor wide.

Two forms. *Outer*: a few long pieces of the reduction run on the threads, each with partial results
of its own. *Inner*: a reducer that is none of the known ones (arg max, any of the user's own) keeps
one partial result a lane of one to four vectors, so that the loop over contiguous data runs in
vectors. A second block reduces the partial results, its lanes too.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from autosched.errors import ScheduleError
from autosched.schedule import Decision
from autosched.sketch.analysis import BlockInfo, used_axes
from autosched.sketch.decisions import ChoiceSpec
from autosched.sketch.rules.default import LANE_REDUCERS, PARALLEL_COST, axis_loops, is_contiguous
from autosched.sketch.state import State, Verdict
from autosched.tir import dtypes
from autosched.tir.nodes import Iter

TASKS_PER_CORE = 16
"""Elements a core above which they are parallel enough by themselves."""


class AddRfactor:
    """Sketches with partial results beside the one without (Ansor's rule of this name)."""

    name = "add-rfactor"

    def condition(self, state: State, block: str) -> Verdict:
        """A reduction, not factored yet, longer than its results are many, of which there are few;
        or one of contiguous data whose lanes have to be kept apart by hand."""
        if block in state.handled or block in state.factored:
            return Verdict.PASS
        info = state.blocks()[block]
        if not info.block.is_reduction or not info.block.init or info.sequential:
            return Verdict.PASS
        if not info.writes_identity:
            return Verdict.PASS
        if _outer_axis(state, info) is None and _inner_axis(info) is None:
            return Verdict.PASS
        return Verdict.APPLY

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The outer form, the inner form: whichever apply."""
        info = state.blocks()[block]
        outer, inner = _outer_axis(state, info), _inner_axis(info)
        if outer is not None:
            cores = state.target.num_cores
            counts = tuple(c * cores for c in (1, 2, 4, 8) if c * cores <= int(outer.extent))
            yield from self._factor(state, info, outer, counts, "outer")
        if inner is not None:
            item = dtypes.itemsize(info.block.reads[0].buffer.dtype)
            lanes = max(state.target.vector_bytes // item, 1)
            counts = tuple(m * lanes for m in (1, 2, 4) if m == 1 or m * lanes <= int(inner.extent))
            yield from self._factor(state, info, inner, counts, "inner")

    def _factor(
        self, state: State, info: BlockInfo, axis: Iter, counts: tuple[int, ...], form: str
    ) -> list[State]:
        schedule = state.fork()
        spec = ChoiceSpec(info.name, f"{info.name}.{axis.var.name}.{form}", counts)
        state.declare(schedule, (spec,))
        block = schedule.get_block(info.name)
        by_axis = axis_loops(schedule, block)
        count = Decision(spec.name)
        spatial = [by_axis[id(a)] for a in info.spatial]
        others = [by_axis[id(a)] for a in info.reduce if a is not axis]
        factors = [count, None] if form == "outer" else [None, count]
        try:
            parts = schedule.split(by_axis[id(axis)], factors)
            # Reductions outside: the block that reduces the partial results gets a nest of its own.
            schedule.reorder(*parts, *others, *spatial)
            if form == "outer":
                partial = schedule.rfactor(parts[0], 0)
            else:
                partial = schedule.rfactor(parts[1], len(spatial))
        except ScheduleError:
            return []  # the loops of a block that another rule has moved
        names = frozenset({info.name, schedule.get(partial).name})
        after = state.advance(schedule, specs=(spec,), choice=f"{info.name}.rfactor.{form}")
        return [after.with_factored(names)]


def _outer_axis(state: State, info: BlockInfo) -> Iter | None:
    """The reduction axis to cut into pieces for the threads: the first that is long enough."""
    cores = state.target.num_cores
    elements = prod(int(a.extent) for a in info.spatial)
    terms = prod(int(a.extent) for a in info.reduce)
    if cores < 2 or elements > min(terms, TASKS_PER_CORE * cores):
        return None
    if elements * terms * max(info.cost, 1.0) < PARALLEL_COST:
        return None
    return next((a for a in info.reduce if int(a.extent) >= 2 * cores), None)


def _inner_axis(info: BlockInfo) -> Iter | None:
    """The reduction axis over contiguous data, if its reducer is none of the known ones."""
    block = info.block
    assert block.reducer is not None
    if block.reducer.name in LANE_REDUCERS and len(block.writes) == 1:
        return None
    for axis in reversed(info.reduce):
        reads = [a for a in block.reads if id(axis.var) in used_axes(a)]
        if int(axis.extent) > 1 and reads and all(is_contiguous(a, axis) for a in reads):
            return axis
    return None
