"""Logs: what is written, and what a reader makes of lines that are not as they should be."""

from __future__ import annotations

import io
import json
import logging
import os
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_factory import DEVICE, JOB, KEY, TARGET, WORKLOAD, baseline, failure, slots, trial

from records import (
    JsonlReport,
    JsonlWriter,
    Measurement,
    Record,
    RecordError,
    RecordReader,
    read_jsonl,
)
from records.logs import jsonl
from records.logs.lines import decode_line, encode_line, logged
from records.types import STATUSES, canonical_json


@pytest.fixture
def log(tmp_path):
    return tmp_path / "matmul.json"


@pytest.fixture
def writer(log):
    return JsonlWriter(log)


def test_a_line_has_the_keys_that_others_read(log, writer):
    writer.write_workload(WORKLOAD)
    record = failure(3, error="two\nlines", round=2)
    writer.write_records([record])
    writer.write_measurements(record, [Measurement(seconds=2.0)])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    common = ["v", "kind", "status", "round", "slot", "workload_key", "target", "device"]
    common += ["seconds", "error"]
    assert [list(line)[: len(common)] for line in lines] == [common] * 3
    workload, trial_line, measurement = lines
    assert (workload["kind"], workload["workload_key"]) == ("workload", KEY)
    assert (workload["name"], workload["args"]) == ("matmul", [8, 8, 8])
    assert workload["script"] == WORKLOAD.script
    assert [trial_line[name] for name in common] == [
        *(1, "trial", "build_error", 2, 3, KEY, TARGET, DEVICE, None, "two\nlines")
    ]
    assert trial_line["trace"] == record.trace
    assert (measurement["kind"], measurement["seconds"]) == ("measurement", 2.0)


def test_what_is_written_is_read(log, writer):
    records = [trial(0), baseline(0, 2.0, trace=[]), failure(1, "run_timeout", "é\0")]
    writer.write_workload(WORKLOAD)
    writer.write_workload(WORKLOAD)
    writer.write_records(records)
    measurement = Measurement(seconds=3.0, spread=0.1, noise=0.2, runs=7)
    writer.write_measurements(records[0], [measurement])
    assert list(read_jsonl(log)) == [WORKLOAD, *records, logged(records[0], measurement)]
    reader = RecordReader(log)
    assert reader.report == JsonlReport(read=5)
    assert [record.id for record in reader] == [2, 3, 4]
    assert next(iter(reader)) == replace(records[0], id=2, remeasured_seconds=3.0)


def test_times_are_written_in_utc(log, writer):
    record = trial(0)
    local = record.created_at.astimezone(timezone(timedelta(hours=-7)))
    writer.write_records([replace(record, created_at=local)])
    assert json.loads(log.read_text())["created_at"].endswith("+00:00")
    assert list(read_jsonl(log)) == [record]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: "inf" not in repr(value))
seconds = st.floats(min_value=1e-12, max_value=1e6)


@given(
    slot=st.integers(0, 2**31 - 1),
    status=st.sampled_from(STATUSES),
    time=seconds,
    noise=st.none() | seconds,
    trace=st.lists(json_values, max_size=4),
    decisions=st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8")),
        st.integers(1 - 2**63, 2**63 - 1),
        max_size=4,
    ),
    error=st.none() | st.text(),
)
def test_any_record_survives_a_line(slot, status, time, noise, trace, decisions, error):
    record = trial(
        slot, time, status=status, noise=noise, trace=trace, decisions=decisions, error=error
    )
    line = encode_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line) == record


@pytest.mark.parametrize("circle", [True, False])
def test_a_trace_without_end_is_refused(circle):
    trace = inner = []
    for _ in range(0 if circle else 100_000):
        inner.append([])
        inner = inner[0]
    inner.append(trace if circle else 1)
    for encode in (lambda: encode_line(trial(0, trace=trace)), lambda: canonical_json(trace)):
        with pytest.raises(RecordError, match="not JSON data"):
            encode()


