"""The memory plan: where in one workspace each value lies, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


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
        ends = max((x.last for x in self.lives), default=-1) + 1
        return max(
            (sum(x.bytes for x in self.lives if x.first <= n <= x.last) for n in range(ends)),
            default=0,
        )

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
    placed: list[tuple[int, int, Life]] = []
    for n in order:
        life, size = lives[n], _rounded(lives[n].bytes)
        at = 0
        for begin, end, other in placed:  # sorted by where they begin
            if other.last < life.first or life.last < other.first:
                continue
            if begin - at >= size:
                break
            at = max(at, end)
        offsets[n] = at
        placed.append((at, at + size, life))
        placed.sort(key=lambda p: p[0])
    total = max((end for _, end, _ in placed), default=0)
    return Plan(tuple(lives), tuple(offsets), total)


def _rounded(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT
