"""Always-inline: an intermediate that is cheap, or used once, is computed where it is used."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.schedule.body import MAX_NODES, merged_size
from autosched.sketch.analysis import BlockInfo, axis_dim, used_axes
from autosched.sketch.state import State, Verdict
from autosched.tir.affine import Affine, is_zero
from autosched.tir.expr import children
from autosched.tir.height import MAX_HEIGHT
from autosched.tir.nodes import Access

RECOMPUTED = 24.0
"""Cost of all that a point recomputes, up to which a cheap intermediate is not stored. Each step of
a stencil multiplies the reads of the next one, so that a chain of them would grow without end."""


class AlwaysInline:
    """Inlines injective intermediates (Ansor's rule, with a cost bound in place of its name
    list)."""

    name = "always-inline"

    def condition(self, state: State, block: str) -> Verdict:
        """Injective, no output, and cheap or read once a point."""
        if worth_inlining(block, state.blocks()):
            return Verdict.APPLY_AND_SKIP_REST
        return Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """compute_inline."""
        schedule = state.fork()
        schedule.compute_inline(schedule.get_block(block))
        return [state.advance(schedule)]


def worth_inlining(name: str, blocks: Mapping[str, BlockInfo]) -> bool:
    """Whether a block is an injective intermediate that is cheap, or read once a point.

    What feeds a tiled block is left to the padding rule unless it is a plain copy of everything.
    """
    info = blocks[name]
    inlineable = info.is_injective and info.dag.info(name).is_inlineable
    if not inlineable or not info.consumers or not info.writes_identity:
        return False
    consumers = [blocks[c] for c in info.consumers]
    if not all(stays_small(info, c) for c in consumers):
        return False
    if any(c.needs_tiling for c in consumers) and guards_values(info):
        return False
    if any(c.needs_tiling and hides_rows(info, c) for c in consumers):
        return False
    again = max(_reads(info, c) for c in consumers)
    if info.is_cheap and info.cost * again <= RECOMPUTED:
        return True
    return len(consumers) == 1 and _reads_once(info, consumers[0])


def stays_small(info: BlockInfo, consumer: BlockInfo) -> bool:
    """Whether the consumer's expression can take in the block's: primitives refuse larger ones."""
    nodes, levels = merged_size(info.block, consumer.block)
    return nodes <= MAX_NODES and levels <= MAX_HEIGHT


def guards_values(info: BlockInfo) -> bool:
    """Whether the block does more than pass on the elements it reads (a condition, arithmetic)."""
    return any(children(body) for body in info.block.body)


def hides_rows(info: BlockInfo, consumer: BlockInfo) -> bool:
    """Whether a block copies a part of each row, such as the keys out of queries, keys and values,
    of which vectors of the consumer read one element a row. They are packed so that vectors read
    neighbours; of elements in the middle of a longer row the whole row would be."""
    vector, written = consumer.vector_axis, info.block.writes[0].buffer
    if vector is None or not any(
        isinstance(i, Affine) and not is_zero(i.const) for a in info.block.reads for i in a.indices
    ):
        return False
    dims = [(a, axis_dim(a, vector)) for a in consumer.block.reads if a.buffer is written]
    return any(dim is not None and dim < len(a.indices) - 1 for a, dim in dims)


def _reads(info: BlockInfo, consumer: BlockInfo) -> int:
    """Elements that a point of the consumer reads."""
    written = {id(a.buffer) for a in info.block.writes}
    return sum(id(a.buffer) in written for a in consumer.block.reads)


def _reads_once(info: BlockInfo, consumer: BlockInfo) -> bool:
    """Whether the consumer reads no element at two points: it has as many points, and all its axes
    move what it reads; or it reads a moved part, as pads and slices do."""
    written = {id(a.buffer) for a in info.block.writes}
    axes = {id(i.var) for i in consumer.block.iters if i.extent != 1}
    reads = [a for a in consumer.block.reads if id(a.buffer) in written]
    if len(reads) != 1 or not axes <= used_axes(reads[0]):
        return False
    return consumer.points == info.points or (consumer.is_injective and _is_moved(reads[0]))


def _is_moved(access: Access) -> bool:
    """Whether each index is an axis of its own, to which a constant may be added."""
    axes: set[int] = set()
    for i in access.indices:
        axis = (i - i.const).single_var() if isinstance(i, Affine) and not i.is_const() else None
        if axis is None and not (isinstance(i, Affine) and i.is_const()):
            return False
        if axis is not None and id(axis) in axes:
            return False
        axes.add(id(axis))
    return True
