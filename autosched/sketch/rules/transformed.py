"""Products between constant transforms, a few rows of their tiles at a time: Winograd's convolution
without its intermediates in memory.

    rows of tiles parallel | transform of the data | products | inverse transform | elements

All of a row's intermediates stay in the cache of the core that makes and reads them. By themselves
each stage writes as much as several caches hold, and threads read what others wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.decisions import TileSpec
from autosched.sketch.rules.constant import constant_axes, inline_matrices
from autosched.sketch.rules.default import axis_loops, own_loops
from autosched.sketch.rules.dots import Dot, dots_of
from autosched.sketch.rules.tensorize import pack_operands
from autosched.sketch.rules.tile_defaults import default_rows, extent_of, lanes_of
from autosched.sketch.rules.tiling import pack, packable, place_panel, prepared_weights
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.nodes import Buffer, Iter

ROWS = 4
"""Rows of tiles at a time by default, where there are enough for all threads."""


@dataclass(frozen=True)
class Chain:
    """Blocks in the order of the program; `rows` is the axis of `elements` over rows of tiles."""

    data: BlockInfo
    product: BlockInfo
    inverse: BlockInfo
    elements: BlockInfo
    rows: Iter


class TransformedRows:
    """Computes such a chain in the rows of its last block."""

    name = "transformed-rows"

    def condition(self, state: State, block: str) -> Verdict:
        """The last block of a chain whose intermediates do not fit into the second cache."""
        return Verdict.PASS if _chain(state, block) is None else Verdict.APPLY

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch."""
        chain = _chain(state, block)
        assert chain is not None  # the condition asks for one
        try:
            return [_sketch(state, chain)]
        except ScheduleError:
            return []  # not every location is legal; the other rules remain


def _chain(state: State, block: str) -> Chain | None:
    blocks = state.blocks()
    info = blocks[block]
    if block in state.handled or not info.is_injective or info.sequential:
        return None
    inverse = _transform(blocks, info)
    product = None if inverse is None else _only(blocks, inverse, lambda b: b.needs_tiling)
    data = None if product is None else _transform(blocks, product)
    if inverse is None or product is None or data is None or product.vector_axis is None:
        return None
    if {data.name, product.name, inverse.name} & state.handled:
        return None
    rows, cache = _rows(info, inverse), state.target.l2_bytes
    stored = sum(_bytes(b.block.writes[0].buffer) for b in (data, product))
    made = data.block.writes[0].buffer
    weights = sum(_bytes(a.buffer) for a in product.block.reads if a.buffer is not made)
    # Each row reads all weights, which stay in the cache beside its own intermediates.
    if rows is None or stored <= cache or weights + stored // extent_of(rows) > cache:
        return None
    return Chain(data, product, inverse, info, rows)


def _bytes(buffer: Buffer) -> int:
    return prod(int(n) for n in buffer.shape) * dtypes.itemsize(buffer.dtype)


def _transform(blocks: dict[str, BlockInfo], reader: BlockInfo) -> BlockInfo | None:
    """The product with constant matrices that only `reader` reads, with all its sums written
    out."""
    return _only(
        blocks,
        reader,
        lambda b: (
            bool(constant_axes(b))
            and all(a in constant_axes(b) for a in b.reduce)
            and b.vector_axis is not None
            and b.vector_axis not in constant_axes(b)
        ),
    )


def _only(
    blocks: dict[str, BlockInfo], reader: BlockInfo, fits: Callable[[BlockInfo], bool]
) -> BlockInfo | None:
    """The only reduction that a block reads, if it fits and nothing else reads it."""
    found = [blocks[p] for p in reader.producers if blocks[p].block.is_reduction]
    if len(found) != 1 or not fits(found[0]) or not found[0].writes_identity:
        return None
    return found[0] if found[0].consumers == (reader.name,) else None


