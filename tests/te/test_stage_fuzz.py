"""Random stage calls: legal ones keep the results, all others are refused and name the call."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import guarded
import numpy as np
import pytest
from bounded import Budget
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from rolling_programs import tensors
from schedule_fuzz import Choices
from schedule_outcome import concurrent, outputs
from stage_fuzz import ACTIONS, WIDTH, Program, random_schedule

from autosched import te
from autosched.errors import ScheduleError
from autosched.tir.verify import verify

NUMBERS = st.integers(0, 999)
PROGRAMS = st.lists(NUMBERS, min_size=16, max_size=30)
CALLS = st.lists(NUMBERS, min_size=4 * WIDTH, max_size=12 * WIDTH)
QUICK = settings(
    max_examples=32,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
LONG = settings(QUICK, max_examples=4000)
BUDGET = Budget(50)


@pytest.fixture(autouse=True, scope="module")
def _child() -> Iterator[None]:
    yield
    guarded.child.stop()


def check(numbers: list[int], calls: list[int], compiled: bool) -> None:
    program = Program(numbers)
    original = te.create_prim_func(program.args)
    sch = random_schedule(program, calls).replay(program.args)
    note(f"{original.script()}\n{sch.trace}\n{sch.func.script()}")
    verify(sch.func)
    wanted = outputs(original, original, len(calls))
    for func in (sch.func, concurrent(sch.func)):
        for x, y in zip(outputs(func, original, len(calls)), wanted, strict=True):
            assert np.array_equal(x, y), "the results differ"
    if compiled:
        guarded.check(sch, original)


@QUICK
@given(PROGRAMS, CALLS)
def test_results_stay(program: list[int], calls: list[int]) -> None:
    check(program, calls, compiled=False)


@settings(QUICK, max_examples=5)
@given(PROGRAMS, CALLS)
def test_compiled_results_stay(program: list[int], calls: list[int]) -> None:
    check(program, calls, compiled=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@LONG
@given(PROGRAMS, CALLS)
def test_results_stay_long(program: list[int], calls: list[int]) -> None:
    BUDGET.run(check, program, calls, len(program) % 4 == 0)


def test_the_fuzz_reaches_every_call() -> None:
    count: Counter[str] = Counter()
    rng = random.Random(0)
    for _ in range(60):
        program = Program([rng.randrange(1000) for _ in range(24)])
        random_schedule(program, [rng.randrange(1000) for _ in range(8 * WIDTH)], count)
    names = {a.__name__.strip("_") for a in ACTIONS} - {"rolling_buffer"}  # for chains of windows
    assert all(count[name] >= 3 for name in names), count


@settings(QUICK, max_examples=40)
@given(st.lists(NUMBERS, min_size=20, max_size=30), st.lists(NUMBERS, min_size=8, max_size=16))
def test_stages_of_a_chain_are_rolled(program: list[int], choices: list[int]) -> None:
    a, *stages, last = tensors(program)
    c = Choices(choices)

    def schedule(rolled: list[te.Tensor]) -> te.StageSchedule:
        s = te.create_schedule(last.op)
        for t in stages:
            s[t].compute_at(s[last], last.op.axis[0])
        for t in rolled:
            s[t].rolling_buffer()
            s[t].split(t.op.axis[1], factor=1 + c.next(3))
        return s

    done: list[te.Tensor] = []
    for t in stages:
        refusal = None
        try:
            schedule([*done, t]).replay([a, last])
        except ScheduleError as e:
            refusal = str(e)
        if refusal is None:
            done.append(t)
        else:
            assert refusal.startswith(f"s[{t.name}].rolling_buffer()")
    original = te.create_prim_func([a, last])
    sch = schedule(done).replay([a, last])
    note(f"{original.script()}\n{sch.trace}\n{sch.func.script()}")
    verify(sch.func)
    for x, y in zip(outputs(sch.func, original, 1), outputs(original, original, 1), strict=True):
        assert np.array_equal(x, y)
