"""Add-cache-write on GPUs: results of a tiled block are summed up in registers."""

from __future__ import annotations

from autosched.sketch.rules.gpu.tiling import is_tiled, storing
from autosched.sketch.state import State, Verdict


class AddCacheWrite:
    """A copy of the result in the scope "local" (Ansor's rule): the new block stores the tile."""

    name = "add-cache-write"

    def condition(self, state: State, block: str) -> Verdict:
        """The block will be tiled, and no elementwise consumer could store the tile."""
        if block in state.handled:
            return Verdict.PASS
        info = state.blocks()[block]
        alone = is_tiled(info) and storing(state, info) is None
        return Verdict.APPLY_AND_SKIP_REST if alone else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """cache_write. What is copied to is the elementwise consumer that tiling then fuses."""
        schedule = state.fork()
        schedule.cache_write(schedule.get_block(block), 0, "local")
        return [state.advance(schedule)]
