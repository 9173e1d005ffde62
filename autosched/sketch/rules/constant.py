"""Products with constant matrices, such as the transforms of a Winograd convolution.

The axes that index the matrices are written out in full, so that every element of a matrix is a
constant in the code and terms with a 0 are not there at all. Around them

    S0 parallel | S1 serial | axes of the result, then of the sum, unrolled | one axis vectorised

so each element of the result is summed up in one register before the next one begins.
"""

from __future__ import annotations

from math import prod

from autosched.schedule import Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.decisions import TileSpec
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.nodes import CONSTANT_AXES, Iter

MAX_TERMS = 2048
"""Points of the constant axes that are written out; matrices of 6 x 6 on both sides have 1,296."""


class ConstantMatrices:
    """Unrolls what indexes constant matrices (Ansor's SimplifyComputeWithConstTensor)."""

    name = "simplify-const-tensor"

    def condition(self, state: State, block: str) -> Verdict:
        """A reduction all whose reduction axes, and some others, are said to index constants."""
        if block in state.handled:
            return Verdict.PASS
        info = state.blocks()[block]
        constant = constant_axes(info)
        fits = (
            bool(constant)
            and info.block.is_reduction
            and info.writes_identity
            and all(axis in constant for axis in info.reduce)
            and info.vector_axis is not None
            and info.vector_axis not in constant
            and prod(int(axis.extent) for axis in constant) <= MAX_TERMS
        )
        return Verdict.APPLY_AND_SKIP_REST if fits else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch, the constant matrices inlined."""
        schedule = state.fork()
        inline_matrices(schedule, state.blocks(), block)
        info = state.advance(schedule).blocks()[block]
        specs = self.specs(info)
        state.declare(schedule, specs)
        nest = TiledNest(block, self.tile(state, schedule, info, specs))
        return [state.advance(schedule, (block,), specs, f"{block}.constant", (nest,))]

    def specs(self, info: BlockInfo) -> tuple[TileSpec, ...]:
        """The sizes to choose."""
        return constant_specs(info)

    def tile(
        self, state: State, schedule: Schedule, info: BlockInfo, specs: tuple[TileSpec, ...]
    ) -> LoopRV:
        """Split and order the loops; the one that the nest stands at."""
        return _tile(schedule, info, specs, state.target)


def inline_matrices(schedule: Schedule, blocks: dict[str, BlockInfo], block: str) -> None:
    """Inline the constant matrices that only `block` reads."""
    for name in blocks[block].producers:
        matrix = blocks[name]
        if matrix.is_injective and not matrix.block.reads and matrix.consumers == (block,):
            schedule.compute_inline(schedule.get_block(name))


def constant_axes(info: BlockInfo) -> list[Iter]:
    """The axes whose loops the block's annotation names; none if it names one that is not there."""
    named = info.block.annotation(CONSTANT_AXES, ())
    by_loop: dict[str, Iter] = {}
    for axis, binding in zip(info.block.iters, info.block.bindings, strict=True):
        loop = binding.single_var()
        if loop is not None:
            by_loop[loop.name] = axis
    return [by_loop[n] for n in named] if all(n in by_loop for n in named) else []


def constant_specs(info: BlockInfo) -> tuple[TileSpec, ...]:
    """How many points of each axis that is neither constant nor in vectors one task runs."""
    constant = constant_axes(info)
    found: list[TileSpec] = []
    for axis in info.spatial:
        if axis is not info.vector_axis and axis not in constant:
            name, extent = axis.var.name, int(axis.extent)
            names = (f"{info.name}.{name}.1",)
            found.append(TileSpec(info.name, name, names, extent, "outer", 1, (1,)))
    return tuple(found)


def _tile(
    schedule: Schedule, info: BlockInfo, specs: tuple[TileSpec, ...], target: Target
) -> LoopRV:
    """Split, order and mark the loops; returns the innermost parallel one."""
    by_axis = axis_loops(schedule, schedule.get_block(info.name))
    constant = [by_axis[id(a)] for a in info.block.iters if a in constant_axes(info)]
    outer: list[LoopRV] = []
    inner: list[LoopRV] = []
    free = {spec.axis: spec for spec in specs}
    for axis in info.spatial:
        if axis.var.name in free:
            factor = Decision(free[axis.var.name].names[0])
            task, serial = schedule.split(by_axis[id(axis)], [None, factor])
            outer.append(task)
            inner.append(serial)
    assert info.vector_axis is not None  # the condition asks for one
    # One vector: more of them are as many times the code.
    lanes = max(target.vector_bytes // dtypes.itemsize(info.block.writes[0].buffer.dtype), 1)
    vectors, lane = schedule.split(by_axis[id(info.vector_axis)], [None, lanes])
    schedule.reorder(*outer, vectors, *inner, *constant, lane)
    for loop in (*outer, vectors):
        schedule.parallel(loop)
    for loop in constant:
        schedule.unroll(loop)
    schedule.vectorize(lane)
    return vectors