@given(st.binary(max_size=200).filter(lambda data: jsonl.other_form(data) is None))
def test_any_bytes_are_read_or_refused(data):
    report = JsonlReport()
    found = list(read_jsonl(io.BytesIO(data), report))
    lines = [line for line in data.split(b"\n") if line.strip()]
    assert len(found) == report.read
    assert report.read + len(report.skipped) == len(lines)


mutations = st.sampled_from(
    ["v", "kind", "status", "round", "slot", "workload_key", "target", "device", "seconds"]
    + ["error", "job_id", "trace", "decisions", "program_hash", "runs", "origin", "created_at"]
)


@given(key=mutations, value=json_values, remove=st.booleans())
def test_a_line_with_a_wrong_value_is_a_record_or_refused(key, value, remove):
    data = json.loads(encode_line(trial(0)))
    if remove:
        del data[key]
    else:
        data[key] = value
    try:
        entry = decode_line(json.dumps(data).encode())
    except RecordError as e:
        assert str(e)  # noqa: PT017 (either outcome is right)
    else:
        assert isinstance(entry, Record)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"v": 1, "kind": "tri', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a line of a log of records"),
        (b'{"i": [["k", "llvm"]], "r": [[0.1], 0], "v": "v0.6"}', "a line of TVM's auto_scheduler"),
        (b'{"v": 2, "kind": "trial"}', "format version '2'; this package reads 1"),
        (b'{"v": 1, "kind": "song"}', "unknown kind 'song'"),
        (b'{"v": 1, "kind": ["trial"]}', "unknown kind"),
        (b'{"v": 1, "kind": "trial", "error": null}', "no seconds"),
        ({"round": "0"}, "round: expected an integer, found '0'"),
        ({"slot": True}, "slot: expected an integer, found True"),
        ({"slot": 2**31}, "slot: expected an integer, found 2147483648"),
        ({"slot": -1}, "slot -1"),
        ({"target": None}, "target: expected a string, found None"),
        ({"device": "a\0b"}, "device: expected text that can be stored"),
        ({"error": 5}, "error: expected a string or null, found 5"),
        ({"seconds": "fast"}, "seconds: expected a number or null"),
        ({"seconds": None}, "expected a positive number, found None"),
        ({"seconds": 10**400}, "seconds: expected a finite number"),
        ({"spread": float("nan")}, "not JSON: NaN is not JSON"),
        ({"trace": "split"}, "trace: expected an array"),
        ({"decisions": {"t0": 1.5}}, "decisions: expected an object of integers"),
        ({"status": "great"}, "status 'great': expected one of"),
        ({"created_at": "yesterday"}, "created_at: expected a time in ISO 8601"),
        ({"created_at": "2025-01-01T00:00:00"}, "has no time zone"),
    ],
)
def test_a_line_that_cannot_be_used_is_skipped_with_its_reason(log, writer, caplog, line, reason):
    if isinstance(line, dict):
        line = json.dumps(json.loads(encode_line(trial(5))) | line).encode()
    writer.write_records([trial(0)])
    with open(log, "ab") as stream:
        stream.write(line + b"\n")
    writer.write_records([trial(1)])
    with caplog.at_level(logging.WARNING):
        reader = RecordReader(log)
    assert slots(reader) == [0, 1]
    [(number, said)] = reader.report.skipped
    assert (number, reader.report.read) == (2, 2)
    assert reason in said
    assert f"{log}: 1 line(s) skipped, the first is line 2" in caplog.text


def test_keys_of_later_versions_are_left_alone():
    line = json.loads(encode_line(trial(0))) | {"mood": "good"}
    assert decode_line(json.dumps(line).encode()).slot == 0


def test_blank_lines_are_no_lines(log, writer):
    writer.write_records([trial(0)])
    with open(log, "ab") as stream:
        stream.write(b"\n  \n\r\n")
    writer.write_records([trial(1)])
    reader = RecordReader(log)
    assert slots(reader) == [0, 1]
    assert reader.report.skipped == []


