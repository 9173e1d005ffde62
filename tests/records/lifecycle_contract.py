"""What every store knows of its jobs: one best, names, phases, retries, quotas, fair turns."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from records_factory import JOB, KEY, TARGET, WORKLOAD, baseline, trial
from sqlalchemy import update

from records import (
    JobQueue,
    Lease,
    Measurement,
    NoRecord,
    QuotaExceeded,
    RecordError,
    Store,
    new_job_id,
)
from records.operations.tokens import Tokens
from records.queue.submissions import Quota, Spender, Submission
from records.sql.schema import JobRow, database_time


def submission(**values: object) -> Submission:
    usual = {"workload": WORKLOAD, "target": TARGET, "seed": 0, "trials_requested": 10}
    return Submission(**usual | values)  # type: ignore[arg-type]


class LifecycleContract:
    """Mixed into `StoreContract`, whose fixture `store` it uses: there is one job, and it waits."""

    @pytest.fixture
    def queue(self, store: Store) -> JobQueue:
        return JobQueue(store)

    def best(self, store):
        job = store.job(JOB)
        return job.best_seconds, job.best_record_id

    # One best

    def test_the_best_is_one_with_baselines_and_measured_again(self, store):
        default, *trials = store.add_records(
            [baseline(1, 2.0), trial(0, 3.0), trial(1, 1.0), trial(2, 1.5)]
        )
        assert self.best(store) == (1.0, trials[1].id)
        assert store.job(JOB).baseline_seconds == 2.0
        # The least of many noisy times is too small: measured again, another one is the best.
        store.add_measurements(trials[1].id, [Measurement(seconds=1.9, runs=5)])
        assert self.best(store) == (1.9, trials[1].id)
        store.add_measurements(trials[2].id, [Measurement(seconds=1.4, runs=5)])
        assert self.best(store) == (1.4, trials[2].id)
        assert store.tallied(JOB).best_id == trials[2].id
        # One that was timed but once does not go before what was measured again.
        store.add_records([trial(9, 0.5)])
        assert self.best(store) == (1.4, trials[2].id)
        store.invalidate(trials[1].id, "stale", "")
        store.invalidate(trials[2].id, "stale", "")
        assert self.best(store) == (0.5, store.tallied(JOB).best_id)
        store.add_measurements(default.id, [Measurement(seconds=0.25, runs=5)])
        assert self.best(store) == (0.25, default.id)
        assert store.job(JOB).baseline_seconds == 0.25

    def test_a_baseline_is_the_best_where_no_trial_beats_it(self, store):
        (default, _) = store.add_records([baseline(1, 0.1), trial(0, 0.5)])
        assert self.best(store) == (0.1, default.id)
        (again,) = store.add_records([trial(1, 0.05)])
        assert self.best(store) == (0.05, again.id)

    def test_a_baseline_measured_once_stays_before_later_trials_that_were_not_again(self, store):
        plain, again, *_ = store.add_records([baseline(0, 0.2), trial(0, 0.3)])
        store.add_measurements(again.id, [Measurement(seconds=0.4, runs=5)])
        assert self.best(store) == (0.2, plain.id)
        store.add_records([trial(5, 0.1)])
        assert self.best(store) == (0.2, plain.id)
        assert store.tallied(JOB).best_id == plain.id

    # Names

    def test_names_and_tags_are_the_jobs(self, store, queue):
        job, _ = queue.submit(submission(name="my try", tags=("night", "x.y"), client="ann"))
        other, _ = queue.submit(submission(client="bob"))
        assert (job.name, list(job.tags)) == ("my try", ["night", "x.y"])
        assert (other.name, list(other.tags)) == (None, [])

    def test_the_name_of_the_library_goes_before_others(self, store, queue):
        unnamed = replace(WORKLOAD, key="w7", script="s", name="mine", args=None)
        queue.submit(submission(workload=unnamed))
        assert store.titles(["w7"])["w7"].name == "mine"
        library = replace(unnamed, name="matmul", args=[4, 4, 4])
        queue.submit(submission(workload=library, from_library=True))
        assert (store.workload("w7").name, store.workload("w7").args) == ("matmul", [4, 4, 4])
        # Nobody takes it away again.
        queue.submit(submission(workload=replace(unnamed, name="evil", args=[1])))
        store.put_workload(replace(unnamed, name="evil", args=[2]))
        assert (store.workload("w7").name, store.workload("w7").args) == ("matmul", [4, 4, 4])
        store._titles._end = 0.0  # the seconds for which titles are kept
        assert store.titles(["w7"])["w7"].name == "matmul"

    # Phases, clocks and notices

    def test_a_running_job_has_a_phase(self, store, queue):
        job = queue.claim("w", 60)
        lease = Lease(job.id, job.lease_epoch)
        assert job.phase == "starting"
        assert queue.enter(lease, "space").phase == "space"
        assert [e.data for e in store.events(job.id, kind="phase")] == [{"phase": "space"}]
        assert queue.park(lease).phase is None

    def test_the_time_of_runs_is_counted(self, store, queue):
        first = queue.claim("w", 60)
        with store._db.transaction(writes=True) as connection:
            connection.execute(update(JobRow).values(claimed_at=database_time(-7.0)))
        parked = queue.park(Lease(first.id, first.lease_epoch))
        assert 7.0 <= parked.run_seconds < 60.0
        again = queue.claim("w", 60)
        ended = queue.finish(Lease(again.id, again.lease_epoch), "succeeded", notice="why not")
        assert ended.run_seconds >= parked.run_seconds
        assert ended.notice == "why not"
        assert abs((ended.ended_at - ended.updated_at).total_seconds()) < 1.0
        resumed = queue.resume(ended.id, 1)
        assert (resumed.notice, resumed.ended_at) == (None, None)

    # Retries

    def test_a_killed_process_is_retried_after_a_pause_and_not_for_ever(self, store, queue):
        for kill in range(3):
            job = queue.claim("w", 60)
            assert job is not None, kill
            lease = Lease(job.id, job.lease_epoch)
            after = queue.retry(lease, "ended by signal 9", most=2, pause=30.0)
            if kill < 2:
                assert (after.state, after.error) == ("queued", "ended by signal 9")
                assert queue.claim("w", 60) is None, "it does not wait out its pause"
                wait = (after.not_before - after.updated_at).total_seconds()
                assert wait == pytest.approx(30.0 * 2**kill, abs=1.0)
                with store._db.transaction(writes=True) as connection:
                    connection.execute(update(JobRow).values(not_before=database_time(-1.0)))
        assert after.state == "failed"
        assert "3 processes of this job in a row" in after.error
        assert "ended by signal 9" in after.error

    def test_kills_do_not_add_up_over_new_trials(self, store, queue):
        for kill in range(5):
            job = queue.claim("w", 60)
            store.add_records([trial(kill)], lease=Lease(job.id, job.lease_epoch))
            after = queue.retry(Lease(job.id, job.lease_epoch), "killed", most=1, pause=0.0)
            assert after.state == "queued"
            time.sleep(0.002)

    def test_a_killed_process_of_a_job_to_be_cancelled_cancels_it(self, store, queue):
        job = queue.claim("w", 60)
        queue.cancel(job.id)
        after = queue.retry(Lease(job.id, job.lease_epoch), "killed", most=1, pause=0.0)
        assert after.state == "cancelled"

    # Retention

    def test_events_that_told_of_records_are_forgotten_some_time_after_the_end(self, store, queue):
        ended, running = queue.claim("w", 60), self.add(store)
        for job_id in (ended.id, running):
            for n in range(3):
                store.add_event(job_id, "progress", {"n": n})
        queue.finish(Lease(ended.id, ended.lease_epoch), "succeeded")
        assert queue.forget_events("progress", 3600.0) == 0
        with store._db.transaction(writes=True) as connection:
            connection.execute(update(JobRow).values(ended_at=database_time(-7200.0)))
        assert queue.forget_events("progress", 3600.0) == 3
        assert {e.kind for e in store.events(ended.id)} == {"state"}
        assert [e.kind for e in store.events(running)].count("progress") == 3

    def test_a_job_is_removed_with_all_that_belongs_to_it(self, store, queue):
        job = queue.claim("w", 60)
        (record,) = store.add_records([trial(0)])
        store.add_measurements(record.id, [Measurement(seconds=1e-3, runs=5)])
        with pytest.raises(RecordError, match="only jobs that have ended are deleted"):
            store.delete_job(job.id)
        queue.finish(Lease(job.id, job.lease_epoch), "failed", "it broke")
        store.delete_job(job.id)
        for found in (lambda: store.job(JOB), lambda: store.delete_job(JOB)):
            with pytest.raises(NoRecord):
                found()
        assert list(store.records()) == store.measurements(record.id) == []
        with pytest.raises(RecordError, match="not in the store"):
            store.add_records([trial(1)])

    def add(self, store, **values: object) -> str:
        options = {"seed": 0, "trials_requested": 10} | values
        return store.create_job(KEY, TARGET, job_id=new_job_id(), **options).id

    # Turns

    def test_clients_take_turns_whatever_the_priority(self, store, queue):
        while queue.claim("w", 60):
            pass
        for _ in range(3):
            queue.submit(submission(client="loud", priority=100))
        quiet = [queue.submit(submission(client="quiet", priority=n))[0].id for n in (-3, -2)]
        order = []
        while job := queue.claim("w", 60):
            order.append((job.client, job.id))
        assert [client for client, _ in order] == ["loud", "quiet", "loud", "quiet", "loud"]
        # Of one client's jobs the highest priority goes first.
        assert [job_id for client, job_id in order if client == "quiet"] == quiet[::-1]

    # Quotas

    def spender(self, store, **most):
        _, token = Tokens(store).create("ann", "submit", None, Quota(**most))
        return Spender(token.id, token.quota)

    def test_a_token_has_a_quota_of_jobs(self, store, queue):
        spender = self.spender(store, jobs=2)
        taken = queue.submit_many([submission(spender=spender) for _ in range(4)])
        assert [isinstance(found, QuotaExceeded) for found in taken] == [False, False, True, True]
        queue.cancel(taken[0][0].id)
        queue.submit(submission(spender=spender))
        with pytest.raises(QuotaExceeded, match="2 jobs that wait or run of at most 2"):
            queue.resume(taken[0][0].id, 0, spender)
        queue.submit(submission())  # of no token

    def test_a_token_has_a_quota_of_trials(self, store, queue):
        spender = self.spender(store, trials=25)
        first, _ = queue.submit(submission(spender=spender, trials_requested=20))
        with pytest.raises(QuotaExceeded, match=r"20 trials of at most 25.* make it 30"):
            queue.submit(submission(spender=spender))
        queue.cancel(first.id)  # what was not measured counts no more
        second, _ = queue.submit(submission(spender=spender))
        assert Tokens(store).usage(spender.token_id)[:2] == (1, 10)
        queue.cancel(second.id)
        with pytest.raises(QuotaExceeded, match="make it 26"):
            queue.resume(second.id, 16, spender)
        queue.resume(second.id, 15, spender)

    def test_a_token_has_a_quota_of_device_seconds(self, store, queue):
        spender = self.spender(store, device_seconds=100.0)
        while queue.claim("w", 60):
            pass
        job, _ = queue.submit(submission(spender=spender))
        queue.claim("w", 60)
        with store._db.transaction(writes=True) as connection:
            mine = update(JobRow).where(JobRow.id == job.id)
            connection.execute(mine.values(claimed_at=database_time(-101.0)))
        with pytest.raises(QuotaExceeded, match="101 of at most 100 device seconds"):
            queue.submit(submission(spender=spender))
        Tokens(store).limit(spender.token_id, Quota(device_seconds=1000.0))
        raised = Spender(spender.token_id, Quota(device_seconds=1000.0))
        queue.submit(submission(spender=raised))
        with pytest.raises(RecordError, match="a quota of -1"):
            Tokens(store).create("bob", "read", None, Quota(jobs=-1))

    def test_removing_a_job_refunds_nothing_of_a_quota(self, store, queue):
        spender = self.spender(store, trials=25)
        while queue.claim("w", 60):
            pass
        idle, job = (queue.submit(submission(spender=spender))[0] for _ in range(2))
        queue.cancel(idle.id)
        store.delete_job(idle.id)
        held = queue.claim("w", 60)
        assert held.id == job.id
        store.add_records([replace(trial(0), job_id=job.id)])
        queue.finish(Lease(held.id, held.lease_epoch), "succeeded")
        before = Tokens(store).usage(spender.token_id)
        assert before[:2] == (0, 1)
        assert before.device_seconds > 0
        store.delete_job(job.id)
        assert Tokens(store).usage(spender.token_id) == before

    def test_a_client_that_deletes_its_jobs_does_not_come_first_again(self, store, queue):
        while queue.claim("w", 60):
            pass
        mine, other, _ = (queue.submit(submission(client=client))[0] for client in "aba")
        first = queue.claim("w", 60)
        assert first.id == mine.id
        queue.finish(Lease(first.id, first.lease_epoch), "succeeded")
        store.delete_job(first.id)
        assert queue.place(other.id) == 1
        assert [queue.claim("w", 60).client for _ in "ba"] == ["b", "a"]

    def test_jobs_of_a_key_that_is_known_are_given_back_beyond_the_quota(self, store, queue):
        from records import SubmissionKey

        spender = self.spender(store, jobs=1)
        asked = submission(spender=spender, key=SubmissionKey("ann", "k", "d"))
        first, _ = queue.submit(asked)
        assert queue.submit(asked) == (first, False)

    def test_places_are_the_order_in_which_jobs_are_claimed(self, store, queue):
        rng = random.Random(0)
        while queue.claim("w", 60):
            pass
        for clients in ("abacabbca", "aaaabc", "dcbaabcd"):
            made = []
            for number, client in enumerate(clients):
                made.append(queue.submit(submission(client=client, priority=number % 3))[0].id)
            for _ in range(rng.randrange(1, 4)):
                queue.claim("w", 60)
            places = {job_id: queue.place(job_id) for job_id in made}
            waiting = {job_id: n for job_id, n in places.items() if n is not None}
            claimed = []
            while job := queue.claim("w", 60):
                claimed.append(job.id)
                time.sleep(0.002)  # SQLite's clock has milliseconds
            assert sorted(waiting, key=waiting.__getitem__) == claimed
            assert sorted(waiting.values()) == list(range(1, len(claimed) + 1))
