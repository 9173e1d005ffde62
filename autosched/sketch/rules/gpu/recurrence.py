"""Recurrences on GPUs: independent axes on threads and blocks, or one block that shares out steps.

The structure is that of the default schedule; the threads of a block are a decision.
"""

from __future__ import annotations

from autosched.gpu_target import limits_of
from autosched.schedule import Decision
from autosched.sketch.decisions import ChoiceSpec
from autosched.sketch.gpu_default import schedule_nest
from autosched.sketch.state import State, Verdict
from autosched.tir.nodes import sites

THREADS = (128, 64, 32, 256, 512, 1024)
"""Values for the threads of a block."""


class Recurrence:
    """Schedules all stages that share a time loop."""

    name = "recurrence"

    def condition(self, state: State, block: str) -> Verdict:
        """A block with a sequential axis. The last of its nest is met first and takes all."""
        if block in state.handled or not state.blocks()[block].sequential:
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch."""
        schedule = state.fork()
        root = next(
            node for node in schedule.func.body if any(s.block.name == block for s in sites(node))
        )
        names = tuple(s.block.name for s in sites(root))
        limit = limits_of(state.target).max_threads
        spec = ChoiceSpec(block, f"{block}.threads", tuple(t for t in THREADS if t <= limit))
        state.declare(schedule, (spec,))
        schedule_nest(schedule, names, Decision(spec.name))
        return [state.advance(schedule, names, (spec,), f"{block}.steps")]
