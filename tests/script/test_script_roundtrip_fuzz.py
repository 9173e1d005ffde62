"""`parse(p.script())` is `p`, for random programs under random schedules."""

from __future__ import annotations

import codegen_fuzz
import pytest
import schedule_fuzz
from bounded import Budget
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from roundtrip import check, check_all, executed

from autosched.schedule import Schedule
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc

NUMBERS = st.integers(0, 999)
PROGRAMS = st.lists(NUMBERS, min_size=20, max_size=40)
TRACES = st.lists(NUMBERS, min_size=48, max_size=150)
ACTION = st.lists(NUMBERS, min_size=codegen_fuzz.STEP, max_size=codegen_fuzz.STEP)
TILED = st.lists(ACTION, min_size=1, max_size=9)
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
QUICK = settings(max_examples=16, deadline=None, suppress_health_check=QUIET)
LONG = settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)


def check_random(func: PrimFunc, scheduled: Schedule) -> None:
    """A program, what a schedule makes of it, and the schedule's own text."""
    note(scheduled.func.script())
    parsed = check(func)
    check_all(scheduled.func)
    trace = scheduled.trace.bind({k: int(v) for k, v in scheduled.decisions.items()})
    text = trace.as_python()
    again = executed(text, func)
    assert again.func.script() == scheduled.func.script()
    assert again.trace == trace
    assert str(again.trace) == text
    assert first_difference(scheduled.func, executed(text, parsed).func) is None


def check_small(program: list[int], trace: list[int]) -> None:
    func = schedule_fuzz.random_program(program)
    check_random(func, schedule_fuzz.random_schedule(func, trace))


def check_large(program: list[int], trace: list[list[int]]) -> None:
    func = codegen_fuzz.random_program(program)
    check_random(func, codegen_fuzz.random_schedule(func, trace))


@QUICK
@given(PROGRAMS, TRACES)
def test_random_programs_and_traces(program: list[int], trace: list[int]) -> None:
    check_small(program, trace)


@pytest.mark.long
@QUICK
@given(PROGRAMS, TILED)
def test_random_tiled_programs(program: list[int], trace: list[list[int]]) -> None:
    check_large(program, trace)


SMALL, LARGE = Budget(40), Budget(40)


@pytest.mark.long
@pytest.mark.timeout(1200)
@LONG
@given(PROGRAMS, TRACES)
def test_many_random_programs_and_traces(program: list[int], trace: list[int]) -> None:
    SMALL.run(check_small, program, trace)


@pytest.mark.long
@pytest.mark.timeout(1200)
@LONG
@given(PROGRAMS, TILED)
def test_many_random_tiled_programs(program: list[int], trace: list[list[int]]) -> None:
    LARGE.run(check_large, program, trace)
