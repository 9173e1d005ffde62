"""Imported records: handed out once they have been measured here, withdrawn if they are bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tuning_doubles import FakePool

import autosched as at
from autosched.tuning.verify import verify
from measure.status import MeasureResult, Status
from records import NoRecord, Record, Store, export_jsonl, import_jsonl

TRIALS = 12


@pytest.fixture
def task() -> at.SearchTask:
    return at.SearchTask("matmul", (8, 8, 8))


@pytest.fixture
def imported(task: at.SearchTask, tmp_path: Path) -> Store:
    """A store that knows a job's records from a log alone."""
    store = at.RecordToStore(tmp_path / "there.db")
    options = at.TuningOptions(
        num_measure_trials=TRIALS, measure_callbacks=[store], pool=FakePool(), verbose=0
    )
    task.tune(options)
    with Store(tmp_path / "there.db") as there:
        export_jsonl(there, tmp_path / "all.json")
    here = Store(tmp_path / "here.db")
    assert import_jsonl(here, tmp_path / "all.json").new == TRIALS + 2
    return here


def trials(store: Store) -> list[Record]:
    return sorted(store.records(kind="trial", status="ok"), key=lambda r: (r.seconds or 0, r.id))


def test_the_fastest_are_measured_and_handed_out(task: at.SearchTask, imported: Store) -> None:
    with imported as store:
        with pytest.raises(NoRecord, match="imported"):
            store.best(task.workload_key)
        seen = []
        pool = FakePool()
        report = verify(
            store, pool, str(task.target), top=3, on_workload=lambda w: seen.append(w.key)
        )
        assert (report.measured, report.withdrawn, report.left) == (5, [], [])
        assert seen == [task.workload_key]
        assert all(job.closed for job in pool.jobs)
        best = store.best(task.workload_key)
        fastest = [*trials(store)[:3], *store.records(kind="baseline")]
        assert best.id in {r.id for r in fastest}
        assert [r.remeasured_seconds is not None for r in trials(store)][:4] == [True] * 3 + [False]
        schedule, _ = task.apply_best(store)  # type: ignore[arg-type]
        assert schedule.func is not None
        again = verify(store, FakePool(), str(task.target), top=3)
        assert again.measured == 3, "the next three, not the same ones"


def test_records_of_other_devices_and_targets_stay(task: at.SearchTask, imported: Store) -> None:
    with imported as store:
        report = verify(store, FakePool(model="another"), str(task.target))
        assert (report.measured, len(report.left)) == (0, 1)
        assert report.left[0].startswith("matmul: records of target ")
        assert verify(store, FakePool(), "llvm -mcpu=x86-64-v3").measured == 0


def test_bad_records_are_withdrawn(task: at.SearchTask, imported: Store) -> None:
    class Fails(FakePool):
        def remeasure(self, job, traces, rounds=10, cancel=None):  # type: ignore[no-untyped-def]
            found = super().remeasure(job, traces, rounds, cancel)
            found[-1] = MeasureResult(Status.WRONG_RESULT, "c[0, 0] is 1, not 2")
            found[-2] = MeasureResult(Status.DEVICE_LOST, "the machine went away")
            return found

    with imported as store:
        stale, broken, lost, wrong = trials(store)[:4]
        with store._db.transaction(writes=True) as connection:
            for record, column, value in (
                (stale, "program_hash", "another"),
                (broken, "decisions", "{}"),
            ):
                connection.exec_driver_sql(
                    f"UPDATE records SET {column} = ? WHERE id = ?", (value, record.id)
                )
        report = verify(store, Fails(), str(task.target), top=4)
        assert store.get(stale.id).status == "stale"
        assert "it was measured as program another" in (store.get(stale.id).error or "")
        assert store.get(broken.id).status in ("instantiation_error", "stale")
        assert replace(store.get(lost.id)) == lost
        assert store.get(wrong.id).status == "wrong_result"
        assert report.measured == 2, "the baselines"
        assert len(report.withdrawn) == 3
        assert report.left == [f"record {lost.id}: device_lost: the machine went away"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("text = NULL, args = '[8, 8, 9]'", "matmul: matmul(8, 8, 9) is workload "),
        ("text = NULL, args = '[8]'", "missing a required argument: 'L'"),
        ("text = NULL, args = NULL", "matmul: matmul was stored without its text"),
        ("text = 'import os'", "matmul: line 1, column 1: the script has no function"),
        ("text = replace(text, 'float32', 'float64'), args = NULL", "stored without its text"),
    ],
)
def test_a_workload_that_cannot_be_made_again(
    task: at.SearchTask, imported: Store, changes: str, message: str
) -> None:
    with imported as store:
        with store._db.transaction(writes=True) as connection:
            connection.exec_driver_sql(f"UPDATE workloads SET {changes}")
        report = verify(store, FakePool(), str(task.target))
        assert report.measured == 0
        assert message in report.left[0]
