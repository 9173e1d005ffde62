"""What sketch rules ask about the blocks of a program: who feeds whom, what is reused, what is
cheap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from autosched.dag import ComputeDAG
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Int, is_zero, same_int
from autosched.tir.expr import Call, Expr, Slot, Var
from autosched.tir.nodes import Access, Block, Iter, PrimFunc
from autosched.tir.operations import OPS

COSTS = {"math": 16.0, "div": 4.0, "cast": 1.0}
"""Cost of one operation in additions, by the class in `OPS`; 1 where absent. Vector code: a
polynomial exp or erf is some 16 instructions, a division occupies its unit for some 4 to 8."""
CHEAP = 6.0
"""A body of at most this cost is recomputed rather than stored."""


@dataclass(frozen=True, eq=False)
class BlockInfo:
    """One block and its place in the data flow. Names are blocks' names."""

    block: Block
    dag: ComputeDAG
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    is_output: bool
    across: Iter | None = None
    """A spatial axis for the vectors in the place of the one that is contiguous in the result."""

    @property
    def name(self) -> str:
        """The block's name."""
        return self.block.name

    @cached_property
    def spatial(self) -> tuple[Iter, ...]:
        """Spatial axes in order."""
        return tuple(i for i in self.block.iters if i.kind == "spatial")

    @cached_property
    def reduce(self) -> tuple[Iter, ...]:
        """Reduction axes in order."""
        return tuple(i for i in self.block.iters if i.kind == "reduce")

    @cached_property
    def sequential(self) -> bool:
        """Whether some axis must be visited in order."""
        return any(i.kind == "sequential" for i in self.block.iters)

    @cached_property
    def is_injective(self) -> bool:
        """Whether every element is computed from its own axes alone, once."""
        return not self.block.is_reduction and not self.reduce and not self.sequential

    @cached_property
    def cost(self) -> float:
        """Cost of one point, in additions."""
        return sum(cost(e) for e in self.block.body)

    @cached_property
    def is_cheap(self) -> bool:
        """Whether recomputing a point costs less than a store and a load."""
        return self.cost <= CHEAP and not any(
            isinstance(e, Call) and OPS[e.op].cost == "math"
            for body in self.block.body
            for e in ex.walk(body)
        )

    @cached_property
    def is_copy(self) -> bool:
        """Whether the body only moves or guards values: no arithmetic beyond selects and casts."""
        calls = (e for body in self.block.body for e in ex.walk(body) if isinstance(e, Call))
        return all(
            e.dtype in ("bool", "int64") or OPS[e.op].cost in ("select", "cast") for e in calls
        )

    @cached_property
    def vector_axis(self) -> Iter | None:
        """The spatial axis that is contiguous in the result: the last index of the first write;
        `across`, where there is one."""
        if self.across is not None:
            return self.across
        indices = self.block.writes[0].indices
        if not indices or not isinstance(indices[-1], Affine):
            return None
        last = indices[-1]
        return next((i for i in self.spatial if same_int(last.coefficient(i.var), 1)), None)

    @cached_property
    def writes_identity(self) -> bool:
        """Whether every write is indexed by the spatial axes, each once, in order."""
        return all(identity_axes(a, self.spatial) for a in self.block.writes)

    @cached_property
    def needs_tiling(self) -> bool:
        """Multi-level tiling pays and applies: a reduction that reads some data more than once and
        writes its own spatial axes in order."""
        return (
            self.dag.info(self.name).needs_multi_level_tiling
            and self.block.is_reduction
            and not self.sequential
            and len(self.block.writes) == 1
            and all(numbered_axes(a, self.spatial) for a in self.block.writes)
            and any(i.extent != 1 for i in self.reduce)
        )

    @property
    def points(self) -> Int:
        """Number of points of the block's domain."""
        return self.dag.info(self.name).points


