"""What every store does, whatever the database: `StoreContract`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

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
    Measurement,
    NoRecord,
    RecordError,
    Store,
    Workload,
    export_jsonl,
    import_jsonl,
    new_job_id,
)
from records import store as store_module
from records.logs import importing


class StoreContract:
    """Runs over every kind of database; a subclass makes `address`, that of an empty one."""

    @pytest.fixture
    def address(self, tmp_path):
        raise NotImplementedError

    @pytest.fixture
    def store(self, address):
        with Store(address) as store:
            yield with_job(store)

    # Workloads and jobs

    def test_a_workload_is_kept_once(self, store):
        store.put_workload(replace(WORKLOAD, name="another name"))
        assert store.workload(KEY) == WORKLOAD
        assert list(store.workloads()) == [WORKLOAD]

    def test_a_workload_known_by_its_script_alone(self, store):
        workload = Workload(key="w1", name="main", script="def main(x): ...")
        store.put_workload(workload)
        assert store.workload("w1") == workload
        assert store.workload("w1").args is None

    def test_a_key_names_one_script(self, store):
        with pytest.raises(RecordError, match="workload w0 is stored with another script"):
            store.put_workload(replace(WORKLOAD, script="def other(): ..."))

    def test_a_text_is_added_to_a_workload_that_had_none(self, store):
        assert store.workload(KEY).text is None
        for text in ("def main(a): ...", "def main(b): ..."):
            store.put_workload(replace(WORKLOAD, text=text))
        assert store.workload(KEY).text == "def main(a): ..."

    def test_workloads_come_in_order_of_their_keys(self, store, monkeypatch):
        monkeypatch.setattr("records.store.PAGE", 2)
        for name in "edcba":
            store.put_workload(Workload(key=name, name=name, script=name))
        assert [w.key for w in store.workloads()] == ["a", "b", "c", "d", "e", KEY]

    def test_a_job_starts_with_nothing_done(self, store):
        job = store.create_job(
            KEY, TARGET, seed=7, trials_requested=100, options={"rounds": [1, 2], "x": None}
        )
        assert (job.state, job.trials_done, job.trials_requested, job.seed) == ("queued", 0, 100, 7)
        assert job.options == {"rounds": [1, 2], "x": None}
        assert (job.device, job.error, job.origin) == (None, None, "local")
        assert abs(job.created_at - datetime.now(UTC)) < timedelta(hours=1)
        assert store.job(job.id) == job

    def test_a_job_comes_with_its_workload_or_not_at_all(self, store):
        mine = Workload(key="mine", name="mine", script="def main(): ...\n")
        job = store.create_job(mine, TARGET, seed=7, trials_requested=1)
        assert (job.workload_key, store.workload("mine")) == ("mine", mine)
        other = Workload(key="other", name="other", script="def main(): ...\n")
        with pytest.raises(RecordError):
            store.create_job(other, TARGET, seed=7, trials_requested=1, state="no such state")
        with pytest.raises(NoRecord):
            store.workload("other")

    def test_a_job_is_made_once(self, store):
        job_id = new_job_id()
        job = store.create_job(KEY, TARGET, seed=1, trials_requested=10, job_id=job_id)
        assert store.create_job(KEY, TARGET, seed=2, trials_requested=20, job_id=job_id) == job

    def test_a_job_of_an_unknown_workload_is_refused(self, store):
        with pytest.raises(NoRecord, match="no workload w9"):
            store.create_job("w9", TARGET, seed=0, trials_requested=1)

    def test_updating_a_job(self, store):
        before = store.job(JOB)
        job = store.update_job(JOB, state="failed", trials_requested=128, error="gone\0")
        assert (job.state, job.trials_requested, job.error) == ("failed", 128, "gone\\x00")
        assert job.updated_at >= before.updated_at
        assert store.update_job(JOB, state="running", error=None).error is None
        assert store.update_job(JOB, trials_done=5, device="other").trials_done == 5
        with pytest.raises(RecordError, match="job state 'asleep': expected one of queued"):
            store.update_job(JOB, state="asleep")
        with pytest.raises(NoRecord, match="no job nobody"):
            store.update_job("nobody", state="failed")

    def test_the_job_to_resume_is_the_newest_made_here(self, store):
        assert store.find_job(KEY, TARGET, 0).id == JOB
        assert store.find_job(KEY, TARGET, 1) is None
        assert store.find_job(KEY, "cuda", 0) is None
        store.create_job(KEY, TARGET, seed=5, trials_requested=1, origin="import")
        assert store.find_job(KEY, TARGET, 5) is None

    # Records

    def test_a_record_comes_back_as_it_was(self, store):
        records = [trial(0), baseline(0, 2e-3, trace=[]), failure(1, error="long\n" * 1000)]
        stored = store.add_records(records)
        assert [replace(record, id=0) for record in stored] == records
        assert len({record.id for record in stored}) == 3
        assert list(store.records()) == stored
        assert [store.get(record.id) for record in stored] == stored
        assert store.add_records([]) == []

    def test_traces_are_stored_once_by_content_and_dialect(self, store):
        store.add_records([trial(n) for n in range(5)])
        stored = store.add_records([trial(5, dialect=2), trial(6, trace=[["other", {"a": 1.5}]])])
        assert [store.get(record.id).dialect for record in stored] == [2, 1]
        assert store.get(stored[1].id).trace == [["other", {"a": 1.5}]]
        with store._db.transaction(writes=False) as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM traces").scalar() == 3

    def test_of_a_repeated_slot_the_first_record_stays(self, store):
        first = store.add_records([trial(0, 1.0)])
        again = store.add_records([trial(1, 2.0), trial(0, 3.0), trial(1, 4.0)])
        assert again[1] == first[0]
        assert [record.seconds for record in again] == [2.0, 1.0, 2.0]
        assert [record.seconds for record in store.records()] == [1.0, 2.0]
        assert [new for _, new in store.insert_records([trial(2), trial(2), trial(0)])] == [
            True,
            False,
            False,
        ]

    def test_new_trials_are_counted_and_baselines_are_not(self, store):
        store.add_records([baseline(0, 1.0), trial(0), trial(1)])
        store.add_records([trial(1), failure(2)])
        assert store.job(JOB).trials_done == 3

    def test_a_job_knows_its_best(self, store):
        def best():
            return store.job(JOB).best_seconds

        store.add_records([failure(0), trial(1, 0.5, status="stale")])
        assert best() is None
        found = store.add_records([trial(2, 3.0), trial(3, 2.0), trial(4, 4.0)])
        assert best() == 2.0
        store.add_records([trial(5, 2.5), trial(3, 1.0)])
        assert best() == store.curve(JOB)[-1].seconds == 2.0
        store.invalidate(found[1].id, "stale", "")
        assert best() == store.curve(JOB)[-1].seconds == 2.5

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"job_id": "nobody"}, "records of job nobody, which is not in the store"),
            ({"workload_key": "w9"}, "records of workload w9, which is not in the store"),
            ({"trace": [object()]}, "not JSON data"),
            ({"trace": [float("nan")]}, "not JSON data"),
            ({"decisions": {"t0": object()}}, "not JSON data"),
        ],
    )
    def test_a_batch_with_an_impossible_record_stores_nothing(self, store, changes, message):
        with pytest.raises(RecordError, match=message):
            store.add_records([trial(0), trial(1, **changes)])
        assert list(store.records()) == []
        assert store.job(JOB).trials_done == 0
        assert slots(store) == []

    def test_large_batches(self, store):
        stored = store.add_records([trial(n, trace=[["step", n % 300]]) for n in range(2500)])
        assert [record.slot for record in stored] == list(range(2500))
        assert store.add_records([trial(n) for n in range(2500)]) == stored
        assert len(store.find_records([record.key for record in stored])) == 2500

    def test_filters(self, store):
        other = new_job_id()
        with_job(store, other, Workload(key="w1", name="conv", script="conv"))
        store.add_records(
            [
                trial(0),
                failure(1),
                baseline(0, 1.0),
                trial(2, device="cpu2"),
                trial(0, job_id=other, workload_key="w1"),
                failure(1, "run_timeout", job_id=other, workload_key="w1", target="cuda"),
            ]
        )

        def programs(**filters):
            return [record.program_hash for record in store.records(**filters)]

        assert programs() == ["p0", "p1", "base0", "p2", "p0", "p1"]
        assert programs(workload_key=KEY) == ["p0", "p1", "base0", "p2"]
        assert programs(workload_key=KEY, device=DEVICE) == ["p0", "p1", "base0"]
        assert programs(target="cuda") == ["p1"]
        assert programs(status="ok", job_id=other) == ["p0"]
        assert programs(kind="baseline") == ["base0"]
        assert programs(workload_key="w9") == []
        assert programs(status=None, limit=2) == ["p0", "p1"]
        assert programs(limit=0) == []
        third = list(store.records(limit=3))[-1].id
        assert programs(after_id=third, limit=2) == ["p2", "p0"]

    def test_a_long_listing_goes_page_by_page(self, store, monkeypatch):
        monkeypatch.setattr("records.store.PAGE", 3)
        store.add_records([trial(n) for n in range(10)])
        assert slots(store) == list(range(10))
        assert [record.slot for record in store.records(limit=7)] == list(range(7))
        listing = store.records()
        next(listing)
        store.add_records([trial(10)])
        assert [record.slot for record in listing] == list(range(1, 11))

    def test_pages_look_through_so_many_records_and_no_more(self, store, monkeypatch):
        monkeypatch.setattr("records.store.WINDOW", 5)
        other = new_job_id()
        with_job(store, other)
        for n in range(12):
            store.add_records([trial(n), failure(n, job_id=other)])
        store.add_records([failure(12)])

        def read(limit=5, **filters):
            pages, after = [], 0
            while after is not None:
                page = store.page(**filters, limit=limit, after_id=after)
                pages.append([record.slot for record in page.records])
                after = page.after_id
            return pages

        assert read(job_id=JOB, status="build_error") == [[], [], [12]]
        assert read(job_id=JOB, limit=8) == [list(range(8)), list(range(8, 13))]
        assert read(job_id=JOB, limit=2, status="ok")[:2] == [[0, 1], [2, 3]]
        assert read(status="run_timeout") == [[]] * 6
        assert read(job_id="nobody") == [[]]
        assert read(workload_key=KEY, device="elsewhere", limit=1) == [[]] * 6
        assert [r.slot for r in store.records(job_id=JOB, status="build_error")] == [12]
        assert [r.slot for r in store.records(job_id=JOB, workload_key="w9")] == []

    def test_a_curve_has_the_trials_that_improved(self, store):
        assert store.curve(JOB) == []
        store.add_records([failure(0), trial(1, 5.0), trial(2, 7.0), trial(3, 5.0), failure(4)])
        store.add_records([baseline(0, 1.0), trial(5, 4.0), trial(6, 6.0), trial(7, 2.0)])
        other = new_job_id()
        with_job(store, other)
        store.add_records([trial(0, 1.0, job_id=other)])
        points = store.curve(JOB)
        assert [(p.trial, p.seconds) for p in points] == [(2, 5.0), (6, 4.0), (8, 2.0)]
        for point in points:
            record = store.get(point.record_id)
            assert (record.seconds, record.created_at) == (point.seconds, point.created_at)

    # Measurements

    def test_the_median_of_measurements_made_here_counts(self, store):
        [record] = store.add_records([trial(0, 1.0)])
        store.add_measurements(record.id, [Measurement(seconds=s) for s in (3.0, 9.0)])
        imported = Measurement(seconds=1e-9, origin="import")
        updated = store.add_measurements(record.id, [Measurement(seconds=4.0), imported])
        assert updated.remeasured_seconds == updated.final_seconds == 4.0
        assert store.get(record.id) == updated
        found = store.measurements(record.id)
        assert [m.seconds for m in found] == [3.0, 9.0, 4.0, 1e-9]
        assert {m.record_id for m in found} == {record.id}

    def test_a_measurement_is_kept_once(self, store):
        [record] = store.add_records([trial(0, 1.0)])
        measurement = Measurement(seconds=2.0, spread=0.1, noise=0.2, runs=5)
        for _ in range(2):
            store.add_measurements(record.id, [measurement, measurement])
        [found] = store.measurements(record.id)
        assert replace(found, id=0, record_id=0) == measurement

    def test_only_valid_records_are_measured_again(self, store):
        [record] = store.add_records([failure(0)])
        with pytest.raises(RecordError, match="is build_error: its time means nothing"):
            store.add_measurements(record.id, [Measurement(seconds=1.0)])
        with pytest.raises(NoRecord, match="no record 99"):
            store.add_measurements(99, [Measurement(seconds=1.0)])

    def test_measurements_of_many_records(self, store):
        stored = store.add_records([trial(n) for n in range(300)])
        for record in stored[::100]:
            store.add_measurements(record.id, [Measurement(seconds=1.0 + record.slot)])
        found = store.measurements(*(record.id for record in reversed(stored)))
        assert [m.seconds for m in found] == [1.0, 101.0, 201.0]

    def test_a_withdrawn_record_stays_with_its_reason(self, store):
        [record] = store.add_records([trial(0, 1.0)])
        stale = store.invalidate(record.id, "stale", "replay gives p9, measured was p0")
        assert store.get(record.id) == stale
        assert (stale.status, stale.seconds) == ("stale", 1.0)
        with pytest.raises(NoRecord, match=r"1 stale\nfirst error: replay gives p9"):
            store.best(KEY)
        with pytest.raises(RecordError, match="status 'ok' does not withdraw a record"):
            store.invalidate(record.id, "ok", "")

    # Logs

    def test_exports_while_a_log_is_imported(self, store, address, tmp_path, monkeypatch):
        """Each is a log that stands alone, of what was there: no half, nothing twice."""
        monkeypatch.setattr(importing, "BATCH", 10)
        monkeypatch.setattr(store_module, "PAGE", 30)
        with with_job(Store(tmp_path / "there.db")) as there:
            stored = there.add_records([trial(n) for n in range(200)])
            for record in stored[::7]:
                there.add_measurements(record.id, [Measurement(seconds=1e-3)])
            export_jsonl(there, log := tmp_path / "log.jsonl")

        def take() -> ImportReport:
            with Store(address) as other:
                return import_jsonl(other, log)

        exports = []
        with ThreadPoolExecutor(1) as pool:
            imported = pool.submit(take)
            while True:
                done = imported.done()
                exports.append(tmp_path / f"{len(exports)}.jsonl")
                export_jsonl(store, exports[-1])
                if done:
                    break
        assert imported.result() == ImportReport(new=200)
        found = []
        for n, export in enumerate(exports):
            if export.stat().st_size:
                with Store(tmp_path / f"again{n}.db") as again:
                    report = import_jsonl(again, export)
                    found.append(slots(again))
                    assert report == ImportReport(new=len(found[-1]))
                    assert found[-1] == list(range(len(found[-1])))
        assert len(found[-1]) == 200
        assert list(map(len, found)) == sorted(map(len, found))

    # Opening

    def test_what_was_stored_is_there_after_opening_again(self, store, address):
        stored = store.add_records([trial(0), trial(1)])
        with Store(address) as second:
            assert list(second.records()) == stored
            second.add_records([trial(2)])
        assert slots(store) == [0, 1, 2]
