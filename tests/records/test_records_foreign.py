"""What imports must not do to the jobs and workloads of this store."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from records_factory import DEVICE, JOB, TARGET, trial, with_job

from autosched.tuning import SearchTask
from autosched.tuning.stored import checked, program_of
from records import Measurement, Store, Workload, export_jsonl, import_jsonl, repair
from records.logs.import_batch import id_elsewhere
from records.logs.lines import encode_line, logged
from records.queue.leases import JobQueue
from records.queue.submissions import Submission

MATMUL = SearchTask("matmul", (8, 8, 8)).workload
SOFTMAX = SearchTask("softmax", (8, 8)).workload


@pytest.fixture
def store(tmp_path: Path):
    """A job made here with one trial of 2 ms."""
    with Store(tmp_path / "here.db") as store:
        with_job(store)
        store.add_records([trial(0, 2e-3)])
        yield store


def lines(*entries: object) -> io.BytesIO:
    return io.BytesIO(b"".join(map(encode_line, entries)))


# Jobs


def test_a_line_that_names_a_job_of_this_store_changes_nothing_in_it(store: Store) -> None:
    """Neither its budget, nor its best, nor where it goes on; the record is kept elsewhere."""
    before = store.job(JOB)
    forged = [trial(n, 1e-9, program_hash=f"forged{n}") for n in range(5)]
    report = import_jsonl(store, lines(*forged))
    assert (report.new, report.refused_count) == (5, 0)
    assert store.job(JOB) == before
    assert [r.seconds for r in store.records(job_id=JOB)] == [2e-3]
    assert [p.seconds for p in store.curve(JOB)] == [2e-3]
    other = store.job(id_elsewhere(JOB))
    # Nothing of it was measured here, so nothing of it may be handed out as a best.
    assert (other.origin, other.trials_done, other.best_seconds) == ("import", 5, None)
    assert {r.origin for r in store.records(job_id=other.id)} == {"import"}
    again = import_jsonl(store, lines(*forged))
    assert (again.new, again.known, again.refused_count) == (0, 5, 0)
    assert repair(store).repaired == []
    assert store.job(JOB) == before


def test_an_export_of_this_store_is_known(store: Store, tmp_path: Path) -> None:
    export_jsonl(store, tmp_path / "log.jsonl")
    report = import_jsonl(store, tmp_path / "log.jsonl")
    assert (report.new, report.known, report.refused_count) == (0, 1, 0)
    assert len(store.jobs().jobs) == 1


def test_measurements_go_where_their_record_is(store: Store) -> None:
    forged = trial(7, 1e-3, program_hash="forged")
    timing = Measurement(seconds=1e-9)
    import_jsonl(store, lines(forged, logged(forged, timing)))
    (own,) = store.records(job_id=JOB)
    (other,) = store.records(job_id=id_elsewhere(JOB))
    assert store.measurements(own.id) == []
    assert [m.seconds for m in store.measurements(other.id)] == [1e-9]


def test_what_was_imported_into_a_job_before_does_not_count(store: Store) -> None:
    """Stores may hold such records of an earlier version: repair puts the job right."""
    from sqlalchemy import text

    store.add_records([trial(3, 1e-9)])
    with store._db.transaction(writes=True) as connection:
        connection.execute(text("UPDATE records SET origin = 'import' WHERE slot = 3"))
    assert store.job(JOB).trials_done == 2
    repair(store)
    assert (store.job(JOB).trials_done, store.job(JOB).best_seconds) == (1, 2e-3)


# Workloads


def test_a_text_of_another_workload_is_refused(tmp_path: Path) -> None:
    forged = replace(MATMUL, text=SOFTMAX.text)
    with Store(tmp_path / "x.db") as store:
        report = import_jsonl(store, lines(forged), checked)
        assert report.refused_count == 1
        assert "is not what its line says" in report.refused[0][1]
        import_jsonl(store, lines(MATMUL), checked)
        assert program_of(store.workload(MATMUL.key)).same(program_of(MATMUL))


@pytest.mark.parametrize(
    "changes",
    [{"text": "x"}, {"text": SOFTMAX.text}, {"args": [16, 16, 16]}, {"name": "softmax"},
     {"name": "softmax", "args": [8, 8], "text": MATMUL.text}, {"args": ["a"]}, {"text": None,
      "args": [1, 2, 3]}],
    ids=str,
)  # fmt: skip
def test_lines_that_say_something_else(tmp_path: Path, changes: dict[str, object]) -> None:
    with Store(tmp_path / "x.db") as store:
        forged = replace(MATMUL, **changes)
        assert import_jsonl(store, lines(forged), checked).refused_count == 1
        assert list(store.workloads()) == []


def test_what_a_workload_costs_follows_from_its_text(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        import_jsonl(store, lines(replace(MATMUL, flop=1e18)), checked)
        assert store.workload(MATMUL.key) == MATMUL


def test_where_nobody_can_read_a_text_none_is_taken(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        import_jsonl(store, lines(replace(MATMUL, text=SOFTMAX.text)))
        assert store.workload(MATMUL.key).text is None


def test_a_submission_replaces_a_text_that_differs(tmp_path: Path) -> None:
    """One that an earlier version took in, of another workload."""
    with Store(tmp_path / "x.db") as store:
        store.put_workload(replace(MATMUL, text=SOFTMAX.text, flop=1e18))
        submission = Submission(workload=MATMUL, target=TARGET, seed=0, trials_requested=1)
        JobQueue(store).submit_many([submission])
        assert store.workload(MATMUL.key) == MATMUL
        assert isinstance(store.workload(MATMUL.key), Workload)


def test_a_tuning_replaces_a_text_that_differs(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        store.put_workload(replace(MATMUL, text=SOFTMAX.text))
        store.create_job(MATMUL, TARGET, device=DEVICE, seed=0, trials_requested=1)
        assert store.workload(MATMUL.key) == MATMUL
