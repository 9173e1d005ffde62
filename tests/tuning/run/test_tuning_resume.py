"""Resuming, stopping early, and that proposals follow from seed and records alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stored_runs import stored, trials_of, tune
from tuning_doubles import FakePool, Raises, Recorder, proposals

import autosched as at
from autosched.errors import TuningError
from autosched.tir.nodes import PrimFunc
from autosched.tuning import TuningResult
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing
from records import OK, Store


@pytest.fixture(scope="module")
def task() -> at.SearchTask:
    return at.SearchTask("matmul_add", (4, 3, 5))


def test_same_seed_and_records_give_the_same_proposals(task: at.SearchTask) -> None:
    first, again, other = Recorder(), Recorder(), Recorder()
    tune(task, FakePool(), 24, first, seed=3)
    tune(task, FakePool(), 24, again, seed=3)
    tune(task, FakePool(), 24, other, seed=4)
    assert len(proposals(first.records)) == 24
    assert proposals(first.records) == proposals(again.records)
    assert proposals(first.records) != proposals(other.records)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("measured", [21, 16, 3])
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
