"""Which record is handed out as the best: the same rules for stores and logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from records_factory import DEVICE, JOB, KEY, TARGET, WORKLOAD, baseline, failure, trial, with_job

from autosched.cli.main import main
from records import JsonlWriter, Measurement, NoRecord, RecordError, RecordReader, Store

CUDA = {"target": "cuda -arch=sm_90", "device": "h200"}


@pytest.fixture(params=["store", "log"])
def holding(request, tmp_path):
    """A function that makes a source of records, and of measurements by slot of their records."""
    opened = []

    def in_store(records, measurements):
        store = with_job(Store(tmp_path / "x.db"))
        for record in store.add_records(records):
            if record.slot in measurements:
                store.add_measurements(record.id, measurements[record.slot])
        return store

    def in_log(records, measurements):
        writer = JsonlWriter(tmp_path / "x.jsonl")
        writer.write_workload(WORKLOAD)
        writer.write_records(records)
        for record in records:
            writer.write_measurements(record, measurements.get(record.slot, ()))
        return RecordReader(writer.path)

    def make(*records, **remeasured):
        measurements = {
            int(slot.removeprefix("slot")): [
                m if isinstance(m, Measurement) else Measurement(seconds=m) for m in times
            ]
            for slot, times in remeasured.items()
        }
        source = {"store": in_store, "log": in_log}[request.param](records, measurements)
        opened.append(source)
        return source

    yield make
    for source in opened:
        source.close()


def best_slot(source, **where):
    return source.best(KEY, **where).slot


def test_the_least_time_wins_and_of_one_time_the_first(holding):
    source = holding(trial(0, 3.0), trial(1, 2.0), failure(2), trial(3, 2.0))
    best = source.best(KEY)
    assert (best.slot, best.seconds, best.remeasured_seconds) == (1, 2.0, None)
    assert source.get(best.id) == best


def test_measured_again_decides(holding):
    source = holding(
        trial(0, 1.0), trial(1, 2.0), trial(2, 3.0), slot1=[9.0, 4.0, 4.0], slot2=[5.0]
    )
    best = source.best(KEY)
    assert (best.slot, best.seconds, best.final_seconds) == (1, 2.0, 4.0)
    assert [m.seconds for m in source.measurements(best.id)] == [9.0, 4.0, 4.0]


def test_a_baseline_may_win(holding):
    source = holding(baseline(7, 1.5), trial(0, 2.0), trial(1, 1.0), slot0=[2.5])
    assert source.best(KEY).kind == "baseline"


def test_a_baseline_measured_again_counts_with_that_time(holding):
    source = holding(baseline(7, 1.5), trial(0, 2.0), slot0=[2.5], slot7=[3.0])
    assert source.best(KEY).slot == 0


def test_without_any_trial_measured_again_the_times_of_the_trials_count(holding):
    source = holding(baseline(7, 1.5), trial(0, 2.0), trial(1, 1.0), slot7=[1.6])
    assert source.best(KEY).slot == 1


def test_imported_records_wait_until_they_are_measured_here(holding):
    elsewhere = Measurement(seconds=0.5, origin="import")
    source = holding(trial(0, 1.0, origin="import"), trial(1, 2.0), slot0=[elsewhere])
    assert best_slot(source) == 1


def test_imported_records_that_were_measured_here_take_part(holding):
    source = holding(trial(0, 1.0, origin="import"), trial(1, 2.0), slot0=[1.5], slot1=[2.5])
    assert best_slot(source) == 0


def test_only_imported_records(holding):
    source = holding(trial(0, 1.0, origin="import"), trial(1, 2.0, origin="import"), failure(2))
    with pytest.raises(NoRecord) as e:
        source.best(KEY)
    assert str(e.value).splitlines() == [
        f"no valid record of workload w0 on target {TARGET!r}, device {DEVICE!r}",
        "3 records: 2 ok, 1 build_error",
        "2 ok, but imported: these count once they are measured here, as `autosched records "
        "verify` does for those of this machine",
        "first error: it broke",
    ]


def test_only_failures(holding):
    source = holding(
        failure(0, "cancelled", None),
        failure(1, "run_timeout", "no end after 10 s\nstack: ..."),
        failure(2, "build_error", "another"),
        failure(3, "run_timeout", "again"),
    )
    with pytest.raises(NoRecord) as e:
        source.best(KEY, TARGET, DEVICE)
    assert str(e.value).splitlines() == [
        f"no valid record of workload w0 on target {TARGET!r}, device {DEVICE!r}",
        "4 records: 2 run_timeout, 1 build_error, 1 cancelled",
        "first error: no end after 10 s",
        "  stack: ...",
    ]


def test_records_that_the_caller_excludes_are_passed_over(holding):
    source = holding(trial(0, 1.0), trial(1, 2.0), trial(2, 3.0))
    first = source.best(KEY)
    second = source.best(KEY, exclude={first.id})
    third = source.best(KEY, exclude=[first.id, second.id])
    assert [first.slot, second.slot, third.slot] == [0, 1, 2]
    with pytest.raises(NoRecord, match="3 ok, but set aside by the caller"):
        source.best(KEY, exclude={first.id, second.id, third.id})


def test_excluding_all_that_were_measured_again_leaves_the_others(holding):
    source = holding(trial(0, 1.0), trial(1, 2.0), slot1=[4.0])
    assert source.best(KEY, exclude={source.best(KEY).id}).slot == 0


def test_nothing_is_known(holding):
    source = holding()
    with pytest.raises(NoRecord, match=r"^no record of workload w0, on any target or device$"):
        source.best(KEY)
    assert source.devices(KEY) == []


def test_target_and_device_are_left_out_where_there_is_one(holding):
    source = holding(trial(0, 1.0))
    for where in ({}, {"target": TARGET}, {"device": DEVICE}):
        assert best_slot(source, **where) == 0


def test_several_devices_have_to_be_named(holding):
    source = holding(trial(0, 1.0), trial(1, 2.0, **CUDA), trial(2, 3.0, device="old"))
    assert source.devices(KEY) == [("cuda -arch=sm_90", "h200"), (TARGET, "old"), (TARGET, DEVICE)]
    with pytest.raises(RecordError, match="several targets or devices; name one") as e:
        source.best(KEY)
    assert str(e.value).count("\n  target ") == 3
    assert not isinstance(e.value, NoRecord)
    with pytest.raises(RecordError) as e:
        source.best(KEY, TARGET)
    assert str(e.value).splitlines()[1:] == [
        f"  target {TARGET!r}, device 'old'",
        f"  target {TARGET!r}, device {DEVICE!r}",
    ]
    assert best_slot(source, **CUDA) == 1
    assert best_slot(source, target=CUDA["target"]) == 1
    assert best_slot(source, device="old") == 2


def test_imported_records_make_no_question_of_which_device_is_meant(holding):
    elsewhere = CUDA | {"origin": "import"}
    source = holding(trial(0, 1.0, **elsewhere), trial(1, 2.0), failure(2, device="broken"))
    for where in ({}, {"target": TARGET}, {"device": DEVICE}):
        assert best_slot(source, **where) == 1
    with pytest.raises(NoRecord, match="1 ok, but imported"):
        source.best(KEY, **CUDA)


def test_several_devices_of_which_none_has_a_record_to_hand_out(holding):
    source = holding(trial(0, 1.0, origin="import"), failure(1, device="broken"))
    with pytest.raises(
        NoRecord, match="no valid record of workload w0 that was measured here"
    ) as e:
        source.best(KEY)
    assert str(e.value).count("\n  target ") == 2


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ({"target": "opencl"}, "on target 'opencl'"),
        ({"device": "elsewhere"}, "on device 'elsewhere'"),
        ({"target": "opencl", "device": "elsewhere"}, "on target 'opencl', device 'elsewhere'"),
    ],
)
def test_a_target_or_device_without_records(holding, where, asked):
    source = holding(trial(0, 1.0))
    with pytest.raises(NoRecord) as e:
        source.best(KEY, **where)
    assert str(e.value).splitlines() == [
        f"no record of workload w0 {asked}; there are records of:",
        f"  target {TARGET!r}, device {DEVICE!r}",
    ]


def test_the_read_side_is_the_same(holding):
    source = holding(trial(0), failure(1), baseline(0, 1.0), trial(2, device="old"), slot2=[2.0])

    def found(**filters):
        return [record.program_hash for record in source.records(**filters)]

    ids = [record.id for record in source.records()]
    assert ids == sorted(ids)
    assert found() == ["p0", "p1", "base0", "p2"]
    assert found(limit=2) == ["p0", "p1"]
    assert found(after_id=ids[1], limit=1) == ["base0"]
    assert found(kind="trial", device=DEVICE) == ["p0", "p1"]
    assert found(status="build_error", job_id=JOB, workload_key=KEY, target=TARGET) == ["p1"]
    assert found(job_id="nobody") == []
    assert source.workload(KEY) == WORKLOAD
    assert list(source.workloads()) == [WORKLOAD]
    assert [m.record_id for m in source.measurements(*ids)] == [ids[3]]
    with pytest.raises(NoRecord, match=r"no workload w9 in (.*x\.|this store)"):
        source.workload("w9")
    with pytest.raises(NoRecord, match="no record"):
        source.get(999)
    assert source.get(ids[1]).error == "it broke"


def test_records_of_the_title_under_another_key_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An older version made another program of the same function, which had another key."""
    path = tmp_path / "a.db"
    with Store(path) as store:
        store.put_workload(replace(WORKLOAD, key="old"))
        store.create_job("old", TARGET, seed=0, trials_requested=1, job_id=JOB)
        store.add_records([replace(trial(0), workload_key="old")])
    assert main(["best", "matmul", "8", "8", "8", "--db", str(path)]) == 1
    assert "records of matmul(8, 8, 8) under another key, old: " in capsys.readouterr().err
    assert main(["best", "matmul", "8", "8", "9", "--db", str(path)]) == 1
    assert "under another key" not in capsys.readouterr().err
