"""States of recurrences in registers: what a step reads of the one before, it need not load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.tir.affine import Affine, Digit, Int, always, recombine
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, For, Predicate


@dataclass(frozen=True, eq=False)
class Carried:
    """A loop of steps, of which each reads, as read number `read`, what the one before wrote."""

    loop: For
    block: Block
    read: int

    def of_steps(self) -> list[Predicate]:
        """The predicates that the step decides."""
        return [p for p in self.block.predicates if p.form.uses([self.loop.var])]

    def at_first(self) -> list[Predicate]:
        """The same, of the first step, where they do not hold by themselves."""
        zero = {self.loop.var: Affine(0)}
        found = [Predicate(p.form.substitute(zero, {}), p.bound) for p in self.of_steps()]
        return [p for p in found if not (p.form.is_const() and always(p.form.const < p.bound))]


def carried_by(loop: For, extents: Mapping[Var, Int]) -> Carried | None:
    """How the steps of `loop` hand on a state; None if they do not, or do more than that."""
    if loop.kind != "serial" or len(loop.body) != 1 or not isinstance(loop.body[0], Block):
        return None
    block = loop.body[0]
    if block.reducer is not None or len(block.writes) != 1:
        return None
    if not all(_stays_false(p, loop.var) for p in block.predicates):
        return None
    for n, read in enumerate(block.reads):
        if read.buffer is block.writes[0].buffer and _follows(block, read, loop.var, extents):
            return Carried(loop, block, n)
    return None


def _stays_false(p: Predicate, v: Var) -> bool:
    """Whether a predicate that does not hold in one step holds in no later one."""
    form = recombine(p.form)
    inside = any(isinstance(a, Digit) and a.base.uses([v]) for a, _ in form.terms)
    return not inside and always(form.coefficient(v) >= 0)


def _follows(block: Block, read: Access, v: Var, extents: Mapping[Var, Int]) -> bool:
    """Whether the next step reads what this one writes."""
    values = block.values()
    after = {v: Affine.of(v) + 1}
    for x, y in zip(block.writes[0].indices, read.indices, strict=True):
        if not isinstance(x, Affine) or not isinstance(y, Affine):
            return False
        next_read = y.substitute(values, extents).substitute(after, extents)
        if not x.substitute(values, extents).same(next_read):
            return False
    return True
