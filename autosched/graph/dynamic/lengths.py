"""Lengths that vary independently, and numbers that follow from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.ir import Array

Lengths = tuple[int, ...]
"""A number for each length."""
PERIOD = 16
"""Lengths of a period that are read: all of a short one, and an even choice of a long one."""


@dataclass(frozen=True)
class End:
    """How many elements of an axis count: the sum of lengths, given by their places, `times` a
    number, and `more`, divided by `by` and rounded down."""

    of: tuple[int, ...]
    more: int
    by: int = 1
    times: int = 1

    def at(self, lengths: Lengths) -> int:
        """The number at these lengths."""
        return (self.times * sum(lengths[n] for n in self.of) + self.more) // self.by

    @property
    def single(self) -> bool:
        """Whether there is one more for each element of a length."""
        return self.by == self.times == 1

    def longer(self, count: int) -> End:
        """So many more."""
        return replace(self, more=self.more + count * self.by)

    def windows(self, size: int, stride: int) -> End:
        """How many windows of `size` elements the elements that count have, `stride` apart."""
        more, by = self.longer(stride - size).more, self.by * stride
        same = math.gcd(self.times, by)  # of a quotient rounded down, as of its numerator
        return replace(self, more=more // same, by=by // same, times=self.times // same)

    def scaled(self, count: int) -> End:
        """So many for each, where `by` or `count` is 1."""
        return replace(self, more=self.more * count, times=self.times * count)


@dataclass(frozen=True)
class Flat:
    """An axis that several were reshaped to: their sizes at the capacity, and where they end. The
    elements that count lie between others."""

    parts: tuple[tuple[int, End | None], ...]

    def at(self, lengths: Lengths) -> int:
        """How many elements count at these lengths."""
        return math.prod(n if end is None else end.at(lengths) for n, end in self.parts)

    @property
    def is_first(self) -> bool:
        """Whether the elements that count lie before all others."""
        return all(end is None for _, end in self.parts[1:])


Axis = End | Flat | None
"""Which elements of an axis count: all where it is None."""


@dataclass(frozen=True)
class Affine:
    """Integers: `start`, and the product of each length and its `steps`."""

    start: Array
    steps: tuple[Array, ...]


@dataclass(frozen=True)
class Grid:
    """The lengths at which a model is read, from `least` up to `capacity`: every corner of that
    box, and one less than the capacity in each length. They tell all polynomials in which each
    length is squared, or multiplied by the others. Numbers of windows are none: they have a
    `period`, of which so many lengths below the capacity are read, at most `PERIOD`."""

    capacity: Lengths
    least: Lengths
    period: int = 1
    unit: int = 1
    """How many elements the axes of inputs have for each of a length."""

    @cached_property
    def points(self) -> tuple[Lengths, ...]:
        """The capacity, one less in each length, the other corners, and those of a period."""
        full = self.capacity
        near = [self._less(n, 1) for n in range(len(full))]
        corners = itertools.product(*zip(full, self.least, strict=True))
        others = (
            self._less(n, 1 + k * (self.period - 1) // min(self.period, PERIOD))
            for n, (size, low) in enumerate(zip(full, self.least, strict=True))
            for k in range(1, min(self.period, PERIOD, size - low))
        )
        found = (full, *near, *(c for c in corners if c != full))
        return (*found, *(p for p in dict.fromkeys(others) if p not in found))

    def _less(self, n: int, count: int) -> Lengths:
        """The capacity, but for length n, which is less by so many, and no less than the least."""
        least = max(self.capacity[n] - count, self.least[n])
        return (*self.capacity[:n], least, *self.capacity[n + 1 :])

    def end(self, sizes: Sequence[int], known: Iterable[End | Flat] = ()) -> Axis:
        """Which elements of an axis count by its sizes at the points: the first ones, or as of the
        one axis of `known` that has these sizes, or, where it does not grow by whole elements, so
        many more at all points. Raises Unsupported for others."""
        if len(set(sizes)) == 1:
            return None
        grows = [sizes[0] - size for size in sizes[1 : len(self.capacity) + 1]]
        of = tuple(n for n, grown in enumerate(grows) if grown)
        times = max(grows) if max(grows) in (1, self.unit) else 1
        start = sizes[0] - times * sum(self.capacity[n] for n in of)
        every: set[End | Flat] = {End(of, start, times=times)}
        for e in known:
            every.add(e.longer(sizes[0] - e.at(self.capacity)) if isinstance(e, End) else e)
        same = [e for e in every if [*map(e.at, self.points)] == [*sizes]]
        if len(same) != 1:
            raise Unsupported(f"an axis has the sizes {', '.join(map(str, sizes))}")
        return same[0]

    def affine(self, values: Sequence[Array | int]) -> Affine | None:
        """The affine function that has these integers at the points; None where there is none."""
        first, *others = (np.asarray(v).astype(np.int64) for v in values)
        steps = tuple(first - v for v in others[: len(self.capacity)])
        for v, point in zip(others, self.points[1:], strict=True):
            less = [full - n for full, n in zip(self.capacity, point, strict=True)]
            if (first - sum(s * n for s, n in zip(steps, less, strict=True)) != v).any():
                return None
        start = first - sum(s * n for s, n in zip(steps, self.capacity, strict=True))
        return Affine(np.asarray(start), steps)

    def multiple(self, values: Sequence[Array], by: Array | int) -> bool:
        """Whether all that the lengths add to these integers is a multiple of a number everywhere:
        the polynomial's coefficients are, but for the constant."""
        rows = np.stack([np.ravel(v) for v in values]).astype(np.float64)
        if not np.isfinite(rows).all() or np.abs(rows).max(initial=0) > 1 << 50:
            return False
        found = np.linalg.lstsq(self._monomials, rows - rows[0], rcond=None)[0]
        whole = np.rint(found)
        if (self._monomials @ whole != rows - rows[0]).any():
            return False
        return not (whole % np.ravel(by)).any()

    @cached_property
    def _monomials(self) -> Array:
        """Of what each length is less than its capacity: a row for each point."""
        less = np.asarray(self.capacity) - np.asarray(self.points)
        count = less.shape[1]
        subsets = itertools.chain.from_iterable(
            itertools.combinations(range(count), k) for k in range(count + 1)
        )
        columns = [less[:, list(s)].prod(axis=1) for s in subsets] + [*(less**2).T]
        return np.stack(columns, axis=1).astype(np.float64)
