"""Cross-thread reduction: the threads of a block share out the rows of a group of blocks.

Blocks that share leading axes with the last one of their group, such as maximum, sum and quotient
of a softmax, are computed row by row in one kernel. Each row has threads of its own along
threadIdx.x, which combine their partial results; a block may have several rows, along threadIdx.y.
"""

from __future__ import annotations

from math import prod

from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.decisions import ChoiceSpec
from autosched.sketch.rules.constant import constant_axes
from autosched.sketch.rules.default import row_group
from autosched.sketch.rules.gpu.tiling import is_tiled
from autosched.sketch.state import State, Verdict
from autosched.target.gpu import limits_of
from autosched.tir.scatter import scatters

WARP = 32
"""Threads that run in step on most GPUs: a shorter reduction is one thread's."""
THREADS = (128, 256, 64, 512, 32, 1024)
"""Values for the threads of a row."""
ROWS = (1, 2, 4, 8)
"""Values for the rows of a block."""
LANES = (1, 4, 2)
"""Values for the neighbours that a thread takes at once where nothing is reduced."""
MIN_FUSED = 128
"""Extent below which the last of several axes is fused with the others, to have work for all."""


class CrossThreadReduction:
    """Schedules a reduction, or rows of several blocks, with the threads of a block for each row
    (Ansor's rule of this name)."""

    name = "cross-thread-reduction"

    def condition(self, state: State, block: str) -> Verdict:
        """A reduction longer than a warp, alone or among the blocks of the row; of one that could
        be tiled, with fewer elements than a block has threads and than it sums up."""
        if block in state.handled:
            return Verdict.PASS
        blocks = state.blocks()
        info = blocks[block]
        if info.sequential or constant_axes(info) or scatters(info.block):
            return Verdict.PASS
        if is_tiled(info):
            space = prod(int(a.extent) for a in info.spatial)
            few = space <= limits_of(state.target).max_threads and space < _terms(info)
            accesses = (*info.block.reads, *info.block.writes)
            copied = any(a.buffer.scope != "global" for a in accesses)
            return Verdict.APPLY if few and not copied else Verdict.PASS
        group, _ = members(block, blocks, state.handled)
        long = [n for n in group if _terms(blocks[n]) > WARP and not is_tiled(blocks[n])]
        return Verdict.APPLY if long else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch."""
        blocks = state.blocks()
        group, count = members(block, blocks, state.handled)
        schedule = state.fork()
        rows, lanes, specs = row_specs(state, blocks, group, count)
        state.declare(schedule, specs)
        root, info = schedule.get_block(group[0]), blocks[group[0]]
        own = schedule.get_loops(root)
        by_axis = dict(zip(map(id, info.block.iters), own, strict=True))
        outer = [by_axis[id(a)] for a in info.spatial[:count]]
        rest = [by_axis[id(a)] for a in (*info.spatial[count:], *info.reduce)]
        schedule.reorder(*outer, *rest)
        if rows is not None:
            blocks_of, row = schedule.split(outer[-1], [None, Decision(rows.name)])
            outer = [*outer[:-1], blocks_of]
            for loop in outer:
                schedule.bind(loop, "blockIdx.x")
            schedule.bind(row, "threadIdx.y")
            outer.append(row)
        for name in group[1:]:
            member = schedule.get_block(name)
            schedule.compute_at(member, outer[-1])
            if not blocks[name].is_injective:
                for index in range(len(blocks[name].block.writes)):
                    schedule.set_scope(member, index, "shared")
        for name in group:
            share(schedule, schedule.get_block(name), blocks[name], count, specs[0].name, lanes)
        return [state.advance(schedule, tuple(group), specs, f"{block}.cross")]


def _terms(info: BlockInfo) -> int:
    return prod(int(a.extent) for a in info.reduce) if info.block.reducer is not None else 1


def members(
    block: str, blocks: dict[str, BlockInfo], handled: frozenset[str]
) -> tuple[list[str], int]:
    """The blocks of a row, the last one first, and the number of row axes."""
    group, rows = row_group(block, blocks, handled)
    if len(group) == 1:
        return group, len(blocks[block].spatial)
    return group, rows


def row_specs(
    state: State, blocks: dict[str, BlockInfo], group: list[str], count: int
) -> tuple[ChoiceSpec | None, dict[str, str], tuple[ChoiceSpec, ...]]:
    """(rows of a block, by block the elements that a thread takes at once, "" for those of all
    reductions, all decisions)."""
    limit = limits_of(state.target).max_threads
    first = group[0]
    longest = max(_own_points(blocks[n], count) for n in group)
    most = min(limit, 1 << max((longest - 1).bit_length(), WARP.bit_length() - 1))
    threads = ChoiceSpec(
        first, f"{first}.threads", tuple(t for t in THREADS if t <= most) or (most,)
    )
    specs = [threads]
    lanes: dict[str, str] = {}
    for name in group:
        info = blocks[name]
        if info.is_injective and len(info.spatial) > count:
            specs.append(ChoiceSpec(name, f"{name}.lanes", LANES))
            lanes[name] = specs[-1].name
    if any(_own_points(blocks[n], count) > WARP and not blocks[n].is_injective for n in group):
        if not lanes:
            specs.append(ChoiceSpec(first, f"{first}.lanes", LANES))
        lanes[""] = specs[-1].name
    rows = None
    if count:
        kept = any(blocks[n].is_injective for n in group[1:])
        extent = int(blocks[first].spatial[count - 1].extent)
        values = (1,) if kept else tuple(r for r in ROWS if r <= extent)
        rows = ChoiceSpec(first, f"{first}.rows", values)
        specs.append(rows)
    return rows, lanes, tuple(specs)


def _own_points(info: BlockInfo, count: int) -> int:
    """Points of one row, of the axes that its threads share out."""
    rest = info.spatial[count:] or info.reduce
    return prod(int(a.extent) for a in rest)


def share(
    schedule: Schedule,
    block: BlockRV,
    info: BlockInfo,
    count: int,
    threads: str,
    lanes: dict[str, str],
) -> None:
    """Bind the loops of one block inside its row: the spatial ones, or, if it has no more of them,
    those of its reduction."""
    own = schedule.get_loops(block)[-(len(info.block.iters) - count) :]
    if len(info.block.iters) == count:
        return
    spatial, reduced = own[: len(info.spatial) - count], own[len(info.spatial) - count :]
    moving = list(spatial or reduced)
    loop = _one(schedule, info, moving, count)
    others = [x for x in moving if x is not loop and _exists(schedule, x)]
    if spatial and info.name in lanes:
        outer, lane, vector = schedule.split(
            loop, [None, Decision(threads), Decision(lanes[info.name])]
        )
        schedule.reorder(*others, outer, lane, vector)
        schedule.bind(lane, "threadIdx.x")
        schedule.vectorize(vector)
        return
    if not spatial and "" in lanes:
        # The elements that the thread also stores, if it does: they stay in registers.
        outer, lane, vector = schedule.split(loop, [None, Decision(threads), Decision(lanes[""])])
        schedule.reorder(lane, *others, outer, vector)
        schedule.bind(lane, "threadIdx.x")
        schedule.unroll(vector)
        return
    outer, lane = schedule.split(loop, [None, Decision(threads)])
    inside = reduced if spatial else ()
    schedule.reorder(lane, *others, outer, *inside)
    schedule.bind(lane, "threadIdx.x")


def _one(schedule: Schedule, info: BlockInfo, loops: list[LoopRV], count: int) -> LoopRV:
    """The loop to share out: the last one, fused with the others if it is short."""
    if len(loops) > 1 and int(schedule.get(loops[-1]).extent) < MIN_FUSED:
        return schedule.fuse(*loops)
    return loops[-1]


def _exists(schedule: Schedule, loop: LoopRV) -> bool:
    return any(loop == x for b in schedule.get_blocks() for x in schedule.get_loops(b))
