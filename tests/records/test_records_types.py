from __future__ import annotations

from collections import Counter
from dataclasses import FrozenInstanceError, fields, replace
from datetime import datetime

import pytest
from records_factory import DEVICE, KEY, TARGET, WORKLOAD, baseline, failure, trial

from autosched.cli.show import describe
from autosched.tuning.run.finalists import why_nothing
from records import Job, Measurement, Record, RecordError, Workload
from records.ranking import Tally, no_record
from records.sql.schema import JobRow, MeasurementRow, RecordRow, TraceRow, WorkloadRow
from records.types import quoted_text, storable_text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "guess"}, "kind 'guess': expected one of trial, baseline"),
        ({"status": "fine"}, "status 'fine': expected one of ok, instantiation_error"),
        ({"origin": "moon"}, "origin 'moon': expected one of local, import"),
        ({"round": -1}, "round -1 of a trial: trials count rounds from 0"),
        ({"kind": "baseline"}, "round 0 of a baseline: .* baselines are in round -1"),
        ({"slot": -1}, "slot -1: slots count from 0"),
        ({"seconds": None}, "seconds of an ok record: expected a positive number, found None"),
        ({"seconds": 0.0}, "expected a positive number, found 0.0"),
        ({"seconds": float("nan")}, "expected a positive number, found nan"),
        ({"seconds": float("inf")}, "expected a positive number, found inf"),
        ({"created_at": datetime(2025, 1, 1)}, "has no time zone"),
    ],
)
def test_a_record_that_means_nothing_is_refused(changes, message):
    with pytest.raises(RecordError, match=message):
        replace(trial(0), **changes)


def test_a_failure_needs_no_time_and_keeps_its_error():
    assert failure(3, error="line 1\nline 2").error == "line 1\nline 2"


def test_error_text_of_a_broken_process_can_be_stored():
    record = failure(0, error="before\0after \udcff é")
    assert record.error == "before\\x00after \\udcff é"
    assert storable_text("plain") == "plain"


def test_measurements_are_positive_times():
    with pytest.raises(RecordError, match="seconds of a measurement"):
        Measurement(seconds=-1.0)


def test_final_seconds_are_those_of_the_remeasurements():
    record = trial(0, 2.0)
    assert record.final_seconds == 2.0
    assert replace(record, remeasured_seconds=3.0).final_seconds == 3.0


def test_values_are_frozen():
    with pytest.raises(FrozenInstanceError):
        baseline(0, 1.0).seconds = 2.0


@pytest.mark.parametrize(
    ("value", "row", "not_columns", "only_columns"),
    [
        (Workload, WorkloadRow, set(), {"created_at"}),
        (Job, JobRow, set(), set()),
        (Record, RecordRow, {"trace", "dialect"}, {"trace_id", "standing", "ranked_seconds"}),
        (Measurement, MeasurementRow, set(), set()),
    ],
)
def test_values_bear_the_names_of_the_columns(value, row, not_columns, only_columns):
    names = {f.name for f in fields(value)} - not_columns
    assert names == {column.name for column in row.__table__.columns} - only_columns


def test_a_trace_has_its_dialect():
    assert {c.name for c in TraceRow.__table__.columns} == {"id", "hash", "dialect", "data"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it broke", "it broke"),
        ("\x1b[2J\x9b1m\u202ea\r", "\\x1b[2J\\x9b1m\\u202ea\\r"),
        ("a\nstatus     ok\r\n", "a\n  status     ok"),
    ],
)
def test_text_of_others_neither_steers_a_terminal_nor_passes_for_ours(
    text: str, shown: str
) -> None:
    assert quoted_text(text) == shown
    record = trial(0, None, status="build_error", error=text)
    assert f"error      {shown}" in describe(record, WORKLOAD)
    assert why_nothing("matmul", [record]).endswith(f"\nfirst error: {shown}")
    tally = Tally(Counter(build_error=1), first_error=text)
    assert str(no_record(KEY, (TARGET, DEVICE), tally, [])).endswith(f"\nfirst error: {shown}")
