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

from collections.abc import Iterator

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, axis_dim, elementwise_consumer, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.rules.dots import Dot, dots_of, is_last
from autosched.sketch.rules.tile_defaults import (
    default_rows,
    enough_tasks,
    extent_of,
    reads_panels,
    tiles_around,
)
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir.affine import Affine
from autosched.tir.nodes import Access, Buffer, Iter

ACCUMULATORS = 8
"""Of the default register tile, where there are rows or panels for so many."""
SPARE = 4
"""Registers besides those of the results, and one of each operand a panel."""
MAX_PANELS = 3
"""Of the columns of a group, for them to be no decision."""
TILE_REGISTERS, TILE_ACCUMULATORS = 8, 4
"""Two of each operand go with the accumulators of the default schedule."""
MAX_TERMS = 512
"""Groups of terms between two loads and stores of the results in the default schedule."""


class Tensorize:
    """A sketch for each intrinsic, beside those of multi-level tiling, and before them."""

    name = "tensorize"

    def condition(self, state: State, block: str) -> Verdict:
        """A tiled reduction whose body an intrinsic of the target has."""
        if block in state.handled or block in state.factored:
            return Verdict.PASS
        blocks = state.blocks()
        info = blocks[block]
        # Columns of groups are no axis of their own of the result, which is what a copy takes.
        if not info.writes_identity and elementwise_consumer(info, blocks) is None:
            return Verdict.PASS
        return Verdict.APPLY if dots_of(info, state.target) else Verdict.PASS

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The sketches."""
        blocks = state.blocks()
        found = dots_of(blocks[block], state.target)
        sketches = (_sketch(state, block, blocks, dot) for dot in found)
        yield from (s for s in sketches if s is not None)


def _sketch(state: State, block: str, blocks: dict[str, BlockInfo], dot: Dot) -> State | None:
    """The sketch of one intrinsic; None where what follows cannot be computed tile by tile."""
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
    panel, own = pack_operands(schedule, root, info, dot, blocks)
    outer, inner, unrolled, first = _tile(schedule, root, info, dot, specs)
    try:
        schedule.reverse_compute_at(copy, inner)
    except ScheduleError:
        return None  # its elements of one tile lie among those of another; other rules remain
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
    # Groups between tiles of their columns would be no axis of the result.
    groups = _groups(info, dot)
    few = extent_of(dot.column) <= MAX_PANELS * dot.lanes
    undecided = [] if not groups else [dot.column] if few else [dot.column, *groups]
    found: list[TileSpec] = []
    for axis in info.block.iters:
        if axis in undecided:
            continue
        name = axis.var.name
        extent = -(-int(axis.extent) // dot.whole.get(name, 1))
        names = tuple(f"{label}.{name}.{n}" for n in (1, 2, 3))
        if axis.kind == "reduce":
            default: tuple[int, ...] = (min(extent, MAX_TERMS), 1)
            found.append(TileSpec(label, name, names[:2], extent, "reduce", 1, default))
            continue
        if axis is dot.column:
            panels = min(extent, max(1 if tiles else 2, most // taken))
            inner = panels if tiles else _dividing(extent, panels, taken, target)
        else:
            inner = rows.get(id(axis.var), 1)
        default = tiles_around(extent, inner, 4 if axis is dot.column else 8)
        own = TILE_REGISTERS if tiles else None
        found.append(TileSpec(label, name, names, extent, "rows", 1, default, own))
    return enough_tasks(found, 4 * target.num_cores)


def _groups(info: BlockInfo, dot: Dot) -> list[Iter]:
    """Axes that number results along with the columns. What hangs over the end of a group's columns
    is the next group's, so tiles of these are fixed: `_beside`."""
    last = info.block.writes[0].indices[-1]
    assert isinstance(last, Affine)  # or it would have no vector axis
    return [a for a in info.spatial if a is not dot.column and last.uses((a.var,))]


def _beside(panels: int) -> int:
    """Panels of a group that are next to each other in a register tile."""
    fitting = (2, 3, 1)  # one of these divides
    return panels if panels <= MAX_PANELS else next(n for n in fitting if panels % n == 0)


