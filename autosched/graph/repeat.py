"""A Loop whose body is kernels in a row, without an allocation or a copy in an iteration.

Each state has two arrays: an iteration reads one and writes the other. So there are two tables of
addresses, for even and for odd iterations; scanned results are written where they are collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autosched.runtime.arrays import empty
from autosched.tir import dtypes

if TYPE_CHECKING:
    from autosched.graph.executor import Program

Array = npt.NDArray[Any]
ROOM = 64
"""Iterations that scanned results have room for at first, where no limit says how many."""


class Repeated:
    """The body of a Loop: parameters are what it captures, the number, the condition, the states;
    results are the condition, the states, what is scanned."""

    def __init__(self, program: Program, captured: int, states: int) -> None:
        (step,) = program.native
        fresh = {f.slot: f for f in program.spec.fresh}
        results = program.spec.results
        self.first, self.states, self.step = captured, states, step
        self.number = np.zeros((), np.int64)
        self.true, self.go = np.ones((), bool), np.ones((), bool)
        self.pairs = [
            (empty(f.shape, f.dtype), empty(f.shape, f.dtype))
            for f in (fresh[slot] for slot in results[1 : 1 + states])
        ]
        self.scanned = [fresh[slot] for slot in results[1 + states :]]
        self.kept = results[0] == captured + 1
        """Whether the condition stays as it is."""
        self.tables = [_Table(self, program, parity) for parity in (0, 1)]

    @staticmethod
    def fits(program: Program, captured: int) -> bool:
        """Whether a body is one: kernels in a row, all of whose results they write, but for a
        condition that stays as it is."""
        fresh = {f.slot for f in program.spec.fresh}
        results = program.spec.results
        made = results[1:] if results[0] == captured + 1 else results
        simple = len(program.steps) == len(program.native) == 1
        # A state that is read where it is written would need a third array.
        return simple and set(made) <= fresh and len(set(made)) == len(made)

    def run(
        self, captured: Sequence[Array], limit: int | None, states: Sequence[Array]
    ) -> list[Array]:
        """The states after the last iteration, and what was scanned, as new arrays. The condition
        is true at first."""
        for pair, given in zip(self.pairs, states, strict=True):
            np.copyto(pair[1], given)  # which even iterations read
        room = ROOM if limit is None else max(limit, 1)
        collected = [
            np.empty((min(room, ROOM), *f.shape), dtypes.array_dtype(f.dtype)) for f in self.scanned
        ]
        for table in self.tables:
            table.capture(captured)
        places = [(c.ctypes.data, c.strides[0]) for c in collected]
        n, run, count = 0, self.step.run, len(self.step.calls)
        while limit is None or n < limit:
            if collected and n == len(collected[0]):
                collected = [np.concatenate([c, np.empty_like(c)]) for c in collected]
                places = [(c.ctypes.data, c.strides[0]) for c in collected]
            self.number[()] = n
            table = self.tables[n & 1]
            for cell, k in table.written:
                table.cells[cell] = places[k][0] + n * places[k][1]
            run(table.address, count)
            n += 1
            if not self.kept and not self.go[()]:
                break
        done = [pair[1 - (n & 1)].copy() for pair in self.pairs]
        return [*done, *(c[:n].copy() for c in collected)]


class _Table:
    """Rows with cells of their own, for the iterations of one parity."""

    def __init__(self, body: Repeated, program: Program, parity: int) -> None:
        step, results = body.step, program.spec.results
        self.cells = step.cells.copy()
        self.rows = step.rows.copy()
        self.rows[:, 1] += self.cells.ctypes.data - step.cells.ctypes.data
        self.address = self.rows.ctypes.data
        first, states = body.first, body.states
        fixed = {first: body.number, first + 1: body.true}
        for k, pair in enumerate(body.pairs):
            fixed[first + 2 + k] = pair[1 - parity]
            fixed[results[1 + k]] = pair[parity]
        if not body.kept:
            fixed[results[0]] = body.go
        scanned = {slot: k for k, slot in enumerate(results[1 + states :])}
        self.captured: list[tuple[int, int]] = []
        self.written: list[tuple[int, int]] = []
        for cell, slot in step.patches:
            if slot in fixed:
                self.cells[cell] = fixed[slot].ctypes.data
            elif slot in scanned:
                self.written.append((cell, scanned[slot]))
            else:
                self.captured.append((cell, slot))

    def capture(self, captured: Sequence[Array]) -> None:
        """Write the addresses of what the body captures."""
        for cell, slot in self.captured:
            self.cells[cell] = captured[slot].ctypes.data
