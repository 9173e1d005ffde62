"""Add-cache-write on GPUs: results of a tiled block are summed up in registers."""

from __future__ import annotations

from autosched.schedule import BlockRV, Schedule
from autosched.sketch.analysis import BlockInfo, analyse_blocks
from autosched.sketch.digits import separate_digits
from autosched.sketch.rules.gpu.tiling import is_tiled, storing
from autosched.sketch.state import State, Verdict
from autosched.tir.affine import Affine
from autosched.tir.nodes import PrimFunc


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


def prepared(func: PrimFunc) -> Schedule:
    """`func` with the axes taken apart that hold two numbers, as on CPUs; what will be tiled and
    has such axes in its result gets its copy in registers before, of their dimensions."""
    schedule = Schedule(func)
    separate_digits(schedule)
    blocks = analyse_blocks(schedule.func)
    names = [n for n, info in blocks.items() if is_tiled(info) and not info.writes_identity]
    if not names:
        return schedule
    schedule = Schedule(func)
    copies = {n: schedule.cache_write(schedule.get_block(n), 0, "local") for n in names}
    separate_digits(schedule)
    for name, copy in copies.items():
        info = analyse_blocks(schedule.func)[name]
        _number(schedule, schedule.get_block(name), copy, info)
    return schedule


def _number(schedule: Schedule, block: BlockRV, copy: BlockRV, info: BlockInfo) -> None:
    """Give the local copy a dimension for each axis of the block where several number one (groups
    and channels in them), so that a tile is a box of it; the copying block's axes follow."""
    layout: list[list[int]] = []
    position = 0
    cuts: list[tuple[int, int]] = []
    for dim, index in enumerate(info.block.writes[0].indices):
        assert isinstance(index, Affine)  # needs_tiling asks for axes in order
        axes = [a for a in info.spatial if index.uses([a.var])]
        steps = [int(index.coefficient(a.var)) for a in axes]
        for axis, step in zip(axes, steps, strict=True):
            layout.append([dim, step] if axis is axes[0] else [dim, step, int(axis.extent)])
        for step in steps[:-1]:
            cuts.append((position, step))
            position += 1
        position += 1
    schedule.transform_layout(block, ("write", 0), layout)
    for place, step in cuts:
        schedule.split_axis(copy, place, step)
