"""Loops over terms of a reduction that may be its identity (`tir/padding.py`).

A reduction loop need only run over the iterations at which the comparisons can hold for some point
of the register tile, and a copy of an unrolled loop at which they cannot hold is left out, or
skipped where only the place of the tile decides it. (As everywhere in convolutions, the other
factors are taken to be finite: 0 times them is 0.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from autosched.codegen.llvm.scalar import Scalars
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Call, Var
from autosched.tir.nodes import Block, For, Predicate
from autosched.tir.padding import tests_of


@dataclass(frozen=True)
class Gate:
    """`form < bound`, over loops, says the same as the comparison `test`: without it the block's
    term is the identity."""

    test: Call
    form: Affine
    bound: int

    def over(self, var: Var, inner: Sequence[For], strictest: bool = False) -> Predicate | None:
        """What the gate asks of `var`, with the loops inside it at the point where it asks least,
        or most; None where it says nothing simple about `var`."""
        form = self.form
        if not _is_plain(form, var):
            return None
        for loop in inner:
            if not form.uses([loop.var]):
                continue
            if not _is_plain(form, loop.var):
                return None
            falls = int(form.coefficient(loop.var)) < 0
            last = loop.extent - 1 if falls != strictest else 0
            form = form.substitute({loop.var: Affine(last)})
        return Predicate(form, self.bound)


@dataclass(frozen=True)
class Edge:
    """A gate whose form takes no variable apart, so that a copy of the tile can be judged by
    itself: `const + sum(coefficient * loop) < bound`."""

    gate: Gate
    terms: tuple[tuple[Var, int, int], ...]
    """Loop, coefficient, extent."""
    level: int
    """Loops of the tile, outermost first, that have to stand still for a copy to be judged."""
    exact: bool
    """Whether loads under the condition are made at the point at which it is asked."""

    @staticmethod
    def of(
        gate: Gate, loops: Sequence[For], extents: Mapping[Var, Int], clamped: Collection[Var]
    ) -> Edge | None:
        """The gate over the `loops` of a tile; None where it takes a variable apart, or where lanes
        differ. Loads may be made elsewhere where its form uses `clamped` loops."""
        terms = []
        for atom, c in gate.form.terms:
            if not isinstance(atom, Var) or not isinstance(c, int):
                return None
            extent = extents.get(atom)
            if not isinstance(extent, int):
                return None
            terms.append((atom, c, extent))
        if not isinstance(gate.form.const, int):
            return None
        used = [n for n, loop in enumerate(loops) if gate.form.uses([loop.var])]
        if not used or loops[used[-1]].kind != "unrolled":
            return None
        exact = not gate.form.uses(clamped)
        return Edge(gate, tuple(terms), used[-1] + 1, exact)

    def judge(self, env: Mapping[Var, int | str]) -> bool | int:
        """Whether the gate holds for all places of this copy (True) or for none (False); else the
        bound of what differs, `form < bound`, the least that says the same."""
        low = high = self.gate.form.const
        assert isinstance(low, int)
        assert isinstance(high, int)
        fixed = low
        step = 0
        for var, c, extent in self.terms:
            value = env[var]
            if isinstance(value, int):
                low, high, fixed = low + c * value, high + c * value, fixed + c * value
                continue
            step = gcd(step, c)
            span = c * (extent - 1)
            low, high = low + min(span, 0), high + max(span, 0)
        if high < self.gate.bound:
            return True
        if low >= self.gate.bound:
            return False
        # What differs is a multiple of `step`, so neighbouring copies often ask the same.
        return fixed - (fixed - self.gate.bound) // step * step


def _is_plain(form: Affine, var: Var) -> bool:
    """Whether `var` stands in the form once, times a number."""
    c = form.coefficient(var)
    return isinstance(c, int) and c != 0 and sum(v is var for v in form.variables()) == 1


def gates(block: Block, scalars: Scalars) -> list[Gate]:
    """The comparisons of axes without which the block's term adds nothing."""
    found = (_gate(test, scalars) for test in tests_of(block))
    return [gate for gate in found if gate is not None]


def _gate(test: Call, scalars: Scalars) -> Gate | None:
    if test.op not in ("lt", "le", "gt", "ge"):
        return None
    form = scalars.difference(test)
    if form is None:
        return None
    if test.op in ("gt", "ge"):
        form = -form
    return Gate(test, form, 1 if test.op in ("le", "ge") else 0)
