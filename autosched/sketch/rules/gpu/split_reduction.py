"""Split-k: pieces of a reduction on blocks of their own, where elements alone fill no device.

Every piece has a partial result, tiled like any product; a second kernel adds them up.
"""

from __future__ import annotations

from math import prod

from autosched.errors import ScheduleError
from autosched.sketch.analysis import BlockInfo
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.rules.gpu.tiling import is_tiled
from autosched.sketch.state import State, Verdict
from autosched.target.gpu import device_of, limits_of
from autosched.tir.nodes import Iter

BLOCK = 4096
"""Elements that a block of threads computes at the rate of the device: 64 x 64."""
FEW = 4
"""Parts of the device of which such blocks fill one at most: smaller tiles fill more than that, and
need no second kernel."""
MIN_TERMS = 128
"""Of a piece: with fewer, writing and adding partial results costs more than it brings."""
MOST_PIECES = 16


class SplitReduction:
    """Sketches with partial results beside the one without."""

    name = "split-reduction"

    def condition(self, state: State, block: str) -> Verdict:
        """A product of few elements, with terms enough for several pieces."""
        if block in state.handled or block in state.factored:
            return Verdict.PASS
        info = state.blocks()[block]
        if not is_tiled(info) or not info.writes_identity or not info.block.init:
            return Verdict.PASS
        if any(a.buffer.scope != "global" for a in (*info.block.reads, *info.block.writes)):
            return Verdict.PASS
        return Verdict.APPLY if _pieces(state, info) else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch. The number of pieces is no decision: of what is tiled every extent is a
        constant."""
        after = self._split(state, state.blocks()[block])
        return [] if after is None else [after]

    def _split(self, state: State, info: BlockInfo) -> State | None:
        count = _pieces(state, info)
        schedule = state.fork()
        rv = schedule.get_block(info.name)
        by_axis = axis_loops(schedule, rv)
        axis = _axis(info)
        piece, rest = schedule.split(by_axis[id(axis)], [count, None])
        others = [by_axis[id(a)] for a in info.reduce if a is not axis]
        spatial = [by_axis[id(a)] for a in info.spatial]
        try:
            # Pieces outside: the block that adds them up gets a nest of its own.
            schedule.reorder(piece, rest, *others, *spatial)
            partial = schedule.rfactor(piece, 0)
        except ScheduleError:
            return None  # the loops of a block that another rule has moved
        names = frozenset({info.name, schedule.get(partial).name})
        after = state.advance(schedule, choice=f"{info.name}.split")
        return after.with_factored(names)


def _axis(info: BlockInfo) -> Iter:
    """The reduction axis to cut: the longest."""
    return max(info.reduce, key=lambda a: int(a.extent))


def _pieces(state: State, info: BlockInfo) -> int:
    """The number of pieces by which blocks of usual size fill the device once; 0 for none."""
    processors = device_of(state.target).processors
    elements = prod(int(a.extent) for a in info.spatial)
    if elements <= limits_of(state.target).max_threads:
        return 0  # a block of threads may reduce each
    blocks = elements / BLOCK
    terms = prod(int(a.extent) for a in info.reduce)
    if blocks * FEW > processors:
        return 0
    count = 2
    while count * blocks < processors and count < MOST_PIECES:
        count *= 2
    extent = int(_axis(info).extent)
    while count > 1 and (extent % count or terms < count * MIN_TERMS):
        count //= 2
    return count if count > 1 else 0
