"""Two products with rows in between, as in attention: a block of rows through all of them.

    blocks of rows parallel | first product | row by row: maximum, exponentials, sum, quotient
                            | second product | elements

What the first product makes is as long as its columns, for each row. A block of its rows stays in
the cache of the core that makes and reads it; all of it may exceed every cache. What both products
read along their vectors is packed before: it lies far apart, often by powers of two, in rows that
hold all heads, or the queries, keys and values of them.
"""

from __future__ import annotations

from math import prod

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.chained_dots import chain_dots, dotted_chain
from autosched.sketch.rules.chains import (
    Chain,
    block_spec,
    chain_of,
    give_kinds,
    place_chain,
    rows_spec,
)
from autosched.sketch.rules.default import axis_loops, own_loops
from autosched.sketch.rules.tile_defaults import extent_of, lanes_of
from autosched.sketch.rules.tiling import PACK_PARALLEL_TAIL
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir import dtypes


class ChainedProducts:
    """Computes such a chain in blocks of rows of its last product."""

    name = "chained-products"

    def condition(self, state: State, block: str) -> Verdict:
        """The last product of a chain whose rows are reduced on the way. What the first one makes
        is not stored as a whole in any sketch, unless the first cache holds it."""
        chain = chain_of(state, block)
        if chain is None:
            return Verdict.PASS
        made = chain.first.block.writes[0].buffer
        size = prod(int(n) for n in made.shape) * dtypes.itemsize(made.dtype)
        if size > state.target.l1_bytes and _sketches(state, chain):
            return Verdict.APPLY_AND_SKIP_REST
        return Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch."""
        chain = chain_of(state, block)
        assert chain is not None  # the condition asks for one
        return _sketches(state, chain)


def _sketches(state: State, chain: Chain) -> list[State]:
    try:
        dots = chain_dots(chain, state.target)
        return [_sketch(state, chain) if dots is None else dotted_chain(state, chain, dots)]
    except ScheduleError:
        return []  # not every location is legal; the other rules remain


def _sketch(state: State, chain: Chain) -> State:
    schedule, target = state.fork(), state.target
    first, last = chain.first, chain.last
    block = block_spec(chain, target)
    widths = [_width_spec(info, target) for info in (first, last)]
    rows = rows_spec(first, chain, target)
    specs: list[DecisionSpec] = [block, *widths, rows]
    state.declare(schedule, tuple(specs))
    panels: list[BlockRV] = []
    handled = [first.name, last.name, *(m.name for m in chain.between)]
    for info, width in zip((first, last), widths, strict=True):
        panel, made = _packed(schedule, info, state.blocks(), Decision(width.names[0]))
        panels.append(panel)
        handled += [*made, schedule.get(panel).name]
    outer, unrolled, lanes = _last(schedule, chain, block, widths[1])
    at = outer[-1]
    placed = place_chain(state, schedule, chain, at)
    more, along = _first(schedule, chain, rows, widths[0])
    copies = [schedule.get_loops(panel) for panel in panels]
    parallel = [*(x for loops in copies for x in loops[:-PACK_PARALLEL_TAIL]), *outer]
    vectors = [lanes, *placed.vectors, along, *(loops[-1] for loops in copies)]
    give_kinds(schedule, parallel, (unrolled, more), vectors)
    handled += placed.names
    specs += placed.specs
    nests = (TiledNest(first.name, at), TiledNest(last.name, at))
    return state.advance(schedule, tuple(handled), tuple(specs), f"{last.name}.rows", nests)


def _width_spec(info: BlockInfo, target: Target) -> TileSpec:
    """Columns of a register tile: two vectors; three where they leave none over."""
    axis, lanes = info.spatial[-1], lanes_of(info, target)
    extent = extent_of(axis)
    width = min(3 * lanes if -(-extent // lanes) % 6 == 3 else 2 * lanes, extent)
    name = f"{info.name}.rows.{axis.var.name}"
    return TileSpec(info.name, axis.var.name, (name,), extent, "vector", lanes, (width,))


def _packed(
    schedule: Schedule, info: BlockInfo, blocks: dict[str, BlockInfo], width: Decision
) -> tuple[BlockRV, list[str]]:
    """Pack the operand along the vectors into panels: the block that does, and the block that makes
    the operand for this product alone, which goes into it."""
    axis = info.spatial[-1]
    number = next(n for n, a in enumerate(info.block.reads) if id(axis.var) in used_axes(a))
    access = info.block.reads[number]
    used = used_axes(access)
    axes = [a for a in info.block.iters if id(a.var) in used]
    place = axes.index(axis)
    layout: list[list[int | Decision]] = [[n] for n in range(len(axes))]
    layout[place] = [place, width]
    block = schedule.get_block(info.name)
    copy = schedule.reindex(block, ("read", number))
    panel = schedule.cache_read(block, number, "global", [*layout, [place, 1, width]])
    schedule.compute_inline(copy)
    made = [
        name
        for name in info.producers
        if any(w.buffer is access.buffer for w in blocks[name].block.writes)
        and blocks[name].is_injective
        and blocks[name].consumers == (info.name,)
        and sum(a.buffer is access.buffer for a in info.block.reads) == 1
    ]
    for name in made:
        schedule.compute_inline(schedule.get_block(name))
    return panel, made


def _last(
    schedule: Schedule, chain: Chain, block: TileSpec, width: TileSpec
) -> tuple[tuple[LoopRV, ...], LoopRV, LoopRV]:
    """Cut the last product: the loops that run in parallel, the one to unroll, and the one in
    vectors."""
    info = chain.last
    by_axis = axis_loops(schedule, schedule.get_block(info.name))
    *lead, row, column = (by_axis[id(a)] for a in info.spatial)
    task, around, rows = schedule.split(row, [None, *map(Decision, block.names)])
    panels, lanes = schedule.split(column, [None, Decision(width.names[0])])
    reduce = [by_axis[id(a)] for a in info.reduce]
    schedule.reorder(*lead, task, around, panels, *reduce, rows, lanes)
    return (*lead, task), rows, lanes


def _first(
    schedule: Schedule, chain: Chain, tile: TileSpec, width: TileSpec
) -> tuple[LoopRV, LoopRV]:
    """Cut the first product in its place: the loop to unroll, and the one in vectors."""
    info = chain.first
    own = dict(zip(map(id, info.block.iters), own_loops(schedule, info), strict=True))
    *lead, row, column = (own[id(a)] for a in info.spatial)
    around, rows = schedule.split(row, [None, Decision(tile.names[0])])
    panels, lanes = schedule.split(column, [None, Decision(width.names[0])])
    reduce = [own[id(a)] for a in info.reduce]
    schedule.reorder(*lead, panels, around, *reduce, rows, lanes)
    return rows, lanes
