"""What the queue of every store does: leases, fencing, cancelling, events."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from records_factory import JOB, KEY, TARGET, WORKLOAD, after_first_select, trial
from sqlalchemy import update

from records import (
    Job,
    JobQueue,
    KeyReused,
    Lease,
    LeaseLost,
    Measurement,
    NoRecord,
    QueueFull,
    RecordError,
    Store,
    StoreUnavailable,
    SubmissionKey,
    new_job_id,
)
from records.queue.submissions import Bounds, Submission
from records.sql.schema import JobRow, database_time


def run_out(queue: JobQueue, lease: Lease) -> None:
    """Make a lease a short one, and wait until it is over."""
    queue.renew(lease, 0.05)
    time.sleep(0.07)


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

    def test_every_change_of_state_is_an_event(self, store, queue):
        def told(job_id):
            found = [e for e in store.events(job_id) if e.kind == "state"]
            return [(e.data["state"], e.data["reason"]) for e in found]

        job = queue.claim("w", 60)
        queue.park(Lease(job.id, 1))
        queue.claim("w", 60)
        queue.cancel(job.id)
        queue.renew(Lease(job.id, 2), 60)  # holding on to a job tells nothing
        queue.finish(Lease(job.id, 2), "cancelled", "enough")
        queue.resume(job.id, 5)
        assert told(job.id) == [
            ("running", "claimed"),
            ("queued", "parked"),
            ("running", "claimed"),
            ("cancelling", "asked for"),
            ("cancelled", "ended"),
            ("queued", "resumed"),
        ]
        last = store.events(job.id, kind="state")[-1]
        assert last.data["trials_requested"] == job.trials_requested + 5
        assert store.last_events([job.id, "nobody"]) == {job.id: last.id}

    def test_a_place_is_of_one_moment(self, store, queue):
        """Another process claims the job between the statements that find its place."""
        with after_first_select(store, lambda: queue.claim("w", 60)):
            assert queue.place(JOB) == 1
        assert queue.place(JOB) is None

    def test_a_lost_lease_tells_nothing(self, store, queue):
        job = queue.claim("w", 60)
        run_out(queue, Lease(job.id, 1))
        queue.reap()
        before = len(store.events(job.id))
        with pytest.raises(LeaseLost):
            queue.finish(Lease(job.id, 1), "succeeded")
        with pytest.raises(LeaseLost):
            store.add_event(job.id, "progress", {}, lease=Lease(job.id, 1))
        assert len(store.events(job.id)) == before

    def test_what_no_lease_holds_is_cancelled_at_once(self, store, queue):
        """Such as a run of the command line that was killed; then it can be resumed."""
        job_id = self.add(store, state="running")
        assert queue.cancel(job_id).state == "cancelled"
        assert queue.resume(job_id).state == "queued"

    def test_there_is_an_end_to_more_trials(self, store, queue):
        (job_id,) = self.drain(queue)
        queue.finish(Lease(job_id, 1), "succeeded")
        with pytest.raises(RecordError, match="at most 10000000"):
            queue.resume(job_id, 10_000_000)

    def test_imported_jobs_are_not_claimed(self, store, queue):
        self.drain(queue)
        self.add(store, origin="import")
        assert queue.claim("w", 60) is None

    def test_priority_first_then_age(self, store, queue):
        (old,) = self.drain(queue)
        low, high = self.add(store, priority=-1), self.add(store, priority=5)
        first = self.add(store)
        time.sleep(0.002)  # SQLite's clock has milliseconds
        second = self.add(store)
        assert old not in (found := self.drain(queue))
        assert found == [high, first, second, low]

    def test_clients_take_turns(self, store, queue):
        self.drain(queue)
        greedy = [self.add(store, client="greedy") for _ in range(3)]
        modest = [self.add(store, client="modest") for _ in range(2)]
        assert self.drain(queue) == [greedy[0], modest[0], greedy[1], modest[1], greedy[2]]

    def test_clients_take_turns_at_a_single_slot(self, store, queue):
        """Nobody waits for the whole queue of another, though only one job runs at a time."""
        self.drain(queue)
        for _ in range(3):
            self.add(store, client="greedy")
        for _ in range(2):
            self.add(store, client="modest")
        served = []
        for job in store.jobs(state="running").jobs:
            queue.finish(Lease(job.id, job.lease_epoch), "succeeded")
        while job := queue.claim("w", 60):
            served.append(job.client)
            assert job.claimed_at >= job.created_at
            time.sleep(0.002)  # the clock of SQLite counts milliseconds
            queue.finish(Lease(job.id, job.lease_epoch), "succeeded")
        assert served == ["greedy", "modest", "greedy", "modest", "greedy"]

    # Submission

    def submit(self, queue, workload=WORKLOAD, *, seed=0, trials_requested=10, **values):
        return queue.submit(
            Submission(
                workload=workload, target=TARGET, seed=seed, trials_requested=trials_requested,
                **values,
            )
        )  # fmt: skip

    def test_what_is_submitted_waits(self, store, queue):
        workload = replace(WORKLOAD, key="w1", script="other", text="def main(a): ...")
        job, new = self.submit(
            queue, workload, seed=3, options={"finalists": 4}, priority=2, client="ann"
        )
        assert new
        assert (job.state, job.seed, job.priority, job.client) == ("queued", 3, 2, "ann")
        assert job.options == {"finalists": 4}
        assert store.job(job.id) == job
        assert store.workload("w1") == workload
        assert job.id in self.drain(queue)

    def test_a_repeated_submission_gives_the_same_job(self, store, queue):
        key = SubmissionKey("ann", "k1", "d1")
        job, new = self.submit(queue, key=key)
        again, second = self.submit(queue, key=key)
        assert (new, second, again) == (True, False, job)
        queue.cancel(job.id)
        assert self.submit(queue, key=key)[0].state == "cancelled"
        assert len(store.jobs().jobs) == 2
        with pytest.raises(KeyReused, match=f"'k1' was used before, for another .*{job.id}"):
            self.submit(queue, key=key._replace(digest="d2"))
        assert self.submit(queue, key=key._replace(client=""))[1], "a key is one client's own"
        assert self.submit(queue, key=key._replace(key="k2"))[1]
        assert [self.submit(queue)[1] for _ in range(2)] == [True, True]

    def test_keys_are_forgotten_after_some_time(self, queue):
        key = SubmissionKey("ann", "k1", "d1")
        job, _ = self.submit(queue, key=key)
        assert queue.forget_submissions(60) == 0
        assert self.submit(queue, key=key)[0].id == job.id
        time.sleep(0.01)
        assert queue.forget_submissions(0.005) == 1
        assert self.submit(queue, key=key._replace(digest="d2"))[1]

    def test_one_key_submitted_many_times_at_once(self, store, queue):
        before = len(store.jobs().jobs)
        key = SubmissionKey("ann", "k1", "d1")
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda _: self.submit(queue, key=key), range(12)))
        assert len({job.id for job, _ in found}) == 1
        assert sum(new for _, new in found) == 1
        assert len(store.jobs().jobs) == before + 1

    def test_a_refused_submission_leaves_nothing(self, store, queue):
        before = store.jobs()
        with pytest.raises(RecordError, match="stored with another script"):
            self.submit(
                queue, replace(WORKLOAD, script="changed"), key=SubmissionKey("ann", "k1", "d1")
            )
        assert store.jobs() == before
        assert self.submit(queue, key=SubmissionKey("ann", "k1", "d2"))[1]

    # Lists

    def test_jobs_are_listed_newest_first_page_by_page(self, store):
        made = [self.add(store, client="ann" if n % 2 else "") for n in range(5)]
        for job_id in made[:2]:
            store.update_job(job_id, state="failed")
        first = store.jobs(limit=4)
        last = store.jobs(limit=4, before=first.before)
        assert (first.before, last.before) == (first.jobs[-1].id, None)
        listed = first.jobs + last.jobs
        assert len(listed) == 6
        assert {job.id for job in listed} == {JOB, *made}
        times = [job.created_at for job in listed]
        assert times == sorted(times, reverse=True)
        assert {job.id for job in store.jobs(state="failed").jobs} == set(made[:2])
        assert {job.id for job in store.jobs(client="ann").jobs} == set(made[1::2])
        assert store.jobs(workload_key="w9") == ([], None)

    def test_counting_jobs(self, store):
        self.add(store, client="ann")
        self.add(store, client="ann", state="failed")
        found = store.count_jobs()
        assert (found["queued"], found["failed"], found["succeeded"]) == (2, 1, 0)
        assert store.count_jobs(client="ann")["queued"] == 1

    # Leases

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
        job = queue.claim("dies", 60)
        assert queue.reap() == []
        run_out(queue, Lease(job.id, 1))
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
        for write in (
            lambda lease: store.add_event(job.id, "round", {}, lease=lease),
            lambda lease: store.update_job(job.id, device="cpu", lease=lease),
        ):
            with pytest.raises(LeaseLost, match="lives has epoch 2"):
                write(late)
            write(now)
        with pytest.raises(LeaseLost, match="there is no such job"):
            store.add_records([trial(1)], lease=Lease("nobody", 1))

    def test_leases_end_though_the_clock_is_set_back(self, store, queue):
        job = queue.claim("dies", 60)
        ahead = {"updated_at": database_time(3600.0), "lease_until": database_time(3601.0)}
        store._db.write(lambda c: c.execute(update(JobRow).values(ahead)))
        assert store.job(job.id).lease_until > datetime.now(UTC) + timedelta(seconds=3000)
        reaped = queue.reap()  # a machine that stood still meanwhile finds it over at once
        if not reaped:
            assert store.job(job.id).lease_until < datetime.now(UTC) + timedelta(seconds=60)
            run_out(queue, Lease(job.id, 1))
            reaped = queue.reap()
        assert [(j.id, j.state) for j in reaped] == [(job.id, "queued")]

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
        running = queue.claim("w", 60)
        assert queue.cancel(running.id).state == "cancelling"
        assert queue.renew(Lease(running.id, 1), 60).state == "cancelling"
        run_out(queue, Lease(running.id, 1))
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

    # Submissions together, and bounds

    def test_submissions_together_are_each_answered(self, store, queue):
        key = SubmissionKey("ann", "k1", "d1")
        first, _ = self.submit(queue, key=key, client="ann")
        other = replace(WORKLOAD, key="w2", script="other")
        answers = queue.submit_many(
            [
                self.submission(key=key, client="ann"),
                self.submission(key=key._replace(digest="d2"), client="ann"),
                self.submission(workload=replace(WORKLOAD, script="changed")),
                self.submission(workload=other, client="bob", priority=7),
                self.submission(key=key._replace(key="k2")),
                self.submission(key=key._replace(key="k2")),
                self.submission(key=key._replace(key="k2", digest="d9")),
            ]
        )
        known, reused, contradicts, new, once, again, not_again = answers
        assert known == (first, False)
        assert isinstance(reused, KeyReused)
        assert "stored with another script" in str(contradicts)
        assert new[1]
        assert new[0] == store.job(new[0].id)
        assert (new[0].client, new[0].priority, new[0].state) == ("bob", 7, "queued")
        assert store.workload("w2") == other
        assert (once[1], again[1], once[0]) == (True, False, again[0])
        assert isinstance(not_again, KeyReused)
        told = [event.data for event in store.events(new[0].id)]
        assert [(d["state"], d["reason"]) for d in told] == [("queued", "submitted")]
        assert len(store.jobs().jobs) == 4

    def submission(self, **values):
        given = {"workload": WORKLOAD, "target": TARGET, "seed": 0, "trials_requested": 10}
        return Submission(**given | values)

    def test_rows_that_the_database_refuses_take_no_other_submission_with_them(self, store, queue):
        answers = queue.submit_many(
            [self.submission(), self.submission(client=None), self.submission()]
        )
        assert [isinstance(a, RecordError) for a in answers] == [False, True, False]
        assert len(store.jobs().jobs) == 3

    def test_who_was_taken_before_the_database_went_away_is_told_so(
        self, store, queue, monkeypatch
    ):
        sizes = []

        def transaction(*, writes):
            sizes.append(writes)
            if len(sizes) > 3:
                raise StoreUnavailable("away")
            return whole(writes=writes)

        whole = queue._db.transaction
        monkeypatch.setattr(queue._db, "transaction", transaction)
        refused = self.submission(client=None)
        answers = queue.submit_many([self.submission(), refused, *[self.submission()] * 3])
        monkeypatch.undo()
        assert answers[0][1]
        assert [type(a) for a in answers[1:]] == [RecordError, *[StoreUnavailable] * 3]
        assert len(sizes) == 4, "nobody waits for it once more"
        assert len(store.jobs().jobs) == 2

    def test_no_more_jobs_wait_than_may(self, store):
        """However many come at once, by however many queues."""
        queues = [JobQueue(store, Bounds(6, 3)) for _ in range(4)]

        def submit(n):
            try:
                return self.submit(queues[n % 4], client=f"client {n % 3}")[1]
            except QueueFull:
                return False

        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(submit, range(24)))
        assert sum(taken) == 5, "one waited before"
        assert store.count_jobs()["queued"] == 6
        answers = queues[0].submit_many([self.submission(client="new") for _ in range(2)])
        assert all(isinstance(a, QueueFull) for a in answers)
        with pytest.raises(QueueFull, match="6 jobs wait, and at most 6 may"):
            self.submit(queues[0], client="new")

    def test_a_resumed_job_waits_as_any_other(self, store, queue):
        queue.cancel(JOB)
        narrow = JobQueue(store, Bounds(None, 1))
        job, _ = self.submit(narrow)
        with pytest.raises(QueueFull, match="1 jobs of nobody wait, and at most 1 may"):
            narrow.resume(JOB)
        queue.cancel(job.id)
        assert narrow.resume(JOB).state == "queued"
