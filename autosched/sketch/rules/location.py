"""Compute location of what feeds a tiled block: padding, dequantisation, a transform of its
input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from autosched.errors import ScheduleError
from autosched.sketch.analysis import BlockInfo, used_axes
from autosched.sketch.decisions import TileSpec
from autosched.sketch.rules.default import own_loops, row_group, schedule_group
from autosched.sketch.rules.inline import stays_small
from autosched.sketch.rules.tile_defaults import lanes_of
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir.affine import Affine, same_int
from autosched.tir.expr import walk
from autosched.tir.nodes import Iter

MANY_TILES = 4
"""Tiles that read the same element of a block with arithmetic, from which on it is computed once,
at the root."""


class ComputeLocation:
    """An injective producer of tiled blocks: inlined, computed for each thread's tile, or at the
    root."""

    name = "compute-location"

    def condition(self, state: State, block: str) -> Verdict:
        """Injective, not inlined yet, all consumers tiled."""
        if block in state.handled:
            return Verdict.PASS
        info = state.blocks()[block]
        tiled = bool(info.consumers) and all(state.nest_of(c) is not None for c in info.consumers)
        fits = info.is_injective and not info.is_output and info.writes_identity
        return Verdict.APPLY_AND_SKIP_REST if tiled and fits else Verdict.PASS

    def apply(self, state: State, block: str) -> Iterator[State]:
        """Cheap: inline first, unless that asks a condition of each lane, computes elements again
        for each of several tiles, or a tile reads a part of each row. Then at the tile of its only
        consumer, then at the root."""
        blocks = state.blocks()
        info = blocks[block]
        found: list[State] = []
        nests = [state.nest_of(c) for c in info.consumers]
        fixed = any(n is not None and n.fixed for n in nests)
        often = False
        small = all(stays_small(info, blocks[c]) for c in info.consumers)
        if info.is_cheap and small and not fixed:
            schedule = state.fork()
            schedule.compute_inline(schedule.get_block(block))
            found.append(state.advance(schedule, choice=f"{block}.inline"))
        if len(info.consumers) == 1 and info.spatial:  # a scalar has no axis for vectors
            nest = state.nest_of(info.consumers[0])
            at_tile = self._at_tile(state, info, nest) if nest is not None else None
            if at_tile is not None:
                consumer = blocks[info.consumers[0]]
                stored = masks_lanes(info, consumer, state.target)
                stored = stored or computes_again(info, consumer, state.target)
                stored = stored or reads_groups(info, consumer)
                found.insert(0 if stored else len(found), at_tile)
                often = stored and info.cost > 0 and tiles_of(info, consumer, state) >= MANY_TILES
        if often:
            yield self._at_root(state, block)
        yield from found
        if not often:
            yield self._at_root(state, block)

    def _at_root(self, state: State, block: str) -> State:
        blocks = state.blocks()
        group, rows = row_group(block, blocks, state.handled)
        root = schedule_group(state, blocks, group, rows, stream=False)
        return replace(root, choices=(*root.choices, f"{block}.root"))

    def _at_tile(self, state: State, info: BlockInfo, nest: TiledNest) -> State | None:
        schedule = state.fork()
        try:
            schedule.compute_at(schedule.get_block(info.name), nest.outer)
        except ScheduleError:
            return None  # not every location is legal; the others remain
        schedule.vectorize(own_loops(schedule, info)[-1])
        return state.advance(schedule, (info.name,), choice=f"{info.name}.thread")


def tiles_of(info: BlockInfo, consumer: BlockInfo, state: State) -> int:
    """Default tiles of a tiled block that read the same element of a block."""
    written = info.block.writes[0].buffer
    used = {v for a in consumer.block.reads if a.buffer is written for v in used_axes(a)}
    apart = {a.var.name for a in consumer.spatial if id(a.var) not in used}
    tiles = (s for s in state.specs if isinstance(s, TileSpec))
    # Those of a tensorised block are named after what it is made of, too: `conv.tiles`.
    specs = (s for s in tiles if consumer.name in (s.block, s.block.rpartition(".")[0]))
    return prod(-(-s.extent // prod(s.default)) for s in specs if s.axis in apart)


def computes_again(info: BlockInfo, consumer: BlockInfo, target: Target) -> bool:
    """Whether a block with arithmetic, inlined into a tiled one, would compute an element for two
    register tiles or more, or for as many taps of a window."""
    points, elements = consumer.points, info.points
    if info.cost == 0 or not isinstance(points, int) or not isinstance(elements, int):
        return False
    return points >= 2 * elements * 2 * lanes_of(consumer, target)


def reads_groups(info: BlockInfo, consumer: BlockInfo) -> bool:
    """Whether a tiled block reads one group of the channels of each position, and sums over it. So
    little of each row lies as far apart as rows are long, most often a power of two, and would
    share a few sets of the first cache; its copy does not, and needs no conditions either."""
    written = info.block.writes[0].buffer
    last = [a.indices[-1] for a in consumer.block.reads if a.buffer is written]
    return any(
        isinstance(i, Affine) and _is_group_of(i, a, r)
        for i in last
        for a in consumer.spatial
        if a is not consumer.vector_axis
        for r in consumer.reduce
    )


def _is_group_of(index: Affine, group: Iter, channel: Iter) -> bool:
    """Whether an index counts `channel` within `group`: group * channels + channel."""
    step, channels = index.coefficient(group.var), channel.extent
    single = index.coefficient(channel.var) == 1
    return single and isinstance(channels, int) and 1 < channels == step


def masks_lanes(info: BlockInfo, consumer: BlockInfo, target: Target) -> bool:
    """Whether a block inlined into a tiled one asks conditions of single lanes in whole vectors,
    or gathers: padding along the vectors, where one tile does not span the axis or pixels are
    skipped."""
    vector, last = consumer.vector_axis, info.spatial[-1].var
    assert vector is not None  # it is tiled
    if not any(e is last for body in info.block.body for e in walk(body)):
        return False
    written = info.block.writes[0].buffer
    steps = [a.indices[-1] for a in consumer.block.reads if a.buffer is written]
    tile = 2 * lanes_of(consumer, target)
    return any(
        isinstance(i, Affine)
        and i.uses([vector.var])
        and (not same_int(i.coefficient(vector.var), 1) or int(vector.extent) > tile)
        for i in steps
    )
