"""Multi-level tiling whose innermost loops an intrinsic of the target does.

    S0 parallel | S1 | R0 | S2 | R1 | copies of the reduction, rows, panels unrolled | intrinsic

What is tensorised follows from the computation: a reduction whose body is that of an intrinsic, on
elements of the same dtypes, which one reduction axis and the contiguous axis of the result index as
the intrinsic's loops do. The operand along both is packed into panels (lanes, then terms that are
added at once); the other is read as it lies, if the terms are neighbours. Both axes run on to whole
tiles, over zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, axis_dim, elementwise_consumer, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.rules.tile_defaults import default_rows, enough_tasks, tiles_around
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir.intrin import TensorIntrin, operands
from autosched.tir.nodes import Access, Iter

ACCUMULATORS = 8
"""Of the default register tile, where there are rows or panels for so many."""
MAX_TERMS = 512
"""Groups of terms between two loads and stores of the results in the default schedule."""


@dataclass(frozen=True)
class Dot:
    """How a block is an intrinsic's: its loops are `lanes` results along `column` and `group` terms
    along `term`; `panel` and `row` are the numbers of the reads along both and along `term`."""

    intrin: TensorIntrin
    column: Iter
    term: Iter
    lanes: int
    group: int
    panel: int
    row: int


class Tensorize:
    """One sketch beside those of multi-level tiling, and before them."""

    name = "tensorize"

    def condition(self, state: State, block: str) -> Verdict:
        """A tiled reduction whose body an intrinsic of the target has."""
        if block in state.handled or block in state.factored:
            return Verdict.PASS
        found = dot_of(state.blocks()[block], state.target)
        return Verdict.PASS if found is None else Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        """The sketch."""
        blocks = state.blocks()
        info = blocks[block]
        dot = dot_of(info, state.target)
        assert dot is not None  # the condition has found one
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
        outer, inner, unrolled, lane = _tile(schedule, root, info, dot, specs)
        schedule.reverse_compute_at(copy, inner)
        *_, last = schedule.get_loops(copy)
        _, vector = schedule.split(last, [None, 2 * dot.lanes])
        schedule.tensorize(lane, dot.intrin.name)
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
        return [state.advance(schedule, tuple(handled), specs, name, (nest,))]


def dot_of(info: BlockInfo, target: Target) -> Dot | None:
    """The intrinsic of the target, of those that fit the one with most products, that computes what
    a block does; None where there is none."""
    column = info.vector_axis
    if not info.needs_tiling or column is None or not info.writes_identity:
        return None
    found: list[Dot] = []
    for intrin in TensorIntrin.all():
        if intrin.features and intrin.features <= target.features:
            found += _fits(info, intrin, column)
    return max(found, key=lambda d: d.lanes * d.group, default=None)


def _fits(info: BlockInfo, intrin: TensorIntrin, column: Iter) -> list[Dot]:
    """The ways in which a block is an intrinsic of one loop over results and one over terms."""
    lane, *more = intrin.loops
    model = intrin.block
    if len(more) != 1 or [i.kind for i in model.iters] != ["spatial", "reduce"]:
        return []
    shapes = {a.buffer.name: tuple(int(n) for n in a.buffer.shape) for a in model.reads}
    sizes = int(lane.extent), int(more[0].extent)
    found = []
    for named in operands(intrin, info.block):
        panel = [n for name, n in named.items() if shapes[name] == sizes]
        row = [n for name, n in named.items() if shapes[name] == sizes[1:]]
        if len(named) != 2 or len(panel) != 1 or len(row) != 1:
            continue
        along, other = (info.block.reads[n] for n in (panel[0], row[0]))
        if axis_dim(along, column) is None or id(column.var) in used_axes(other):
            continue
        terms = [a for a in info.reduce if _indexes(along, a) and _indexes(other, a)]
        if terms:
            # Neighbours in memory need no copy; else the longest has least padding.
            term = max(terms, key=lambda a: (_is_last(other, a), int(a.extent)))
            found.append(Dot(intrin, column, term, *sizes, panel[0], row[0]))
    return found


def _indexes(access: Access, axis: Iter) -> bool:
    """Whether an axis runs over the whole of one dimension."""
    dim = axis_dim(access, axis)
    return dim is not None and int(access.buffer.shape[dim]) == int(axis.extent)


def _is_last(access: Access, axis: Iter) -> bool:
    return axis_dim(access, axis) == len(access.indices) - 1


def dot_specs(info: BlockInfo, dot: Dot, target: Target) -> tuple[DecisionSpec, ...]:
    """Tile decisions: three factors of each spatial axis, two of a reduction axis; the column in
    panels, the term in groups."""
    label = f"{info.name}.dot"
    rows = default_rows(info, target, dot.lanes)
    taken = 1
    for n in rows.values():
        taken *= n
    panels = -(-int(dot.column.extent) // dot.lanes)
    found: list[TileSpec] = []
    for axis in info.block.iters:
        name, extent = axis.var.name, int(axis.extent)
        names = tuple(f"{label}.{name}.{n}" for n in (1, 2, 3))
        if axis.kind == "reduce":
            extent = -(-extent // dot.group) if axis is dot.term else extent
            default: tuple[int, ...] = (min(extent, MAX_TERMS), 1)
            found.append(TileSpec(label, name, names[:2], extent, "reduce", 1, default))
            continue
        if axis is dot.column:
            extent, inner = panels, min(panels, max(2, ACCUMULATORS // taken))
        else:
            inner = rows.get(id(axis.var), 1)
        default = tiles_around(extent, inner, 4 if axis is dot.column else 8)
        found.append(TileSpec(label, name, names, extent, "rows", 1, default))
    return enough_tasks(found, 4 * target.num_cores)


def _operands(schedule: Schedule, root: BlockRV, info: BlockInfo, dot: Dot) -> tuple[BlockRV, bool]:
    """Pad both axes and pack the operands: the block that packs the panels, and whether the other
    operand is copied too."""
    panel, row = (info.block.reads[n].buffer for n in (dot.panel, dot.row))
    through: dict[str, list[BlockRV]] = {panel.name: [], row.name: []}
    for axis, multiple in ((dot.term, dot.group), (dot.column, dot.lanes)):
        loop = axis_loops(schedule, root)[_number(schedule, root, axis)]
        before = [a.buffer.name for a in schedule.get(root).reads]
        for copier in schedule.pad_axis(loop, multiple):
            place = before.index(schedule.get(copier).reads[0].buffer.name)
            name = info.block.reads[place].buffer.name
            through[name].append(copier)
    rank = len(panel.shape)
    column, term = (_place(info.block.reads[dot.panel], axis) for axis in (dot.column, dot.term))
    rest = [[n] for n in range(rank) if n not in (column, term)]
    layout = [
        [column, dot.lanes], *rest, [term, dot.group], [column, 1, dot.lanes], [term, 1, dot.group]
    ]  # fmt: skip
    packed = schedule.cache_read(root, dot.panel, "global", layout)
    for copier in through[panel.name]:
        schedule.compute_inline(copier)
    copied = bool(through[row.name])
    if not _is_last(info.block.reads[dot.row], dot.term):
        place = _place(info.block.reads[dot.row], dot.term)
        order = [n for n in range(len(row.shape)) if n != place]
        schedule.cache_read(root, dot.row, "global", [*([n] for n in order), [place]])
        for copier in through[row.name]:
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
        whole = {dot.column.var.name: dot.lanes, dot.term.var.name: dot.group}.get(spec.axis)
        loop = by_axis[id(named[spec.axis])]
        if whole is not None:
            # First, so that what hangs over the end of the axis is whole tiles of the intrinsic.
            loop, last[spec.axis] = schedule.split(loop, [None, whole])
        parts = schedule.split(loop, [None, *(Decision(n) for n in spec.names)])
        places = (2, 4, 5) if spec.role == "reduce" else (0, 1, 3, 6)
        for part, place in zip(parts, places, strict=True):
            levels[place].append(part)
    lane, term = last[dot.column.var.name], last[dot.term.var.name]
    schedule.reorder(*(loop for level in levels for loop in level), lane, term)
    return levels[0], levels[1][-1], [*levels[5], *levels[6]], lane
