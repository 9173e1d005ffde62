"""Random programs under random legal schedules: compiled and guarded == interpreted unscheduled.

A failure prints the program as script and the schedule as Python.
"""

from __future__ import annotations

from collections.abc import Sequence

import codegen_fuzz as fuzz
import pytest
from bounded import Budget, at_most
from guarded import TARGETS, arguments, check, story
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

NUMBERS = st.integers(0, 999)
PROGRAM = st.lists(NUMBERS, min_size=24, max_size=24)
TRACE = st.lists(st.lists(NUMBERS, min_size=fuzz.STEP, max_size=fuzz.STEP), min_size=1, max_size=9)
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def compare(program: Sequence[int], trace: Sequence[Sequence[int]], seed: int) -> None:
    """Build one program under one schedule for one target, run it, compare."""
    with at_most(300, lambda: f"program {program}, trace {trace}, seed {seed}"):
        _compare(program, trace, seed)


def _compare(program: Sequence[int], trace: Sequence[Sequence[int]], seed: int) -> None:
    func = fuzz.random_program(program)
    arrays = arguments(func, seed=seed)
    assume(fuzz.is_exact(func, arrays))
    sch = fuzz.random_schedule(func, trace)
    target = TARGETS[seed % len(TARGETS)]
    level = "full" if seed % 7 == 0 else "search"
    with at_most(240, lambda: f"level: {level}\n{story(sch, func, target)}"):
        check(sch, func, target=target, level=level, threads=1 + seed % 3, seed=seed)


@given(PROGRAM, TRACE, NUMBERS)
@settings(max_examples=16, deadline=None, suppress_health_check=QUIET)
def test_random_schedules(program: list[int], trace: list[list[int]], seed: int) -> None:
    compare(program, trace, seed)


MANY = Budget(75)


@pytest.mark.long
@pytest.mark.timeout(1200)
@given(PROGRAM, TRACE, NUMBERS)
@settings(max_examples=2_500, deadline=None, suppress_health_check=QUIET)
def test_many_random_schedules(program: list[int], trace: list[list[int]], seed: int) -> None:
    MANY.run(compare, program, trace, seed)
