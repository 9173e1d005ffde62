"""Resuming, stopping early, and that proposals follow from seed and records alone."""

from __future__ import annotations

import signal
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning_doubles import FakePool, Raises, Recorder, proposals

import autosched as at
from autosched.errors import TuningError
from autosched.tir.nodes import PrimFunc
from autosched.tuning import TuningResult
from autosched.tuning.callbacks import MeasureCallback
from autosched.tuning.report.progress import format_seconds
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing
from records import OK, Record, RecordError, Store


@pytest.fixture(scope="module")
def task() -> at.SearchTask:
    return at.SearchTask("matmul_add", (4, 3, 5))


def tune(task: at.SearchTask, pool: FakePool, trials: int, *to: Any, **more: Any) -> TuningResult:
    callbacks: list[MeasureCallback] = [
        at.RecordToStore(t) if isinstance(t, Path) else t for t in to
    ]
    options = at.TuningOptions(
        num_measure_trials=trials, measure_callbacks=callbacks, pool=pool, verbose=0, **more
    )
    return task.tune(options)


def stored(path: Path) -> list[Record]:
    with Store(path) as store:
        return list(store.records())


def trials_of(path: Path) -> list[Record]:
    return [r for r in stored(path) if r.kind == "trial"]


def test_same_seed_and_records_give_the_same_proposals(task: at.SearchTask) -> None:
    first, again, other = Recorder(), Recorder(), Recorder()
    tune(task, FakePool(), 24, first, seed=3)
    tune(task, FakePool(), 24, again, seed=3)
    tune(task, FakePool(), 24, other, seed=4)
    assert len(proposals(first.records)) == 24
    assert proposals(first.records) == proposals(again.records)
    assert proposals(first.records) != proposals(other.records)


@pytest.mark.parametrize("measured", [16, 21, 3])
def test_resume_goes_on_and_leaves_what_is_there(
    task: at.SearchTask, tmp_path: Path, measured: int
) -> None:
    parted, whole = tmp_path / "parted.db", tmp_path / "whole.db"
    tune(task, FakePool(), measured, parted)
    before = trials_of(parted)
    pool = FakePool()
    result = tune(task, pool, 32, parted, resume=True)
    after = trials_of(parted)
    assert result.trials == len(after) == 32
    assert [r.key for r in after[:measured]] == [r.key for r in before]
    assert [r.created_at for r in after[:measured]] == [r.created_at for r in before]
    assert len(pool.measured) == 32 - measured
    # As if it had never stopped.
    tune(task, FakePool(), 32, whole)
    assert proposals(after) == proposals(trials_of(whole))
    with Store(parted) as store:
        job = store.job(result.best.job_id)
    assert (job.state, job.trials_requested, job.trials_done) == ("succeeded", 32, 32)


