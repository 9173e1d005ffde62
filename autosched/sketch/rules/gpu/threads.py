"""Bind-threads: whatever no rule has placed is a kernel with a thread for each of its elements.

    S0 blockIdx.x | S1 threadIdx.x | reduction, serial | neighbours of one row, as a vector

(Ansor skips such stages and binds them when it draws a program; here sizes are decisions.)
"""

from __future__ import annotations

from autosched.schedule import Decision, LoopRV
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.decisions import TileSpec
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.state import State, Verdict
from autosched.tir.nodes import Iter

DEFAULT_THREADS, DEFAULT_LANES = 128, 4
"""Of the default schedule."""


class BindThreads:
    """Binds the spatial loops of one block."""

    name = "bind-threads"

    def condition(self, state: State, block: str) -> Verdict:
        """Every block that is left."""
        return Verdict.PASS if block in state.handled else Verdict.APPLY_AND_SKIP_REST

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch."""
        info = state.blocks()[block]
        axes = thread_order(info)
        specs = thread_specs(info, axes)
        schedule = state.fork()
        state.declare(schedule, specs)
        by_axis = axis_loops(schedule, schedule.get_block(block))
        blocks: list[LoopRV] = []
        threads: list[LoopRV] = []
        lanes: list[LoopRV] = []
        for axis, spec in zip(axes, specs, strict=True):
            parts = schedule.split(by_axis[id(axis)], [None, *(Decision(n) for n in spec.names)])
            blocks.append(parts[0])
            threads.append(parts[1])
            lanes += parts[2:]
        schedule.reorder(*blocks, *threads, *(by_axis[id(a)] for a in info.reduce), *lanes)
        for loop in blocks:
            schedule.bind(loop, "blockIdx.x")
        for loop in threads:
            schedule.bind(loop, "threadIdx.x")
        for loop in lanes:
            schedule.vectorize(loop)
        return [state.advance(schedule, (block,), specs)]


def thread_order(info: BlockInfo) -> list[Iter]:
    """The spatial axes, the one along neighbouring elements last: neighbouring threads then touch
    neighbouring elements."""
    last = info.vector_axis
    return [*(a for a in info.spatial if a is not last), *([last] if last is not None else [])]


def thread_specs(info: BlockInfo, axes: list[Iter]) -> tuple[TileSpec, ...]:
    """Threads of each axis; of the last one, if nothing is reduced, elements of a vector too."""
    left = DEFAULT_THREADS
    found: list[TileSpec] = []
    for axis in reversed(axes):
        name, extent = axis.var.name, int(axis.extent)
        vectors = info.is_injective and axis is axes[-1] and axis is info.vector_axis
        lanes = DEFAULT_LANES if vectors and extent % DEFAULT_LANES == 0 else 1
        most = min(left, -(-extent // lanes))
        taken, left = most, left // most
        label = f"{info.name}.{name}"
        if vectors:
            names = (f"{label}.threads", f"{label}.lanes")
            found.append(TileSpec(info.name, name, names, extent, "lanes", 1, (taken, lanes)))
        else:
            spec = TileSpec(info.name, name, (f"{label}.threads",), extent, "threads", 1, (taken,))
            found.append(spec)
    return tuple(reversed(found))
