"""Many tasks under one budget: shares, dead tasks, stopping, resuming, wrong arguments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_doubles import FakeJob, FakePool, Recorder, proposals

import autosched as at
from autosched.errors import MeasureError, TuningError
from autosched.tir.nodes import PrimFunc
from autosched.tuning import (
    LogEstimatedLatency,
    RecordToStore,
    SearchTask,
    TaskScheduler,
    TaskSchedulerCallback,
    TuningOptions,
)
from autosched.tuning.policy import SketchPolicy
from autosched.tuning.run.scheduler import SchedulerResult, TaskState, similarity_group
from measure.status import Status
from records.store import Store


def tasks(*sizes: int) -> list[SearchTask]:
    return [SearchTask("matmul", (n, n, n)) for n in sizes]


def options(**changes: Any) -> TuningOptions:
    given: dict[str, Any] = {
        "num_measure_trials": 48,
        "num_measures_per_round": 4,
        "pool": FakePool(),
        "verbose": 0,
    }
    return TuningOptions(**{**given, **changes})


def shares(scheduler: TaskScheduler) -> list[int]:
    return [s.trials for s in scheduler.states]


def states_of_jobs(path: Path, scheduled: list[TaskState]) -> set[str | None]:
    with Store(path) as store:
        found = [store.find_job(s.task.workload_key, str(s.task.target), 0) for s in scheduled]
    return {job and job.state for job in found}


def test_the_budget_is_the_sum_over_all_tasks() -> None:
    scheduler = TaskScheduler(tasks(32, 64, 96))
    result = scheduler.tune(options())
    assert result.trials == sum(shares(scheduler)) == 48
    assert min(shares(scheduler)) >= 4
    assert all(r is not None for r in result.results)
    times = [r.best_seconds for r in result.results if r is not None]
    assert math.isclose(result.objective, sum(times))


def test_round_robin_gives_every_task_the_same() -> None:
    scheduler = TaskScheduler(tasks(32, 64, 96), strategy="round-robin")
    scheduler.tune(options())
    assert shares(scheduler) == [16, 16, 16]


def test_the_task_that_weighs_more_gets_more() -> None:
    scheduler = TaskScheduler(tasks(32, 64), [1.0, 50.0])
    scheduler.tune(options())
    assert shares(scheduler)[1] > 2 * shares(scheduler)[0]


def test_an_objective_of_the_users_own_decides() -> None:
    scheduler = TaskScheduler(tasks(32, 64), objective_func=lambda s: s[0])
    result = scheduler.tune(options())
    assert shares(scheduler)[1] == 4  # its first round
    assert result.results[0] is not None
    assert result.objective == result.results[0].best_seconds


class _Broken(FakePool):
    """Refuses one workload, or fails all of its candidates."""

    def __init__(self, size: int, opens: bool) -> None:
        super().__init__()
        self.size, self.opens = size, opens

    def _is_broken(self, func: PrimFunc) -> bool:
        return int(func.params[0].shape[0]) == self.size

    def open_job(self, func: PrimFunc, seed: int | None = None) -> FakeJob:
        if self._is_broken(func) and not self.opens:
            raise MeasureError("the reference cannot be computed")
        return super().open_job(func, seed)

    def _measure(self, job: FakeJob, trace: Any, trial: bool = True) -> Any:
        self.fail = lambda n: Status.RUNTIME_ERROR if self._is_broken(job.func) else None
        return super()._measure(job, trace, trial)


@pytest.mark.long
@pytest.mark.parametrize("opens", [False, True])
def test_a_dead_task_gives_its_budget_back(opens: bool) -> None:
    scheduler = TaskScheduler(tasks(32, 64, 96))
    result = scheduler.tune(options(pool=_Broken(64, opens)))
    assert result.results[1] is None
    assert result.dead[1]
    assert result.trials == 48
    assert shares(scheduler)[1] <= 8
    assert result.results[0] is not None
    assert result.results[2] is not None


def test_no_right_program_at_all_says_why_for_each_task() -> None:
    pool = FakePool(fail=lambda n: Status.WRONG_RESULT)
    with pytest.raises(TuningError, match=r"matmul\(32, 32, 32\).*\n.*matmul\(64, 64, 64\)"):
        TaskScheduler(tasks(32, 64)).tune(options(pool=pool))


def test_it_stops_without_gain_and_at_the_time_budget() -> None:
    stale = TaskScheduler(tasks(32, 64)).tune(options(num_measure_trials=4000, early_stopping=24))
    assert stale.trials < 4000
    late = TaskScheduler(tasks(32, 64)).tune(options(num_measure_trials=4000, time_budget_s=1e-6))
    assert late.trials <= 8


@pytest.mark.long
def test_a_resumed_run_spends_the_rest_and_chooses_as_one_run_would(tmp_path: Path) -> None:
    def run(trials: int, name: str, resume: bool) -> tuple[SchedulerResult, list[int]]:
        keep = RecordToStore(tmp_path / name)
        scheduler = TaskScheduler(tasks(32, 64, 96))
        changed = options(num_measure_trials=trials, measure_callbacks=[keep], resume=resume)
        return scheduler.tune(changed), shares(scheduler)

    _, first = run(24, "a.db", False)
    again, both = run(48, "a.db", True)
    assert again.trials == 48
    assert all(x <= y for x, y in zip(first, both, strict=True))
    whole, at_once = run(48, "b.db", False)
    assert both == at_once
    assert [r and r.best_seconds for r in again.results] == [
        r and r.best_seconds for r in whole.results
    ]
    nothing_more, same = run(48, "a.db", True)
    scheduled = TaskScheduler(tasks(32, 64, 96)).states
    assert same == both
    assert nothing_more.trials == 48
    assert states_of_jobs(tmp_path / "a.db", scheduled) == {"succeeded"}


def test_the_gradient_prefers_what_still_falls() -> None:
    scheduler = TaskScheduler(tasks(32, 64, 512))
    a, b, c = scheduler.states
    a.history = [math.inf, 9e-5, 8e-5, 5e-5, 2e-5]
    b.history = [math.inf, 2e-5, 2e-5, 2e-5, 2e-5]
    c.history = [math.inf, 2e-5, 2e-5, 2e-5, 2e-5]
    first, second, third = scheduler.gradients()
    assert first < second < 0
    assert np.isclose(second, third)


def test_similar_tasks_tell_what_can_be_reached() -> None:
    one, two = SearchTask("matmul", (64, 64, 64)), SearchTask("matmul", (64, 65, 64))
    other = SearchTask("softmax", (64, 64))
    assert similarity_group(one) == similarity_group(two) != similarity_group(other)
    scheduler = TaskScheduler([one, two])
    slow, fast = scheduler.states
    slow.history = [math.inf, *[8e-5] * 4]
    fast.history = [math.inf, *[1e-5] * 4]
    similar = scheduler.gradients()[0]
    slow.group = ("something else", 0)
    assert similar < scheduler.gradients()[0] < 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": []}, "at least one task"),
        ({"tasks": tasks(32, 32)}, "same workload"),
        ({"task_weights": [1.0]}, "expected 2 task_weights"),
        ({"task_weights": [1.0, -1.0]}, "expected 2 task_weights"),
        ({"strategy": "best"}, "strategy is .*; expected one of gradient, round-robin"),
        ({"alpha": 2.0}, "0 <= alpha <= 1"),
        ({"alpha": "x"}, "alpha is 'x'; expected a number"),
        ({"beta": math.nan}, "beta is nan; expected a number"),
        ({"tasks": 5}, "tasks is 5; expected a list of SearchTask"),
        ({"tasks": [5]}, "tasks holds 5; expected a SearchTask"),
        ({"task_weights": 5}, "expected 2 task_weights > 0, one a task; found 5"),
        ({"task_weights": ["a", "b"]}, "a task's weight is 'a'; expected a number"),
        ({"objective_func": 5}, "objective_func is 5; expected a function"),
        ({"early_stopping_task": 0}, "early_stopping_task is 0; expected an integer of at least 1"),
        ({"callbacks": 5}, "callbacks is 5; expected a list of TaskSchedulerCallback"),
        (
            {"tasks": [*tasks(32), SearchTask("matmul", (8, 8, 8), target="llvm -num-cores=7")]},
            "different targets",
        ),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError, match=message):
        TaskScheduler(**{"tasks": tasks(32, 64), **changes})


def test_weights_may_be_an_array() -> None:
    scheduler = TaskScheduler(tasks(32, 64), np.array([1, 3]))  # type: ignore[arg-type]
    assert [s.weight for s in scheduler.states] == [1.0, 3.0]


@pytest.mark.parametrize("value", [math.nan, "fast", None], ids=["nan", "text", "none"])
def test_an_objective_that_is_no_number_ends_the_run(value: Any) -> None:
    keep = Recorder()
    scheduler = TaskScheduler(tasks(32, 64), objective_func=lambda seconds: value)
    with pytest.raises(TuningError, match=f"objective_func returns is {value!r}; expected a num"):
        scheduler.tune(options(measure_callbacks=[keep]))
    assert keep.end is not None
    assert keep.end[0] == "failed"


def test_a_second_call_is_a_run_of_its_own() -> None:
    keep = Recorder()
    scheduler = TaskScheduler(tasks(32, 64))
    for _ in range(2):
        found = scheduler.tune(options(num_measure_trials=16, measure_callbacks=[keep]))
        assert found.trials == 16
    assert len({r.job_id for r in keep.records}) == 4


@pytest.mark.long
@pytest.mark.parametrize("name", ["default", "sketch.random"])
def test_policies_by_name_and_as_objects_search_alike(name: str) -> None:
    def tuned(policies: Any) -> list[list[Any]]:
        keep = Recorder()
        scheduler = TaskScheduler(tasks(32, 64), strategy="round-robin")
        scheduler.tune(options(num_measure_trials=16, measure_callbacks=[keep]), policies)
        keys = [s.task.workload_key for s in scheduler.states]
        return [proposals([r for r in keep.records if r.workload_key == k]) for k in keys]

    model = at.RandomModel if name == "sketch.random" else at.XGBModel
    by_name = tuned(name)
    assert by_name == tuned([SketchPolicy(t, model(0)) for t in reversed(tasks(32, 64))])
    assert by_name == tuned(lambda task: SketchPolicy(task, model(0)))
    (alone,) = tasks(64)
    keep = Recorder()
    more = {"num_measure_trials": 8, "measure_callbacks": [keep]}
    alone.tune(options(**more), name)
    assert proposals(keep.records) == by_name[1][:8]


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ("sketch.best", "no search policy 'sketch.best'; expected one of default, sketch.xgb"),
        (3, "search_policy is 3; expected a name"),
        ([1, 2], r"search_policy is \[1, 2\]"),
        ([SketchPolicy(t) for t in tasks(32)], r"1 search policies, for matmul\(32, 32, 32\)"),
        ([SketchPolicy(t) for t in tasks(32, 48)], r"expected one for each task: .*matmul\(64"),
        (lambda task: "sketch.xgb", r"gave 'sketch.xgb' for matmul\(32, 32, 32\)"),
    ],
    ids=["name", "number", "numbers", "too few", "of another task", "function"],
)
def test_wrong_policies_are_refused(policies: Any, message: str) -> None:
    with pytest.raises(TuningError, match=message):
        TaskScheduler(tasks(32, 64)).tune(options(), policies)


class _Rounds(TaskSchedulerCallback):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def pre_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        self.seen.append(("pre", task_id, scheduler.states[task_id].trials))

    def post_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        self.seen.append(("post", task_id, scheduler.states[task_id].trials))


def test_callbacks_are_told_of_each_round_and_the_log_grows(tmp_path: Path) -> None:
    log, rounds = tmp_path / "total_latency.tsv", _Rounds()
    log.write_text("of an earlier run\n", encoding="utf-8")
    scheduler = TaskScheduler(
        tasks(32, 64), strategy="round-robin", callbacks=[rounds, LogEstimatedLatency(log)]
    )
    result = scheduler.tune(options(num_measure_trials=16))
    turns = [(0, 0, 4), (1, 0, 4), (0, 4, 8), (1, 4, 8)]
    assert rounds.seen == [x for n, a, b in turns for x in (("pre", n, a), ("post", n, b))]
    first, *lines = log.read_text(encoding="utf-8").splitlines()
    assert first == "of an earlier run"
    # After the first round the second task has no time yet, and so the objective has none.
    fields = [line.split("\t") for line in lines]
    assert [f[0::2] for f in fields] == [["ElapsedTime(s)", "EstimatedLatency(ms)", "Trials"]] * 3
    assert [int(f[5]) for f in fields] == [8, 12, 16]
    assert float(fields[-1][3]) == pytest.approx(result.objective * 1e3, abs=1e-3)
    with pytest.raises(TuningError, match="expected a TaskSchedulerCallback"):
        TaskScheduler(tasks(32), callbacks=[print])  # type: ignore[list-item]


def test_what_ends_a_run_is_the_error_of_its_jobs() -> None:
    class _Raises(TaskSchedulerCallback):
        def post_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
            raise ValueError("boom")

    keep = Recorder()
    with pytest.raises(ValueError, match="boom"):
        TaskScheduler(tasks(32), callbacks=[_Raises()]).tune(options(measure_callbacks=[keep]))
    assert keep.end == ("failed", "boom")


def test_interrupting_leaves_every_job_cancelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class _Interrupted(FakePool):
        def measure(self, *args: Any, **kwargs: Any) -> Any:
            if len(self.measured) > 12:
                raise KeyboardInterrupt
            return super().measure(*args, **kwargs)

    keep = RecordToStore(tmp_path / "a.db")
    scheduler = TaskScheduler(tasks(32, 64))
    with pytest.raises(KeyboardInterrupt):
        scheduler.tune(options(pool=_Interrupted(), measure_callbacks=[keep], verbose=1))
    said = capsys.readouterr().err
    assert f"interrupted after {scheduler.trials()} trials" in said
    assert all(f"{s.task.title}: best " in said for s in scheduler.states)
    assert all(isinstance(s, TaskState) for s in scheduler.states)
    assert states_of_jobs(tmp_path / "a.db", scheduler.states) == {"cancelled"}


def test_a_job_that_has_its_result_is_no_more_interrupted(tmp_path: Path) -> None:
    class _Interrupted(FakePool):
        finals = 0

        def remeasure(self, *args: Any, **kwargs: Any) -> Any:
            self.finals += 1
            if self.finals > 1:
                raise KeyboardInterrupt
            return super().remeasure(*args, **kwargs)

    keep = RecordToStore(tmp_path / "a.db")
    scheduler = TaskScheduler(tasks(32, 64))
    with pytest.raises(KeyboardInterrupt):
        scheduler.tune(options(pool=_Interrupted(), measure_callbacks=[keep]))
    first, second = (states_of_jobs(tmp_path / "a.db", [s]) for s in scheduler.states)
    assert (first, second) == ({"succeeded"}, {"cancelled"})


@pytest.mark.long
def test_every_job_is_ended_before_receivers_are_closed(tmp_path: Path) -> None:
    class _FailsAtTheEnd(Recorder):
        def on_finish(self, job: Any, state: str, error: str | None) -> None:
            super().on_finish(job, state, error)
            raise ValueError("the end")

    last, keep = _FailsAtTheEnd(), RecordToStore(tmp_path / "a.db")
    scheduler = TaskScheduler(tasks(32, 64))
    with pytest.raises(ValueError, match="the end"):
        scheduler.tune(options(measure_callbacks=[keep, last]))
    assert last.events[-3:] == ["finish", "finish", "close"]
    assert last.events.count("close") == 1
    assert states_of_jobs(tmp_path / "a.db", scheduler.states) == {"succeeded"}


def test_a_task_whose_turn_never_came_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    result = TaskScheduler(tasks(32, 64)).tune(options(time_budget_s=1e-9, verbose=1))
    assert result.results[1] is None
    assert result.dead[1] == "its turn never came"
    assert "matmul(64, 64, 64): no right program: its turn never came" in capsys.readouterr().err


@pytest.mark.parametrize("trials", [1, 6])
def test_a_budget_too_small_for_all_tasks_ends_and_leaves_each_a_baseline(trials: int) -> None:
    result = TaskScheduler(tasks(32, 64, 96, 128)).tune(options(num_measure_trials=trials))
    assert result.trials == trials
    assert all(r is not None and r.best_seconds > 0 for r in result.results)


def test_where_no_reference_can_be_computed_the_objective_is_not_asked() -> None:
    scheduler = TaskScheduler(tasks(32), objective_func=lambda s: 1.0 / s[0])
    with pytest.raises(TuningError, match=r"no task has a right program:\n.*reference cannot be"):
        scheduler.tune(options(pool=_Broken(32, opens=False)))


@pytest.mark.long
def test_an_objective_may_divide_by_the_time_of_a_dead_task() -> None:
    seen: list[list[float]] = []

    def mean(seconds: Any) -> float:
        seen.append(list(seconds))
        return math.exp(sum(math.log(s) for s in seconds) / len(seconds))

    for opens in (False, True):
        scheduler = TaskScheduler(tasks(32, 64, 96), objective_func=mean)
        result = scheduler.tune(options(pool=_Broken(64, opens)))
        assert result.dead[1]
        others = [r.best_seconds for r in result.results if r is not None]
        known = [scheduler.states[1].baseline] if opens else others
        assert seen[-1][1] == min(known)
        assert result.objective == mean(seen[-1])


def test_what_an_objective_raises_says_what_it_was_given() -> None:
    scheduler = TaskScheduler(tasks(32, 64), objective_func=lambda s: s[2])
    with pytest.raises(TuningError, match=r"raised IndexError: .* seconds of the 2 tasks, \["):
        scheduler.tune(options())


def test_a_task_that_is_over_says_why() -> None:
    small = at.SearchTask("matmul", (2, 1, 1))
    scheduler = TaskScheduler([small, *tasks(32)], early_stopping_task=5)
    result = scheduler.tune(options(num_measure_trials=400))
    assert result.dead == ("the whole space has been measured", "no better program in 5 trials")
