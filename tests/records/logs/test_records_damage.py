"""Logs as they come from strangers: damaged in any way, imported into any database."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from records_factory import JOB, KEY, WORKLOAD, baseline, failure, trial

from records import (
    JsonlReport,
    Measurement,
    NoRecord,
    RecordError,
    Store,
    Workload,
    distill,
    export_lines,
    import_jsonl,
    merge,
    open_records,
    read_jsonl,
    repair,
)
from records.logs.lines import encode_line, logged

TIME = datetime(2026, 5, 1, tzinfo=UTC)
OTHER = Workload(key="w1", name="conv2d", script="def conv(): ...", args=[1, [2, 3]])


def log_lines() -> list[bytes]:
    """A log with something of everything."""
    records = [trial(n, 1e-3 + n * 1e-6) for n in range(12)]
    records += [baseline(0, 5e-3), failure(12), failure(13, "run_timeout", "é \0 text")]
    records += [trial(n, job_id="3" * 32, workload_key="w1", trace=[["x"]]) for n in range(5)]
    entries = [WORKLOAD, OTHER, *(replace(record, created_at=TIME) for record in records)]
    entries += [
        logged(records[n], Measurement(seconds=2e-3 + n, runs=3, created_at=TIME)) for n in range(3)
    ]
    return [encode_line(entry) for entry in entries]


VALUES = [
    None, True, -1, 0, 2**31, 2**63, 10**40, 1e400, -1e-3, 0.5, "", "x" * 5000, "a\0b", "\ud800",
    "é" * 600, [], {}, [[[]]], {"a": {"b": 1}}, {"\0": 1}, {"\ud800": 1}, {"t": 2**70},
    ["\0\ud800"],
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00.1234567Z",
    json.loads("[" * 200 + "]" * 200), json.loads('{"a":' * 100 + "1" + "}" * 100),
]  # fmt: skip


def damaged(line: bytes, rng: random.Random) -> bytes:
    """`line` with one thing wrong, or none."""
    data = json.loads(line)
    key = rng.choice([*data, "id", "mood"])
    match rng.randrange(11):
        case 0:
            return line[: rng.randrange(len(line))] + b"\n"  # torn, and the next one whole
        case 1:
            return line[: rng.randrange(len(line))]  # torn, and glued to the next one
        case 2:
            place = rng.randrange(len(line))
            return line[:place] + rng.randbytes(rng.randrange(1, 5)) + line[place + 1 :]
        case 3:
            return rng.choice([b"\r\n", b"\n\n", b"\xef\xbb\xbf" + line, line[:-1] + b"\r\n"])
        case 4:
            del data[rng.choice(list(data))]
        case 5:
            return line.replace(b'"seconds":', b'"seconds":' + rng.choice(
                [b"NaN,\"x\":", b"-Infinity,\"x\":", b"1e999,\"x\":", b"-0.0,\"x\":"]
            ))  # fmt: skip
        case 6:
            return line + line
        case _:
            data[key] = rng.choice(VALUES)
    return json.dumps(data).encode() + b"\n"


def import_one(store: Store, seed: int) -> None:
    """One damaged log: nothing crashes, the counts add up, and twice is as good as once."""
    rng = random.Random(seed)
    lines = [damaged(x, rng) if rng.random() < 0.5 else x for x in log_lines()]
    if rng.random() < 0.5:
        rng.shuffle(lines)
    log = b"".join(lines)
    if log[:2] in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff"):
        log = b"\n" + log
    read = JsonlReport()
    entries = list(read_jsonl(io.BytesIO(log), read))
    records = sum(type(e).__name__ == "Record" for e in entries)
    before = sum(1 for _ in store.records())
    report = import_jsonl(store, io.BytesIO(log))
    assert report.refused_count == len(report.refused)
    assert [n for n, _ in report.refused] == sorted(n for n, _ in report.refused)
    refused_here = report.refused_count - read.skipped_count
    assert 0 <= records - report.new - report.known <= refused_here
    assert sum(1 for _ in store.records()) == before + report.new
    again = import_jsonl(store, io.BytesIO(log))
    assert (again.new, again.known, again.refused) == (
        *(0, report.new + report.known),
        report.refused,
    )


def check_whole(store: Store) -> None:
    """What was stored is right, can be written again, and is not handed out."""
    found = repair(store, dry_run=True)
    assert (found.repaired, found.faults) == ([], [])
    for workload in store.workloads():
        for target, device in store.devices(workload.key):
            with pytest.raises(NoRecord):
                store.best(workload.key, target, device)
    written = b"".join(export_lines(store))
    report = JsonlReport()
    assert sum(1 for _ in read_jsonl(io.BytesIO(written), report)) == report.read
    assert report.skipped == []


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    if request.param == "sqlite":
        address = tmp_path / "x.db"
    else:
        address = request.getfixturevalue("postgres_url")
    with Store(address) as store:
        yield store


@pytest.mark.parametrize("logs", [12, pytest.param(250, marks=pytest.mark.long)])
def test_damaged_logs_are_taken_line_by_line(store, logs):
    for seed in range(logs):
        import_one(store, seed)
    check_whole(store)


def test_what_the_database_refuses_costs_its_own_line_alone(store, monkeypatch):
    """A value that no check of lines foresees: longer than PostgreSQL's indexes hold, and in SQLite
    one that a trigger refuses."""
    monkeypatch.setattr("records.logs.lines._LONGEST", {})
    if store.name.startswith("sqlite"):
        with store._db.transaction(writes=True) as connection:
            connection.exec_driver_sql(
                "CREATE TRIGGER x BEFORE INSERT ON records WHEN length(NEW.target) > 9999 "
                "BEGIN SELECT RAISE(ABORT, 'too long'); END"
            )
    lines = log_lines()
    long = random.Random(0).randbytes(20_000).hex()
    lines[9:9] = [encode_line(trial(50, target=long))]
    report = import_jsonl(store, io.BytesIO(b"".join(lines)))
    assert report.new == 20
    [(number, reason)] = report.refused
    assert number == 10
    assert "refused the rows" in reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (gzip.compress(b"".join(log_lines())), "is compressed; unpack it first"),
        (b"".join(log_lines()).decode().encode("utf-16"), "is text in UTF-16; convert it first"),
    ],
    ids=["gzip", "utf-16"],
)
def test_other_forms_of_a_log_are_named(tmp_path, data, reason):
    (tmp_path / "x.jsonl").write_bytes(data)
    with Store(tmp_path / "x.db") as store:
        with pytest.raises(RecordError, match=reason):
            import_jsonl(store, tmp_path / "x.jsonl")
        with pytest.raises(RecordError, match=reason):
            import_jsonl(store, io.BytesIO(data))
    with pytest.raises(RecordError, match=reason):
        open_records(tmp_path / "x.jsonl")


def test_marks_and_line_ends_of_other_systems(tmp_path):
    data = b"\xef\xbb\xbf" + b"".join(log_lines()).replace(b"\n", b"\r\n")
    with Store(tmp_path / "x.db") as store:
        report = import_jsonl(store, io.BytesIO(data))
        assert (report.new, report.refused) == (20, [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"trace": VALUES[-2]}, "trace: expected at most 64 levels"),
        ({"decisions": {"t0": 2**63}}, "decisions: expected integers of 64 bits"),
        ({"decisions": {"\0": 1}}, "decisions: expected names that can be stored"),
        ({"job_id": "a" * 65}, "job_id: expected 1 to 64 letters"),
        ({"job_id": "../logout"}, "job_id: expected 1 to 64 letters"),
        ({"workload_key": "w 1"}, "workload_key: expected 1 to 64 letters"),
        ({"target": "llvm\n"}, "target: expected printable ASCII text"),
        ({"device": "\x1b[31m"}, "device: expected printable ASCII text"),
        ({"toolchain": "\u202e"}, "toolchain: expected printable text"),
        ({"toolchain": "x" * 1001}, "toolchain: expected at most 1000 bytes"),
        ({"spread": -1e-9}, "spread: expected a number that is finite and not negative"),
        ({"seconds": 5e-324}, "seconds: expected seconds from 1e-12 to"),
        ({"seconds": 1e300}, "seconds: expected seconds from 1e-12 to"),
        ({"runs": -1}, "runs: expected a number that is finite and not negative"),
        ({"status": "build_error", "seconds": -1}, "seconds: expected a number that is finite"),
        ({"created_at": "0001-01-01T00:00:00+23:59"}, "created_at: expected a year from 1971"),
    ],
    ids=range(16),
)
def test_values_that_would_harm_later_are_refused(tmp_path, change, reason):
    line = json.dumps(json.loads(encode_line(trial(0))) | change).encode()
    report = JsonlReport()
    assert list(read_jsonl(io.BytesIO(line), report)) == []
    assert reason in report.skipped[0][1]


def test_a_workload_is_not_taken_under_the_key_of_another():
    script = "def main(): ..."
    key = f"1-{hashlib.sha256(script.encode()).hexdigest()[:24]}"
    right = Workload(key=key, name="f", script=script)
    report = JsonlReport()
    lines = encode_line(right) + encode_line(replace(right, script="def main(): pass"))
    assert list(read_jsonl(io.BytesIO(lines), report)) == [right]
    [(number, reason)] = report.skipped
    assert (number, reason) == (2, f"workload {key}: the key is not the hash of the script")


def test_distilling_a_log_holds_no_records(tmp_path):
    """As from a store, whatever the order of the lines, and with its doubles."""
    lines = log_lines()
    lines += [
        encode_line(trial(99, 1e-9, origin="import")),
        encode_line(trial(0, 1e-9)),  # a double: the first one counts
        encode_line(trial(3, workload_key="w9", job_id="5" * 32)),
    ]
    random.Random(1).shuffle(lines)
    for n, line in enumerate(lines):  # of doubles the first one in the file
        if b'"slot":0,' in line and b"1e-09" in line:
            lines.append(lines.pop(n))
            break
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(lines))
    assert distill(log, tmp_path / "best.jsonl") == 2
    with open_records(log) as all_of_it, open_records(tmp_path / "best.jsonl") as best:
        found = {r.workload_key: r for r in best.records()}
        assert set(found) == {KEY, "w1"}
        for key, record in found.items():
            assert replace(record, id=0) == replace(all_of_it.best(key), id=0)
        assert found[KEY].remeasured_seconds == 2e-3
    assert distill(log, tmp_path / "best.db") == 2


CHILD = """
import sys
from records import Store, import_jsonl
from records.logs import importing
importing.BATCH = 20
with Store(sys.argv[1]) as store, open(sys.argv[2], "rb") as log:
    print("begun", flush=True)
    import_jsonl(store, log)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.long)])