def _rows(info: BlockInfo, inverse: BlockInfo) -> Iter | None:
    """The axis of the elements that is the first axis of tiles of which there are several."""
    constant = constant_axes(inverse)
    place = next(
        (n for n, a in enumerate(inverse.spatial) if a not in constant and extent_of(a) > 1), None
    )
    written = inverse.block.writes[0].buffer
    reads = [a for a in info.block.reads if a.buffer is written]
    if place is None or len(reads) != 1:
        return None
    index, last = reads[0].indices[place], reads[0].indices[-1]
    if not isinstance(index, Affine) or not isinstance(last, Affine):
        return None
    found = next((a for a in info.spatial if a.var is index.single_var()), None)
    vector = info.spatial[-1]
    lies = info.vector_axis is vector and last.single_var() is vector.var
    return found if found is not vector and lies else None


def _sketch(state: State, chain: Chain) -> State:
    schedule, blocks = state.fork(), state.blocks()
    for info in (chain.inverse, chain.data):
        inline_matrices(schedule, state.blocks(), info.name)
    elements = schedule.get_block(chain.elements.name)
    rows, outer, lanes = _outer(state, schedule, chain, elements)
    at = outer[-1]
    dot = _whole_dot(chain.product, state.target)
    root = schedule.get_block(chain.product.name)
    panel = None if dot is None else pack_operands(schedule, root, chain.product, dot, blocks)[0]
    for info in (chain.inverse, chain.product, chain.data):
        schedule.compute_at(schedule.get_block(info.name), at)
    for info in (chain.inverse, chain.data):
        _written_out(schedule, info, state.target)
    specs = _product_specs(chain.product, state.target)
    state.declare(schedule, specs)
    if dot is None or panel is None:
        packed = _product(state, schedule, chain.product, specs)
    else:
        packed = _dots(schedule, chain.product, specs, dot, panel)
    for loop in outer:
        schedule.parallel(loop)
    schedule.vectorize(lanes)
    chained = (chain.elements, chain.inverse, chain.product, chain.data)
    return state.advance(
        schedule,
        (*(b.name for b in chained), *packed),
        (*rows, *specs),
        f"{chain.product.name}.rows",
        (TiledNest(chain.data.name, at),),
    )


