"""Small workloads tuned for real, into a log and a store at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched.tir.canonical import program_hash
from autosched.tuning import TuningResult
from autosched.tuning.best import schedule_of
from records import BASELINE, OK, TRIAL, Record, Store, open_records

TRIALS = 16


def _softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _conv2d(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """HWC, HWIO, 3x3, stride 1, one row and column of padding."""
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    h, width, _ = x.shape
    windows = [padded[i : i + h, j : j + width] @ w[i, j] for i in range(3) for j in range(3)]
    return np.sum(windows, axis=0)


WORKLOADS: dict[str, tuple[tuple[int, ...], Callable[..., np.ndarray[Any, Any]]]] = {
    "matmul_add": ((48, 40, 56), lambda a, b, c: a @ b + c),
    "conv2d": ((6, 7, 4, 8, 3, 1, 1), _conv2d),
    "softmax": ((12, 20), _softmax),
}


@dataclass
class Tuned:
    name: str
    task: at.SearchTask
    result: TuningResult
    log: Path
    store: Path
    records: list[Record]

    def sources(self) -> list[Any]:
        return [self.log, str(self.log), self.store, f"sqlite:///{self.store}"]

    @property
    def trials(self) -> list[Record]:
        return [r for r in self.records if r.kind == TRIAL]


@pytest.fixture(scope="module", params=WORKLOADS)
def tuned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp(request.param)
    log, store = folder / "log.json", folder / "records.db"
    task = at.SearchTask(request.param, WORKLOADS[request.param][0])
    options = at.TuningOptions(
        num_measure_trials=TRIALS,
        measure_callbacks=[at.RecordToFile(log), at.RecordToStore(store)],
        verbose=0,
    )
    result = task.tune(options)
    with Store(store) as opened:
        records = list(opened.records())
    return Tuned(request.param, task, result, log, store, records)


def test_every_trial_is_recorded_once(tuned: Tuned) -> None:
    assert 0 < len(tuned.trials) == tuned.result.trials <= TRIALS
    assert len({r.key for r in tuned.records}) == len(tuned.records)
    assert len({(str(r.trace), str(r.decisions)) for r in tuned.trials}) == len(tuned.trials)
    assert sum(tuned.result.statuses.values()) == tuned.result.trials
    assert tuned.result.statuses.get(OK, 0) == sum(r.status == OK for r in tuned.trials) > 0


def test_log_and_store_hold_the_same(tuned: Tuned) -> None:
    def content(r: Record) -> tuple[Any, ...]:
        return (r.key, r.kind, r.status, r.seconds, r.remeasured_seconds, r.trace, r.decisions)

    with open_records(tuned.log) as log:
        assert list(map(content, log.records())) == list(map(content, tuned.records))
        assert log.workload(tuned.task.workload_key) == tuned.task.workload


def test_baselines_are_flagged_and_no_trials(tuned: Tuned) -> None:
    baselines = [r for r in tuned.records if r.kind == BASELINE]
    assert [(r.round, r.slot, r.status) for r in baselines] == [(-1, 0, OK), (-1, 1, OK)]
    assert tuned.records[:2] == baselines  # measured first
    assert all(r.round >= 0 for r in tuned.trials)


def test_nothing_slower_than_the_baselines_is_the_best(tuned: Tuned) -> None:
    result = tuned.result
    assert result.baseline_seconds is not None
    assert result.untransformed_seconds is not None
    assert result.best_seconds == result.best.remeasured_seconds
    assert result.best_seconds <= min(result.baseline_seconds, result.untransformed_seconds)
    assert result.gflops == pytest.approx(result.flop / result.best_seconds / 1e9)


def test_the_job_is_recorded(tuned: Tuned) -> None:
    with Store(tuned.store) as store:
        job = store.job(tuned.result.best.job_id)
    assert (job.state, job.error, job.seed) == ("succeeded", None, 0)
    assert (job.trials_requested, job.trials_done) == (TRIALS, len(tuned.trials))
    assert (job.workload_key, job.target) == (tuned.task.workload_key, str(tuned.task.target))


def test_ok_records_replay_to_the_measured_program_and_are_right(tuned: Tuned) -> None:
    func = tuned.task.prim_func
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(b.shape).astype(b.dtype) for b in func.params]
    wanted = WORKLOADS[tuned.name][1](*(a.astype(np.float64) for a in arrays[:-1]))
    for record in tuned.records:
        assert record.status == OK, record.error
        schedule = schedule_of(func, record)
        assert program_hash(schedule.func) == record.program_hash
        arrays[-1].fill(np.nan)
        at.build(schedule, target=tuned.task.target, level="search")(*arrays)
        np.testing.assert_allclose(arrays[-1], wanted, rtol=1e-4, atol=1e-5)


def test_finalists_are_measured_again(tuned: Tuned) -> None:
    again = [r for r in tuned.records if r.remeasured_seconds is not None]
    assert min(again, key=lambda r: r.remeasured_seconds or 0).key == tuned.result.best.key
    assert any(r.kind == BASELINE for r in again)
    with open_records(tuned.log) as log:
        assert len(log.measurements(*(r.id for r in log.records()))) == len(again)


def test_the_best_is_the_same_from_everywhere(tuned: Tuned) -> None:
    scripts = set()
    for source in tuned.sources():
        schedule, args = tuned.task.apply_best(source)
        assert [a.name for a in args] == [b.name for b in tuned.task.prim_func.params]
        scripts.add(schedule.func.script())
    with open_records(tuned.log) as source:
        scripts.add(tuned.task.apply_best(source)[0].func.script())
    assert scripts == {schedule_of(tuned.task.prim_func, tuned.result.best).func.script()}


def test_load_best_record(tuned: Tuned) -> None:
    keys = {at.load_best_record(s, tuned.task.workload_key).key for s in tuned.sources()}
    assert keys == {tuned.result.best.key}


def test_print_best_in_every_mode(tuned: Tuned) -> None:
    schedule, _ = tuned.task.apply_best(tuned.log)
    assert tuned.task.print_best(tuned.log, "script") == schedule.func.script()
    assert "define" in tuned.task.print_best(tuned.log, "llvm")
    assert ".text" in tuned.task.print_best(tuned.log, "asm")
    text = tuned.task.print_best(tuned.log)
    assert text == tuned.task.print_best(tuned.store, "schedule")
    names: dict[str, Any] = {}
    exec(text, names)
    again = at.Schedule(tuned.task.prim_func)
    names["apply"](again)
    assert again.mod.script() == schedule.mod.script()
    assert names["task"].workload_key == tuned.task.workload_key


def test_other_tasks_find_nothing(tuned: Tuned) -> None:
    other = at.SearchTask("norm", (8, 8))
    with pytest.raises(Exception, match=f"no record of workload {other.workload_key}"):
        other.apply_best(tuned.store)
