"""Records in pairs: those that are stale, of another target, or of an unknown one."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
from tuning_doubles import FakePool

import autosched as at
from autosched import auto_scheduler as words
from autosched.errors import TuningError
from autosched.tuning.pairs import ERRORS, NO_TIME, RecordedTask
from records import STALE, Record, Store, import_into
from records.types import STATUSES

OTHER = at.Target("llvm -mcpu=haswell -mtriple=x86_64-unknown-linux-gnu")
UNKNOWN = "llvm -mcpu=nonsense"


@pytest.fixture
def task() -> at.SearchTask:
    return at.SearchTask("matmul", (8, 8, 8))


@pytest.fixture
def db(task: at.SearchTask, tmp_path: Path) -> Path:
    path = tmp_path / "tuned.db"
    options = at.TuningOptions(
        num_measure_trials=4,
        measure_callbacks=[at.RecordToStore(path)],
        pool=FakePool(),
        verbose=0,
    )
    task.tune(options)
    return path


def moved(db: Path, target: str, log: Path) -> list[Record]:
    """The records of `db` as another target would have them, in a log."""
    found = [replace(i.record, target=target) for i, _ in words.load_records(db)]
    words.save_records(filename=log, inputs=found)
    return found


def test_every_status_has_an_error_number() -> None:
    assert set(ERRORS) == {*STATUSES, STALE}
    assert [s for s, number in ERRORS.items() if number == 0] == ["ok"]


def test_stale_records_are_errors(db: Path) -> None:
    best, _ = words.load_best_record(db)
    with Store(db) as store:
        stale = store.invalidate(best.record.id, STALE, "replay gives another program")
    results = {i.record.id: r for i, r in words.load_records(db)}
    assert (results[stale.id].error_no, results[stale.id].costs) == (8, (NO_TIME,))
    assert results[stale.id].error_msg == "replay gives another program"
    best, _ = words.load_best_record(db)
    assert best.record.id != stale.id


def test_the_best_of_imported_records_is_the_fastest(db: Path, tmp_path: Path) -> None:
    log, other = tmp_path / "log.json", tmp_path / "other.db"
    words.save_records(filename=log, inputs=[i.record for i, _ in words.load_records(db)])
    import_into(other, log)
    inp, result = words.load_best_record(other)
    valid = [r.costs for _, r in words.load_records(db) if r.error_no == 0]
    assert (inp.record.status, result.costs) == ("ok", min(valid))


def test_a_task_has_the_target_of_its_record(task: at.SearchTask, db: Path, tmp_path: Path) -> None:
    here, there = words.load_best_record(db)[0], tmp_path / "other.json"
    moved(db, str(OTHER), there)
    assert here.task.target == task.target != OTHER
    for inp, _ in words.load_records(there):
        assert isinstance(inp.task, at.SearchTask)
        assert inp.task.target == OTHER
        inp.state.apply(task.prim_func)
    assert words.load_best_record(there, task.workload_key, task.target) == (None, None)
    assert words.load_best_record(there, target=OTHER)[0].task.target == OTHER


def test_targets_that_this_version_does_not_know(
    task: at.SearchTask, db: Path, tmp_path: Path
) -> None:
    assert words.load_best_record(db, None, UNKNOWN) == (None, None)
    moved(db, UNKNOWN, log := tmp_path / "log.json")
    inp, result = words.load_best_record(log, target=UNKNOWN)
    assert inp.task == RecordedTask(task.workload_key, UNKNOWN)
    assert result.error_no == 0
    inp.state.apply(task.prim_func)
    nobodys = words.MeasureInput(replace(inp.record, workload_key="1-none"))
    with pytest.raises(TuningError, match="no task with the workload key '1-none' was made"):
        nobodys.state  # noqa: B018


@pytest.mark.parametrize("form", ["store", "log"])
def test_a_reader_gives_what_is_loaded(db: Path, tmp_path: Path, form: str) -> None:
    log = tmp_path / "log.json"
    words.save_records(log, words.load_records(db))
    path = db if form == "store" else log
    reader, pairs = words.RecordReader(path), words.load_records(path)
    assert list(reader) == list(reader) == pairs
    assert reader.read_lines(2, 1) == tuple(map(list, zip(*pairs[1:3], strict=True)))


def test_arguments_have_the_predecessors_names() -> None:
    for function, names in (
        (words.load_records, ["filename"]),
        (words.save_records, ["filename", "inputs", "results"]),
        (
            words.load_best_record,
            ["filename", "workload_key", "target", "include_compatible"],
        ),
        (words.RecordReader, ["filename"]),
        (words.RecordReader(".").read_lines, ["max_lines", "skip_lines"]),
    ):
        assert list(signature(function).parameters) == names


def test_a_reader_reads_a_database_page_by_page(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("records.store.PAGE", 2)
    pages = []
    page = Store._page
    monkeypatch.setattr(Store, "_page", lambda *a: pages.append(1) or page(*a))
    pairs = iter(words.RecordReader(db))
    next(pairs)
    assert len(pages) == 1
    assert len(list(pairs)) == 5
    assert len(pages) > 2