def _outer(
    state: State, schedule: Schedule, chain: Chain, elements: BlockRV
) -> tuple[tuple[TileSpec, ...], tuple[LoopRV, ...], LoopRV]:
    """Cut the elements into rows of tiles: the decision, the loops that run in parallel, and the
    one in vectors."""
    info, axis = chain.elements, chain.rows
    by_axis = axis_loops(schedule, elements)
    extent = extent_of(axis)
    wanted = 4 * state.target.num_cores
    count = max((n for n in range(1, ROWS + 1) if -(-extent // n) >= wanted), default=1)
    name = f"{info.name}.{axis.var.name}.tiles"
    spec = TileSpec(info.name, axis.var.name, (name,), extent, "outer", 1, (count,))
    state.declare(schedule, (spec,))
    before = info.spatial[: info.spatial.index(axis)]
    after = [a for a in info.spatial if a is not axis and a not in before]
    tasks, inside = schedule.split(by_axis[id(axis)], [None, Decision(name)])
    outer = (*(by_axis[id(a)] for a in before), tasks)
    schedule.reorder(*outer, inside, *(by_axis[id(a)] for a in after))
    width = 2 * lanes_of(info, state.target)
    lanes = by_axis[id(after[-1])]
    if extent_of(after[-1]) > width:
        lanes = schedule.split(lanes, [None, width])[1]
    return (spec,), outer, lanes


def _own(schedule: Schedule, info: BlockInfo) -> dict[int, LoopRV]:
    """Id of an axis -> its loop, inside what the block is computed at."""
    return dict(zip(map(id, info.block.iters), own_loops(schedule, info), strict=True))


def _written_out(schedule: Schedule, info: BlockInfo, target: Target) -> None:
    """Unroll a transform's constant axes around one vector."""
    by_axis = _own(schedule, info)
    constant = [by_axis[id(a)] for a in info.block.iters if a in constant_axes(info)]
    free = [
        by_axis[id(a)]
        for a in info.spatial
        if a not in constant_axes(info) and a is not info.vector_axis
    ]
    assert info.vector_axis is not None  # the chain's condition asks for one
    around, lane = schedule.split(by_axis[id(info.vector_axis)], [None, lanes_of(info, target)])
    schedule.reorder(*free, around, *constant, lane)
    for loop in constant:
        schedule.unroll(loop)
    schedule.vectorize(lane)


def _product_specs(info: BlockInfo, target: Target) -> tuple[TileSpec, ...]:
    """The register tile: rows of the last axis that has some, and vectors."""
    vector = info.vector_axis
    assert vector is not None  # the chain's condition asks for one
    lanes = lanes_of(info, target)
    rows = default_rows(info, target, lanes)
    found: list[TileSpec] = []
    for axis in info.spatial:
        name, extent = axis.var.name, extent_of(axis)
        names = (f"{info.name}.{name}.tile",)
        if axis is vector:
            width = min(3 * lanes if -(-extent // lanes) % 6 == 3 else 2 * lanes, extent)
            found.append(TileSpec(info.name, name, names, extent, "vector", lanes, (width,)))
        elif (size := rows.get(id(axis.var), 1)) > 1:
            found.append(TileSpec(info.name, name, names, extent, "rows", 1, (size,)))
    return tuple(found)


def _cut(
    schedule: Schedule, info: BlockInfo, specs: tuple[TileSpec, ...], by_axis: dict[int, LoopRV]
) -> tuple[list[LoopRV], list[LoopRV], LoopRV]:
    """Split the loops over results: those around the register tile, its rows, and its columns."""
    tiles = {spec.axis: spec for spec in specs}
    outer: list[LoopRV] = []
    inner: list[LoopRV] = []
    for axis in info.spatial:
        loop = by_axis[id(axis)]
        spec = tiles.get(axis.var.name)
        if spec is None:
            outer.append(loop)
            continue
        around, part = schedule.split(loop, [None, Decision(spec.names[0])])
        outer.append(around)
        if spec.role == "vector":
            columns = part
        else:
            inner.append(part)
    return outer, inner, columns


def _product(
    state: State, schedule: Schedule, info: BlockInfo, specs: tuple[TileSpec, ...]
) -> list[str]:
    """Tile the product, its prepared weights in panels; the names of the blocks that pack them."""
    by_axis = _own(schedule, info)
    outer, inner, lane = _cut(schedule, info, specs, by_axis)
    schedule.reorder(*outer, *(by_axis[id(a)] for a in info.reduce), *inner, lane)
    block = schedule.get_block(info.name)
    packed: list[str] = []
    for operand in packable(info, specs, prepared_weights(schedule.func)):
        if operand.prepared and operand.streamed:
            panel = pack(schedule, block, operand)
            loops = place_panel(schedule, panel, "root", outer[0])
            for loop in loops[:-2]:
                schedule.parallel(loop)
            schedule.vectorize(loops[-1])
            packed.append(schedule.get(panel).name)
    for loop in inner:
        schedule.unroll(loop)
    schedule.vectorize(lane)
    return packed


def _whole_dot(info: BlockInfo, target: Target) -> Dot | None:
    """The intrinsic on vectors that computes the product, if it divides all of its axes."""
    for dot in dots_of(info, target):
        if dot.across is None and all(
            extent_of(a) % dot.whole.get(a.var.name, 1) == 0 for a in info.block.iters
        ):
            return dot
    return None


def _dots(
    schedule: Schedule, info: BlockInfo, specs: tuple[TileSpec, ...], dot: Dot, panel: BlockRV
) -> list[str]:
    """Tile the product by an intrinsic; the name of the block that packs its weights."""
    by_axis = _own(schedule, info)
    outer, inner, columns = _cut(schedule, info, specs, by_axis)
    several, lanes = schedule.split(columns, [None, dot.lanes])
    inner.append(several)
    reduce = [by_axis[id(a)] for a in info.reduce]
    at = info.reduce.index(dot.term)
    reduce[at], terms = schedule.split(reduce[at], [None, dot.group])
    schedule.reorder(*outer, *reduce, *inner, lanes, terms)
    schedule.tensorize(lanes, dot.intrin.name)
    loops = schedule.get_loops(panel)
    for loop in loops[: max(len(loops) - 3, 1)]:
        schedule.parallel(loop)
    schedule.vectorize(loops[-1])
    for loop in inner:
        schedule.unroll(loop)
    return [schedule.get(panel).name]
