"""Multi-level tiling "SSSRRSRS" on GPUs, with the elementwise consumer that stores the tile.

    S0 blockIdx.x | S1 vthread | S2 threadIdx.x | R0 | R1 serial | S3 | R2 | S4 unrolled

The loops of one level are bound to one axis together. Accumulators are local: S3 and S4 are a
thread's register tile. Inputs in shared memory are fetched at the last loop of R0 by all threads of
a block together, in rows that may be padded (`_rows_spec`); the consumer is computed at the last
loop of S2, where the tile is complete.
"""

from __future__ import annotations

from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, numbered_axes
from autosched.sketch.decisions import ChoiceSpec, DecisionSpec, Role, TileSpec
from autosched.sketch.rules.constant import constant_axes
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.nodes import Iter

WIDTHS = (4, 1, 2)
"""Values for the elements that a thread fetches at once into shared memory."""
VECTOR_BYTES = 16
"""Of the longest load from shared memory."""
DEFAULT_THREADS, DEFAULT_TILE, DEFAULT_STEPS = 128, 4, 8
"""Of the default schedule: threads of a block, elements of an axis a thread, steps of a fetch."""


class MultiLevelTiling:
    """Tiles a reduction with reuse and fuses what stores its tile."""

    name = "multi-level-tiling"

    def condition(self, state: State, block: str) -> Verdict:
        """A reduction that reads data more than once and has an elementwise consumer: one of the
        program's (MultiLevelTilingWithFusion of Ansor), or the copy of a cache write."""
        if block in state.handled:
            return Verdict.PASS
        info = state.blocks()[block]
        return Verdict.APPLY_AND_SKIP_REST if is_tiled(info) else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """Split, order and bind the loops, then place what belongs to the tile; for CUDA once more
        with what is shared fetched a step ahead."""
        blocks = state.blocks()
        info = blocks[block]
        consumer = storing(state, info)
        assert consumer is not None  # without one, AddCacheWrite has made one
        copies = [
            blocks[p] for p in info.producers if blocks[p].block.writes[0].buffer.scope == "shared"
        ]
        schedule = state.fork()
        specs = tile_specs(info)
        names = {c.name: _decision_prefix(state, block, c) for c in copies}
        fetches = tuple(ChoiceSpec(block, f"{names[c.name]}.fetch", WIDTHS) for c in copies)
        rows = {
            c.name: _rows_spec(block, names[c.name], c) for c in copies if _lies_across(info, c)
        }
        state.declare(schedule, (*specs, *fetches, *rows.values()))
        rv = schedule.get_block(block)
        if info.block.writes[0].buffer.scope != "local":
            schedule.set_scope(rv, 0, "local")
        levels = split_levels(schedule, rv, info, specs)
        for level, axis in zip(levels, ("blockIdx.x", "vthread.x", "threadIdx.x"), strict=False):
            for loop in level:
                schedule.bind(loop, axis)
        store = schedule.get_block(consumer.name)
        _place_store(schedule, store, levels[2][-1])
        for copy, fetch in zip(copies, fetches, strict=True):
            fetched = schedule.get_block(copy.name)
            schedule.compute_at(fetched, levels[3][-1])
            schedule.annotate(fetched, "cooperative", Decision(fetch.name))
            if copy.name in rows:
                _pad_rows(schedule, fetched, rows[copy.name])
        for loop in (*levels[5], *levels[6], *levels[7]):
            schedule.unroll(loop)
        handled = (block, consumer.name, *(c.name for c in copies))
        nest = TiledNest(block, levels[2][-1])
        decided: tuple[DecisionSpec, ...] = (*specs, *fetches, *rows.values())
        found = [state.advance(schedule, handled, decided, block, (nest,))]
        if copies and state.target.kind == "cuda":
            # Copies for the next step are under way while this one is computed; OpenCL waits.
            ahead = schedule.copy()
            for copy in copies:
                ahead.double_buffer(ahead.get_block(copy.name))
            found.append(state.advance(ahead, handled, decided, f"{block}.ahead", (nest,)))
        return found


def is_tiled(info: BlockInfo) -> bool:
    """Whether a block is tiled. Products with constant matrices are not."""
    return info.needs_tiling and not constant_axes(info)


def storing(state: State, info: BlockInfo) -> BlockInfo | None:
    """The elementwise consumer that can store the tile: one that no rule has placed, of a result
    with one axis a dimension, as a tile has. (The consumer's own may be numbered by several.)"""
    found = info.dag.elementwise_consumer(info.name)
    if found is None or found.name in state.handled or not info.writes_identity:
        return None
    blocks = state.blocks()
    consumer = blocks[found.name]
    last = [name for name in blocks if name in consumer.producers][-1]
    whole = all(numbered_axes(a, consumer.spatial) for a in consumer.block.writes)
    return consumer if consumer.is_injective and whole and last == info.name else None


