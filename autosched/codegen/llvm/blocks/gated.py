"""The iterations of a reduction loop that padding leaves, and those at which nothing is asked.

    for r in range(31): if 15 <= x + r < 43: sum[x] += data[x + r - 15] * weight[r], for 7 rows x

Outside of some first and last iterations no row's term counts; in the middle all rows' do. A long
window, such as a depthwise convolution's of 31 x 31, is mostly middle, where asking each row at
each tap took twice the time of the multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from autosched.codegen.llvm.blocks.padding import Gate
from autosched.codegen.llvm.trips import first_iteration, trip_count
from autosched.tir.expr import Var
from autosched.tir.nodes import For, Predicate, sites

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter

SHORT = 5
"""Iterations of a loop that is not cut: windows so short are most often copied out."""
SELDOM = 4
"""Vectors of terms from which on a condition that is asked once for them costs little beside them:
with three channels a tap, first layers of 7 x 7 and 11 x 11 were 2 per cent slower in parts."""
MOST = 512
"""Operations of an iteration: a loop of more stays whole, as it would stand there three times."""


class GatedLoop:
    """A reduction loop of a tile, of which `loops` are all, outermost first. `clamped`: those of
    rows that may overhang."""

    def __init__(
        self,
        f: FunctionWriter,
        loop: For,
        loops: Sequence[For],
        gates: Sequence[Gate],
        clamped: Collection[Var],
    ) -> None:
        self.f, self.loop, self.clamped = f, loop, clamped
        self.below = loops[loops.index(loop) + 1 :]
        self.open = [g for g in gates if id(g.test) not in f.index.held]

    def write(self, count: int | str, spatial: Sequence[Var], inside: Callable[[], None]) -> None:
        """Those of the first `count` iterations at which some term of the tile counts. `spatial`:
        the loops over its results."""
        f, index = self.f, self.f.index
        asked = [(g, p) for g in self.open if (p := g.over(self.loop.var, self.below)) is not None]
        low, high = self._bounds([p for _, p in asked])
        if count != self.loop.extent:
            known = isinstance(count, int) and isinstance(high, int)
            high = min(count, high) if known else f.b.smaller(count, high)
        # Rows that overhang read another row, for which a condition on theirs says nothing.
        inner = [*(x.var for x in self.below), *spatial]
        before = index.held
        index.held = before | {id(g.test) for g, _ in asked if not g.form.uses(inner)}
        middle = self._middle()
        if middle:
            start, end = self._bounds([p for _, p in middle])
            start = f.b.smaller(f.b.larger(low, start), high)
            end = f.b.larger(f.b.smaller(high, end), start)
            f.loop(self.loop.var, low, start, inside)
            some, index.held = index.held, index.held | {id(g.test) for g, _ in middle}
            f.loop(self.loop.var, start, end, inside)
            index.held, low = some, end
        f.loop(self.loop.var, low, high, inside)
        index.held = before

    def _bounds(self, asked: Sequence[Predicate]) -> tuple[int | str, int | str]:
        """The first iteration at which all hold, and the one behind the last."""
        falling = [p for p in asked if int(p.form.coefficient(self.loop.var)) < 0]
        rising = [p for p in asked if int(p.form.coefficient(self.loop.var)) > 0]
        at_first = {x.var: 0 for x in self.below}
        end = trip_count(self.f.index, self.loop, rising, at_first)
        return first_iteration(self.f.index, self.loop, falling), end

    def _middle(self) -> list[tuple[Gate, Predicate]]:
        """The gates that rows or lanes decide, and what makes them hold for all of these; none
        where no iteration is worth standing apart."""
        extent = self.loop.extent
        if isinstance(extent, int) and extent <= SHORT:
            return []
        if any(x.kind == "serial" for x in self.below):
            return []
        if sum(map(self.f.written, self.loop.body)) > MOST:
            return []
        found = []
        for g in self.open:
            if id(g.test) in self.f.index.held or g.form.uses(self.clamped):
                continue
            if self._vectors_asked_for(g) > SELDOM:
                continue
            p = g.over(self.loop.var, self.below, strictest=True)
            if p is not None:
                found.append((g, p))
        return found

    def _vectors_asked_for(self, gate: Gate) -> int:
        """Vectors of terms for which a gate is asked once."""
        count = 1
        for loop in self.below:
            if gate.form.uses([loop.var]) or not isinstance(loop.extent, int):
                continue
            vectors = loop.kind == "vectorized"
            width = min(self.f.width(s.block) for s in sites(loop)) if vectors else 1
            count *= -(-loop.extent // width)
        return count
