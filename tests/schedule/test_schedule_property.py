"""Random programs and random traces: results stay, populations agree with their candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from bounded import Budget
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from schedule_fuzz import ACTIONS, Action, random_program, random_schedule
from schedule_outcome import assert_same_program, concurrent, outputs
from schedule_programs import MATMUL_DECISIONS, matmul_add, tile_matmul
from schedule_rare import MORE

from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule import Decision, Schedule, Trace
from autosched.schedule.population import candidate
from autosched.tir.affine import IntArray
from autosched.tir.nodes import PrimFunc

NUMBERS = st.integers(0, 999)
PROGRAMS = st.lists(NUMBERS, min_size=20, max_size=40)
TRACES = st.lists(NUMBERS, min_size=48, max_size=150)
QUICK = settings(
    max_examples=24, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
LONG = settings(QUICK, max_examples=2000)
RARE = [*MORE, *MORE, *ACTIONS]
"""Primitives that few schedules use, as often as all others."""
RESULTS, POPULATIONS, RARES = Budget(50), Budget(50), Budget(15)


def check_results(
    program: list[int], trace: list[int], actions: Sequence[Action] = ACTIONS
) -> None:
    func = random_program(program)
    schedule = random_schedule(func, trace, actions)
    note(f"{func.script()}\n{schedule.trace.bind(schedule.decisions)}\n{schedule.func.script()}")
    expected = outputs(func, func, len(trace))
    for x, y in zip(outputs(schedule.func, func, len(trace)), expected, strict=True):
        assert np.array_equal(x, y), "the results differ"
    interleaved = outputs(concurrent(schedule.func), func, len(trace))
    for x, y in zip(interleaved, expected, strict=True):
        assert np.array_equal(x, y), "iterations of a parallel or vectorised loop depend on others"
    check_texts(schedule)


def check_texts(schedule: Schedule) -> None:
    """JSON, replay and printed text all give the same program."""
    func = schedule._mod.main
    trace = schedule.trace
    assert Trace.from_json(trace.to_json()) == trace
    assert trace.apply(func, schedule.decisions).func.script() == schedule.func.script()
    names: dict[str, object] = {}
    exec(trace.bind(schedule.decisions).as_python(), names)
    fresh = Schedule(func)
    names["apply"](fresh)  # type: ignore[operator]
    assert fresh.func.script() == schedule.func.script()


def check_population(program: list[int], trace: list[int], seed: int) -> None:
    func = random_program(program)
    schedule = random_schedule(func, trace)
    note(f"{func.script()}\n{schedule.trace}")
    rng = np.random.default_rng(seed)
    columns: dict[str, IntArray] = {
        name: np.concatenate([[value], rng.integers(1, 6, 3)])
        for name, value in schedule.decisions.items()
    }
    if not columns:
        return
    candidates = [{name: int(column[n]) for name, column in columns.items()} for n in range(4)]
    try:
        population = schedule.trace.apply(func, columns)
    except NotBatchable:
        return
    except ScheduleError:
        assert any(refused(schedule.trace, func, values) for values in candidates)
        return
    for n, values in enumerate(candidates):
        note(f"candidate {n}: {values}")
        alone = schedule.trace.apply(func, values)
        assert_same_program(candidate(population.func, n), alone.func)


def refused(trace: Trace, func: PrimFunc, values: dict[str, int]) -> bool:
    try:
        trace.apply(func, values)
    except ScheduleError:
        return True
    return False


@QUICK
@given(PROGRAMS, TRACES)
def test_results_stay(program: list[int], trace: list[int]) -> None:
    check_results(program, trace)


@settings(QUICK, max_examples=20)
@given(PROGRAMS, TRACES)
def test_results_stay_under_rare_primitives(program: list[int], trace: list[int]) -> None:
    check_results(program, trace, RARE)


@QUICK
@given(PROGRAMS, TRACES, st.integers(0, 2**31))
def test_population_equals_its_candidates(program: list[int], trace: list[int], seed: int) -> None:
    check_population(program, trace, seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
@LONG
@given(PROGRAMS, TRACES)
def test_results_stay_long(program: list[int], trace: list[int]) -> None:
    RESULTS.run(check_results, program, trace)


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(LONG, max_examples=800)
@given(PROGRAMS, TRACES)
def test_results_stay_under_rare_primitives_long(program: list[int], trace: list[int]) -> None:
    RARES.run(check_results, program, trace, RARE)


@pytest.mark.long
@pytest.mark.timeout(1800)
@LONG
@given(PROGRAMS, TRACES, st.integers(0, 2**31))
def test_population_equals_its_candidates_long(
    program: list[int], trace: list[int], seed: int
) -> None:
    POPULATIONS.run(check_population, program, trace, seed)


def test_matmul_population_needs_no_fallback() -> None:
    """The matmul sketch, packing and tails included, replays on arrays as on ints."""
    func = matmul_add(30, 26, 17)
    rng = np.random.default_rng(3)
    columns = {name: rng.integers(1, 9, 40) for name in MATMUL_DECISIONS}
    population = Schedule(func, columns)
    tile_matmul(population, Decision)
    for n in range(40):
        values = {name: int(column[n]) for name, column in columns.items()}
        alone = population.trace.apply(func, values)
        assert_same_program(candidate(population.func, n), alone.func)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 13, 3), (3, 5, 1), (16, 32, 8)])
def test_sketch_results(sizes: tuple[int, int, int]) -> None:
    """Extents that are prime, 1 and smaller than the tiles."""
    func = matmul_add(*sizes, dtype="int64")
    expected = outputs(func, func, 1)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        schedule = Schedule(func, {name: int(rng.integers(1, 6)) for name in MATMUL_DECISIONS})
        tile_matmul(schedule)
        for program in (schedule.func, concurrent(schedule.func)):
            for x, y in zip(outputs(program, func, 1), expected, strict=True):
                assert np.array_equal(x, y)
