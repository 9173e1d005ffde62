"""Which threads touch which elements: what barriers, scopes and the race checker ask.

First by proof (`tir/verify_races.py`): equal elements, so equal threads. Where that fails and there
are few enough points, by going through all of them, which finds the threads that meet or that there
are none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autosched.tir.affine import Affine, Digit, always, same_int
from autosched.tir.apart import injective
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Buffer, For, Predicate, Site
from autosched.tir.prove import Facts
from autosched.tir.simplify import substitute_loops
from autosched.tir.verify_bounds import loop_facts
from autosched.tir.verify_races import Iterations

MAX_POINTS = 1 << 18
"""Of one access, gone through one by one; where there are FEW_POINTS, before any proof."""
FEW_POINTS = 1 << 15
_Points = npt.NDArray[np.int64]


class Meeting(NamedTuple):
    """Two threads, as values of the axes asked about, that touch one element."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    element: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Touch:
    """An access by all threads that run its block."""

    access: Access
    site: Site
    written: bool

    @property
    def buffer(self) -> Buffer:
        """What is accessed."""
        return self.access.buffer

    @cached_property
    def facts(self) -> Facts:
        """What is known at the block."""
        return loop_facts(self.site)

    @cached_property
    def forms(self) -> tuple[Affine, ...] | None:
        """Indices over the loops; None if data decide one."""
        values, extents = self.site.block.values(), self.site.extents()
        if not all(isinstance(i, Affine) for i in self.access.indices):
            return None
        return tuple(
            i.substitute(values, extents) for i in self.access.indices if isinstance(i, Affine)
        )

    @cached_property
    def used(self) -> set[Var]:
        """Variables that decide the element, or whether it is touched."""
        found = {v for form in self.forms or () for v in form.variables()}
        return found | {v for p in self.site.block.predicates for v in p.form.variables()}

    def shifted(self, loop: For) -> Touch:
        """The access one iteration of `loop` later than its variable says, where there is one."""
        block = self.site.block
        accesses = (*block.reads, *block.writes)
        at = next((n for n, a in enumerate(accesses) if a is self.access), None)
        if at is None or loop not in self.site.loops:
            return self  # of no element, or the same in every iteration
        following = Affine.of(loop.var) + 1
        exists = Predicate(following, loop.extent)
        block = substitute_loops(block, {loop.var: following})
        block = replace(block, predicates=(*block.predicates, exists))
        access = (*block.reads, *block.writes)[at]
        return Touch(access, Site(block, self.site.loops), self.written)


def touches_of(site: Site) -> tuple[Touch, ...]:
    """The accesses of a block."""
    block = site.block
    return (
        *(Touch(a, site, False) for a in block.reads),
        *(Touch(a, site, True) for a in block.writes),
    )


def meet(
    a: Touch, b: Touch, still: Collection[Var], axes: Sequence[For]
) -> tuple[bool, Meeting | None]:
    """Whether two threads, different in the `axes`, may touch one element through `a` and `b`, and
    which, where that was found out. The loops `still` are in one iteration on both sides."""
    moving = [x for x in axes if x.extent != 1]
    if a.buffer is not b.buffer or not moving:
        return False, None
    if _alternate(a, b, still):
        return False, None
    if a.access is b.access and a.forms is not None and a.site is b.site:
        # Each element belongs to one iteration of all loops: the usual case, and a quick one.
        over = {v for f in a.forms for v in f.variables()} - set(still)
        over |= {x.var for x in moving}
        if always(injective(a.forms, sorted(over, key=lambda v: v.name), a.site.extents())):
            return False, None
    few = _search(a, b, still, moving, FEW_POINTS)
    if few is not None:
        return few
    targets = [x.var for x in moving]
    # An access by data names any element: nothing is proved from the other indices alone.
    if Iterations(a.facts, b.facts, still, targets).are_apart(a.access, b.access):
        return False, None
    return _search(a, b, still, moving, MAX_POINTS) or (True, None)


def _alternate(a: Touch, b: Touch, still: Collection[Var]) -> bool:
    """Whether some index is never the same on both sides while the loops `still` stand still: the
    halves of a double buffer in two steps that follow each other."""
    if a.forms is None or b.forms is None:
        return False
    return any(_differ(x, y, still) for x, y in zip(a.forms, b.forms, strict=True))