def test_a_torn_tail_costs_its_own_line_alone(log, writer):
    writer.write_records([trial(0), trial(1)])
    os.truncate(log, os.path.getsize(log) - 20)
    assert slots(RecordReader(log)) == [0]
    writer.write_records([trial(2)])
    reader = RecordReader(log)
    assert slots(reader) == [0, 2]
    assert [number for number, _ in reader.report.skipped] == [2]


def test_a_line_that_lost_only_its_line_feed_is_whole(log, writer):
    writer.write_records([trial(0)])
    os.truncate(log, os.path.getsize(log) - 1)
    assert slots(RecordReader(log)) == [0]
    writer.write_records([trial(1)])
    assert slots(RecordReader(log)) == [0, 1]


def test_a_line_too_long_to_be_ours_is_not_decoded(log, writer, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINE", 2000)
    with open(log, "wb") as stream:
        stream.write(b"x" * 12_345 + b"\n")
    writer.write_records([trial(0)])
    report = JsonlReport()
    assert [record.slot for record in read_jsonl(log, report)] == [0]
    assert report.skipped == [(1, "longer than 2000 bytes")]


def test_a_repeated_record_is_read_once(log, writer):
    writer.write_records([trial(0, 1.0), trial(0, 2.0)])
    assert [record.seconds for record in RecordReader(log)] == [1.0]


def test_a_log_that_grows_is_read_again(log, writer):
    writer.write_records([trial(0)])
    reader = RecordReader(log)
    listing = reader.records()
    writer.write_records([trial(1)])
    assert slots(reader) == [0, 1]
    assert [record.slot for record in listing] == [0, 1]


def test_all_lines_of_a_write_are_there_or_none(log, writer, monkeypatch):
    writer.write_records([trial(0)])
    size = log.stat().st_size

    def full_disk(log, data):
        os.write(log, data[:50])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(jsonl, "_write", full_disk)
        with pytest.raises(RecordError, match=r"cannot append to .*: .*No space left"):
            writer.write_records([trial(1), trial(2)])
    assert log.stat().st_size == size
    with pytest.raises(RecordError, match="not JSON data"):
        writer.write_records([trial(1), trial(2, trace=[{1, 2}])])
    assert log.stat().st_size == size
    writer.write_records([])
    assert log.stat().st_size == size


def test_a_write_that_the_system_cuts_short_is_finished(log, writer, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:100]))
    writer.write_records([trial(0)])
    assert slots(RecordReader(log)) == [0]


def test_on_disk_before_the_call_returns(log, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    JsonlWriter(log).write_records([trial(0)])
    assert synced == []
    JsonlWriter(log, fsync=True).write_records([trial(1)])
    assert len(synced) == 1


def test_a_log_that_was_moved_away_is_begun_again(log, writer, tmp_path):
    writer.write_records([trial(0)])
    log.rename(tmp_path / "old.json")
    writer.write_records([trial(1)])
    assert slots(RecordReader(log)) == [1]


def test_logs_that_cannot_be_used(tmp_path):
    with pytest.raises(RecordError, match=r"cannot read .*none.json: .*No such file"):
        RecordReader(tmp_path / "none.json")
    with pytest.raises(RecordError, match="cannot read"):
        list(read_jsonl(tmp_path))
    with pytest.raises(RecordError, match=r"cannot append to .*none/x.json"):
        JsonlWriter(tmp_path / "none" / "x.json").write_records([trial(0)])


def test_a_measurement_before_its_record_is_found(log, writer):
    writer.write_measurements(trial(0), [Measurement(seconds=4.0)])
    writer.write_measurements(trial(9), [Measurement(seconds=5.0)])
    writer.write_records([trial(0)])
    [record] = RecordReader(log)
    assert record.remeasured_seconds == 4.0
    assert record.job_id == JOB