def test_an_import_that_is_killed_leaves_whole_batches(tmp_path, kills):
    log = tmp_path / "log.jsonl"
    with open(log, "wb") as stream:
        stream.write(encode_line(WORKLOAD))
        for n in range(4_000):
            record = trial(n % 100, round=n // 100)
            stream.write(encode_line(record))
            if n % 10 == 0:
                stream.write(encode_line(logged(record, Measurement(seconds=1.0))))
    there = tmp_path / "there.db"
    rng = random.Random(kills)
    counts = []
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, there, log], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        time.sleep(rng.random() * 0.3)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        child.stdout.close()
        with Store(there) as store:
            counts.append(sum(1 for _ in store.records()))
            found = repair(store, dry_run=True)
            assert (found.repaired, found.faults) == ([], [])
    assert counts == sorted(counts)
    with Store(there) as store:
        report = import_jsonl(store, log)
        assert (report.new, report.known) == (4_000 - counts[-1], counts[-1])
        assert store.job(JOB).trials_done == 4_000
        ids = [r.id for r in store.records()]
        assert len(store.measurements(*ids)) == 400


def test_merging_damaged_logs_keeps_what_is_whole(tmp_path):
    rng = random.Random(7)
    (tmp_path / "a.jsonl").write_bytes(b"".join(log_lines())[:-30])
    (tmp_path / "b.jsonl").write_bytes(b"".join(damaged(x, rng) for x in log_lines()))
    reports = merge([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "both.jsonl")
    assert (reports[0].new, reports[0].refused_count) == (20, 1)
    read = JsonlReport()
    list(read_jsonl(tmp_path / "both.jsonl", read))
    assert read.skipped == []
