"""Two products with rows in between on tile registers (AMX): the nest of `chained.py`, whose
products are an intrinsic's."""

from __future__ import annotations

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.rules.chains import Chain, place_elements, place_rows
from autosched.sketch.rules.default import axis_loops, own_loops
from autosched.sketch.rules.dots import Dot, dots_of
from autosched.sketch.rules.tensorize import pack_operands
from autosched.sketch.rules.tile_defaults import extent_of
from autosched.sketch.state import State, TiledNest
from autosched.target import Target

TILES = 2
"""Tiles of rows, and of columns, next to each other: four of sums, and two of each operand."""


def tile_dots(chain: Chain, target: Target) -> tuple[Dot, Dot] | None:
    """The intrinsics on tile registers that compute both products, in whole tiles of the rows that
    both share. None where no intrinsic computes either. Raises ScheduleError where some do, but
    not so: by itself a product is faster then."""
    products = (chain.first, chain.last)
    known = [dots_of(info, target) for info in products]
    if not any(known):
        return None
    found: list[Dot] = []
    for info, dots in zip(products, known, strict=True):
        row = info.spatial[chain.rows - 1]
        dot = next((d for d in dots if d.across is row), None)
        whole = {} if dot is None else dot.whole
        if dot is None or any(extent_of(a) % whole.get(a.var.name, 1) for a in info.block.iters):
            raise ScheduleError(f"{info.name} is not made of whole tiles along the shared rows")
        found.append(dot)
    first, last = found
    if first.rows != last.rows:
        raise ScheduleError(f"tiles of {first.rows} and of {last.rows} rows share no block")
    return first, last


def tiled_chain(state: State, chain: Chain, dots: tuple[Dot, Dot]) -> State:
    """The sketch, in blocks of one or two tiles of rows."""
    schedule, blocks = state.fork(), state.blocks()
    first, last = chain.first, chain.last
    handled = [first.name, last.name, *(m.name for m in chain.between)]
    panels: list[BlockRV] = []
    for info, dot in zip((first, last), dots, strict=True):
        panel, _ = pack_operands(schedule, schedule.get_block(info.name), info, dot, blocks)
        panels.append(panel)
        handled.append(schedule.get(panel).name)
    by_axis = axis_loops(schedule, schedule.get_block(last.name))
    *lead, row, column = (by_axis[id(a)] for a in last.spatial)
    tall = extent_of(last.spatial[chain.rows - 1]) // dots[1].rows
    block = dots[1].rows * (TILES if tall % TILES == 0 else 1)
    task, row = schedule.split(row, [None, block])
    reduce = [by_axis[id(a)] for a in last.reduce]
    copies = _tile(schedule, last, dots[1], [*lead, task], row, column, reduce)
    vectors: list[LoopRV] = []
    elements = place_elements(state, schedule, chain, task)
    if elements is not None:
        handled.append(elements[0])
        vectors.append(elements[1])
    specs = place_rows(state, schedule, chain, task)
    schedule.compute_at(schedule.get_block(first.name), task)
    own = dict(zip(map(id, first.block.iters), own_loops(schedule, first), strict=True))
    *around, row, column = (own[id(a)] for a in first.spatial)
    reduce = [own[id(a)] for a in first.reduce]
    copies += _tile(schedule, first, dots[0], around, row, column, reduce)
    for panel in panels:
        loops = schedule.get_loops(panel)
        for loop in loops[: max(len(loops) - 3, 1)]:
            schedule.parallel(loop)
        vectors.append(loops[-1])
    for loop in (*lead, task):
        schedule.parallel(loop)
    for loop in copies:
        schedule.unroll(loop)
    for loop in vectors:
        schedule.vectorize(loop)
    nests = (TiledNest(first.name, task, fixed=True), TiledNest(last.name, task, fixed=True))
    return state.advance(schedule, tuple(handled), tuple(specs), f"{last.name}.tiles", nests)


def _tile(
    schedule: Schedule,
    info: BlockInfo,
    dot: Dot,
    outer: list[LoopRV],
    row: LoopRV,
    column: LoopRV,
    reduce: list[LoopRV],
) -> list[LoopRV]:
    """Cut a product into tiles in its place; the loops to unroll, over tiles that stay in
    registers."""
    width = extent_of(dot.column) // dot.lanes
    beside = TILES if width % TILES == 0 else 1
    tiles, rows = schedule.split(row, [None, dot.rows])
    panels, several, lanes = schedule.split(column, [None, beside, dot.lanes])
    sums, terms = list(reduce), info.reduce.index(dot.term)
    sums[terms], of_tile = schedule.split(reduce[terms], [None, dot.group])
    groups, near = schedule.split(of_tile, [None, dot.near])
    schedule.reorder(*outer, panels, *sums, tiles, several, rows, lanes, groups, near)
    schedule.tensorize(rows, dot.intrin.name)
    return [tiles, several]
