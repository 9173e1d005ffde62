"""Copies of what is in a layout that pads: gaps are not copied, wherever the blocks stand."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from schedule_outcome import outputs

from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse, parse_func

LAYOUTS = (
    [[0, 2], 1, [0, 1, 2]],
    [[1, 4], 0, [1, 1, 4]],
    [[0, 2], [1, 4], [0, 1, 2], [1, 1, 4]],
    [[[0, 1], 4], [[0, 1], 1, 4]],
    [1, 0],
)
AGAIN = (None, [1, 0, 2], [[1, 2], 0, [1, 1, 2], 2], "reindex")


def packed(layout: list[Any], again: list[Any] | str | None) -> Schedule:
    """B = A + 1 through a copy of a copy of A."""
    schedule = Schedule(
        parse_func("""
@T.prim_func
def main(A: T.Buffer((3, 7), "int64"), B: T.Buffer((3, 7), "int64")):
    for i, j in T.grid(3, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1
""")
    )
    schedule.cache_read("B", 0, "local", layout)
    if again == "reindex":
        schedule.reindex("B", ("read", 0))
    else:
        rank = len(layout)
        dims = again and [d for d in again if not isinstance(d, int) or d < rank]
        schedule.cache_read("B", 0, "global", dims and [*dims, *range(3, rank)])
    return schedule


def laid_out(layout: list[Any], again: list[Any] | str | None) -> Schedule:
    """B = A * 3 + 1 through a copy of an intermediate, in loops that are split."""
    schedule = Schedule(
        parse_func("""
@T.prim_func
def main(A: T.Buffer((3, 7), "int64"), B: T.Buffer((3, 7), "int64")):
    C = T.alloc_buffer((3, 7), "int64")
    for i, j in T.grid(3, 7):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * 3
    for i, j in T.grid(3, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] + 1
""")
    )
    schedule.transform_layout("C", ("write", 0), layout)
    for block in ("C", "B"):
        schedule.split(schedule.get_loops(block)[0], [None, 2])
    if again == "reindex":
        return schedule
    schedule.cache_read("B", 0, "global", again and [*range(len(layout))][::-1])
    return schedule


@pytest.mark.sampled(3)
@pytest.mark.parametrize("made", [packed, laid_out])
@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_place_of_a_copy_reads_back(made: Any, layout: Any, again: Any) -> None:
    schedule = made(layout, again)
    func = made([0, 1], None).func
    for block, other in permutations(schedule.get_blocks(), 2):
        for n in range(len(schedule.get_loops(other))):
            for name in ("compute_at", "reverse_compute_at"):
                moved = schedule.copy()
                try:
                    getattr(moved, name)(block, moved.get_loops(other)[n])
                except ScheduleError:
                    continue
                assert parse(moved.func.script()).same(moved.func)
                for x, y in zip(outputs(moved.func, func, 3), outputs(func, func, 3), strict=True):
                    assert np.array_equal(x, y)
