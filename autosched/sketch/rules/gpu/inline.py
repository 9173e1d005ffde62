"""Always-inline on GPUs: every intermediate without a reduction is computed where it is used."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.sketch.analysis import BlockInfo
from autosched.sketch.rules.gpu.tiling import is_tiled
from autosched.sketch.rules.inline import guards_values, stays_small
from autosched.sketch.state import State, Verdict


class AlwaysInline:
    """Inlines injective intermediates: arithmetic is cheaper than memory, and than a launch."""

    name = "always-inline"

    def condition(self, state: State, block: str) -> Verdict:
        """Injective, no output, and cheap or read at one place of each consumer's body."""
        if block not in state.handled and worth_inlining(block, state.blocks()):
            return Verdict.APPLY_AND_SKIP_REST
        return Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """compute_inline."""
        schedule = state.fork()
        schedule.compute_inline(schedule.get_block(block))
        return [state.advance(schedule)]


def worth_inlining(name: str, blocks: Mapping[str, BlockInfo]) -> bool:
    """Whether a block is an injective intermediate that can be inlined without multiplying the
    work.

    What feeds a tiled block is left to AddCacheRead, unless it is a plain copy: its copy in shared
    memory then takes it in, and each element is computed once a tile.
    """
    info = blocks[name]
    inlineable = info.is_injective and info.dag.info(name).is_inlineable
    if not inlineable or not info.consumers or not info.writes_identity:
        return False
    consumers = [blocks[c] for c in info.consumers]
    if not all(stays_small(info, c) for c in consumers):
        return False
    if any(is_tiled(c) for c in consumers) and guards_values(info):
        return False
    written = {id(a.buffer) for a in info.block.writes}
    once = all(sum(id(a.buffer) in written for a in c.block.reads) == 1 for c in consumers)
    return info.is_cheap or once
