"""Two products with rows in between that are an intrinsic's, on tile registers (AMX) or on vectors:
the nest of `chained.py`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.decisions import DecisionSpec
from autosched.sketch.rules.chains import Chain, block_spec, give_kinds, place_chain, rows_spec
from autosched.sketch.rules.default import axis_loops, own_loops
from autosched.sketch.rules.dots import Dot, dots_of
from autosched.sketch.rules.tensorize import only_makers, pack_operands
from autosched.sketch.rules.tile_defaults import extent_of
from autosched.sketch.state import State, TiledNest
from autosched.target import Target

TILES = 2
"""Tiles of rows, and of columns, next to each other: four of sums, and two of each operand."""


def chain_dots(chain: Chain, target: Target) -> tuple[Dot, Dot] | None:
    """The intrinsics that compute both products, whole along all of their axes: on tile registers,
    in tiles of the rows that both share, or on vectors. None where no intrinsic computes either.
    Raises ScheduleError where some do, but not so: by itself a product is faster then."""
    products = (chain.first, chain.last)
    known = [dots_of(info, target) for info in products]
    if not any(known):
        return None
    for tiled in (True, False):
        found = [
            next((d for d in dots if _is_whole(d, info, chain, tiled)), None)
            for info, dots in zip(products, known, strict=True)
        ]
        first, last = found
        if first is not None and last is not None and first.rows == last.rows:
            return first, last
    raise ScheduleError("no intrinsics compute both products in whole vectors, or in whole tiles")


def _is_whole(dot: Dot, info: BlockInfo, chain: Chain, tiled: bool) -> bool:
    across = info.spatial[chain.rows - 1] if tiled else None
    whole = dot.whole
    return dot.across is across and all(
        extent_of(a) % whole.get(a.var.name, 1) == 0 for a in info.block.iters
    )


def dotted_chain(state: State, chain: Chain, dots: tuple[Dot, Dot]) -> State:
    """The sketch: on tile registers in blocks of one or two tiles of rows, on vectors in blocks of
    as many rows as is decided."""
    schedule, blocks = state.fork(), state.blocks()
    first, last = chain.first, chain.last
    handled = [first.name, last.name, *(m.name for m in chain.between)]
    specs: list[DecisionSpec] = []
    heights: tuple[list[int | Decision], list[int | Decision]]
    if dots[1].across is None:
        block, rows = block_spec(chain, state.target), rows_spec(first, chain, state.target)
        specs += [block, rows]
        state.declare(schedule, tuple(specs))
        heights = [Decision(rows.names[0])], [*map(Decision, block.names)]
    else:
        tall = extent_of(last.spatial[chain.rows - 1]) // dots[1].rows
        heights = [dots[0].rows], [TILES if tall % TILES == 0 else 1, dots[1].rows]
    panels: list[BlockRV] = []
    for info, dot in zip((first, last), dots, strict=True):
        panel, _ = pack_operands(schedule, schedule.get_block(info.name), info, dot, blocks)
        panels.append(panel)
        made = only_makers(info.block.reads[dot.panel].buffer, info, blocks)
        for name in made:
            schedule.compute_inline(schedule.get_block(name))
        handled += [*made, schedule.get(panel).name]
    by_axis = axis_loops(schedule, schedule.get_block(last.name))
    *lead, row, column = (by_axis[id(a)] for a in last.spatial)
    task, *parts = schedule.split(row, [None, *heights[1]])
    reduce = [by_axis[id(a)] for a in last.reduce]
    copies = _tile(schedule, last, dots[1], [*lead, task], parts, column, reduce)
    placed = place_chain(state, schedule, chain, task)
    handled += placed.names
    specs += placed.specs
    own = dict(zip(map(id, first.block.iters), own_loops(schedule, first), strict=True))
    *around, row, column = (own[id(a)] for a in first.spatial)
    reduce = [own[id(a)] for a in first.reduce]
    copies += _tile(
        schedule, first, dots[0], around, schedule.split(row, [None, *heights[0]]), column, reduce
    )
    packing = [schedule.get_loops(panel) for panel in panels]
    parallel = [x for loops in packing for x in loops[: max(len(loops) - 3, 1)]]
    vectors = [*placed.vectors, *(loops[-1] for loops in packing)]
    give_kinds(schedule, [*parallel, *lead, task], copies, vectors)
    nests = (TiledNest(first.name, task, fixed=True), TiledNest(last.name, task, fixed=True))
    name = f"{last.name}.{'dots' if dots[1].across is None else 'tiles'}"
    return state.advance(schedule, tuple(handled), tuple(specs), name, nests)


def _tile(
    schedule: Schedule,
    info: BlockInfo,
    dot: Dot,
    outer: Sequence[LoopRV],
    parts: Sequence[LoopRV],
    column: LoopRV,
    reduce: Sequence[LoopRV],
) -> list[LoopRV]:
    """Cut a product into tiles in its place, whose rows are cut in `parts`; the loops to unroll,
    over sums that stay in registers."""
    tiles, rows = parts
    width = extent_of(dot.column) // dot.lanes
    beside = TILES if width % TILES == 0 else 1
    panels, several, lanes = schedule.split(column, [None, beside, dot.lanes])
    sums, terms = list(reduce), info.reduce.index(dot.term)
    sums[terms], of_tile = schedule.split(reduce[terms], [None, dot.group])
    if dot.across is None:
        schedule.reorder(*outer, panels, tiles, *sums, rows, several, lanes, of_tile)
        schedule.tensorize(lanes, dot.intrin.name)
        return [rows, several]
    groups, near = schedule.split(of_tile, [None, dot.near])
    schedule.reorder(*outer, panels, *sums, tiles, several, rows, lanes, groups, near)
    schedule.tensorize(rows, dot.intrin.name)
    return [tiles, several]
