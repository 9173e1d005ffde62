"""Shapes of inputs that differ by lengths only."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.graph.dynamic.lengths import End, Lengths

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of the inputs, in order."""

CAPACITIES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
"""Sizes that padded axes are given, the longest of a model's: each costs a build, and up to half
of what is computed is padding."""
BATCHES = (4, 8, 16, *CAPACITIES)
"""Those of the first axes of inputs, such as a batch: all that is computed grows with it."""
LEAST = 2
"""The least length that is padded: axes of one element may be broadcast."""
MOST = 3
"""Lengths of a family: each doubles the readings of a model."""


@dataclass(frozen=True)
class Family:
    """Shapes in which some axes have `sizes` that follow from lengths: input, axis and size."""

    sizes: tuple[tuple[int, int, End], ...]
    others: Shapes
    """The shapes with 0 at these axes."""

    @property
    def count(self) -> int:
        """The number of lengths."""
        return 1 + max(n for _, _, size in self.sizes for n in size.of)

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
        lengths = tuple(own[n,] for n in range(self.count))
        return lengths if self.shapes(lengths) == shapes else None

    def longer(self, n: int) -> int:
        """By how many elements the longest axis of one length is longer than the shortest."""
        return max(size.more for _, _, size in self.sizes if size.of == (n,))

    def capacities(self, n: int) -> tuple[int, ...]:
        """The capacities of one length."""
        axes = [(i, axis) for i, axis, size in self.sizes if size.of == (n,)]
        batch = all(axis == 0 and len(self.others[i]) > 1 for i, axis in axes)
        return BATCHES if batch else CAPACITIES

    def ranges(self, lengths: Lengths) -> list[tuple[int, int]] | None:
        """The least of each length and its capacity in the build that serves these lengths; None
        where there is none, as a range of fewer than three lengths."""
        out = []
        for n, length in enumerate(lengths):
            more, capacities = self.longer(n), self.capacities(n)
            capacity = next((c for c in capacities if c >= length + more), 0)
            below = max((c for c in capacities if c < capacity), default=0)
            out.append((max(LEAST, below - more + 1), capacity - more))
            if length < LEAST or out[-1][1] - out[-1][0] < LEAST:
                return None
        return out


def families(shapes: Shapes, seen: Sequence[Shapes]) -> list[Family]:
    """The families of these shapes and two seen before, those of the most lengths first."""
    found: Counter[Family] = Counter()
    for pair in itertools.combinations(reversed(seen), 2):
        family = family_of(shapes, *pair)
        if family is not None:
            found[family] += 1
    return sorted(found, key=lambda f: (-f.count, -found[f]))


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
    return Family(tuple(sorted(sizes, key=lambda s: s[:2])), tuple(fixed))
