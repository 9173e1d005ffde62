"""What an interrupt or an error leaves: records, and a job that goes on."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from stored_runs import stored, tune
from tuning_doubles import FakePool, Raises, Recorder

import autosched as at
from autosched.errors import TuningError
from autosched.tuning.callbacks import MeasureCallback
from autosched.tuning.report.progress import format_seconds
from records import RecordError, Store


@pytest.fixture(scope="module")
def task() -> at.SearchTask:
    return at.SearchTask("matmul_add", (4, 3, 5))


class _Interrupting(FakePool):
    """Ctrl-C in one of the pool's methods, the n-th time."""

    def __init__(self, method: str, n: int) -> None:
        super().__init__()
        self.method, self.left = method, n

    def _come(self, method: str) -> None:
        self.left -= method == self.method
        if method == self.method and self.left == 0:
            signal.raise_signal(signal.SIGINT)

    def open_job(self, *args: Any, **more: Any) -> Any:
        self._come("open_job")
        return super().open_job(*args, **more)

    def _measure(self, *args: Any, **more: Any) -> Any:
        self._come("remeasure" if self.remeasured else "measure")
        return super()._measure(*args, **more)


class _InterruptedModel(at.XGBModel):
    """Ctrl-C while the second round is proposed."""

    rounds = 0

    def predict(self, *args: Any) -> Any:
        type(self).rounds += 1
        if type(self).rounds == 5:
            signal.raise_signal(signal.SIGINT)
        return super().predict(*args)


@pytest.mark.parametrize(
    ("method", "n", "known"),
    [("open_job", 1, 0), ("measure", 1, 1), ("measure", 12, 12), ("remeasure", 2, 18)],
    ids=["starting", "baseline", "round", "finale"],
)
def test_an_interrupt_in_any_phase_loses_nothing(
    task: at.SearchTask,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    method: str,
    n: int,
    known: int,
) -> None:
    db = tmp_path / "a.db"
    options = {"measure_callbacks": [at.RecordToStore(db)], "num_measure_trials": 16}
    with pytest.raises(KeyboardInterrupt):
        task.tune(at.TuningOptions(pool=_Interrupting(method, n), **options))
    _check_cancelled(db, known, capsys.readouterr().err)
    assert tune(task, FakePool(), 16, db, resume=True).trials == 16
    assert len(stored(db)) == 18


def test_an_interrupt_while_proposing_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, db = at.SearchTask("matmul_add", (48, 40, 56)), tmp_path / "a.db"
    options = {"measure_callbacks": [at.RecordToStore(db)], "num_measure_trials": 16}
    policy = at.SketchPolicy(task, _InterruptedModel())
    with pytest.raises(KeyboardInterrupt):
        task.tune(at.TuningOptions(pool=FakePool(), **options), policy)
    _check_cancelled(db, 10, capsys.readouterr().err)
    assert tune(task, FakePool(), 16, db, resume=True).trials == 16


def _check_cancelled(db: Path, known: int, said: str) -> None:
    """The job is cancelled, has its records, and the run said the best of them."""
    with Store(db) as store:
        (job,) = store.jobs().jobs
    found = stored(db)
    assert (job.state, job.error, len(found)) == ("cancelled", "interrupted", known)
    assert f"interrupted after {max(known - 2, 0)} trials" in said
    if found:
        best = format_seconds(min(r.seconds or 1.0 for r in found))
        assert f"trials; best {best}" in said


def corrupt(path: Path, where: str, *values: Any) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"UPDATE records SET program_hash = 'changed' WHERE {where}", values)
    connection.close()


def test_stale_records_are_passed_over(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    result = tune(task, FakePool(), 16, db, finalists=4)
    (best,) = [r for r in stored(db) if r.key == result.best.key]
    device = {"device": best.device}
    corrupt(db, "id = ?", best.id)
    schedule, _ = task.apply_best(db)
    again = [r for r in stored(db) if r.remeasured_seconds is not None and r.id != best.id]
    second = min(again, key=lambda r: r.remeasured_seconds or 0.0)
    from autosched.tuning.best import schedule_of

    assert schedule.func.script() == schedule_of(task.prim_func, second).func.script()
    with pytest.raises(
        TuningError, match=rf"record {best.id} is stale: it was measured as program"
    ):
        schedule_of(task.prim_func, at.load_best_record(db, task.workload_key, **device))
    corrupt(db, "1")
    with pytest.raises(RecordError, match=r"passed over \d+ stale: record") as caught:
        task.apply_best(db)
    assert "measure the workload again" in str(caught.value)


ERRORS: list[tuple[BaseException, str]] = [
    (KeyboardInterrupt(), "cancelled"),
    (SystemExit(143), "cancelled"),
    (RuntimeError("a receiver fails"), "failed"),
]


@pytest.mark.parametrize(("error", "state"), ERRORS, ids=[type(e).__name__ for e, _ in ERRORS])
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_what_was_measured_is_kept_when_a_receiver_raises(
    task: at.SearchTask, tmp_path: Path, error: BaseException, state: str, first: bool
) -> None:
    db, log, recorder, pool = tmp_path / "a.db", tmp_path / "a.json", Recorder(), FakePool()
    raises = Raises(error, 7)  # the fifth trial
    receivers: list[Any] = [db, at.RecordToFile(log), recorder]
    order = [raises, *receivers] if first else [*receivers, raises]
    with pytest.raises(type(error)):
        tune(task, pool, 16, *order)
    assert len(pool.measured) == 6  # the default schedule and five trials
    assert len(stored(db)) == len(recorder.records) == 7
    assert len(list(at.RecordReader(log))) == 7
    assert recorder.events == ["start"] + ["record"] * 7 + ["finish", "close"]
    assert recorder.end is not None
    assert recorder.end[0] == state
    with Store(db) as store:
        assert store.job(recorder.records[0].job_id).state == state
    assert all(job.closed for job in pool.jobs)
    assert tune(task, FakePool(), 16, db, resume=True).trials == 16


def test_a_second_failure_is_told_too(task: at.SearchTask) -> None:
    with pytest.raises(RuntimeError, match="one") as caught:
        tune(task, FakePool(), 8, Raises(RuntimeError("one"), 3), Raises(ValueError("two"), 3))
    assert caught.value.__notes__ == ["then also: ValueError: two"]


class _FailsToStart(MeasureCallback):
    def on_start(self, workload: Any, job: Any) -> None:
        raise RecordError("cannot write")


def test_who_was_told_of_the_start_is_told_of_the_end(task: at.SearchTask) -> None:
    before, after = Recorder(), Recorder()
    with pytest.raises(RecordError):
        tune(task, FakePool(), 8, before, _FailsToStart(), after)
    assert before.events == ["start", "finish", "close"]
    assert after.events == ["close"]
    assert before.end == ("failed", "cannot write")
