"""A Loop whose body is kernels in a row, all of whose iterations are one native call.

What is scanned is written where it is collected. A state that is scanned as well is read in the row
before the one that is written; any other has two arrays, of which an iteration reads one and writes
the other. So there are two tables of addresses, for even and for odd iterations.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autosched.runtime.arrays import empty
from autosched.runtime.sequence import LOOP, MOVE, loop_runner
from autosched.tir import dtypes

if TYPE_CHECKING:
    from autosched.graph.executor import Program

Array = npt.NDArray[Any]
ROOM = 64
"""Iterations that scanned results have room for at first, where their number is not known."""
TURNS, SHORT = 64, 0.02
"""Iterations of the first native call, and seconds of one after which the next has four times as
many: signals are seen between two calls."""


class Repeated:
    """The body of a Loop: parameters are what it captures, the number, the condition, the states;
    results are the condition, the states, what is scanned."""

    def __init__(self, program: Program, captured: int, states: int) -> None:
        (step,) = program.native
        fresh = {f.slot: f for f in program.spec.fresh}
        results = program.spec.results
        after = results[1 : 1 + states]
        # A state before an iteration is that after the one before.
        given = {captured + 2 + k: slot for k, slot in enumerate(after)}
        scanned = [(given.get(slot, slot), slot not in given) for slot in results[1 + states :]]
        self.step = step
        self.kept = _stays(program, captured)
        """Whether the condition stays true."""
        self.number = np.zeros((), np.int64)
        self.true, self.go = np.ones((), bool), np.ones((), bool)
        slots = list(dict.fromkeys(slot for slot, _ in scanned))
        self.rows = [fresh[slot] for slot in slots]
        """What is collected. Row 0 is what the first iteration reads of a state, else nothing."""
        self.scanned = [(slots.index(slot), int(ahead)) for slot, ahead in scanned]
        """Of what is scanned: where it is collected, and the first of its rows."""
        self.collected = {k: slots.index(slot) for k, slot in enumerate(after) if slot in slots}
        self.pairs = {
            k: tuple(empty(fresh[slot].shape, fresh[slot].dtype) for _ in range(2))
            for k, slot in enumerate(after)
            if slot not in slots
        }
        moving = {slot: (n, 1) for n, slot in enumerate(slots)}
        moving |= {captured + 2 + k: (n, 0) for k, n in self.collected.items()}
        tables = [
            _Table(program, self._fixed(captured, results, parity), moving) for parity in (0, 1)
        ]
        self.tables = tables
        self.moving = [(n, ahead) for _, (n, ahead) in tables[0].moving]
        self.moves = np.zeros(len(self.moving), MOVE)
        for parity, table in enumerate(tables):
            base = table.cells.ctypes.data
            self.moves["cells"][:, parity] = [base + 8 * cell for cell, _ in table.moving]
        go = self.true if self.kept else self.go
        self.loop = np.zeros((), LOOP)
        self.loop[()] = (
            [t.rows.ctypes.data for t in tables],
            len(step.calls),
            step.stopped.ctypes.data,
            self.number.ctypes.data,
            go.ctypes.data,
            0,
            len(self.moves),
            self.moves.ctypes.data,
        )
        self.native = loop_runner(program.flush_denormals)

    def _fixed(self, first: int, results: Sequence[int], parity: int) -> dict[int, Array]:
        """The arrays of slots in iterations of a parity."""
        fixed = {first: self.number, first + 1: self.true}
        for k, pair in self.pairs.items():
            fixed[first + 2 + k] = pair[1 - parity]
            fixed[results[1 + k]] = pair[parity]
        if not self.kept:
            fixed[results[0]] = self.go
        return fixed

    @staticmethod
    def fits(program: Program, captured: int, states: int) -> bool:
        """Whether a body is one: kernels in a row, all of whose results they write, but for a
        condition that stays true, and states that are scanned as they come in."""
        fresh = {f.slot for f in program.spec.fresh}
        results = program.spec.results
        alone = results[_stays(program, captured) : 1 + states]
        before = range(captured + 2, captured + 2 + states)
        simple = len(program.steps) == len(program.native) == 1
        # A state that is read where it is written would need a third array, and a condition that is
        # scanned would have to be written twice.
        written = set(alone) <= fresh and len(set(alone)) == len(alone)
        may_be_scanned = (fresh - {results[0]}) | {*before}
        return simple and written and set(results[1 + states :]) <= may_be_scanned

    def run(
        self, captured: Sequence[Array], limit: int | None, states: Sequence[Array]
    ) -> list[Array]:
        """The states after the last iteration, and what was scanned, as new arrays. The condition
        is true at first. Raises Unsupported where a kernel stops."""
        limit = None if limit is None else max(limit, 0)
        room = ROOM if limit is None else limit if self.kept else min(limit, ROOM)
        collected = [np.empty((room + 1, *f.shape), dtypes.array_dtype(f.dtype)) for f in self.rows]
        for k, n in self.collected.items():
            np.copyto(collected[n][0], states[k])
        for k, pair in self.pairs.items():
            np.copyto(pair[1], states[k])  # which even iterations read
        for table in self.tables:
            table.capture(captured)
        self.go[()] = True
        self.loop["done"] = done = 0
        self._place(collected)
        turns = TURNS
        while limit is None or done < limit:
            if self.rows and done == room:
                room *= 2
                collected = [np.concatenate([c, np.empty_like(c[1:])]) for c in collected]
                self._place(collected)
            end = done + turns if limit is None else min(done + turns, limit)
            begun = time.perf_counter()
            self.native(self.loop.ctypes.data, min(end, room) if self.rows else end)
            if time.perf_counter() - begun < SHORT:
                turns *= 4
            if self.step.stops:
                self.step.check()
            done = int(self.loop["done"])
            if not self.go[()]:
                break
        pairs, rows = self.pairs, self.collected
        last = [
            collected[rows[k]][done] if k in rows else pairs[k][1 - done % 2]
            for k in range(len(states))
        ]
        out = [x.copy() for x in last]
        for n, ahead in self.scanned:
            part = collected[n][ahead : done + ahead]
            shared = done < room or any(x.base is part.base for x in out)
            out.append(part.copy() if shared else part)
        return out

    def _place(self, collected: Sequence[Array]) -> None:
        """Write where the cells that move begin."""
        for move, (n, ahead) in zip(self.moves, self.moving, strict=True):
            stride = collected[n].strides[0]
            move["base"], move["stride"] = collected[n].ctypes.data + ahead * stride, stride


def _stays(program: Program, captured: int) -> bool:
    """Whether the condition of a body, true at first, stays so."""
    slot = program.spec.results[0]
    constant = {n for n, _ in program.spec.constants}
    return slot == captured + 1 or (slot in constant and bool(program.template[slot].all()))


class _Table:
    """Rows with cells of their own, for the iterations of one parity. `fixed`: arrays of slots;
    `moving`: those of slots that move along."""

    def __init__(
        self, program: Program, fixed: dict[int, Array], moving: dict[int, tuple[int, int]]
    ) -> None:
        (step,) = program.native
        self.cells = step.cells.copy()
        self.rows = step.rows.copy()
        self.rows[:, 1] += self.cells.ctypes.data - step.cells.ctypes.data
        self.moving = [(cell, moving[slot]) for cell, slot in step.patches if slot in moving]
        self.captured: list[tuple[int, int]] = []
        for cell, slot in step.patches:
            if slot in fixed:
                self.cells[cell] = fixed[slot].ctypes.data
            elif slot not in moving:
                self.captured.append((cell, slot))

    def capture(self, captured: Sequence[Array]) -> None:
        """Write the addresses of what the body captures."""
        for cell, slot in self.captured:
            self.cells[cell] = captured[slot].ctypes.data
