"""Special compute locations on GPUs: what feeds a product with constant matrices."""

from __future__ import annotations

from autosched.errors import ScheduleError
from autosched.sketch.rules.constant import constant_axes
from autosched.sketch.rules.default import own_loops
from autosched.sketch.state import State, Verdict


class SpecialComputeLocation:
    """An injective producer of a block with constant matrices, such as the tile of a Winograd
    transform, is computed by each thread for itself, once, instead of in every term (Ansor's rule).
    """

    name = "special-compute-location"

    def condition(self, state: State, block: str) -> Verdict:
        """Injective, no output, its one consumer a product with constant matrices in place."""
        if block in state.handled:
            return Verdict.PASS
        blocks = state.blocks()
        info = blocks[block]
        if not info.is_injective or info.is_output or len(info.consumers) != 1:
            return Verdict.PASS
        (name,) = info.consumers
        placed = state.nest_of(name) is not None and bool(constant_axes(blocks[name]))
        fits = placed and info.writes_identity and bool(info.block.reads)
        return Verdict.APPLY_AND_SKIP_REST if fits else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """compute_at, in registers; where no location is legal, inlined."""
        info = state.blocks()[block]
        (name,) = info.consumers
        nest = state.nest_of(name)
        assert nest is not None  # the condition asks for one
        schedule = state.fork()
        rv = schedule.get_block(block)
        try:
            schedule.compute_at(rv, nest.outer)
        except ScheduleError:
            schedule = state.fork()
            schedule.compute_inline(schedule.get_block(block))
            return [state.advance(schedule)]
        schedule.set_scope(rv, 0, "local")
        for loop in own_loops(schedule, info):
            schedule.unroll(loop)
        return [state.advance(schedule, (block,), choice=f"{block}.thread")]