def test_rounds_keep_their_size_when_the_total_grows(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    tune(task, FakePool(), 12, db, num_measures_per_round=4)
    tune(task, FakePool(), 24, db, resume=True)
    assert {r.slot for r in trials_of(db)} == {0, 1, 2, 3}


@pytest.mark.long
def test_resuming_with_the_stores_own_records_preloaded_changes_no_proposal(
    task: at.SearchTask, tmp_path: Path
) -> None:
    whole, parted = tmp_path / "whole.db", tmp_path / "parted.db"
    for db, totals in ((whole, (32,)), (parted, (12, 20, 32))):
        tune(task, FakePool(), 8, db, seed=7)
        for total in totals:
            known = at.SketchPolicy(task, init_search_callbacks=[at.PreloadMeasuredStates(db)])
            options = at.TuningOptions(
                num_measure_trials=total,
                num_measures_per_round=4,
                pool=FakePool(),
                resume=True,
                measure_callbacks=[at.RecordToStore(db)],
                verbose=0,
            )
            task.tune(options, known)
    found = [proposals(trials_of(db)) for db in (whole, parted)]
    assert found[0] == found[1]
    assert len(found[0]) == 40


def test_resume_at_the_total_returns_at_once(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    first = tune(task, FakePool(), 16, db)
    pool, recorder = FakePool(), Recorder()
    for total in (16, 8):
        again = tune(task, pool, total, db, recorder, resume=True)
        assert again.best.key == first.best.key
        assert again.best_seconds == first.best_seconds
        assert again.baseline_seconds == first.baseline_seconds
        assert (again.trials, again.statuses) == (16, {OK: 16})
    assert not pool.jobs
    assert recorder.events == ["close", "close"]


def test_resume_without_a_job_starts_one(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    tune(task, FakePool(), 8, db, seed=1)
    recorder = Recorder()
    assert tune(task, FakePool(), 8, db, recorder, seed=2, resume=True).trials == 8
    assert recorder.job is not None
    assert not recorder.job.resumed
    assert len({r.job_id for r in stored(db)}) == 2


def test_without_resume_a_new_job_is_made(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    tune(task, FakePool(), 8, db)
    tune(task, FakePool(), 8, db)
    assert len({r.job_id for r in stored(db)}) == 2


def test_resume_measures_finalists_that_an_interrupt_left(
    task: at.SearchTask, tmp_path: Path
) -> None:
    db = tmp_path / "a.db"
    with pytest.raises(KeyboardInterrupt):  # with the last trial: nothing was measured again
        tune(task, FakePool(), 16, db, Raises(KeyboardInterrupt(), 18))
    assert len(trials_of(db)) == 16
    pool = FakePool()
    result = tune(task, pool, 16, db, resume=True)
    assert not pool.measured
    assert pool.remeasured
    assert result.best.remeasured_seconds is not None


def test_resume_needs_a_store(task: at.SearchTask, tmp_path: Path) -> None:
    pool = FakePool()
    with pytest.raises(TuningError, match=r"needs a store.*a log does not keep jobs"):
        tune(task, pool, 8, at.RecordToFile(tmp_path / "a.json"), resume=True)
    assert not pool.jobs


def test_resume_goes_on_with_this_devices_job(
    task: at.SearchTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db, one, two = tmp_path / "a.db", FakePool("one"), FakePool("two")
    first = tune(task, one, 8, db)
    began = _tune_aloud(task, two, 8, db)
    said = capsys.readouterr().err
    assert began.best.job_id != first.best.job_id
    assert f"has no job of this workload with seed 0 on {task.target}, device" in said
    assert (
        f"job {first.best.job_id}: seed 0, {task.target}, device {one.device.fingerprint}" in said
    )
    # The newest job is the other device's; each goes on with its own.
    for pool, mine in ((one, first), (two, began)):
        again = _tune_aloud(task, pool, 16, db)
        assert (again.best.job_id, again.trials) == (mine.best.job_id, 16)
    assert "nothing to resume" not in capsys.readouterr().err
    assert len({r.job_id for r in stored(db)}) == 2


def _tune_aloud(task: at.SearchTask, pool: FakePool, trials: int, db: Path) -> TuningResult:
    return task.tune(
        at.TuningOptions(
            num_measure_trials=trials,
            measure_callbacks=[at.RecordToStore(db)],
            pool=pool,
            resume=True,
        )
    )


class _Named(at.RecordToStore):
    """Goes on with one certain job, as a service does."""

    def history(self, workload_key: str, target: str, seed: int, device: str) -> Any:
        job = self.open().find_job(workload_key, target, seed)
        assert job is not None
        return job, list(self.open().records(job_id=job.id))


def test_a_job_of_another_device_is_refused(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    tune(task, FakePool("one"), 8, db)
    other = FakePool("two")
    with pytest.raises(TuningError, match="times of two devices do not compare") as caught:
        tune(task, other, 16, _Named(db), resume=True)
    for device in (FakePool("one").device, other.device):
        assert device.fingerprint in str(caught.value)
    assert len(trials_of(db)) == 8


def test_early_stopping(task: at.SearchTask) -> None:
    recorder = Recorder()
    result = tune(task, FakePool(), 200, recorder, early_stopping=5, num_measures_per_round=4)
    trials = [r for r in recorder.records if r.kind == "trial"]
    best = min(range(len(trials)), key=lambda n: trials[n].seconds or 1.0)
    assert result.trials == len(trials) < 200
    # It stopped at the first end of a round with five trials since the best.
    assert 5 <= len(trials) - 1 - best < 5 + 4


def test_early_stopping_counts_from_the_resume_of_a_job_that_had_ended(
    task: at.SearchTask, tmp_path: Path
) -> None:
    db = tmp_path / "a.db"
    patient = {"early_stopping": 5, "num_measures_per_round": 4, "resume": True}

    def trials_after(state: str | None) -> int:
        with Store(db) as store:
            (job,) = store.jobs().jobs
            if state is not None:  # as a run that was killed leaves it
                store.update_job(job.id, state=state)
        return tune(task, FakePool(), 200, db, **patient).trials

    tune(task, FakePool(), 200, db, **patient)
    first = len(trials_of(db))
    second = trials_after(None)
    assert first + 5 <= second < 200
    times = [r.seconds or 1.0 for r in trials_of(db)]
    best = min(range(len(times)), key=times.__getitem__)
    assert 5 <= second - max(best + 1, first) < 5 + 4
    # Killed after its last round, it had been patient enough; and so it was before the resume.
    assert trials_after("running") == second
    assert trials_after("running") == second
    assert trials_after("cancelled") >= second + 5


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


class _SlowPool(FakePool):
    """On whose clock, which is also the run's, every batch takes a hundred seconds."""

    calls = 0

    def measure(self, *args: Any, **more: Any) -> Any:
        self.calls += 1
        return super().measure(*args, **more)

    def perf_counter(self) -> float:
        return time.perf_counter() + 100.0 * self.calls


def test_a_time_budget_ends_at_a_rounds_end(monkeypatch: pytest.MonkeyPatch) -> None:
    task, recorder, pool = at.SearchTask("matmul_add", (48, 40, 56)), Recorder(), _SlowPool()
    monkeypatch.setattr("autosched.tuning.run.session.time", pool)
    result = tune(task, pool, 10_000, recorder, time_budget_s=350.0, num_measures_per_round=8)
    assert pool.calls == 4  # a baseline and three rounds
    assert result.trials == 24
    assert recorder.end == ("succeeded", None)


def test_no_time_for_a_trial_hands_out_a_baseline(task: at.SearchTask) -> None:
    result = tune(task, FakePool(), 8, time_budget_s=1e-9)
    assert (result.trials, result.statuses, result.best.kind) == (0, {}, "baseline")


def test_a_job_says_why_it_has_fewer_trials_than_were_asked_for(
    task: at.SearchTask, tmp_path: Path
) -> None:
    db = tmp_path / "a.db"
    tune(task, FakePool(), 400, db, early_stopping=3, num_measures_per_round=8)
    with Store(db) as store:
        (job,) = store.jobs().jobs
    assert (job.state, 0 < job.trials_done < 400) == ("succeeded", True)
    assert job.notice == (
        f"no better program in 3 trials: {job.trials_done} of 400 trials were measured"
    )


class _FlatPool(FakePool):
    """Nothing is faster than anything; what is measured first goes first."""

    @staticmethod
    def _time(func: PrimFunc, scale: float = 1.0) -> MeasureResult:
        return replace(FakePool._time(func), timing=Timing(1e-6, 1e-6))


def test_no_gain_over_a_baseline_is_said_in_words(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    result = tune(task, _FlatPool(), 8, db)
    assert result.best.kind == "baseline"
    with Store(db) as store:
        (job,) = store.jobs().jobs
        best = store.tallied(job.id).best_id
    assert job.notice is not None
    assert job.notice.startswith("no gain over the ")
    assert (job.best_seconds, job.best_record_id) == (1e-6, best)


def test_a_space_smaller_than_the_budget(tmp_path: Path) -> None:
    small = at.SearchTask("softmax", (2, 3))
    result = tune(small, FakePool(), 500, tmp_path / "a.db")
    assert 0 <= result.trials < 500
    assert len(trials_of(tmp_path / "a.db")) == result.trials


def fails_every_third(n: int) -> Status | None:
    return Status.RUN_TIMEOUT if n % 3 == 0 else None


def test_failed_trials_count_and_are_never_the_best(task: at.SearchTask, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    result = tune(task, FakePool(fail=fails_every_third), 15, db)
    assert result.statuses == {OK: 10, "run_timeout": 5}
    assert result.best.status == OK
    failed = [r for r in trials_of(db) if r.status != OK]
    assert all(r.error == "run_timeout on purpose" and r.seconds is None for r in failed)


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.BUILD_ERROR])
def test_nothing_right_is_an_error(task: at.SearchTask, tmp_path: Path, status: Status) -> None:
    db, recorder = tmp_path / "a.db", Recorder()
    pool = FakePool(fail=lambda n: status if n < 6 else Status.DEVICE_LOST)
    with pytest.raises(TuningError) as caught:
        tune(task, pool, 8, db, recorder)
    text = str(caught.value)
    assert text.startswith("no candidate of matmul_add(4, 3, 5) gave a right result in 8:")
    assert f"6 {status}, 2 device_lost" in text
    assert text.endswith(f"first error: {status} on purpose")
    assert len(trials_of(db)) == 8
    assert recorder.end == ("failed", text)
    with Store(db) as store:
        job = store.job(recorder.records[0].job_id)
    assert (job.state, job.error) == ("failed", text)


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
