"""What the queue of every store does: leases, fencing, cancelling, events."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from records_factory import KEY, TARGET, trial

from records import (
    Job,
    JobQueue,
    Lease,
    LeaseLost,
    Measurement,
    NoRecord,
    RecordError,
    Store,
    new_job_id,
)

SHORT = 0.05
"""Seconds of a lease that is to run out."""


class QueueContract:
    """Mixed into `StoreContract`, whose fixture `store` it uses: there is one job, and it waits."""

    @pytest.fixture
    def queue(self, store: Store) -> JobQueue:
        return JobQueue(store)

    def add(self, store: Store, **values: object) -> str:
        options = {"seed": 0, "trials_requested": 10} | values
        return store.create_job(KEY, TARGET, job_id=new_job_id(), **options).id  # type: ignore[arg-type]

    def drain(self, queue: JobQueue) -> list[str]:
        found = []
        while job := queue.claim("w", 60):
            found.append(job.id)
        return found

    def test_claiming_a_job(self, store, queue):
        first = queue.claim("worker 1", 60)
        assert (first.state, first.lease_owner, first.lease_epoch) == ("running", "worker 1", 1)
        assert timedelta(seconds=50) < first.lease_until - datetime.now(UTC) < timedelta(seconds=70)
        assert store.job(first.id) == first
        assert queue.claim("worker 2", 60) is None

    def test_imported_jobs_are_not_claimed(self, store, queue):
        self.drain(queue)
        self.add(store, origin="import")
        assert queue.claim("w", 60) is None

    def test_priority_first_then_age(self, store, queue):
        (old,) = self.drain(queue)
        low, high = self.add(store, priority=-1), self.add(store, priority=5)
        first, second = self.add(store), self.add(store)
        assert old not in (found := self.drain(queue))
        assert found == [high, first, second, low]

    def test_clients_take_turns(self, store, queue):
        self.drain(queue)
        greedy = [self.add(store, client="greedy") for _ in range(3)]
        modest = [self.add(store, client="modest") for _ in range(2)]
        assert self.drain(queue) == [greedy[0], modest[0], greedy[1], modest[1], greedy[2]]

    def test_renewing_and_finishing(self, store, queue):
        job = queue.claim("w", 1)
        lease = Lease(job.id, job.lease_epoch)
        assert queue.renew(lease, 60).lease_until > job.lease_until + timedelta(seconds=30)
        done = queue.finish(lease, "failed", "no\0 disk")
        assert (done.state, done.error) == ("failed", "no\\x00 disk")
        assert (done.lease_owner, done.lease_until, done.lease_epoch) == (None, None, 1)
        for late in (lambda: queue.renew(lease, 1), lambda: queue.finish(lease, "succeeded")):
            with pytest.raises(LeaseLost, match=r"epoch 1 of job .* is over: nobody has the job"):
                late()
        with pytest.raises(RecordError, match=r"a job ends as one of .*; found 'queued'"):
            queue.finish(lease, "queued")

    def test_a_job_whose_lease_runs_out_goes_to_another(self, store, queue):
        job = queue.claim("dies", SHORT)
        assert queue.reap() == []
        time.sleep(SHORT + 0.02)
        assert [(j.id, j.state) for j in queue.reap()] == [(job.id, "queued")]
        assert queue.reap() == []
        again = queue.claim("lives", 60)
        assert (again.id, again.lease_epoch) == (job.id, 2)
        late, now = Lease(job.id, 1), Lease(job.id, 2)
        with pytest.raises(LeaseLost, match="lives has epoch 2"):
            store.add_records([trial(0, job_id=job.id)], lease=late)
        assert list(store.records()) == []
        (record,) = store.add_records([trial(0, job_id=job.id)], lease=now)
        with pytest.raises(LeaseLost, match="lives has epoch 2"):
            store.add_measurements(record.id, [Measurement(seconds=1.0)], lease=late)
        store.add_measurements(record.id, [Measurement(seconds=1.0)], lease=now)
        with pytest.raises(LeaseLost, match="there is no such job"):
            store.add_records([trial(1)], lease=Lease("nobody", 1))

    def test_jobs_without_a_lease_are_nobodys_to_reap(self, store, queue):
        job_id = self.add(store, state="running")
        assert queue.reap() == []
        assert store.job(job_id).state == "running"

    def test_parking(self, store, queue):
        job = queue.claim("w", 60)
        assert queue.park(Lease(job.id, 1)).state == "queued"
        assert queue.claim("w", 60).lease_epoch == 2

    def test_cancelling(self, store, queue):
        waiting = self.add(store)
        assert queue.cancel(waiting).state == "cancelled"
        assert queue.cancel(waiting).state == "cancelled"
        running = queue.claim("w", SHORT)
        assert queue.cancel(running.id).state == "cancelling"
        assert queue.renew(Lease(running.id, 1), SHORT).state == "cancelling"
        time.sleep(SHORT + 0.02)
        assert [j.state for j in queue.reap()] == ["cancelled"]
        assert queue.claim("w", 60) is None
        with pytest.raises(NoRecord, match="no job nobody"):
            queue.cancel("nobody")

    def test_resuming_with_more_trials(self, store, queue):
        job = queue.claim("w", 60)
        with pytest.raises(RecordError, match="cannot be resumed: it is running"):
            queue.resume(job.id)
        queue.finish(Lease(job.id, 1), "failed", "x")
        resumed = queue.resume(job.id, 36)
        assert (resumed.state, resumed.error) == ("queued", None)
        assert resumed.trials_requested == job.trials_requested + 36

    def test_each_job_is_claimed_once(self, store, queue):
        self.drain(queue)
        jobs = [self.add(store) for _ in range(12)]

        def take(name: int) -> list[Job]:
            found = []
            while job := queue.claim(f"w{name}", 60):
                found.append(job)
            return found

        with ThreadPoolExecutor(4) as pool:
            found = [job.id for taken in pool.map(take, range(4)) for job in taken]
        assert sorted(found) == sorted(jobs)

    def test_events_come_in_order(self, store):
        first = self.add(store)
        second = self.add(store)
        made = [store.add_event(first, "round", {"n": n}) for n in range(4)]
        store.add_event(second, "round", {})
        assert store.events(first) == made
        assert store.events(first, after_id=made[1].id, limit=1) == [made[2]]
        assert store.events("nobody") == []
        with pytest.raises(NoRecord, match="no job nobody"):
            store.add_event("nobody", "x", {})