def cost(e: Expr) -> float:
    """Cost of an expression in additions. Index arithmetic is free, and so is a guard: a selection
    whose condition depends on the axes alone is decided once for a row of a register tile."""
    if not isinstance(e, Call) or e.dtype in ("int64", "bool"):
        return 0.0
    below = sum(cost(a) for a in e.args)
    if OPS[e.op].cost == "select" and not any(isinstance(x, Slot) for x in ex.walk(e.args[0])):
        return below
    return below + COSTS.get(OPS[e.op].cost, 1.0)


def used_axes(access: Access) -> set[int]:
    """Ids of the axis variables that occur in an access."""
    found: set[int] = set()
    for index in access.indices:
        variables = (
            index.variables()
            if isinstance(index, Affine)
            else (e for e in ex.walk(index) if isinstance(e, Var))
        )
        found |= {id(v) for v in variables}
    return found


def identity_axes(access: Access, axes: tuple[Iter, ...]) -> bool:
    """Whether the access is `buffer[axes...]`."""
    return len(access.indices) == len(axes) and all(
        isinstance(i, Affine) and i.single_var() is axis.var
        for i, axis in zip(access.indices, axes, strict=True)
    )


def numbered_axes(access: Access, axes: tuple[Iter, ...]) -> bool:
    """Whether the access is `buffer[axes...]`, or some of its indices number several axes in turn,
    the last one fastest: `v0 * 4 + v1`. Every element then has one point."""
    left = list(axes)
    for index in access.indices:
        if not isinstance(index, Affine) or not is_zero(index.const) or not index.terms:
            return False
        mine, left = left[: len(index.terms)], left[len(index.terms) :]
        stride: Int = 1
        for axis in reversed(mine):
            if not same_int(index.coefficient(axis.var), stride):
                return False
            stride = stride * axis.extent
        if len(mine) != len(index.terms):
            return False
    return not left


def axis_dim(access: Access, axis: Iter) -> int | None:
    """The one dimension indexed by exactly `axis`, if the axis occurs nowhere else in the
    access."""
    dims = [n for n, i in enumerate(access.indices) if isinstance(i, Affine) and i.uses([axis.var])]
    if len(dims) != 1 or any(not isinstance(i, Affine) for i in access.indices):
        return None
    index = access.indices[dims[0]]
    return dims[0] if isinstance(index, Affine) and index.single_var() is axis.var else None


def analyse_blocks(func: PrimFunc) -> dict[str, BlockInfo]:
    """Every block by name, in program order."""
    dag = ComputeDAG(func)
    return {
        b.name: BlockInfo(
            b,
            dag,
            tuple(p.name for p in dag.producers(b)),
            tuple(c.name for c in dag.consumers(b)),
            dag.info(b).is_output,
        )
        for b in dag.blocks
    }


def elementwise_consumer(info: BlockInfo, blocks: dict[str, BlockInfo]) -> BlockInfo | None:
    """The only consumer, if it reads the result point by point and writes its own axes in order.

    Of the producers of one consumer, such as the two products of a gated layer, only the last in
    program order has it: computed with an earlier one, the consumer would come before the others.
    """
    found = info.dag.elementwise_consumer(info.name)
    if found is None:
        return None
    consumer = blocks[found.name]
    last = [name for name in blocks if name in consumer.producers][-1]
    fits = consumer.is_injective and consumer.writes_identity and last == info.name
    return consumer if fits else None


def turned_consumer(info: BlockInfo, blocks: dict[str, BlockInfo]) -> BlockInfo | None:
    """The only consumer, if it reads the result point by point with its last two axes in turn: what
    copies a signal with its channels last to one with its channels first. (Tiles of images are
    stored in short pieces of as many planes as there are channels, which is no faster.)"""
    if len(info.consumers) != 1 or info.is_output:
        return None
    consumer = blocks[info.consumers[0]]
    written = {a.buffer for a in info.block.writes}
    reads = [a for a in consumer.block.reads if a.buffer in written]
    last = [name for name in blocks if name in consumer.producers][-1]
    fits = consumer.is_injective and consumer.writes_identity and last == info.name
    axes = consumer.spatial
    if not fits or len(axes) < 2:
        return None
    turned = (*axes[:-2], axes[-1], axes[-2])
    return consumer if all(identity_axes(a, turned) for a in reads) else None
