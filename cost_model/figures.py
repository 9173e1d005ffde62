"""Figures of candidates, computed once.

What a model derives from a candidate's program alone stays the same while the search learns; a
search meets most of its candidates again in every round.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from autosched.sketch.space import Population
from autosched.tir.affine import IntArray

Rows = npt.NDArray[np.float64]
LIMIT = 100_000
"""Candidates remembered; beyond, all are forgotten."""


class Figures:
    """Rows of figures by candidate; `compute(population)` gives shape (N, width) for new ones."""

    def __init__(self, compute: Callable[[Population], Rows], width: int) -> None:
        self.compute = compute
        self.place: dict[bytes, int] = {}
        self.table: Rows = np.empty((1024, width))

    def of(self, population: Population) -> Rows:
        """Figures of all candidates, shape (N, width)."""
        if len(self.place) > LIMIT:
            self.place.clear()
        keys = population.keys()
        new = [n for n, key in enumerate(keys) if key not in self.place]
        if new:
            self._add([keys[n] for n in new], population.take(np.array(new, dtype=np.int64)))
        where: IntArray = np.array([self.place[k] for k in keys], dtype=np.int64)
        return self.table[where]

    def _add(self, keys: list[bytes], population: Population) -> None:
        rows = self.compute(population)
        at = len(self.place)
        while at + len(rows) > len(self.table):
            self.table = np.concatenate([self.table, np.empty_like(self.table)])
        free = at
        for key, row in zip(keys, rows, strict=True):
            if key not in self.place:
                self.place[key] = free
                self.table[free] = row
                free += 1
