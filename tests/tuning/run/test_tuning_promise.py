"""Tasks whose times have bounds: who gets trials, and when a run has converged."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tuning_doubles import FakePool

from autosched.errors import TuningError
from autosched.target import Target
from autosched.tuning import SearchTask, TaskScheduler, TuningOptions
from autosched.tuning.run.promise import hope
from autosched.tuning.run.task_state import TaskState, similarity_group
from cost_model.roofline import least_seconds

BEST = 0.9e-6
"""Seconds below all times of a FakePool."""


def tasks(*sizes: int) -> list[SearchTask]:
    return [SearchTask("matmul", (n, n, n)) for n in sizes]


def options(**changes: Any) -> TuningOptions:
    given: dict[str, Any] = {"num_measure_trials": 400, "num_measures_per_round": 4, "verbose": 0}
    return TuningOptions(**{"pool": FakePool(), **given, **changes})


def bounded(*bounds: float, **changes: Any) -> TaskScheduler:
    n = len(bounds)
    given = {"estimates": [1e-5] * n, "bounds": bounds, **changes}
    return TaskScheduler(tasks(32, 64, 96)[:n], **given)


def test_a_task_at_its_bound_gets_no_trials_and_the_run_converges() -> None:
    scheduler = bounded(BEST, 0.99e-5)
    pool = FakePool()
    result = scheduler.tune(options(pool=pool))
    first, second = scheduler.states
    assert 4 <= first.trials < 400
    assert second.trials == 0
    assert second.session is None
    assert result.dead[1] == "left at 99% of what the machine's peak allows"
    assert len(pool.jobs) == 1


def test_baselines_of_all_that_may_gain_come_first() -> None:
    scheduler = bounded(BEST, BEST, BEST)
    scheduler.tune(options(num_measure_trials=4))
    assert sorted(s.trials for s in scheduler.states) == [0, 0, 4]
    assert all(r is not None for r in scheduler._result(0.0).results)


def test_a_way_that_cannot_be_the_fastest_is_not_begun() -> None:
    """Of two implementations of one kernel, with the first measured at 10 us."""
    slow = bounded(BEST, 1.1e-5, objective_func=min)
    slow.tune(options(num_measure_trials=8))
    assert slow.states[1].session is None


def test_finalists_of_a_way_that_lost_are_not_measured_again() -> None:
    promises = bounded(BEST, BEST, objective_func=min).promises
    assert promises is not None
    states = [TaskState(t, 1.0, similarity_group(t), estimate=e) for t, e in _two(1e-5, 1.2e-5)]
    assert [promises.counts(n, states) for n in (0, 1)] == [True, False]
    states[1].estimate = 1.05e-5
    assert promises.counts(1, states)


def _two(*seconds: float) -> list[tuple[SearchTask, float]]:
    return list(zip(tasks(32, 64), seconds, strict=True))


def test_hope_falls_with_rounds_and_with_those_that_brought_nothing() -> None:
    (task,) = tasks(32)
    state = TaskState(task, 1.0, similarity_group(task), estimate=1e-5)
    assert math.isclose(hope(state, 4e-6), 6e-6)
    assert hope(state, 9.8e-6) == 0.0
    begun: Any = object()
    found = []
    for history in ([1e-5, 8e-6], [1e-5, 8e-6, 8e-6], [1e-5, 8e-6, 8e-6, 8e-6]):
        state = _State(task, 1.0, similarity_group(task), begun, history)
        found.append(hope(state, 4e-6))
    assert found == pytest.approx([4e-6 / 2, 4e-6 / 3 / 2, 4e-6 / 4 / 4])


class _State(TaskState):
    baseline = math.inf


def test_bounds_need_estimates_and_one_for_each_task() -> None:
    with pytest.raises(TuningError, match="bounds are given without estimates"):
        TaskScheduler(tasks(32), bounds=[1e-6])
    with pytest.raises(TuningError, match="expected 2 bounds > 0 in seconds"):
        bounded(BEST, BEST, bounds=[1e-6])


@pytest.mark.parametrize("n", [64, 256])
def test_the_least_seconds_are_those_of_the_multiply_adds(n: int) -> None:
    (task,) = tasks(n)
    flops = 1e9  # so slow that arguments do not matter
    found = least_seconds(task.prim_func, Target("llvm -num-cores=2"), flops)
    assert found == pytest.approx(2 * n**3 / flops)