def _differ(x: Affine, y: Affine, still: Collection[Var]) -> bool:
    gap = y - x
    if not gap.is_const():
        if len(x.terms) != 1 or len(y.terms) != 1:
            return False
        (p, one), (q, other) = x.terms[0], y.terms[0]
        if not (isinstance(p, Digit) and isinstance(q, Digit)):
            return False
        if p.mod is None or q.mod is None:
            return False
        pairs = ((p.div, 1), (q.div, 1), (p.mod, q.mod), (one, other), (x.const, y.const))
        gap = q.base - p.base
        if not gap.is_const() or not all(same_int(m, n) for m, n in pairs):
            return False
        return always(gap.const % p.mod != 0) and _stands(p.base, still)
    return always(gap.const != 0) and _stands(x, still)


def _stands(form: Affine, still: Collection[Var]) -> bool:
    return set(form.variables()) <= set(still)


def _search(
    a: Touch, b: Touch, still: Collection[Var], axes: Sequence[For], most: int
) -> tuple[bool, Meeting | None] | None:
    """By going through at most `most` points of each; None if there are more."""
    fixed = [v for v in still if v in a.used and v in b.used]
    left, right = _points(a, fixed, axes, most), _points(b, fixed, axes, most)
    if left is None or right is None:
        return None
    keys = np.concatenate([left[0], right[0]])
    number = _numbered(keys)
    n, threads = len(left[0]), np.concatenate([left[1], right[1]])
    size = int(number.max()) + 1 if len(number) else 0
    low, high = np.full((2, size), np.iinfo(np.int64).max), np.full((2, size), -1)
    for side, part in enumerate((slice(0, n), slice(n, None))):
        np.minimum.at(low[side], number[part], threads[part])
        np.maximum.at(high[side], number[part], threads[part])
    both = (high[0] >= 0) & (high[1] >= 0)
    met = both & ((low[0] != high[1]) | (high[0] != low[1]))
    if not met.any():
        return False, None
    at = int(np.flatnonzero(met)[0])
    first, second = low[0][at], high[1][at]
    if first == second:
        first, second = high[0][at], low[1][at]
    extents = [int(x.extent) for x in axes]
    element = keys[np.flatnonzero(number == at)[0]][1 + len(fixed) :]
    return True, Meeting(
        tuple(int(i) for i in np.unravel_index(int(first), extents)),
        tuple(int(i) for i in np.unravel_index(int(second), extents)),
        tuple(int(i) for i in element),
    )


def _numbered(keys: _Points) -> _Points:
    """A number for each row, the same for equal rows."""
    low = keys.min(axis=0, initial=0)
    ranges = keys.max(axis=0, initial=0) - low + 1
    steps = np.concatenate([np.cumprod(ranges[::-1].astype(object))[::-1][1:], [1]])
    codes = (keys - low) @ steps.astype(np.int64)  # elements of a buffer: far below 2**63
    return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _points(
    touch: Touch, fixed: Collection[Var], axes: Sequence[For], most: int
) -> tuple[_Points, _Points] | None:
    """Of each point: values of the variables `fixed` and the element; the thread. None if there
    are too many, or data decide the element."""
    if touch.forms is None:
        return None
    predicates = touch.site.block.predicates
    wanted = {x.var for x in axes}
    loops = [x for x in touch.site.loops if x.var in touch.used or x.var in wanted]
    shape = [int(x.extent) for x in loops]
    if prod(shape) > most:
        return None
    grid = np.indices(shape, dtype=np.int64).reshape(len(shape), -1)
    values: dict[Var, _Points] = {x.var: g for x, g in zip(loops, grid, strict=True)}
    count = prod(shape)
    keep = np.ones(count, bool)
    for p in predicates:
        keep &= np.broadcast_to(p.form.evaluate(values) < p.bound, (count,))
    columns = [np.zeros(count, np.int64), *(values[v] for v in fixed)]
    columns += [np.broadcast_to(np.asarray(f.evaluate(values)), (count,)) for f in touch.forms]
    thread = np.zeros(count, np.int64)
    for x in axes:
        thread = thread * int(x.extent) + values[x.var]
    return np.stack([c[keep] for c in columns], axis=-1), thread[keep]
