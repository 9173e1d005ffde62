"""The copies of a register tile that padding leaves: judged one by one, those that only some places
of the tile need put off until their condition is asked for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from autosched.codegen.llvm.blocks.padding import Edge
from autosched.codegen.llvm.blocks.points import Points
from autosched.codegen.llvm.memory import Guard

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter


class Copies:
    """The copies of one tile."""

    def __init__(self, f: FunctionWriter, points: Points) -> None:
        self.f, self.points = f, points
        self.edges: Sequence[Edge] = ()
        """The gates to ask for single copies."""
        self._later: dict[str, list[Callable[[], None]]] = {}
        """Copies that only some places of the tile need, by the condition."""

    def complete(self, inside: Callable[[], None]) -> None:
        """`inside`, then the copies that it has put off: those that always count come first, so
        that the others find what they share with them in registers."""
        before, self._later = self._later, {}
        inside()
        for condition, copies in self._later.items():

            def write(copies: list[Callable[[], None]] = copies) -> None:
                for copy in copies:
                    copy()

            self.f.branch(condition, write)
        self._later = before

    def write(self, level: int, inside: Callable[[], None]) -> None:
        """`inside`, what stands in the tile's first `level` loops, unless padding makes all terms
        of this copy nothing."""
        f = self.f
        held: set[int] = set()
        guard = Guard()
        for edge in self.edges:
            gate = edge.gate
            if edge.level != level or id(gate.test) in f.index.held:
                continue
            found = edge.judge(f.index.env)
            if found is False:
                return
            if found is not True:
                condition = f.index.below(f.index.linear(gate.form), found)
                guard = self.points.both(guard, condition)
            if edge.exact:
                held.add(id(gate.test))
        known = f.index.held | held
        if guard.scalar is None:
            self._holding(known, inside)
            return
        env = dict(f.index.env)

        def copy() -> None:
            after = dict(f.index.env)
            f.index.env.update(env)
            self._holding(known, lambda: self.complete(inside))
            f.index.env.update(after)

        self._later.setdefault(guard.scalar, []).append(copy)

    def _holding(self, known: set[int], inside: Callable[[], None]) -> None:
        """`inside`, where the comparisons `known` are true."""
        before, self.f.index.held = self.f.index.held, known
        inside()
        self.f.index.held = before
