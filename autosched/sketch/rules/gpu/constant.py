"""Products with constant matrices on GPUs, such as the transforms of a Winograd convolution.

The axes that index the matrices are written out in full; a thread computes all of them for one
point of the others.
"""

from __future__ import annotations

from autosched.schedule import Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.decisions import TileSpec
from autosched.sketch.rules.constant import ConstantMatrices as CPUConstantMatrices
from autosched.sketch.rules.constant import constant_axes
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.rules.gpu.threads import DEFAULT_THREADS
from autosched.sketch.state import State


class ConstantMatrices(CPUConstantMatrices):
    """Unrolls what indexes constant matrices (Ansor's SimplifyComputeWithConstTensor)."""

    def specs(self, info: BlockInfo) -> tuple[TileSpec, ...]:
        """Threads of the axes that are not constant."""
        return constant_specs(info)

    def tile(
        self, state: State, schedule: Schedule, info: BlockInfo, specs: tuple[TileSpec, ...]
    ) -> LoopRV:
        """Bind to threads."""
        return _bind(schedule, info, specs)


def constant_specs(info: BlockInfo) -> tuple[TileSpec, ...]:
    """Threads of each axis that is not constant, the one along neighbouring elements first."""
    left = DEFAULT_THREADS
    constant = constant_axes(info)
    found: list[TileSpec] = []
    for axis in sorted(info.spatial, key=lambda a: a is not info.vector_axis):
        if axis in constant:
            continue
        name, extent = axis.var.name, int(axis.extent)
        taken = min(left, extent)
        left //= taken
        names = (f"{info.name}.{name}.threads",)
        found.append(TileSpec(info.name, name, names, extent, "threads", 1, (taken,)))
    return tuple(reversed(found))


def _bind(schedule: Schedule, info: BlockInfo, specs: tuple[TileSpec, ...]) -> LoopRV:
    """Split, order and bind the loops; returns the innermost one of the threads."""
    by_axis = axis_loops(schedule, schedule.get_block(info.name))
    constant = [by_axis[id(a)] for a in info.block.iters if a in constant_axes(info)]
    axes = {a.var.name: a for a in info.spatial}
    blocks: list[LoopRV] = []
    threads: list[LoopRV] = []
    for spec in specs:
        loop = by_axis[id(axes[spec.axis])]
        outer, inner = schedule.split(loop, [None, Decision(spec.names[0])])
        blocks.append(outer)
        threads.append(inner)
    schedule.reorder(*blocks, *threads, *constant)
    for loop in blocks:
        schedule.bind(loop, "blockIdx.x")
    for loop in threads:
        schedule.bind(loop, "threadIdx.x")
    for loop in constant:
        schedule.unroll(loop)
    return threads[-1]
