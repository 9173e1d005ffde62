"""Export, import, merge, distill, and opening what they leave."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import pytest
from records_factory import (
    DEVICE,
    JOB,
    KEY,
    TARGET,
    WORKLOAD,
    baseline,
    failure,
    slots,
    trial,
    with_job,
)

from records import (
    ImportReport,
    JsonlWriter,
    Measurement,
    NoRecord,
    RecordError,
    RecordReader,
    Store,
    Workload,
    distill,
    export_jsonl,
    export_lines,
    import_jsonl,
    merge,
    open_records,
    read_jsonl,
)
from records.arguments import file_of
from records.logs import import_report, importing, jsonl
from records.logs.lines import encode_line
from records.opening import open_store

CONV = Workload(key="w1", name="conv2d", script="def conv(): ...")
OTHER_JOB = "2" * 32
MEASUREMENT = Measurement(seconds=2.5e-3, runs=100)


@pytest.fixture
def store(tmp_path):
    """Two workloads; of the first a baseline, trials and a failure, one trial measured again."""
    with Store(tmp_path / "here.db") as store:
        with_job(store)
        with_job(store, OTHER_JOB, CONV)
        stored = store.add_records(
            [
                baseline(0, 5e-3, trace=[]),
                trial(0, 2e-3),
                failure(1, error="text\nof two lines"),
                trial(0, 7e-3, job_id=OTHER_JOB, workload_key=CONV.key, trace=[["other"]]),
            ]
        )
        store.add_measurements(stored[1].id, [MEASUREMENT])
        yield store


@pytest.fixture
def there(tmp_path):
    with Store(tmp_path / "there.db") as store:
        yield store


def plain(source, **changes):
    """The records of a source without their ids there."""
    return [replace(record, id=0, **changes) for record in source.records()]


def test_a_log_holds_all_that_the_store_holds(store, tmp_path):
    log = tmp_path / "log.jsonl"
    assert export_jsonl(store, log) == 4
    reader = open_records(log)
    assert isinstance(reader, RecordReader)
    assert plain(reader) == plain(store)
    assert list(reader.workloads()) == list(store.workloads()) == [WORKLOAD, CONV]
    assert reader.best(KEY).program_hash == store.best(KEY).program_hash == "p0"
    kinds = [type(entry).__name__ for entry in read_jsonl(log)]
    assert kinds == ["Workload", *["Record"] * 3, "Workload", "Record", "LoggedMeasurement"]


def test_an_export_of_some(store, tmp_path):
    log = tmp_path / "log.jsonl"
    assert export_jsonl(store, log, workload_key=CONV.key) == 1
    assert [w.key for w in open_records(log).workloads()] == [CONV.key]
    assert len(list(export_lines(store, status="build_error"))) == 2


def test_an_export_to_a_stream(store):
    stream = io.BytesIO()
    assert export_jsonl(store, stream, limit=2) == 2
    assert stream.getvalue() == b"".join(export_lines(store, limit=2))


def test_an_export_overwrites_nothing(store, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("precious")
    with pytest.raises(RecordError, match=r"log.jsonl is there already; name a new file"):
        export_jsonl(store, log)
    with pytest.raises(RecordError, match="is there already"):
        distill(tmp_path / "here.db", log)
    assert log.read_text() == "precious"
    with pytest.raises(RecordError, match="cannot write"):
        export_jsonl(store, tmp_path / "none" / "log.jsonl")


@pytest.mark.parametrize("batch", [1, 2, 500])
def test_importing_again_changes_nothing(store, there, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(importing, "BATCH", batch)
    log = tmp_path / "log.jsonl"
    export_jsonl(store, log)
    assert import_jsonl(there, log) == ImportReport(new=4)
    expected = plain(store, origin="import", remeasured_seconds=None)
    assert plain(there) == expected
    assert import_jsonl(there, log) == ImportReport(known=4)
    assert plain(there) == expected
    assert import_jsonl(store, log) == ImportReport(known=4)
    assert plain(store)[0].origin == "local"
    assert len(store.measurements(*(r.id for r in store.records()))) == 1
    [measured] = there.measurements(*(r.id for r in there.records()))
    assert (measured.seconds, measured.origin) == (MEASUREMENT.seconds, "import")


def test_imported_records_are_best_only_after_measuring_them_here(store, there):
    import_jsonl(there, io.BytesIO(b"".join(export_lines(store))))
    with pytest.raises(NoRecord, match="2 ok, but imported: these count once"):
        there.best(KEY)
    [candidate] = there.records(workload_key=KEY, kind="trial", status="ok")
    there.add_measurements(candidate.id, [Measurement(seconds=1.0)])
    assert there.best(KEY).id == candidate.id


def test_imported_jobs_carry_records_and_are_not_resumed(store, there, tmp_path):
    import_jsonl(there, io.BytesIO(b"".join(export_lines(store))))
    job = there.job(JOB)
    assert (job.origin, job.state, job.seed, job.device) == ("import", "succeeded", None, DEVICE)
    assert job.trials_done == 2
    assert there.find_job(KEY, TARGET, 0) is None


def test_an_import_refuses_line_by_line(there, tmp_path):
    log = tmp_path / "log.jsonl"
    writer = JsonlWriter(log)
    writer.write_records([trial(0, workload_key="w9")])
    writer.write_workload(WORKLOAD)
    writer.write_records([trial(0), trial(0), trial(0, program_hash="else"), failure(1)])
    writer.write_measurements(failure(1), [MEASUREMENT])
    writer.write_measurements(trial(7), [MEASUREMENT])
    writer.append([replace(WORKLOAD, script="other", key=KEY)])
    with open(log, "ab") as stream:
        stream.write(b"torn")
    report = import_jsonl(there, log)
    assert (report.new, report.known) == (2, 1)
    assert [(number, reason.split(":")[0]) for number, reason in report.refused] == [
        (1, "workload w9 is neither in the store nor in the lines before"),
        (5, "another program is stored under the same job, round and slot"),
        (7, "a measurement of a record that is build_error"),
        (8, "a measurement of a record that is not in the store"),
        (10, "not JSON"),
    ]
    assert report.refused_count == 5


def test_a_report_lists_so_many_lines_and_no_more(there, monkeypatch):
    for module in (import_report, jsonl):
        monkeypatch.setattr(module, "LISTED", 3)
    lines = encode_line(WORKLOAD) + 5 * encode_line(trial(0, workload_key="w9")) + 4 * b"torn\n"
    report = import_jsonl(there, io.BytesIO(b"torn\n" + lines))
    assert (report.refused_count, [number for number, _ in report.refused]) == (10, [1, 3, 4])
    assert sorted(report.by_reason().values()) == [[1], [3, 4]]


class Lines(io.RawIOBase):
    """So many lines of trials, made as they are read."""

    def __init__(self, count):
        self.rest = iter([encode_line(WORKLOAD)])
        self.slots = iter(range(count))

    def readline(self, size=-1):
        for line in self.rest:
            return line
        return next((encode_line(trial(slot, 1.0 + slot)) for slot in self.slots), b"")


@pytest.mark.parametrize("count", [3_000, pytest.param(15_000, marks=pytest.mark.long)])
def test_memory_does_not_grow_with_the_lines(there, tmp_path, count):
    """Neither of what is imported nor of what is exported is more than some batches held."""

    def peak(lines):
        tracemalloc.start()
        report = import_jsonl(there, Lines(lines))
        with open(tmp_path / "out.jsonl", "wb") as out:
            export_jsonl(there, out)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert report.new + report.known == lines
        return most

    peak(600)  # what is made once
    few = peak(1_500)
    assert peak(count) < 1.25 * few + 1_000_000


def test_an_import_refuses_another_script_of_a_key(there):
    there.put_workload(replace(WORKLOAD, script="def other(): ..."))
    report = import_jsonl(there, io.BytesIO(encode_line(WORKLOAD) + encode_line(trial(0))))
    [(number, reason)] = report.refused
    assert (number, report.new) == (1, 1)
    assert "stored with another script" in reason


def test_merging_logs(tmp_path):
    first, second, both = (JsonlWriter(tmp_path / f"{name}.json") for name in ("a", "b", "both"))
    second_trial = trial(1, 2.0)
    for writer, record in ((first, trial(0, 1.0)), (second, second_trial)):
        writer.write_workload(WORKLOAD)
        writer.write_records([record])
    second.write_measurements(second_trial, [MEASUREMENT])
    with open(second.path, "ab") as stream:
        stream.write(b"torn")
    sources = [first.path, second.path]
    once, twice = merge(sources, both.path)
    assert (once.new, once.known, once.refused) == (1, 0, [])
    assert (twice.new, twice.known, twice.refused[0][0]) == (1, 0, 4)
    text = both.path.read_text()
    assert [(r.new, r.known) for r in merge(sources, both.path)] == [(0, 1), (0, 1)]
    assert both.path.read_text() == text
    reader = RecordReader(both.path)
    assert slots(reader) == [0, 1]
    assert reader.best(KEY).slot == 1
    assert reader.report.read == 4


def test_merging_into_a_store(store, there, tmp_path):
    log = JsonlWriter(tmp_path / "log.json")
    log.write_workload(WORKLOAD)
    log.write_records([trial(0, 2e-3), trial(5)])
    reports = merge([tmp_path / "here.db", log.path], tmp_path / "there.db")
    assert [(r.new, r.known) for r in reports] == [(4, 0), (1, 1)]
    assert {record.origin for record in there.records()} == {"import"}
    assert [(r.new, r.known) for r in merge([tmp_path / "there.db"], tmp_path / "c.jsonl")] == [
        (5, 0)
    ]


def test_merging_nothing_that_can_be_used_makes_no_store(tmp_path):
    (tmp_path / "bad.jsonl").write_text("{}\ntorn\n")
    (report,) = merge([tmp_path / "bad.jsonl"], tmp_path / "new.db")
    assert (report.new, report.known, report.refused_count) == (0, 0, 2)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("name", ["best.jsonl", "best.db"])
def test_distilling_keeps_the_best_of_each(store, tmp_path, name):
    store.add_records([trial(9, 1.0, device="old"), failure(10, device="broken")])
    assert distill(tmp_path / "here.db", tmp_path / name) == 3
    with open_records(tmp_path / name) as best:
        assert {(r.workload_key, r.device, r.program_hash) for r in best.records()} == {
            (KEY, DEVICE, "p0"),
            (KEY, "old", "p9"),
            (CONV.key, DEVICE, "p0"),
        }
        assert best.best(KEY, device=DEVICE).remeasured_seconds == MEASUREMENT.seconds
        assert best.best(KEY, device="old").slot == 9
    with pytest.raises(RecordError, match="already; name a new"):
        distill(tmp_path / "here.db", tmp_path / name)


def test_opening_by_first_bytes_and_suffix(store, tmp_path):
    store.close()
    os.rename(tmp_path / "here.db", tmp_path / "misnamed.json")
    (tmp_path / "empty.json").touch()
    (tmp_path / "log.db").write_bytes(encode_line(WORKLOAD) + encode_line(trial(0)))
    (tmp_path / "foreign.json").write_text("# no log\n")
    for name, kind in (
        ("misnamed.json", Store),
        ("empty.json", RecordReader),
        ("log.db", RecordReader),
        ("foreign.json", RecordReader),
    ):
        with open_records(tmp_path / name) as source:
            assert isinstance(source, kind)
    with open_records(f"sqlite:///{tmp_path}/misnamed.json") as source:
        assert len(list(source.records())) == 4


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("sqlite:///{}/a%20b%25.db", "a b%.db"),
        ("sqlite:///{}/q.db?timeout=3", "q.db"),
        ("sqlite+pysqlite:///{}/driver.db", "driver.db"),
        ("sqlite:///{}/misnamed.json", "misnamed.json"),
        ("{}/plain%20?x=1.db", "plain%20?x=1.db"),
    ],
)
def test_an_address_means_one_file_however_it_is_opened(tmp_path, address, name):
    where = address.format(tmp_path)
    with Store(where) as made:
        made.put_workload(WORKLOAD)
        assert file_of(where) == file_of(made.name) == tmp_path / name
    for opened in (where, made.name):
        with open_records(opened) as source, open_store(opened, make=False) as store:
            assert isinstance(source, Store)
            assert store.workload(WORKLOAD.key) == source.workload(WORKLOAD.key)
    assert not {path.name for path in tmp_path.iterdir()} - {name, f"{name}-wal", f"{name}-shm"}


def test_opening_what_is_not_there(tmp_path):
    for address in (tmp_path / "none.json", f"sqlite:///{tmp_path}/none.db", tmp_path / "none.db"):
        with pytest.raises(RecordError, match=r"no records at .*none.*: there is no such file"):
            open_records(address)
    (tmp_path / "song.mp3").write_bytes(b"ID3...")
    with pytest.raises(RecordError, match="is neither an SQLite database nor a log"):
        open_records(tmp_path / "song.mp3")
    with pytest.raises(RecordError, match="cannot read"):
        open_records(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["song.mp3"]


def test_logs_need_no_database_library():
    code = (
        "import sys, records; records.JsonlWriter('x'); "
        "print([m for m in sys.modules if m.split('.')[0] in ('sqlalchemy', 'autosched')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
