"""Splits that overshoot the extent by any amount cost nothing: lowering ends the loops."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_programs import add_one

from autosched.lowering.lower import end_early, lower
from autosched.schedule import Schedule
from autosched.tir import interp
from autosched.tir.nodes import loops_of

HUGE = 1 << 40
FACTORS = ([None, HUGE], [HUGE, None], [3, HUGE], [HUGE, 4], [None, 3, HUGE])


def check(schedule: Schedule, kind: str) -> None:
    """The loop walks no more than the ten elements, and the results are right."""
    program = end_early(lower(schedule.func), kind)
    assert all(loop.extent <= 10 for loop in loops_of(program))
    a, c = np.arange(10, dtype=np.float32), np.empty(10, np.float32)
    interp.run(program, [a, c])
    np.testing.assert_array_equal(c, (a + 1) * 2)


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_huge_factor(factors: list[int | None], kind: str) -> None:
    """One loop of the nest is parallel, or the innermost vectorised; the others are fused away."""
    schedule = Schedule(add_one(10))
    block = schedule.get_block("B")
    fused = schedule.fuse(*schedule.split(schedule.get_loops(block)[0], factors))
    (schedule.parallel if kind == "parallel" else schedule.vectorize)(fused)
    check(schedule, kind)


def test_huge_parallel_loops_in_a_chain() -> None:
    schedule = Schedule(add_one(10))
    for loop in schedule.split(schedule.get_loops(schedule.get_block("B"))[0], [3, HUGE]):
        schedule.parallel(loop)
    check(schedule, "parallel")


def test_a_block_below_a_fusion_with_a_unit_loop_moves() -> None:
    """`f // 1` is f: the predicate of the overshooting splits is seen to follow."""
    schedule = Schedule(add_one(3))
    block = schedule.get_block("B")
    schedule.split(schedule.get_loops(block)[0], [None, 1, 3])
    schedule.split(schedule.get_loops(block)[0], [None, 1, 2])
    schedule.fuse(*schedule.get_loops(block)[1:3])
    schedule.split(schedule.get_loops(block)[2], [None, 2, 3])
    schedule.compute_at(block, schedule.get_loops(schedule.get_block("C"))[0])
    a, c = np.arange(3, dtype=np.float32), np.empty(3, np.float32)
    interp.run(schedule.func, [a, c])
    np.testing.assert_array_equal(c, (a + 1) * 2)
