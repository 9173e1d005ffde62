"""Multi-level tiling whose vectors run over a reduction axis: dot products side by side.

    S0 parallel | S1 | other reductions | R0 | register tile: copies and rows unrolled, lanes

For what reads an operand along the reduction and hardly reuses it: a matrix times a vector or a few
columns, a convolution into few channels. Vectors over the result would be short there, or gather
the operand element by element. Every element of the result has an accumulator of as many lanes as
a vector has; they are added up once, at the end. Operands that do not lie along the axis are packed
so that they do, once for all threads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from autosched.errors import ScheduleError
from autosched.schedule import Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, axis_dim, elementwise_consumer, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import LANE_REDUCERS, axis_loops, is_contiguous
from autosched.sketch.rules.tiling import prepared_weights
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.nodes import Access, Iter

ROWS = 4
"""Rows of the default register tile: enough additions at once for their latency."""


@dataclass(frozen=True)
class Lanes:
    """The reduction axis of the vectors, elements in one, and the reads to pack: their numbers,
    with the dimension of the axis in each."""

    axis: Iter
    count: int
    packed: tuple[tuple[int, int], ...]


class LaneTiling:
    """One sketch beside those of multi-level tiling."""

    name = "lane-tiling"

    def condition(self, state: State, block: str) -> Verdict:
        """A tiled reduction that reads an operand along a reduction axis, for few results."""
        if block in state.handled or block in state.factored:
            return Verdict.PASS
        return Verdict.PASS if _lanes(state, block) is None else Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        """The sketch."""
        blocks = state.blocks()
        info = blocks[block]
        lanes = _lanes(state, block)
        assert lanes is not None  # the condition has found them
        schedule = state.fork()
        specs = lane_specs(info, lanes, state.target)
        state.declare(schedule, specs)
        root = schedule.get_block(block)
        handled = [block]
        choice = f"{block}.lanes"
        panels: list[tuple[LoopRV, ...]] = []
        for number, dim in lanes.packed:
            access = info.block.reads[number]
            rest = [[n] for n in range(len(access.buffer.shape)) if n != dim]
            panel = schedule.cache_read(root, number, "global", [*rest, [dim]])
            handled.append(schedule.get(panel).name)
            choice += f"+{access.buffer.name}.root"
            panels.append(schedule.get_loops(panel))
        outer, inner = _tile(schedule, info, lanes, specs)
        consumer = elementwise_consumer(info, blocks)
        if consumer is not None:
            copy = schedule.get_block(consumer.name)
            try:
                schedule.reverse_compute_at(copy, inner)
            except ScheduleError:
                # Tiles of an axis of groups may overlap in the result; then the consumer is a nest
                # of its own, for the rules that follow.
                choice += ".apart"
            else:
                schedule.vectorize(schedule.get_loops(copy)[-1])
                handled.append(consumer.name)
        for loops in panels:
            if len(loops) > 1:
                schedule.parallel(loops[0])
            schedule.vectorize(loops[-1])
        nest = TiledNest(block, outer)
        return [state.advance(schedule, tuple(handled), specs, choice, (nest,))]


def _lanes(state: State, block: str) -> Lanes | None:
    return lanes_of(state.blocks()[block], state.target, prepared_weights(state.schedule.func))


def lanes_of(info: BlockInfo, target: Target, prepared: Collection[str] = ()) -> Lanes | None:
    """The axis to run vectors over, where some read lies along it and has less than half a vector
    of results an element; None where there is none, or another read cannot be packed along it.
    What is packed beforehand, `prepared`, may lie along the result: no vector is summed then."""
    block = info.block
    if not info.needs_tiling or info.vector_axis is None:
        return None
    if block.reducer is None or block.reducer.name not in LANE_REDUCERS:
        return None
    item = dtypes.itemsize(block.writes[0].buffer.dtype)
    count = max(target.vector_bytes // item, 1)
    for axis in reversed(info.reduce):
        reads = [(n, a) for n, a in enumerate(block.reads) if id(axis.var) in used_axes(a)]
        along = [a for _, a in reads if is_contiguous(a, axis) and a.buffer.name not in prepared]
        few = any(2 * _reuse(info, a) < count for a in along)
        if not few or int(axis.extent) < count:
            continue
        dims = [(n, axis_dim(a, axis)) for n, a in reads if not _dense(a, axis)]
        packed = tuple((n, dim) for n, dim in dims if dim is not None)
        if len(packed) == len(dims):
            return Lanes(axis, count, packed)
    return None


def _reuse(info: BlockInfo, access: Access) -> int:
    """Results that each element of a read goes into, at least."""
    used = used_axes(access)
    return prod(int(a.extent) for a in info.spatial if id(a.var) not in used)


def _dense(access: Access, axis: Iter) -> bool:
    """Whether neighbouring points of the axis are neighbours in memory: the axis is the last index,
    or what follows it has one element."""
    dim = axis_dim(access, axis)
    if dim is None:
        return is_contiguous(access, axis)
    return all(int(n) == 1 for n in access.buffer.shape[dim + 1 :])


def lane_specs(info: BlockInfo, lanes: Lanes, target: Target) -> tuple[DecisionSpec, ...]:
    """A cache tile and rows of the register tile for each axis of the result, and how many vectors
    of the reduction are unrolled."""
    # Decisions of their own: those of the other sketches share the registers differently.
    label = f"{info.name}.lanes"
    rows = _rows(info, lanes, target)
    found: list[TileSpec] = []
    for axis in info.spatial:
        name = axis.var.name
        names = (f"{label}.{name}.1", f"{label}.{name}.2")
        default = (1, rows.get(id(axis.var), 1))
        found.append(TileSpec(label, name, names, int(axis.extent), "rows", 1, default))
    name, vectors = lanes.axis.var.name, -(-int(lanes.axis.extent) // lanes.count)
    few = 4 * prod(rows.values()) <= target.vector_registers
    copies = (min(2 if few else 1, vectors),)
    found.append(TileSpec(label, name, (f"{label}.{name}.1",), vectors, "reduce", 1, copies))
    return tuple(found)


def _rows(info: BlockInfo, lanes: Lanes, target: Target) -> dict[int, int]:
    """Rows of the default register tile: all results that an element of the operand with the fewest
    goes into, so that it is read once, and then as many as there are registers for."""
    along = [a for a in info.block.reads if is_contiguous(a, lanes.axis)]
    used = used_axes(min(along, key=lambda a: _reuse(info, a)))
    shared = [a for a in info.spatial if id(a.var) not in used]
    others = [a for a in reversed(info.spatial) if id(a.var) in used]
    rows = {id(a.var): int(a.extent) for a in shared}
    left = max(1, min(ROWS, target.vector_registers // 2 // prod(rows.values())))
    for axis in others:
        rows[id(axis.var)] = min(left, int(axis.extent))
        left //= rows[id(axis.var)]
    return rows


def _tile(
    schedule: Schedule, info: BlockInfo, lanes: Lanes, specs: tuple[DecisionSpec, ...]
) -> tuple[LoopRV, LoopRV]:
    """Split, order and mark the loops; returns the innermost parallel one and the innermost around
    a register tile."""
    by_axis = axis_loops(schedule, schedule.get_block(info.name))
    named = {a.var.name: a for a in info.block.iters}
    levels: list[list[LoopRV]] = [[] for _ in range(4)]  # S0, S1, R0, register tile
    levels[2] = [by_axis[id(a)] for a in info.reduce if a is not lanes.axis]
    lane: LoopRV | None = None
    for spec in specs:
        assert isinstance(spec, TileSpec)  # all of them are
        loop, factors = by_axis[id(named[spec.axis])], [Decision(n) for n in spec.names]
        if spec.role == "reduce":
            rest, copies, lane = schedule.split(loop, [None, *factors, lanes.count])
            levels[2].append(rest)
            levels[3].insert(0, copies)
            continue
        for part, level in zip(schedule.split(loop, [None, *factors]), (0, 1, 3), strict=True):
            levels[level].append(part)
    assert lane is not None  # the specs of lanes end with it
    schedule.reorder(*(loop for level in levels for loop in level), lane)
    for loop in levels[0]:
        schedule.parallel(loop)
    for loop in levels[3]:
        schedule.unroll(loop)
    schedule.vectorize(lane)
    return levels[0][-1], levels[1][-1]