def _dividing(panels: int, most: int, rows: int, target: Target) -> int:
    """Panels of a register tile of so many rows: a number that divides, since what hangs over the
    end is read and multiplied under a condition, if it leaves enough products in flight and fits
    the registers; else `most`, which may hang over."""
    found = (2, 3, 1) if most == 2 else tuple(range(most, most // 2, -1))
    for n in found:
        fits = n <= most or n * (rows + 1) + SPARE <= target.vector_registers
        enough = n >= most or n * rows >= ACCUMULATORS or most > 2
        if panels % n == 0 and fits and enough:
            return n
    return most


def _tile_rows(info: BlockInfo, dot: Dot) -> dict[int, int]:
    """Tiles of rows, next to each other, or of as many rows of pixels: so many that what is loaded
    and multiplied is least. One where there are neither."""
    assert dot.across is not None  # the caller has asked
    panel = used_axes(info.block.reads[dot.panel])
    tiles = -(-extent_of(dot.across) // dot.rows)
    found = dot.across
    if tiles == 1:
        others = [a for a in info.spatial if a not in (dot.across, dot.column)]
        pixels = [a for a in others if id(a.var) not in panel and extent_of(a) > 1]
        if not pixels:
            return {}
        found, tiles = pixels[-1], extent_of(pixels[-1])
    panels = -(-extent_of(dot.column) // dot.lanes)
    fixed = _beside(panels) if _groups(info, dot) else 0
    most = TILE_ACCUMULATORS // max(fixed, 1)

    def cost(rows: int) -> int:
        beside = fixed or min(TILE_ACCUMULATORS // rows, panels)
        loads = dot.group // dot.near * beside + dot.rows * rows
        return -(-tiles // rows) * -(-panels // beside) * (dot.rows * rows * beside + loads)

    return {id(found.var): min(range(1, min(tiles, most) + 1), key=cost)}


def pack_operands(
    schedule: Schedule, root: BlockRV, info: BlockInfo, dot: Dot, blocks: dict[str, BlockInfo]
) -> tuple[BlockRV, bool]:
    """Pad both axes and pack the operands: the block that packs the panels, and whether the other
    operand is copied too. A copy that fills up the terms of one group, such as the channels of an
    image, is made of what the block that makes the operand reads: it is small, and read again."""
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
    if through[row.name] and extent_of(dot.term) < dot.group:
        for maker in only_makers(row, info, blocks):
            schedule.compute_inline(schedule.get_block(maker))
    copied = bool(through[row.name])
    if not is_last(info.block.reads[dot.row], dot.term):
        place = _place(info.block.reads[dot.row], dot.term)
        order = [n for n in range(len(row.shape)) if n != place]
        schedule.cache_read(root, dot.row, "global", [*([n] for n in order), [place]])
        for copier in through[row.name][-1:]:
            schedule.compute_inline(copier)
        copied = True
    return packed, copied


def only_makers(row: Buffer, info: BlockInfo, blocks: dict[str, BlockInfo]) -> list[str]:
    """The block that computes an operand element by element for this block alone, if one does."""
    makers = [b for b in blocks.values() if any(w.buffer is row for w in b.block.writes)]
    plain = all(b.is_injective and b.writes_identity and not b.is_output for b in makers)
    alone = all(list(b.consumers) == [info.name] for b in makers)
    return [b.name for b in makers] if plain and alone and len(makers) == 1 else []


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
    chosen = {spec.axis: spec for spec in specs if isinstance(spec, TileSpec)}
    for axis in info.block.iters:
        loop = by_axis[id(named[axis.var.name])]
        spec = chosen.get(axis.var.name)
        whole = dot.whole.get(axis.var.name)
        if whole is not None:
            # First, so that what hangs over the end of the axis is whole tiles of the intrinsic.
            loop, last[axis.var.name] = schedule.split(loop, [None, whole])
        if spec is None and axis is dot.column:
            around, loop = schedule.split(loop, [None, _beside(extent_of(axis) // dot.lanes)])
            levels[3].append(around)
            levels[6].append(loop)
            continue
        if spec is None:
            levels[0].append(loop)
            continue
        parts = schedule.split(loop, [None, *(Decision(n) for n in spec.names)])
        places = (2, 4, 5) if spec.role == "reduce" else (0, 1, 3, 6)
        for part, place in zip(parts, places, strict=True):
            levels[place].append(part)
        if axis is dot.column and dot.across is None and reads_panels(info):
            levels[3].insert(0, levels[3].pop())  # rows pass over one panel after the other
    nest = [last[name] for name in dot.whole]
    if dot.group > dot.near:
        nest[-1:] = schedule.split(nest[-1], [None, dot.near])
    schedule.reorder(*(loop for level in levels for loop in level), *nest)
    # LLVM (22.1) runs out of tile registers on unrolled reductions, and ends the process.
    copies = levels[5] if dot.across is None else []
    return levels[0], levels[1][-1], [*copies, *levels[6]], nest[0]
