"""Accesses by the points of a block, and the points that touch one element, found by going through
all of them where they are few: what proofs leave open.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autosched.tir.affine import Affine
from autosched.tir.digits import is_constant
from autosched.tir.expr import Var
from autosched.tir.inequalities import check_time
from autosched.tir.nodes import Access, Buffer, For, Predicate, Site
from autosched.tir.prove import Facts
from autosched.tir.simplify import substitute_loops
from autosched.tir.verify_bounds import loop_facts

MAX_POINTS = 1 << 18
"""Of one access, gone through one by one."""
_Points = npt.NDArray[np.int64]


class Meeting(NamedTuple):
    """Two iterations, as values of the loops asked about, that touch one element."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    element: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Touch:
    """An access by all points of a block."""

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


def search(
    a: Touch, b: Touch, still: Collection[Var], axes: Sequence[For], most: int
) -> tuple[bool, Meeting | None] | None:
    """Whether the accesses touch one element in different iterations of the loops `axes`, those of
    `still` being in one on both sides, and in which: by going through at most `most` points of each
    access; None if there are more."""
    fixed = [v for v in still if v in a.used and v in b.used]
    left, right = _points(a, fixed, axes, most), _points(b, fixed, axes, most)
    if left is None or right is None:
        return None
    keys = np.concatenate([left[0], right[0]])
    number = numbered(keys)
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


def numbered(keys: _Points) -> _Points:
    """A number for each row, the same for equal rows."""
    low, high = keys.min(axis=0, initial=0), keys.max(axis=0, initial=0)
    ranges = [int(h) - int(n) + 1 for n, h in zip(low, high, strict=True)]
    if prod(ranges) >= 2**63:  # no elements of a buffer: bounds are another rule's
        return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    steps = np.array([prod(ranges[n + 1 :]) for n in range(len(ranges))], dtype=np.int64)
    return np.unique((keys - low) @ steps, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _points(
    touch: Touch, fixed: Collection[Var], axes: Sequence[For], most: int
) -> tuple[_Points, _Points] | None:
    """Of each point: values of the variables `fixed` and the element; the thread. None if there
    are too many, or data or sizes decide the element."""
    if touch.forms is None:
        return None
    predicates = touch.site.block.predicates
    wanted = {x.var for x in axes}
    loops = [x for x in touch.site.loops if x.var in touch.used or x.var in wanted]
    numbers = [x.extent for x in loops] + [p.bound for p in predicates]
    forms = [*touch.forms, *(p.form for p in predicates)]
    if not all(isinstance(n, int) for n in numbers) or not all(is_constant(f) for f in forms):
        return None  # symbolic sizes, or candidates
    shape = [int(x.extent) for x in loops]
    if prod(shape) > most:
        return None
    check_time()
    grid = np.indices(shape, dtype=np.int64).reshape(len(shape), prod(shape))
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
