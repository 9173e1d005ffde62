"""Indices solved for the axes in them: which points of a block read a given region.

Solved are mixed-radix numbers of axes, such as `2 * a + b + 1` where b has 2 points, and digits of
one number that together tell it, such as `i // 16` and `i % 16`: slices, packing and reshaping.
The result is a candidate; the caller proves that each point is visited once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autosched.errors import NotBatchable
from autosched.schedule.place import domain_predicates
from autosched.tir.affine import Affine, Atom, Digit, Extents, Int, always, digit, divides
from autosched.tir.apart import Condition, complete_digits
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Predicate
from autosched.tir.region import Interval

Term = tuple[Atom, Int, Int]
"""An atom of an index, its coefficient and how many values it has, from 0."""


@dataclass(eq=False, slots=True)
class Solved:
    """Intervals of axes. Where one element is asked for: what must hold for a point to read it,
    beside that the axes are in their domains; and how many indices or digits tell nothing."""

    axes: dict[Var, Interval] = field(default_factory=dict)
    hits: list[Predicate] = field(default_factory=list)
    unused: int = 0


def points_reading(
    access: Access, region: Sequence[Interval], extents: Extents, outer: Extents
) -> Solved:
    """The axes that the indices of an access tell, where these take the values of a region that
    holds whole runs of digits. Its starts are forms over the variables `outer`; `extents` are those
    of the axes. Raises NotBatchable where candidates differ in what is told."""
    return _Solver(extents, outer, one=False).solve(access, region)


def point_reading(
    access: Access, element: Sequence[Affine], extents: Extents, outer: Extents
) -> Solved:
    """The axes that the indices of an access tell, where these are the given ones; all their digits
    are forms of width 1, and `hits` says of which elements they are."""
    region = [Interval(index, 1) for index in element]
    return _Solver(extents, outer, one=True).solve(access, region)


class _Solver:
    def __init__(self, extents: Extents, outer: Extents, one: bool) -> None:
        self.extents, self.outer, self.one = extents, outer, one
        self.out = Solved()
        self.digits: list[tuple[Digit, Interval]] = []
        self.mirrored: dict[Var, Var] = {}
        """Variables that stand for axes counted from their ends."""

    def solve(self, access: Access, region: Sequence[Interval]) -> Solved:
        for index, interval in zip(access.indices, region, strict=True):
            if isinstance(index, Affine):
                self._number(index, interval)
            else:
                self.out.unused += 1
        while self.digits:  # what digits make up is a number in turn
            base = self.digits[0][0].base
            group = [x for x in self.digits if x[0].base.same(base)]
            self.digits = [x for x in self.digits if not x[0].base.same(base)]
            together = self._together(base, group)
            if together is None:
                self.out.unused += 1
            else:
                self._number(base, together)
        return self.out

    def _number(self, form: Affine, interval: Interval) -> None:
        """What the atoms of a form are where it takes the values of an interval."""
        form = self._ascending(form)
        terms = self._radix(form)
        rest = interval.start - form.const
        if self.one:
            parts = [
                Interval(digit(rest, c, size if n else None, self.outer), 1)
                for n, (_, c, size) in enumerate(terms)
            ]
            self._hits(form, terms, rest)
        elif len(terms) == 1:
            parts = self._multiples(terms[0][1], rest, interval.width)
        else:
            parts = self._tile(terms, rest, interval.width)
        for (atom, _, size), part in zip(terms, parts, strict=False):
            if isinstance(atom, Var) and atom in self.mirrored:
                start = Affine(size - part.width) - part.start
                atom, part = self.mirrored[atom], Interval(start, part.width)
            if isinstance(atom, Digit):
                self.digits.append((atom, part))
                continue
            known = self.out.axes.setdefault(atom, part)
            if self.one and known is not part:
                self._within(part.start - known.start, 1)

    def _ascending(self, form: Affine) -> Affine:
        """The form with axes that run backwards in it, `63 - v`, counted from their ends."""
        for atom, c in form.terms:
            if isinstance(atom, Var) and _decided(c < 0):
                mirror, last = Var(atom.name), self.extents[atom] - 1
                self.mirrored[mirror] = atom
                self.extents = {**self.extents, mirror: self.extents[atom]}
                form = form + (Affine(last) - Affine.of(mirror) - Affine.of(atom)) * c
        return form

    def _hits(self, form: Affine, terms: Sequence[Term], rest: Affine) -> None:
        """The last digit has no remainder, and the first one is below its modulus."""
        if not terms:
            self._within(rest, 1)
            self.out.unused += not form.is_const()
            return
        (top, step, size), lowest = terms[0], terms[-1][1]
        if not _decided(lowest == 1):
            self.out.hits.append(Predicate(digit(rest, 1, lowest, self.outer), 1))
        if isinstance(top, Digit):
            self._within(digit(rest, step, None, self.outer), size)

    def _within(self, form: Affine, size: Int) -> None:
        self.out.hits += domain_predicates(form, size, self.outer)

    def _radix(self, form: Affine) -> list[Term]:
        """The terms, the most significant first; none where they are no mixed-radix number."""
        left: list[Term] = []
        for atom, c in form.terms:
            low, high = Affine.of(atom).span(self.extents)
            left.append((atom, c, high + 1))
            if not _decided((low == 0) & (c >= 1)):
                return []
        found: list[Term] = []
        while left:
            below = found[-1][1] * found[-1][2] if found else None
            at = next((t for t in left if self._follows(t, below, left)), None)
            if at is None:
                return []
            left = [t for t in left if t is not at]
            found.append(at)
        return found[::-1]

    def _follows(self, term: Term, below: Int | None, left: Sequence[Term]) -> bool:
        if below is not None:
            return _decided(term[1] == below)
        return all(_decided(term[1] <= other[1]) for other in left)

    def _multiples(self, step: Int, rest: Affine, width: Int) -> list[Interval]:
        """Where `step * x` lies in an interval, if that always begins as far from a multiple."""
        if _decided(step == 1):
            return [Interval(rest, width)]
        over = rest.const % step
        if not _divides(step, rest - over):
            return []
        first = digit(rest - over, step, None, self.outer)
        if _decided(over == 0):
            return [Interval(first, (width - 1) // step + 1)]
        return (
            [Interval(first + 1, (over + width - 1) // step)]
            if _decided(over + width > step)
            else []
        )

    def _tile(self, terms: Sequence[Term], rest: Affine, width: Int) -> list[Interval]:
        """Where a mixed-radix number lies in an interval of whole values of one of its digits."""
        at = next((n for n, t in enumerate(terms) if _divides(t[1], rest, width)), None)
        if at is None:
            return []
        step, below = terms[at][1], terms[at + 1 :]
        inside = [Interval(Affine(0), size) for _, _, size in below]
        if at == 0:
            return [Interval(digit(rest, step, None, self.outer), width // step), *inside]
        around = terms[at - 1][1]
        if not (_divides(width, Affine(around)) and _divides(width, rest)):
            return []  # it reaches into the next value of the digit above
        tile = digit(rest, width, None, self.outer)
        above = [
            Interval(digit(tile, c // width, size if n else None, self.outer), 1)
            for n, (_, c, size) in enumerate(terms[:at])
        ]
        here = digit(tile, 1, around // width, self.outer) * (width // step)
        return [*above, Interval(here, width // step), *inside]

    def _together(self, base: Affine, group: Sequence[tuple[Digit, Interval]]) -> Interval | None:
        """The values of a number of which digits are told, if they are a run."""
        if not complete_digits([d for d, _ in group], base, self.extents):
            return None
        start, width = Affine(0), None
        for d, part in sorted(group, key=lambda x: len([y for y, _ in group if _above(y, x[0])])):
            start = start + part.start * d.div
            if width is None:
                width = None if _decided(part.width == 1) else part.width * d.div
            elif not _is_whole(d, part):
                return None
        return Interval(start, 1 if width is None else width)


def _above(a: Digit, b: Digit) -> bool:
    return a is not b and _decided(a.div > b.div)


def _is_whole(d: Digit, part: Interval) -> bool:
    return (
        d.mod is not None
        and part.start.is_const()
        and _decided((part.start.const == 0) & (part.width >= d.mod))
    )


def _divides(step: Int, form: Affine, width: Int = 0) -> bool:
    """Whether a number goes into a form and a width."""
    numbers = [form.const, width, *(c for _, c in form.terms)]
    if any(isinstance(n, np.ndarray) for n in (step, *numbers)):
        return all(_decided(n % step == 0) for n in numbers)
    return all(divides(step, n) for n in numbers)


def _decided(condition: Condition) -> bool:
    """Whether a condition holds for all. Raises NotBatchable where it holds for some candidates."""
    if isinstance(condition, np.ndarray) and condition.any() and not condition.all():
        raise NotBatchable("which points read a region is told otherwise for each candidate")
    return always(condition)
