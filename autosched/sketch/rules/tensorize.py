"""Multi-level tiling whose innermost loops an intrinsic of the target does.

    S0 parallel | S1 | R0 | S2 | R1 | copies of the reduction, rows, panels unrolled | intrinsic

What is tensorised follows from the computation: a reduction whose body is that of an intrinsic, on
elements of the same dtypes, which one reduction axis and the contiguous axis of the result index as
the intrinsic's loops do. The operand along both is packed into panels (lanes, then terms that are
added at once); the other is read as it lies, if the terms are neighbours. Both axes run on to whole
tiles, over zeros. Intrinsics on tile registers take rows as well: of the result, along an axis that
moves the other operand (`dots.py`).
"""

from __future__ import annotations

from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, axis_dim, elementwise_consumer, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.rules.dots import Dot, dots_of, is_last
from autosched.sketch.rules.tile_defaults import (
    default_rows,
    enough_tasks,
    extent_of,
    tiles_around,
)
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir.nodes import Access, Iter

ACCUMULATORS = 8
"""Of the default register tile, where there are rows or panels for so many."""
TILE_ACCUMULATORS = 4
"""Of eight tile registers: two of each operand go with them."""
PAIRED_ROWS = 8
"""Rows of pixels from which on two make a register tile, whatever hangs over."""
MAX_TERMS = 512
"""Groups of terms between two loads and stores of the results in the default schedule."""


class Tensorize:
    """A sketch for each intrinsic, beside those of multi-level tiling, and before them."""

    name = "tensorize"

    def condition(self, state: State, block: str) -> Verdict:
        """A tiled reduction whose body an intrinsic of the target has."""
        if block in state.handled or block in state.factored:
            return Verdict.PASS
        found = dots_of(state.blocks()[block], state.target)
        return Verdict.APPLY if found else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """The sketches."""
        blocks = state.blocks()
        found = dots_of(blocks[block], state.target)
        return [_sketch(state, block, blocks, dot) for dot in found]


def _sketch(state: State, block: str, blocks: dict[str, BlockInfo], dot: Dot) -> State:
    """The sketch of one intrinsic."""
    info = blocks[block]
    schedule = state.fork()
    specs = dot_specs(info, dot, state.target)
    state.declare(schedule, specs)
    root = schedule.get_block(block)
    consumer = elementwise_consumer(info, blocks)
    copy = (
        schedule.cache_write(root, 0, "local")
        if consumer is None
        else schedule.get_block(consumer.name)
    )
    panel, own = _operands(schedule, root, info, dot)
    outer, inner, unrolled, first = _tile(schedule, root, info, dot, specs)
    schedule.reverse_compute_at(copy, inner)
    *_, last = schedule.get_loops(copy)
    _, vector = schedule.split(last, [None, 2 * dot.lanes])
    schedule.tensorize(first, dot.intrin.name)
    loops = schedule.get_loops(panel)
    for loop in (*outer, *loops[: max(len(loops) - 3, 1)]):
        schedule.parallel(loop)
    for loop in unrolled:
        schedule.unroll(loop)
    for loop in (vector, loops[-1]):
        schedule.vectorize(loop)
    handled = [schedule.get(b).name for b in (root, copy, panel)]
    name = f"{block}.{dot.intrin.name}" + ("+row" if own else "")
    nest = TiledNest(block, outer[-1], fixed=True)
    return state.advance(schedule, tuple(handled), specs, name, (nest,))


