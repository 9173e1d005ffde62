"""Multi-level tiling "SSRSRS" of reductions with reuse, with fusion of an elementwise consumer.

    S0 parallel | S1 | R0 | S2 | R1 serial | register tile: R2 and S3 unrolled, one axis vectorised

Copies of a reduction (R2) share what they load: the taps of a convolution slide over the same data.

The consumer (or, without one, the copy of a write cache) is computed at the last loop of S1, where
a tile is complete. Operands may be packed into panels of the register tile's width, once for all
threads or by each thread for its parallel tile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod

from autosched.errors import ScheduleError
from autosched.lowering.layout_rewrite import LayoutRewriteOption, option_of
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import (
    BlockInfo,
    axis_dim,
    elementwise_consumer,
    turned_consumer,
    used_axes,
)
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import axis_loops, bytes_of
from autosched.sketch.rules.tile_defaults import (
    across,
    default_copies,
    default_rows,
    default_vectors,
    dividing,
    enough_tasks,
    extent_of,
    is_reused,
    is_streamed,
    lanes_of,
    reads_panels,
    register_tiles,
    shared_groups,
    shares_dimension,
    tiles_around,
    whole,
    within_cache,
    without_tail,
)
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir.affine import Affine, Int, same_int
from autosched.tir.expr import Expr
from autosched.tir.nodes import Access, Iter, PrimFunc

PACK_PARALLEL_TAIL = 2
"""Innermost loops of a packing block that one task runs."""
DEPTH = 1024
"""Terms that are added to a result in one go where panels are read; half as many elsewhere."""
STREAMS = 16
"""Rows of an operand that is read once which the default schedule reads side by side. With fewer
each result is loaded and stored too often, with one every step is on another page."""


@dataclass(frozen=True)
class Operand:
    """A read that can be packed: dimension `dim` is the tiled axis, in panels of `width` elements.

    `streamed`: that axis runs in vectors; `contiguous`: along neighbouring elements; `prepared`:
    packing once is not part of the kernel.
    """

    buffer: str
    dim: int
    rank: int
    width: Decision
    streamed: bool
    contiguous: bool
    prepared: bool


def packing_modes(operand: Operand) -> tuple[str, ...]:
    """Ways to read an operand, the most usual first: as it is, packed once, packed by each
    thread. What is packed beforehand costs nothing."""
    if operand.prepared:
        return ("root", "none")
    if not operand.streamed:
        return ("none", "thread")
    # Lanes from all over memory cost a load each.
    return ("none", "root", "thread") if operand.contiguous else ("root", "thread", "none")


class MultiLevelTiling:
    """Tiles a block and fuses its elementwise consumer; one sketch for each choice of packing."""

    name = "multi-level-tiling"

    def condition(self, state: State, block: str) -> Verdict:
        """A reduction that reads data more than once, along a contiguous spatial axis."""
        if block in state.handled:
            return Verdict.PASS
        info = state.blocks()[block]
        if info.needs_tiling and info.vector_axis is not None:
            return Verdict.APPLY_AND_SKIP_REST
        return Verdict.PASS

    def apply(self, state: State, block: str) -> Iterator[State]:
        """All combinations of packing and, without a consumer, of a write cache."""
        blocks = state.blocks()
        info = blocks[block]
        consumer = elementwise_consumer(info, blocks)
        turned = turned_consumer(info, blocks)
        weights = prepared_weights(state.schedule.func)
        crossed = across(info, state.target)
        if crossed is not None:
            yield self._sketch(state, crossed, None, {}, False)
        specs = tile_specs(info, state.target, weights)
        operands = packable(info, specs, weights, block in state.factored)
        modes = [packing_modes(o) for o in operands]
        choices = [(packing, False) for packing in product(*modes)]
        alone = consumer is None and turned is None
        if alone and info.writes_identity and not info.block.predicates:
            # Guards over reductions (an uneven rfactor's) cannot stand outside of them.
            # A write cache matters for the store alone: not tried with every packing.
            choices += [
                (p, True) for p in product(*(m[:2] if len(m) > 2 else m[:1] for m in modes))
            ]
        fused = consumer or turned
        packed = dict(zip(operands, choices[0][0], strict=True))
        if consumer is not None and _outgrows(consumer, state.target):
            yield self._sketch(state, info, consumer, packed, False, stream=True)
        for packing, cached in choices:
            by_operand = dict(zip(operands, packing, strict=True))
            yield self._sketch(state, info, fused, by_operand, cached)
        if turned is not None:  # in a nest of its own, too
            yield self._sketch(state, info, None, packed, False)

    def _sketch(
        self,
        state: State,
        info: BlockInfo,
        consumer: BlockInfo | None,
        packing: dict[Operand, str],
        cached: bool,
        stream: bool = False,
    ) -> State:
        schedule = state.fork()
        specs = tile_specs(info, state.target, prepared_weights(state.schedule.func))
        state.declare(schedule, specs)
        block = schedule.get_block(info.name)
        handled = [info.name]
        copy: BlockRV | None = None
        if cached:
            copy = schedule.cache_write(block, 0, "local")
        elif consumer is not None:
            copy = schedule.get_block(consumer.name)
        levels = split_levels(schedule, block, info, specs, state.target)
        # Loops get their kinds last: a primitive that finds kinds checks all of them again.
        vector_loops = [levels.vector_loop]
        form = "" if info.across is None else ".across"
        if copy is not None:
            form = ".cache" if cached else ".fused"
        if copy is not None:
            try:
                turned = not cached and elementwise_consumer(info, state.blocks()) is None
                own = place_consumer(schedule, copy, levels.inner_spatial, levels.width, turned)
            except ScheduleError:
                # Rows that are read through a reshape are two axes, whose tiles may overlap in the
                # result; then the consumer is a nest of its own, for the rules that follow.
                form = ".apart"
            else:
                vector_loops.append(own)
                handled.append(schedule.get(copy).name)
                if stream:
                    schedule.annotate(copy, "streaming", True)
                    form += ".streaming"
        choices = [f"{info.name}{form}"]
        packed: list[BlockRV] = []
        for operand, mode in packing.items():
            if mode != "none":
                packed.append(pack(schedule, block, operand))
                choices.append(f"{operand.buffer}.{mode}")
        for panel, mode in zip(packed, [m for m in packing.values() if m != "none"], strict=True):
            loops = place_panel(schedule, panel, mode, levels.parallel[-1])
            vector_loops.append(loops[-1])
            levels.parallel_roots.extend(
                loops[: max(len(loops) - PACK_PARALLEL_TAIL, 1)] if mode == "root" else []
            )
            handled.append(schedule.get(panel).name)
        for loop in (*levels.parallel, *levels.parallel_roots):
            schedule.parallel(loop)
        for loop in (*levels.copies, *levels.rows):
            schedule.unroll(loop)
        for loop in vector_loops:
            schedule.vectorize(loop)
        nest = TiledNest(info.name, levels.parallel[-1])
        return state.advance(schedule, tuple(handled), specs, "+".join(choices), (nest,))


def _outgrows(consumer: BlockInfo, target: Target) -> bool:
    """Whether more is stored than the third cache holds: what is stored first has left it before
    another kernel reads it."""
    stored = sum(bytes_of(a) for a in consumer.block.writes)
    return consumer.is_output and stored > target.l3_bytes


@dataclass(frozen=True)
class Levels:
    """Loops of a tiled block that matter afterwards."""

    parallel: tuple[LoopRV, ...]
    inner_spatial: LoopRV
    copies: tuple[LoopRV, ...]
    rows: tuple[LoopRV, ...]
    vector_loop: LoopRV
    width: Decision | int
    """Elements of `vector_loop`; of a whole vector where groups share vectors."""
    parallel_roots: list[LoopRV] = field(default_factory=list)


def tile_specs(
    info: BlockInfo, target: Target, prepared: Collection[str] = ()
) -> tuple[DecisionSpec, ...]:
    """Tile decisions of a block's axes: three factors for a spatial axis, two for a reduction axis.

    A spatial axis that every read uses gives no reuse, so it takes no registers (role "outer").
    """
    vector = info.vector_axis
    assert vector is not None  # the condition asks for one
    size, lanes = extent_of(vector), lanes_of(info, target)
    groups = shared_groups(info, target)
    found: list[TileSpec] = []
    rows = default_rows(info, target, lanes)
    streamed = is_streamed(info, target, prepared)
    taps = default_copies(info)
    down = register_tiles(info, target)
    panels = reads_panels(info)
    # Decisions of their own: the axes' roles are others.
    tile = info.name if info.across is None else f"{info.name}.across"
    if streamed:
        taps = {id(info.reduce[-1].var): min(STREAMS, extent_of(info.reduce[-1]))}
    for axis in info.block.iters:
        name, extent = axis.var.name, extent_of(axis)
        label = f"{tile}.{name}"
        if axis.kind == "reduce":
            copies = taps.get(id(axis.var), 1)
            block = 1 if streamed else min(-(-extent // copies), DEPTH if panels else DEPTH // 2)
            default: tuple[int, ...] = (block, copies)
            pair = (f"{label}.1", f"{label}.2")
            found.append(TileSpec(tile, name, pair, extent, "reduce", 1, default))
            continue
        levels = tuple(f"{label}.{n}" for n in (1, 2, 3))
        if groups is not None and axis is vector:
            continue  # whole in every vector
        if axis is groups:
            each = lanes // size  # groups in a vector
            # Two vectors, or what leaves no tail: its lanes would be loaded one by one.
            inner = min(whole(extent, size, lanes), key=lambda n: abs(n * size - 2 * lanes))
            default = 1, dividing(extent // inner), inner
            found.append(TileSpec(tile, name, levels, extent, "vector", each, default))
        elif axis is vector:
            inner = min(default_vectors(info, target, lanes) * lanes, extent)
            tiles = -(-extent // inner // target.num_cores) if streamed else 1 if panels else 4
            default = tiles_around(extent, inner, max(tiles, 1))
            if extent % prod(default) and shares_dimension(info, vector):
                default = without_tail(extent, lanes)
            found.append(TileSpec(tile, name, levels, extent, "vector", lanes, default))
        elif not is_reused(info, axis):
            found.append(TileSpec(tile, name, levels[:2], extent, "outer", 1, (1, 1)))
        else:
            default = tiles_around(extent, rows.get(id(axis.var), 1), down)
            found.append(TileSpec(tile, name, levels, extent, "rows", 1, default))
    found = within_cache(found, info, target)
    return enough_tasks(found, target.num_cores if streamed else 4 * target.num_cores)


def split_levels(
    schedule: Schedule,
    block: BlockRV,
    info: BlockInfo,
    specs: tuple[DecisionSpec, ...],
    target: Target,
) -> Levels:
    """Split and reorder all loops of a block into S0 S1 R0 S2 R1 R2 S3."""
    by_axis = axis_loops(schedule, block)
    loops = {axis.var.name: by_axis[id(axis)] for axis in info.block.iters}
    levels: list[list[LoopRV]] = [[] for _ in range(7)]
    vector_loop: LoopRV | None = None
    width: Decision | int | None = None
    rows: list[LoopRV] = []
    for spec in specs:
        if not isinstance(spec, TileSpec):
            continue
        parts = schedule.split(loops.pop(spec.axis), [None, *(Decision(n) for n in spec.names)])
        places = {"reduce": (2, 4, 5), "outer": (0, 1, 3)}.get(spec.role, (0, 1, 3, 6))
        for part, place in zip(parts, places, strict=True):
            levels[place].append(part)
        if spec.role == "vector":
            vector_loop, width = parts[-1], Decision(spec.names[-1])
            levels[6].remove(vector_loop)
        elif spec.role == "rows":
            rows.append(parts[-1])
    assert vector_loop is not None  # the condition asks for a vector axis
    assert width is not None
    levels[6] += [vector_loop, *loops.values()]
    schedule.reorder(*(loop for level in levels for loop in level))
    if loops:  # of the results of one group
        vector_loop = schedule.fuse(vector_loop, *loops.values())
        width = lanes_of(info, target)
    return Levels(
        tuple(levels[0]), levels[1][-1], tuple(levels[5]), tuple(rows), vector_loop, width
    )


def place_consumer(
    schedule: Schedule, copy: BlockRV, at: LoopRV, width: Decision | int, turned: bool = False
) -> LoopRV:
    """Compute the consumer at the end of a tile; returns the loop to vectorise, of the tile's
    width, or, of a consumer that turns rows into columns, all of a row."""
    schedule.reverse_compute_at(copy, at)
    if turned:  # squares of elements change places in registers, with whatever is left of a row
        return schedule.get_loops(copy)[-1]
    return schedule.split(schedule.get_loops(copy)[-1], [None, width])[1]


def prepared_weights(func: PrimFunc) -> frozenset[str]:
    """The weights that are packed outside the kernel if they are packed once."""
    if option_of(func) is not LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
        return frozenset()
    return frozenset(func.attr("layout_free", ()))


def packable(
    info: BlockInfo,
    specs: tuple[DecisionSpec, ...],
    weights: frozenset[str],
    factored: bool = False,
) -> list[Operand]:
    """Reads with one dimension that is exactly a register-tiled axis, and some axis unused
    (reuse), unless they are `weights` that are packed beforehand. The others are axes too, or, but
    for partial results (`factored`), several that number a dimension in turn."""
    found: list[Operand] = []
    for spec in specs:
        if not isinstance(spec, TileSpec) or spec.role not in ("vector", "rows"):
            continue
        axis = next(a for a in info.spatial if a.var.name == spec.axis)
        for access in info.block.reads:
            prepared = access.buffer.name in weights
            vector = info.vector_axis
            if vector is not None and vector is not axis and id(vector.var) in used_axes(access):
                continue  # its panels are as wide as the vectors
            dim = _panel_dim(access, axis, info, prepared)
            if factored and any(isinstance(i, Affine) and len(i.terms) > 1 for i in access.indices):
                continue
            if dim is not None and all(o.buffer != access.buffer.name for o in found):
                width = Decision(spec.names[-1])
                rank = len(access.buffer.shape)
                name, streamed = access.buffer.name, spec.role == "vector"
                contiguous = dim == rank - 1
                found.append(Operand(name, dim, rank, width, streamed, contiguous, prepared))
    return found


def _panel_dim(access: Access, axis: Iter, info: BlockInfo, prepared: bool) -> int | None:
    """The dimension to cut into panels, if every other one is a bare axis too, or axes that number
    it in turn, and reuse exists or is not needed."""
    dim = axis_dim(access, axis)
    if dim is None or sum(a.buffer is access.buffer for a in info.block.reads) > 1:
        return None
    used = used_axes(access)
    bare = all(_is_bare(index, info) for index in access.indices) and len(used) == sum(
        len(i.terms) for i in access.indices if isinstance(i, Affine)
    )
    reused = prepared or any(id(a.var) not in used and a.extent != 1 for a in info.spatial)
    contracted = any(id(a.var) in used for a in info.reduce)
    return dim if bare and reused and contracted else None


def _is_bare(index: Affine | Expr, info: BlockInfo) -> bool:
    """Whether an index is a constant, an axis, or axes that number a dimension in turn, maybe from
    a later element on and with gaps: `v0 * 96 + v1 + 32`, as of the second of three parts of each
    head."""
    if not isinstance(index, Affine) or not isinstance(index.const, int) or index.const < 0:
        return False
    stride: Int = 1
    left = [a for a in info.block.iters if index.uses([a.var])]
    for _ in range(len(index.terms)):
        axis = next((a for a in left if same_int(index.coefficient(a.var), stride)), None)
        axis = axis or _behind_gap(index, left, stride)
        if axis is None:
            return False
        left.remove(axis)
        stride = index.coefficient(axis.var) * axis.extent
    return True


def _behind_gap(index: Affine, axes: list[Iter], stride: Int) -> Iter | None:
    """The axis of the least step, if that is above `stride`, the elements that others number."""
    steps = [(index.coefficient(a.var), a) for a in axes]
    known = [(step, a) for step, a in steps if isinstance(step, int)]
    if not isinstance(stride, int) or stride == 1 or len(known) < len(steps) or not known:
        return None
    step, axis = min(known, key=lambda pair: pair[0])
    return axis if step > stride else None


def pack(schedule: Schedule, block: BlockRV, operand: Operand) -> BlockRV:
    """Read an operand through panels `[axis // width, ..., axis % width]`; returns the copy."""
    rest = [n for n in range(operand.rank) if n != operand.dim]
    layout: list[list[int | Decision]] = [[operand.dim, operand.width]]
    layout += [[n] for n in rest]
    layout.append([operand.dim, 1, operand.width])
    # By number: a trace must not depend on the names that a user gave.
    reads = schedule.get(block).reads
    index = next(n for n, a in enumerate(reads) if a.buffer.name == operand.buffer)
    return schedule.cache_read(block, index, "global", layout)


def place_panel(schedule: Schedule, panel: BlockRV, mode: str, outer: LoopRV) -> tuple[LoopRV, ...]:
    """Leave a copy at the root ("root": packed once), or move it into each thread's tile
    ("thread").

    Returns its own loops, outermost first.
    """
    count = len(schedule.get_loops(panel))
    if mode == "thread":
        schedule.compute_at(panel, outer)
    return schedule.get_loops(panel)[-count:]
