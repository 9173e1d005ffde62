"""The memory plan: where in one workspace each value lies, and for how long."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from autosched.runtime.arrays import rounded


@dataclass(frozen=True)
class Life:
    """A value of so many bytes, which lives from the step that writes it to the last that reads
    it, both included."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """`offsets[n]` is where `lives[n]` begins in a workspace of `bytes`."""

    lives: tuple[Life, ...]
    offsets: tuple[int, ...]
    bytes: int

    @property
    def peak(self) -> int:
        """Bytes that live at once at most: no plan needs less."""
        changes: dict[int, int] = {}
        for x in self.lives:
            changes[x.first] = changes.get(x.first, 0) + x.bytes
            changes[x.last + 1] = changes.get(x.last + 1, 0) - x.bytes
        return max(accumulate(changes[n] for n in sorted(changes)), default=0)

    def __str__(self) -> str:
        rows = [
            f"{x.name:<40} {x.bytes:>12} bytes at {at:>12}, steps {x.first} to {x.last}"
            for x, at in zip(self.lives, self.offsets, strict=True)
        ]
        return "\n".join([f"workspace of {self.bytes} bytes, {self.peak} alive at once", *rows])


def place(lives: Sequence[Life]) -> Plan:
    """Offsets, largest values first, each in the lowest gap that is free while it lives.

    The rule is "greedy by size" of Pisarchyk and Lee, Efficient memory management for deep neural
    net inference, 2020."""
    order = sorted(range(len(lives)), key=lambda n: (-lives[n].bytes, lives[n].first, n))
    offsets = [0] * len(lives)
    placed = _Placed(max((x.last for x in lives), default=0) + 1)
    total = 0
    for n in order:
        life, size = lives[n], rounded(lives[n].bytes)
        at = 0
        for begin, end in sorted(placed.beside(life)):
            if begin - at >= size:
                break
            at = max(at, end)
        offsets[n] = at
        total = max(total, at + size)
        placed.add(life, (at, at + size))
    return Plan(tuple(lives), tuple(offsets), total)


Place = tuple[int, int]
"""Where a value begins and ends."""


class _Placed:
    """Places by the steps that their values live in: those that live at one time as another value
    are found without the rest. A segment tree of steps has each life in few nodes."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.nodes: list[list[Place]] = [[] for _ in range(2 * steps)]
        self.begins: list[int] = []
        self.places: list[Place] = []

    def add(self, life: Life, place: Place) -> None:
        """A place, taken while a value lives."""
        n = bisect_right(self.begins, life.first)
        self.begins.insert(n, life.first)
        self.places.insert(n, place)
        low, high = life.first + self.steps, life.last + self.steps + 1
        while low < high:
            if low % 2:
                self.nodes[low].append(place)
                low += 1
            if high % 2:
                high -= 1
                self.nodes[high].append(place)
            low, high = low // 2, high // 2

    def beside(self, life: Life) -> list[Place]:
        """The places of values that live at one time with another."""
        first, last = (bisect_right(self.begins, n) for n in (life.first, life.last))
        found = self.places[first:last]  # they begin later
        n = life.first + self.steps
        while n:
            found += self.nodes[n]
            n //= 2
        return found
