"""Shapes of inputs that differ by lengths only."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autosched.graph.dynamic.lengths import End, Grid, Lengths

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of the inputs, in order."""

CAPACITIES = (4, 8, 16, 32, *(k << n for n in range(5, 19) for k in (2, 3)), 1 << 20)
"""Sizes that padded axes are given, the longest of a model's: each costs a build, and up to half
of an axis is padding. The last are those of a minute of sound."""
COARSE = (4, 16, 64, 128, 512, 2048, 8192, 1 << 15, 1 << 17, 1 << 19)
"""Those where many builds are kept already: capacities of several lengths multiply."""
LONG = 32
"""The least capacity of an axis that is one of the last two and behind two others, as of the
positions of a cache, which grow through all capacities, or of the rows of an image."""
LEAST = 2
"""The least length that is padded: axes of one element may be broadcast."""
MOST = 3
"""Lengths of a family: each doubles the readings of a model."""
UNIT = 64
"""The largest unit of sizes that differ by multiples of one."""


@dataclass(frozen=True)
class Family:
    """Shapes in which some axes have `sizes` that follow from lengths: input, axis and size."""

    sizes: tuple[tuple[int, int, End], ...]
    others: Shapes
    """The shapes with 0 at these axes."""
    unit: int = 1
    """How many elements each axis has for each of a length."""
    apart: int = field(default=1, compare=False)
    """What all sizes that were seen differ by multiples of."""

    @property
    def count(self) -> int:
        """The number of lengths."""
        return 1 + max(n for _, _, size in self.sizes for n in size.of)

    @functools.cached_property
    def axes(self) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """Which axes grow, and with which lengths."""
        return tuple((n, axis, size.of) for n, axis, size in self.sizes)

    def shapes(self, lengths: Lengths) -> Shapes:
        """The shapes at these lengths."""
        out = [list(s) for s in self.others]
        for n, axis, size in self.sizes:
            out[n][axis] = size.at(lengths)
        return tuple(tuple(s) for s in out)

    def lengths(self, shapes: Shapes) -> Lengths | None:
        """The lengths at which shapes are these; None where they are of no such."""
        if tuple(map(len, shapes)) != tuple(map(len, self.others)):
            return None
        own = {size.of: shapes[n][axis] - size.more for n, axis, size in self.sizes}
        lengths = tuple(own[n,] // self.unit for n in range(self.count))
        return lengths if self.shapes(lengths) == shapes else None

    def in_units(self, shapes: Shapes, unit: int) -> Family:
        """The family of the shapes whose sizes differ from these by multiples of a unit."""
        lengths = self.lengths(shapes)
        assert lengths is not None
        whole = [n // unit for n in lengths]
        sizes = (
            (
                n,
                axis,
                End(size.of, shapes[n][axis] - unit * sum(whole[k] for k in size.of), 1, unit),
            )
            for n, axis, size in self.sizes
        )
        return Family(tuple(sizes), self.others, unit, unit)

    def units(self) -> list[int]:
        """The units that all sizes that were seen differ by multiples of, but for 1."""
        return [n for n in range(2, min(self.apart, UNIT) + 1) if self.apart % n == 0]

    def longer(self, n: int) -> int:
        """By how many elements the longest axis of one length is longer than the shortest."""
        return max(size.more for _, _, size in self.sizes if size.of == (n,))

    def capacities(self, n: int, coarse: bool = False) -> list[int]:
        """The capacities of one length; the first has room for two lengths beside the least."""
        axes = [(i, axis) for i, axis, size in self.sizes if size.of == (n,)]
        long = any(axis >= max(2, len(self.others[i]) - 2) for i, axis in axes)
        least = max(LONG if long else 0, self.longer(n) + (LEAST + 2) * self.unit)
        return [c for c in (COARSE if coarse else CAPACITIES) if c >= least]

    def elements(self, lengths: Lengths) -> int:
        """Of the inputs."""
        return sum(map(math.prod, self.shapes(lengths)))

    def grid(self, lengths: Lengths, coarse: bool = False) -> Grid | None:
        """The range of each length in the build that serves these, all up to a capacity where they
        are coarse; None where there is none."""
        ranges = []
        for n, length in enumerate(lengths):
            more, capacities = self.longer(n), self.capacities(n, coarse)
            at = bisect.bisect_left(capacities, length * self.unit + more)
            if length < LEAST or at == len(capacities):
                return None
            below = capacities[at - 1] if at and not coarse else 0
            least = max(LEAST, (below - more) // self.unit + 1)
            ranges.append(((capacities[at] - more) // self.unit, least))
        capacity, least_of = zip(*ranges, strict=True)
        return Grid(capacity, least_of, unit=self.unit)


def families(shapes: Shapes, seen: Sequence[Shapes]) -> list[Family]:
    """The families of these shapes and two seen before, those of the most lengths first."""
    found: Counter[Family] = Counter()
    apart: dict[Family, int] = {}
    for pair in itertools.combinations(reversed(seen), 2):
        family = family_of(shapes, *pair)
        if family is not None:
            found[family] += 1
            apart[family] = math.gcd(family.apart, apart.get(family, 0))
    most = sorted(found, key=lambda f: (-f.count, -found[f]))
    return [replace(f, apart=apart[f]) for f in most]


def family_of(shapes: Shapes, *others: Shapes) -> Family | None:
    """The family in which each length has another value in all of these; None where there is
    none. Axes whose sizes differ alike follow from one length, or from a sum of two."""
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for n, same in enumerate(zip(shapes, *others, strict=True)):
        if len(set(map(len, same))) != 1:
            return None
        for axis, (size, *rest) in enumerate(zip(*same, strict=True)):
            moved = tuple(size - r for r in rest)
            if any(moved):
                groups.setdefault(moved, []).append((n, axis))
    sums = {
        tuple(map(sum, zip(x, y, strict=True))): (x, y)
        for x, y in itertools.combinations(groups, 2)
    }
    single = [moved for moved in groups if moved not in sums]
    if not 0 < len(single) <= MOST or any(0 in m or len(set(m)) < len(m) for m in single):
        return None
    lengths = {m: min(shapes[n][axis] for n, axis in groups[m]) for m in single}
    sizes = []
    for moved, axes in groups.items():
        of = (moved,) if moved in lengths else sums[moved]
        if any(m not in lengths for m in of):
            return None
        start = sum(lengths[m] for m in of)
        places = tuple(sorted(single.index(m) for m in of))
        sizes += [(n, axis, End(places, shapes[n][axis] - start)) for n, axis in axes]
    padded = {(n, axis) for n, axis, _ in sizes}
    fixed = (
        tuple(0 if (n, axis) in padded else size for axis, size in enumerate(s))
        for n, s in enumerate(shapes)
    )
    apart = math.gcd(*itertools.chain(*single))
    return Family(tuple(sorted(sizes, key=lambda s: s[:2])), tuple(fixed), apart=apart)
