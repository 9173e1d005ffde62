"""Add-cache-read: what a tiled block reads more than once goes through shared memory."""

from __future__ import annotations

from autosched.sketch.analysis import BlockInfo, used_axes
from autosched.sketch.rules.gpu.tiling import is_tiled
from autosched.sketch.state import State, Verdict
from autosched.tir.affine import Affine
from autosched.tir.nodes import Access


class AddCacheRead:
    """Copies of the inputs of a block to be tiled, in the scope "shared", at the root at first;
    the tiling places them at the last loop of its outermost reduction tile (Ansor's rule)."""

    name = "add-cache-read"

    def condition(self, state: State, block: str) -> Verdict:
        """The block will be tiled, and reads something more than once that is not shared yet."""
        if block in state.handled:
            return Verdict.PASS
        info = state.blocks()[block]
        if is_tiled(info) and reused(info):
            return Verdict.APPLY_AND_SKIP_REST
        return Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """cache_read of each such input."""
        schedule = state.fork()
        for index in reused(state.blocks()[block]):
            schedule.cache_read(schedule.get_block(block), index, "shared")
        return [state.advance(schedule)]


def reused(info: BlockInfo) -> list[int]:
    """Numbers of the reads of global memory of which one element serves several points: some axis
    is missing, or several slide along one dimension. One a buffer."""
    found: dict[int, int] = {}
    for n, access in enumerate(info.block.reads):
        if access.buffer.scope == "global" and _is_reused(access, info):
            found.setdefault(id(access.buffer), n)
    return list(found.values())


def _is_reused(access: Access, info: BlockInfo) -> bool:
    forms = [i for i in access.indices if isinstance(i, Affine)]
    if len(forms) != len(access.indices):
        return False  # data decide which element
    used = used_axes(access)
    missing = any(id(a.var) not in used and a.extent != 1 for a in info.spatial)
    return missing or any(len(set(form.variables())) > 1 for form in forms)
