"""Two products with rows in between, as in attention: which blocks they are, and how what is in
between is placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from autosched.schedule import LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, elementwise_consumer, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import (
    leading_axes,
    own_loops,
    row_specs,
    schedule_member,
    vector_lanes,
)
from autosched.sketch.rules.tile_defaults import default_rows, extent_of, lanes_of
from autosched.sketch.state import State
from autosched.target import Target
from autosched.tir import dtypes

MOST_ROWS = 64
"""Rows of a block by default, where the second cache holds so many: more save nothing."""


@dataclass(frozen=True)
class Chain:
    """`between`: the blocks that make rows of what `first` makes, for `last` to read; the one that
    it reads comes first. `rows`: the number of leading axes that all of them share."""

    first: BlockInfo
    between: tuple[BlockInfo, ...]
    last: BlockInfo
    rows: int


def chain_of(state: State, block: str) -> Chain | None:
    """The chain of which a block is the last product."""
    blocks = state.blocks()
    last = blocks[block]
    if block in state.handled or not _is_product(last):
        return None
    for name in last.producers:
        if blocks[name].consumers != (block,) or not blocks[name].is_injective:
            continue
        rows = len(blocks[name].spatial) - 1
        between = _between(name, blocks, state.handled, rows)
        if not any(m.block.is_reduction for m in between):
            continue
        makers = {p for m in between for p in m.producers} - {m.name for m in between}
        products = [blocks[p] for p in makers if _is_product(blocks[p])]
        if len(products) != 1 or not _shares(products[0], between, rows, state.handled):
            continue
        alike = len(last.spatial) == rows + 1 and leading_axes(blocks[name], last, rows) == rows
        if alike and extent_of(last.spatial[rows - 1]) > 1:
            return Chain(products[0], between, last, rows)
    return None


def _between(
    name: str, blocks: dict[str, BlockInfo], handled: frozenset[str], rows: int
) -> tuple[BlockInfo, ...]:
    """A block and those before it that make something of its rows alone, and are no products."""
    group = {name: blocks[name]} if rows > 0 and name not in handled else {}
    names = list(blocks)
    for other in reversed(names[: names.index(name)]):
        info = blocks[other]
        if other in handled or info.is_output or info.sequential or _is_product(info):
            continue
        readers = [group[c] for c in info.consumers if c in group]
        if not readers or len(readers) < len(info.consumers) or not info.writes_identity:
            continue
        if all(leading_axes(info, c, rows) == rows for c in readers):
            group[other] = info
    return tuple(group.values())


def _shares(
    first: BlockInfo, between: Sequence[BlockInfo], rows: int, handled: frozenset[str]
) -> bool:
    """Whether a product makes rows for these blocks alone."""
    readers = [m for m in between if m.name in first.consumers]
    if first.name in handled or first.is_output or len(readers) < len(first.consumers):
        return False
    alike = all(leading_axes(first, c, rows) == rows for c in readers)
    return len(first.spatial) == rows + 1 and alike


def _is_product(info: BlockInfo) -> bool:
    """Whether a block is a reduction of what one operand has along the vectors, which are the last
    axis of the result, and the other one has not."""
    last = info.spatial[-1] if info.spatial else None
    if last is None or info.vector_axis is not last or info.block.predicates:
        return False
    along = sum(id(last.var) in used_axes(a) for a in info.block.reads)
    return info.needs_tiling and info.writes_identity and 0 < along < len(info.block.reads)


def block_spec(chain: Chain, target: Target) -> TileSpec:
    """Rows of a block, in register tiles of the last product: as many as a quarter of the second
    cache holds, with what is made of them, and as leave work for all threads."""
    last, first = chain.last, chain.first
    axis = last.spatial[chain.rows - 1]
    tile, extent = _register_rows(last, chain, target), extent_of(axis)
    row = dtypes.itemsize(first.block.writes[0].buffer.dtype) * extent_of(first.spatial[-1])
    around = prod(extent_of(a) for a in last.spatial[: chain.rows - 1])
    shares = -(-4 * target.num_cores // around)
    most = min(target.l2_bytes // 4 // (2 * row), MOST_ROWS, -(-extent // shares))
    names = tuple(f"{last.name}.rows.{axis.var.name}.{n}" for n in (1, 2))
    default = (max(most // tile, 1), tile)
    return TileSpec(last.name, axis.var.name, names, extent, "rows", 1, default)


def rows_spec(info: BlockInfo, chain: Chain, target: Target) -> TileSpec:
    """Rows of a register tile."""
    axis = info.spatial[chain.rows - 1]
    tile = _register_rows(info, chain, target)
    name = f"{info.name}.rows.{axis.var.name}"
    return TileSpec(info.name, axis.var.name, (name,), extent_of(axis), "rows", 1, (tile,))


def _register_rows(info: BlockInfo, chain: Chain, target: Target) -> int:
    rows = default_rows(info, target, lanes_of(info, target))
    return rows.get(id(info.spatial[chain.rows - 1].var), 1)


@dataclass
class Placed:
    """What is computed in a block of rows: names, decisions, and loops to vectorise."""

    names: list[str]
    specs: list[DecisionSpec]
    vectors: list[LoopRV]


def place_chain(state: State, schedule: Schedule, chain: Chain, at: LoopRV) -> Placed:
    """Compute all but the last product in its blocks of rows, each of which is an iteration of
    `at`; the first product is not cut yet."""
    names, vectors = list[str](), list[LoopRV]()
    elements = _place_elements(state, schedule, chain, at)
    if elements is not None:
        names.append(elements[0])
        vectors.append(elements[1])
    specs = _place_rows(state, schedule, chain, at)
    schedule.compute_at(schedule.get_block(chain.first.name), at)
    return Placed(names, specs, vectors)


def give_kinds(
    schedule: Schedule,
    parallel: Sequence[LoopRV],
    unrolled: Sequence[LoopRV],
    vectors: Sequence[LoopRV],
) -> None:
    """Loops get their kinds last: a primitive that finds kinds checks all of them again."""
    for loop in parallel:
        schedule.parallel(loop)
    for loop in unrolled:
        schedule.unroll(loop)
    for loop in vectors:
        schedule.vectorize(loop)


def _place_elements(
    state: State, schedule: Schedule, chain: Chain, at: LoopRV
) -> tuple[str, LoopRV] | None:
    """Compute what follows the last product, element by element, in a block of rows: its name and
    the loop to vectorise."""
    consumer = elementwise_consumer(chain.last, state.blocks())
    if consumer is None:
        return None
    copy = schedule.get_block(consumer.name)
    schedule.reverse_compute_at(copy, at)
    width = 2 * vector_lanes(consumer, state.target)
    return consumer.name, schedule.split(schedule.get_loops(copy)[-1], [None, width])[1]


def _place_rows(state: State, schedule: Schedule, chain: Chain, at: LoopRV) -> list[DecisionSpec]:
    """Compute what is between the products in a block of rows, one row after the other."""
    row, specs = chain.between[0], list[DecisionSpec]()
    schedule.compute_at(schedule.get_block(row.name), at)
    around = own_loops(schedule, row)[chain.rows - 1]
    for member in chain.between[1:]:
        schedule.compute_at(schedule.get_block(member.name), around)
    own = {m.name: own_loops(schedule, m) for m in chain.between}
    for member in chain.between:
        mine = row_specs(member, chain.rows, state.target)
        state.declare(schedule, mine)
        specs += mine
        lanes = vector_lanes(member, state.target)
        schedule_member(schedule, member, own[member.name], chain.rows, lanes, mine)
    return specs
