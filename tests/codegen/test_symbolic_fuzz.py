"""Random programs with symbolic sizes under random schedules: built once, run guarded at several
sizes == interpreted unscheduled at these sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import symbolic_fuzz as fuzz
from bounded import Budget, at_most
from codegen_fuzz import STEP, is_exact
from guarded import TARGETS, arguments, child, expected, same, story
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autosched.codegen.build import Level, generate_ir
from autosched.errors import AutoschedError, TensorExprError
from autosched.target import Target

NUMBERS = st.integers(0, 999)
PROGRAM = st.lists(NUMBERS, min_size=24, max_size=24)
TRACE = st.lists(st.lists(NUMBERS, min_size=STEP, max_size=STEP), min_size=1, max_size=9)
SIZES = st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=3, max_size=3)
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def compare(
    program: Sequence[int],
    trace: Sequence[Sequence[int]],
    sizes: Sequence[Sequence[int]],
    seed: int,
) -> None:
    """Build one program under one schedule for one target, run it at several sizes, compare."""
    try:
        func = fuzz.random_program(program)
    except TensorExprError as e:
        assume("does not follow from the shapes" not in str(e))
        raise
    assume(func.sizes)
    sch = fuzz.random_schedule(func, trace)
    target = TARGETS[seed % len(TARGETS)]
    level: Level = "full" if seed % 7 == 0 else "search"
    with at_most(240, lambda: story(sch, func, target)):
        given_sizes = None
        try:
            generated = generate_ir(sch.func, Target(target))
            for numbers in sizes:
                given_sizes = fuzz.random_sizes(func, numbers)
                instance = func.specialize(given_sizes)
                arrays = arguments(instance, seed=seed)
                if is_exact(instance, arrays):
                    found = child.run(generated, Target(target), level, arrays, 1 + seed % 3)
                    for a, b in zip(found, expected(instance, arrays), strict=True):
                        same(a, b)
        except (AssertionError, AutoschedError) as e:
            where = f"sizes: {given_sizes}\n{story(sch, func, target)}"
            raise AssertionError(f"{e}\n{where}") from e


@given(PROGRAM, TRACE, SIZES, NUMBERS)
@settings(max_examples=16, deadline=None, derandomize=True, suppress_health_check=QUIET)
def test_random_schedules(
    program: list[int], trace: list[list[int]], sizes: list[list[int]], seed: int
) -> None:
    compare(program, trace, sizes, seed)


MANY = Budget(75)


@pytest.mark.long
@pytest.mark.timeout(1200)
@given(PROGRAM, TRACE, SIZES, NUMBERS)
@settings(max_examples=2_500, deadline=None, suppress_health_check=QUIET)
def test_many_random_schedules(
    program: list[int], trace: list[list[int]], sizes: list[list[int]], seed: int
) -> None:
    MANY.run(compare, program, trace, sizes, seed)
