"""Multi-level tiling "SSRSRS" of reductions with reuse, with fusion of an elementwise consumer.

    S0 parallel | S1 | R0 | S2 | R1 serial | register tile: R2 and S3 unrolled, one axis vectorised

Copies of a reduction (R2) share what they load: the taps of a convolution slide over the same data.

The consumer (or, without one, the copy of a write cache) is computed at the last loop of S1, where
a tile is complete. Operands may be packed into panels of the register tile's width, once for all
threads or by each thread for its parallel tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from autosched.errors import ScheduleError
from autosched.lowering.layout_rewrite import LayoutRewriteOption, option_of
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, axis_dim, elementwise_consumer, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import axis_loops, is_contiguous
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int, always, ceildiv, is_zero, same_int
from autosched.tir.expr import Expr
from autosched.tir.nodes import Access, Iter, PrimFunc

PACK_PARALLEL_TAIL = 2
"""Innermost loops of a packing block that one task runs."""
DEFAULT_COPIES = 9
"""Copies of the reduction in the default schedule."""
STREAMS = 16
"""Rows of an operand that is read once which the default schedule reads side by side. With fewer
each result is loaded and stored too often, with one every step is on another page."""
SHARED_COST = 2
"""Rows of a register tile that cost as much as the loads of the vectors which its rows share."""
FEW = 8
"""Results an element up to which an operand is read as if for one."""


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

    def apply(self, state: State, block: str) -> list[State]:
        """All combinations of packing and, without a consumer, of a write cache."""
        blocks = state.blocks()
        info = blocks[block]
        consumer = elementwise_consumer(info, blocks)
        weights = prepared_weights(state.schedule.func)
        specs = tile_specs(info, state.target)
        operands = packable(info, specs, weights, block in state.factored)
        modes = [packing_modes(o) for o in operands]
        choices = [(packing, False) for packing in product(*modes)]
        if consumer is None and info.writes_identity:
            # A write cache matters for the store alone: not tried with every packing.
            choices += [
                (p, True) for p in product(*(m[:2] if len(m) > 2 else m[:1] for m in modes))
            ]
        return [
            self._sketch(state, info, consumer, dict(zip(operands, packing, strict=True)), cached)
            for packing, cached in choices
        ]

    def _sketch(
        self,
        state: State,
        info: BlockInfo,
        consumer: BlockInfo | None,
        packing: dict[Operand, str],
        cached: bool,
    ) -> State:
        schedule = state.fork()
        specs = tile_specs(info, state.target)
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
        form = "" if copy is None else ".cache" if cached else ".fused"
        if copy is not None:
            try:
                own = place_consumer(schedule, copy, levels.inner_spatial, levels.width)
            except ScheduleError:
                # Rows that are read through a reshape are two axes, whose tiles may overlap in the
                # result; then the consumer is a nest of its own, for the rules that follow.
                form = ".apart"
            else:
                vector_loops.append(own)
                handled.append(schedule.get(copy).name)
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


def tile_specs(info: BlockInfo, target: Target) -> tuple[DecisionSpec, ...]:
    """Tile decisions of a block's axes: three factors for a spatial axis, two for a reduction axis.

    A spatial axis that every read uses gives no reuse, so it takes no registers (role "outer").
    """
    vector = info.vector_axis
    assert vector is not None  # the condition asks for one
    size, lanes = _extent(vector), lanes_of(info, target)
    groups = shared_groups(info, target)
    found: list[TileSpec] = []
    rows = default_rows(info, target, lanes)
    streamed = is_streamed(info, target)
    taps = _default_copies(info)
    if streamed:
        taps = {id(info.reduce[-1].var): min(STREAMS, _extent(info.reduce[-1]))}
    for axis in info.block.iters:
        name, extent = axis.var.name, _extent(axis)
        label = f"{info.name}.{name}"
        if axis.kind == "reduce":
            copies = taps.get(id(axis.var), 1)
            block = 1 if streamed else min(-(-extent // copies), 512)
            default: tuple[int, ...] = (block, copies)
            pair = (f"{label}.1", f"{label}.2")
            found.append(TileSpec(info.name, name, pair, extent, "reduce", 1, default))
            continue
        levels = tuple(f"{label}.{n}" for n in (1, 2, 3))
        if groups is not None and axis is vector:
            continue  # whole in every vector
        if axis is groups:
            each = lanes // size  # groups in a vector
            # Two vectors, or what leaves no tail: its lanes would be loaded one by one.
            inner = min(_whole(extent, size, lanes), key=lambda n: abs(n * size - 2 * lanes))
            default = 1, _dividing(extent // inner), inner
            found.append(TileSpec(info.name, name, levels, extent, "vector", each, default))
        elif axis is vector:
            vectors = -(-extent // lanes)
            # Two vectors; three where they leave none over.
            inner = min(3 * lanes if vectors % 6 == 3 else 2 * lanes, extent)
            tiles = -(-extent // inner // target.num_cores) if streamed else 4
            default = tiles_around(extent, inner, max(tiles, 1))
            if extent % prod(default) and _shares_dimension(info, vector):
                default = _without_tail(extent, lanes)
            found.append(TileSpec(info.name, name, levels, extent, "vector", lanes, default))
        elif not _is_reused(info, axis):
            found.append(TileSpec(info.name, name, levels[:2], extent, "outer", 1, (1, 1)))
        else:
            default = tiles_around(extent, rows.get(id(axis.var), 1), 8)
            found.append(TileSpec(info.name, name, levels, extent, "rows", 1, default))
    return enough_tasks(found, target.num_cores if streamed else 4 * target.num_cores)


def is_streamed(info: BlockInfo, target: Target) -> bool:
    """Whether what is read along the vectors comes from beyond the second cache for few results an
    element: a vector or a few times a matrix. Then whole rows are read one after the other, as they
    lie in memory, and results stay in the cache rather than in registers."""
    vector = info.vector_axis
    assert vector is not None  # the condition asks for one
    if not info.reduce:
        return False
    for access in info.block.reads:
        used = used_axes(access)
        dense = is_contiguous(access, vector) and id(info.reduce[-1].var) in used
        results = prod(_extent(a) for a in info.spatial if id(a.var) not in used)
        size = prod(int(n) for n in access.buffer.shape) * dtypes.itemsize(access.buffer.dtype)
        if dense and results <= FEW and size > target.l2_bytes and not _slides(access, info):
            return True
    return False


def lanes_of(info: BlockInfo, target: Target) -> int:
    """Results in one vector."""
    return max(target.vector_bytes // dtypes.itemsize(info.block.writes[0].buffer.dtype), 1)


def shared_groups(info: BlockInfo, target: Target) -> Iter | None:
    """The axis of the groups, where one group has too few results for a vector, and two vectors
    hold what the groups in one read: a convolution of few channels a group.

    The vectors then run over both axes, and lanes of a group take the element that is theirs.
    """
    short = info.vector_axis
    assert short is not None  # the condition asks for one
    last = info.block.writes[0].indices[-1]
    assert isinstance(last, Affine)  # or it would have no vector axis
    size, lanes = _extent(short), lanes_of(info, target)
    found = (a for a in info.spatial if same_int(last.coefficient(a.var), size))
    groups = next(found, None) if 1 < size < lanes else None
    if groups is None or not all(_neighbours(a, groups, short, lanes) for a in info.block.reads):
        return None
    # A consumer writes whole vectors: those of the last groups of a tile must not hang over it.
    return groups if _whole(_extent(groups), size, lanes) else None


def _whole(groups: int, size: int, lanes: int) -> list[int]:
    """The numbers of groups of one to four vectors of which all the groups are a multiple."""
    return [n for n in range(1, 4 * lanes // size + 1) if groups % n == 0 and n * size >= lanes]


def _neighbours(access: Access, groups: Iter, short: Iter, lanes: int) -> bool:
    """Whether a read by all lanes of a vector is of elements that two vectors hold."""
    both = (groups.var, short.var)
    last = access.indices[-1]
    if not isinstance(last, Affine):
        return False
    if any(not isinstance(i, Affine) or i.uses(both) for i in access.indices[:-1]):
        return False
    group, one = last.coefficient(groups.var), last.coefficient(short.var)
    size = _extent(short)
    if same_int(one, 1):
        return same_int(group, size) or is_zero(group)
    reach = 1 + ceildiv(lanes - 1, size) * group  # from the first lane's element to the last one's
    return is_zero(one) and always(reach <= 2 * lanes)


def _slides(access: Access, info: BlockInfo) -> bool:
    """Whether windows are read, which overlap: an element is for as many results as it has taps."""
    reduce = [a.var for a in info.reduce if _extent(a) != 1]
    spatial = [a.var for a in info.spatial if _extent(a) != 1]
    affine = [i for i in access.indices if isinstance(i, Affine)]
    return any(i.uses(reduce) and i.uses(spatial) for i in affine)


def enough_tasks(specs: list[TileSpec], wanted: int) -> tuple[DecisionSpec, ...]:
    """The specs with smaller default cache tiles, until the parallel level has `wanted`
    iterations."""
    specs = list(specs)
    while True:
        spatial = [n for n, s in enumerate(specs) if s.role != "reduce"]
        tasks = prod(-(-specs[n].extent // prod(specs[n].default)) for n in spatial)
        largest = max(spatial, key=lambda n: specs[n].default[1])
        outer, middle, *inner = specs[largest].default
        if tasks >= wanted or middle == 1:
            return tuple(specs)
        around = tiles_around(specs[largest].extent, prod(inner), middle // 2)
        specs[largest] = replace(specs[largest], default=(outer, around[1], *inner))


def _extent(axis: Iter) -> int:
    return int(axis.extent)


def tiles_around(extent: int, inner: int, tiles: int) -> tuple[int, int, int]:
    """Default factors: half of `tiles` to `tiles` register tiles in one cache tile, of these the
    number with the least overhang."""
    count = -(-extent // inner)
    most = min(tiles, count)
    return 1, min(range(most, most // 2, -1), key=lambda n: -count % n), inner


def _shares_dimension(info: BlockInfo, vector: Iter) -> bool:
    """Whether another axis numbers results in the dimension of the vector axis, as the groups of a
    convolution do: what hangs over the end of one group lies in the next."""
    last = info.block.writes[0].indices[-1]
    assert isinstance(last, Affine)  # or it would have no vector axis
    return any(a is not vector and _extent(a) > 1 and last.uses((a.var,)) for a in info.spatial)


def _without_tail(extent: int, lanes: int) -> tuple[int, int, int]:
    """Default factors whose cache tiles end where the axis does: register tiles of up to four
    vectors with the fewest lanes left empty, near two vectors."""
    inner = min(
        (n for n in range(1, extent + 1) if extent % n == 0 and (n <= 4 * lanes or n == extent)),
        key=lambda n: (-(-n // lanes) / n, abs(n - 2 * lanes)),
    )
    return 1, _dividing(extent // inner), inner


def _dividing(count: int) -> int:
    """Register tiles of a cache tile, so that no cache tile hangs over the end."""
    return next(n for n in (4, 3, 2, 1) if count % n == 0)


def _is_reused(info: BlockInfo, axis: Iter) -> bool:
    """Whether something is read that is the same for all of an axis."""
    return not all(id(axis.var) in used_axes(a) for a in info.block.reads)


def default_rows(info: BlockInfo, target: Target, lanes: int) -> dict[int, int]:
    """Rows of the default register tile: half of the registers, innermost axis first, but before
    all others the axes of rows that share their vectors (the filters of a convolution whose pixels
    are neighbours): those that no read along the vectors uses."""
    vector = info.vector_axis
    assert vector is not None  # the condition asks for one
    along = [u for u in map(used_axes, info.block.reads) if id(vector.var) in u]
    left = target.vector_registers // 4
    rows: dict[int, int] = {}
    shared = [a for a in info.spatial if all(id(a.var) not in u for u in along)]
    others = [a for a in info.spatial if a not in shared and _is_reused(info, a)]
    for axis in (*reversed(shared), *reversed(others)):
        if axis is vector or left <= 1:
            continue
        extent = _extent(axis)
        # A tile costs its rows, overhanging ones too, and what they share: the loads of vectors.
        best = min(
            range(1, min(left, extent) + 1), key=lambda f: (-(-extent // f) * (f + SHARED_COST), -f)
        )
        rows[id(axis.var)] = best
        left //= best
    return rows


def _default_copies(info: BlockInfo) -> dict[int, int]:
    """Copies of short reductions, such as a 3 x 3 window, innermost axis first."""
    left = DEFAULT_COPIES
    copies: dict[int, int] = {}
    for axis in reversed(info.reduce):
        extent = _extent(axis)
        if 1 < extent <= min(left, 5):
            copies[id(axis.var)] = extent
            left //= extent
    return copies


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


def place_consumer(schedule: Schedule, copy: BlockRV, at: LoopRV, width: Decision | int) -> LoopRV:
    """Compute the consumer at the end of a tile; returns the loop to vectorise, of the tile's
    width."""
    schedule.reverse_compute_at(copy, at)
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
    """Whether an index is 0, an axis, or axes that number a dimension in turn: `v0 * 64 + v1`."""
    if not isinstance(index, Affine) or not is_zero(index.const):
        return False
    stride: Int = 1
    left = [a for a in info.block.iters if index.uses([a.var])]
    for _ in range(len(index.terms)):
        axis = next((a for a in left if same_int(index.coefficient(a.var), stride)), None)
        if axis is None:
            return False
        left.remove(axis)
        stride = stride * axis.extent
    return True


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
