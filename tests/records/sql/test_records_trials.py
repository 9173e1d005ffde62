"""What the trials of a job come to, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from records_factory import JOB, baseline, failure, trial, with_job

from records import Measurement, Store, new_job_id

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def course():
    """Two baselines, then ten trials, a second apart, of which every third failed."""
    found = [baseline(0, 0.5), baseline(1, 4e-3)]
    for slot in range(10):
        at = {"created_at": BEGAN + timedelta(seconds=slot)}
        if slot % 3 == 2:
            status = "run_timeout" if slot == 5 else "build_error"
            found.append(failure(slot, status, f"message {slot}", **at))
        else:
            found.append(trial(slot, (10 - slot) * 1e-3, **at))
    return found


class TrialsContract:
    @pytest.fixture
    def store(self, address):
        with Store(address) as store:
            yield with_job(store)

    def test_a_job_without_records(self, store):
        tallied = store.tallied(JOB)
        assert tallied.statuses == []
        assert tallied.trials == 0
        assert tallied.best_id is None
        assert store.sample(JOB, at_most=5) == []
        assert store.trial_times(JOB) is None

    def test_trials_are_tallied_by_status(self, store):
        ids = [record.id for record in store.add_records(course())]
        tallied = store.tallied(JOB)
        found = [(r.status, r.trials, r.first_id, r.message) for r in tallied.statuses]
        assert found == [
            ("ok", 7, ids[2], None),
            ("build_error", 2, ids[4], "message 2"),
            ("run_timeout", 1, ids[7], "message 5"),
        ]
        assert tallied.trials == 10
        assert store.trial_times(JOB) == (BEGAN, BEGAN + timedelta(seconds=9))

    def test_other_jobs_do_not_count(self, store):
        other = new_job_id()
        with_job(store, other)
        store.add_records(course() + [failure(s, job_id=other) for s in range(3)])
        assert store.tallied(JOB).trials == 10
        assert [r.status for r in store.tallied(other).statuses] == ["build_error"]
        assert store.tallied(other).best_id is None

    def test_the_best_is_decided_as_the_store_decides(self, store):
        stored = store.add_records(course())
        assert store.tallied(JOB).best_id == stored[-1].id  # 1 ms
        finalist = stored[-3]
        store.add_measurements(finalist.id, [Measurement(seconds=2.5e-3)])
        assert store.tallied(JOB).best_id == finalist.id
        store.add_measurements(finalist.id, [Measurement(seconds=9e-3) for _ in range(5)])
        assert store.tallied(JOB).best_id == stored[1].id  # the default schedule

    def test_a_sample_takes_every_nth_trial_and_the_ends(self, store):
        ids = [record.id for record in store.add_records(course())][2:]
        assert [p.trial for p in store.sample(JOB, at_most=10)] == list(range(1, 11))
        points = store.sample(JOB, at_most=4, always=[ids[4]])
        assert [p.trial for p in points] == [1, 4, 5, 7, 10]
        assert [p.record_id for p in points] == [ids[p.trial - 1] for p in points]
        assert [p.status for p in points[:2]] == ["ok", "ok"]
        assert [p.seconds for p in points[:2]] == [10e-3, 7e-3]
        failed = store.sample(JOB, at_most=1, always=[ids[2]])[1]
        assert (failed.trial, failed.status, failed.seconds) == (3, "build_error", None)


class TestSqliteTrials(TrialsContract):
    @pytest.fixture
    def address(self, tmp_path):
        return tmp_path / "tuning.db"


class TestPostgresTrials(TrialsContract):
    @pytest.fixture
    def address(self, postgres_url):
        return postgres_url