def dot_specs(info: BlockInfo, dot: Dot, target: Target) -> tuple[DecisionSpec, ...]:
    """Tile decisions: three factors of each spatial axis, two of a reduction axis; the column in
    panels, the term in groups."""
    tiles = dot.across is not None
    label = f"{info.name}.{'tiles' if tiles else 'dot'}"
    rows = _tile_rows(info, dot) if tiles else default_rows(info, target, dot.lanes)
    most = TILE_ACCUMULATORS if tiles else ACCUMULATORS
    taken = 1
    for n in rows.values():
        taken *= n
    found: list[TileSpec] = []
    for axis in info.block.iters:
        name = axis.var.name
        extent = -(-int(axis.extent) // dot.whole.get(name, 1))
        names = tuple(f"{label}.{name}.{n}" for n in (1, 2, 3))
        if axis.kind == "reduce":
            default: tuple[int, ...] = (min(extent, MAX_TERMS), 1)
            found.append(TileSpec(label, name, names[:2], extent, "reduce", 1, default))
            continue
        if axis is dot.column:
            inner = min(extent, max(1 if tiles else 2, most // taken))
        else:
            inner = rows.get(id(axis.var), 1)
        default = tiles_around(extent, inner, 4 if axis is dot.column else 8)
        found.append(TileSpec(label, name, names, extent, "rows", 1, default))
    return enough_tasks(found, 4 * target.num_cores)


def _tile_rows(info: BlockInfo, dot: Dot) -> dict[int, int]:
    """Two tiles of rows, next to each other, or of two rows of pixels; one where neither is."""
    assert dot.across is not None  # the caller has asked
    if extent_of(dot.across) > dot.rows:
        return {id(dot.across.var): 2}
    panel = used_axes(info.block.reads[dot.panel])
    for axis in reversed(info.spatial):
        extent = extent_of(axis)
        if axis not in (dot.across, dot.column) and id(axis.var) not in panel and extent > 1:
            return {id(axis.var): 2 if extent % 2 == 0 or extent >= PAIRED_ROWS else 1}
    return {}


def _operands(schedule: Schedule, root: BlockRV, info: BlockInfo, dot: Dot) -> tuple[BlockRV, bool]:
    """Pad both axes and pack the operands: the block that packs the panels, and whether the other
    operand is copied too."""
    panel, row = (info.block.reads[n].buffer for n in (dot.panel, dot.row))
    through: dict[str, list[BlockRV]] = {panel.name: [], row.name: []}
    sides = [(dot.term, dot.group), (dot.column, dot.lanes)]
    if dot.across is not None:
        sides.append((dot.across, dot.rows))
    for axis, multiple in sides:
        loop = axis_loops(schedule, root)[_number(schedule, root, axis)]
        before = [a.buffer.name for a in schedule.get(root).reads]
        for copier in schedule.pad_axis(loop, multiple):
            place = before.index(schedule.get(copier).reads[0].buffer.name)
            name = info.block.reads[place].buffer.name
            through[name].append(copier)
    rank = len(panel.shape)
    column, term = (_place(info.block.reads[dot.panel], axis) for axis in (dot.column, dot.term))
    rest = [[n] for n in range(rank) if n not in (column, term)]
    near, groups = dot.near, dot.group // dot.near
    inner = [[term, near, groups]] if groups > 1 else []
    inner += [[column, 1, dot.lanes], [term, 1, near]]
    layout = [[column, dot.lanes], *rest, [term, dot.group], *inner]
    packed = schedule.cache_read(root, dot.panel, "global", layout)
    for copier in through[panel.name]:
        schedule.compute_inline(copier)
    for copier in through[row.name][:-1]:
        schedule.compute_inline(copier)
    copied = bool(through[row.name])
    if not is_last(info.block.reads[dot.row], dot.term):
        place = _place(info.block.reads[dot.row], dot.term)
        order = [n for n in range(len(row.shape)) if n != place]
        schedule.cache_read(root, dot.row, "global", [*([n] for n in order), [place]])
        for copier in through[row.name][-1:]:
            schedule.compute_inline(copier)
        copied = True
    return packed, copied


def _number(schedule: Schedule, root: BlockRV, axis: Iter) -> int:
    """The key of an axis in `axis_loops`: padding makes an axis anew, under its variable."""
    return id(next(i for i in schedule.get(root).iters if i.var is axis.var))


def _place(access: Access, axis: Iter) -> int:
    dim = axis_dim(access, axis)
    assert dim is not None  # `_fits` asks for one
    return dim


def _tile(
    schedule: Schedule,
    root: BlockRV,
    info: BlockInfo,
    dot: Dot,
    specs: tuple[DecisionSpec, ...],
) -> tuple[list[LoopRV], LoopRV, list[LoopRV], LoopRV]:
    """Split and order the loops: the parallel ones, the innermost around a cache tile, those to
    unroll, and the outermost of the intrinsic's."""
    by_axis = axis_loops(schedule, root)
    named = {a.var.name: a for a in schedule.get(root).iters}
    levels: list[list[LoopRV]] = [[] for _ in range(7)]
    last: dict[str, LoopRV] = {}
    for spec in specs:
        assert isinstance(spec, TileSpec)  # all of them are
        whole = dot.whole.get(spec.axis)
        loop = by_axis[id(named[spec.axis])]
        if whole is not None:
            # First, so that what hangs over the end of the axis is whole tiles of the intrinsic.
            loop, last[spec.axis] = schedule.split(loop, [None, whole])
        parts = schedule.split(loop, [None, *(Decision(n) for n in spec.names)])
        places = (2, 4, 5) if spec.role == "reduce" else (0, 1, 3, 6)
        for part, place in zip(parts, places, strict=True):
            levels[place].append(part)
    nest = [last[name] for name in dot.whole]
    if dot.group > dot.near:
        nest[-1:] = schedule.split(nest[-1], [None, dot.near])
    schedule.reorder(*(loop for level in levels for loop in level), *nest)
    return levels[0], levels[1][-1], [*levels[5], *levels[6]], nest[0]