def tile_specs(info: BlockInfo) -> tuple[TileSpec, ...]:
    """Four factors of a spatial axis (S1 to S4), two of a reduction axis (R1, R2)."""
    found: list[TileSpec] = []
    threads, steps = DEFAULT_THREADS, DEFAULT_STEPS
    defaults: dict[int, tuple[int, ...]] = {}
    tiled = [a for a in reversed(info.spatial) if int(a.extent) > 1][:2]
    for axis in reversed(info.block.iters):
        extent = int(axis.extent)
        if axis.kind == "reduce":
            taken = min(extent, max(steps, 1))
            defaults[id(axis.var)], steps = (taken, 1), steps // taken
            continue
        tile = min(DEFAULT_TILE, extent) if axis in tiled else 1
        most = min(threads, -(-extent // tile), 16 if axis in tiled else 4)
        power = 1 << (most.bit_length() - 1)
        defaults[id(axis.var)], threads = (1, power, 1, tile), threads // power
    for axis in info.block.iters:
        found.append(_spec(info, axis, defaults[id(axis.var)]))
    return tuple(found)


def _spec(info: BlockInfo, axis: Iter, default: tuple[int, ...]) -> TileSpec:
    name, extent = axis.var.name, int(axis.extent)
    names = tuple(f"{info.name}.{name}.{n + 1}" for n in range(len(default)))
    role: Role = "steps" if axis.kind == "reduce" else "tile"
    return TileSpec(info.name, name, names, extent, role, 1, default)


def _lies_across(info: BlockInfo, copy: BlockInfo) -> bool:
    """Whether threads of a tiled block read different rows of a copy: a spatial axis stands in an
    index before the last."""
    shared = copy.block.writes[0].buffer
    axes = [a.var for a in info.spatial if a.extent != 1]
    return any(
        isinstance(index, Affine) and index.uses(axes)
        for access in info.block.reads
        if access.buffer is shared
        for index in access.indices[:-1]
    )


def _decision_prefix(state: State, block: str, copy: BlockInfo) -> str:
    """What the names of a copy's decisions begin with, in every sketch of the space for the same
    block: where another one's copy may have this name in another sketch, the block's name."""
    # A sketch with partial results stands beside one without, which has copies as well; and one
    # with an intrinsic of another block has copies for that. Of several readers of an array, those
    # that copy it take its names in order, and which of them do differs between sketches.
    fixed = any(nest.fixed for nest in state.nests)
    source = copy.block.reads[0].buffer if copy.block.reads else None
    readers = [
        other
        for other in state.blocks().values()
        if any(access.buffer is source for access in other.block.reads)
    ]
    several = fixed or block in state.factored or len(readers) > 1
    return f"{block}.{copy.name}" if several else copy.name


def _rows_spec(block: str, prefix: str, copy: BlockInfo) -> ChoiceSpec:
    """Whether rows of a copy in shared memory lie dense, or an odd number of vectors apart: eight
    rows that lanes of a warp read at once are then in different banks, and begin where a vector
    may."""
    vector = VECTOR_BYTES // dtypes.itemsize(copy.block.writes[0].buffer.dtype)
    return ChoiceSpec(block, f"{prefix}.align", (1, 2 * vector))


def _pad_rows(schedule: Schedule, copy: BlockRV, spec: ChoiceSpec) -> None:
    schedule.storage_align(copy, 0, -2, Decision(spec.name), spec.values[1] // 2)


def split_levels(
    schedule: Schedule, block: BlockRV, info: BlockInfo, specs: tuple[TileSpec, ...]
) -> list[list[LoopRV]]:
    """Split and reorder all loops of a block into S0 S1 S2 R0 R1 S3 R2 S4."""
    by_axis = axis_loops(schedule, block)
    levels: list[list[LoopRV]] = [[] for _ in range(8)]
    for axis, spec in zip(info.block.iters, specs, strict=True):
        parts = schedule.split(by_axis[id(axis)], [None, *(Decision(n) for n in spec.names)])
        places = (3, 4, 6) if axis.kind == "reduce" else (0, 1, 2, 5, 7)
        for part, place in zip(parts, places, strict=True):
            levels[place].append(part)
    schedule.reorder(*(loop for level in levels for loop in level))
    return levels


def _place_store(schedule: Schedule, store: BlockRV, at: LoopRV) -> None:
    """Compute the consumer at the end of a thread's tile, its neighbours stored as vectors."""
    own = len(schedule.get_loops(store))
    schedule.reverse_compute_at(store, at)
    loops = schedule.get_loops(store)[-own:]
    for loop in loops[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(loops[-1])
