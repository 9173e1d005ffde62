"""What every store does with jobs that are paused, and with those that ended long ago."""

from __future__ import annotations

from datetime import timedelta

import pytest
from lifecycle_contract import submission
from queue_contract import run_out
from records_factory import JOB, KEY, TARGET, trial
from sqlalchemy import update

from records import (
    JobQueue,
    Lease,
    Measurement,
    NoRecord,
    QueueFull,
    QuotaExceeded,
    RecordError,
    Store,
)
from records.operations import retention
from records.operations.tokens import Tokens
from records.queue.submissions import Bounds, Quota, Spender
from records.sql.schema import JobRow, database_time

DAY = 86400.0


class AgainContract:
    """Mixed into `StoreContract`, whose fixture `store` it uses: there is one job, and it waits."""

    @pytest.fixture
    def queue(self, store: Store) -> JobQueue:
        return JobQueue(store)

    def told(self, store: Store) -> list[tuple[str, str]]:
        found = store.events(JOB, kind="state")
        return [(e.data["state"], e.data["reason"]) for e in found]

    # Pauses

    def test_a_job_that_waits_is_paused_at_once_and_not_claimed(self, store, queue):
        assert queue.pause(JOB).state == "paused"
        assert queue.pause(JOB).state == "paused"
        assert queue.claim("w", 60) is None
        assert queue.place(JOB) is None
        assert queue.resume(JOB).state == "queued"
        assert queue.claim("w", 60).id == JOB
        assert self.told(store)[-3:] == [
            ("paused", "asked for"), ("queued", "unpaused"), ("running", "claimed"),
        ]  # fmt: skip

    def test_a_job_that_runs_is_paused_when_its_process_leaves(self, store, queue):
        queue.claim("w", 60)
        lease = Lease(JOB, 1)
        assert queue.pause(JOB).state == "pausing"
        store.add_records([trial(0)], lease=lease)  # until then it is its process's
        assert queue.renew(lease, 60).state == "pausing"
        paused = queue.park(lease)
        assert (paused.state, paused.trials_done, paused.lease_owner) == ("paused", 1, None)
        assert paused.phase is None
        with pytest.raises(RecordError, match="is paused: only jobs that have ended"):
            store.delete_job(JOB)
        again = queue.resume(JOB, 5)
        assert (again.state, again.trials_requested) == ("queued", 69)

    def test_a_process_that_dies_while_it_pauses_leaves_the_job_paused(self, store, queue):
        queue.claim("w", 60)
        queue.pause(JOB)
        run_out(queue, Lease(JOB, 1))
        assert [job.state for job in queue.reap()] == ["paused"]
        queue.resume(JOB)
        queue.claim("w", 60)
        queue.pause(JOB)
        assert queue.retry(Lease(JOB, 2), "killed", most=3, pause=9.0).state == "paused"

    def test_a_job_ends_although_it_was_to_be_paused(self, store, queue):
        queue.claim("w", 60)
        queue.pause(JOB)
        assert queue.finish(Lease(JOB, 1), "succeeded").state == "succeeded"
        with pytest.raises(RecordError, match="cannot be paused: it is succeeded"):
            queue.pause(JOB)
        with pytest.raises(NoRecord):
            queue.pause("nobody")

    def test_a_pause_that_is_taken_back_goes_on(self, store, queue):
        queue.claim("w", 60)
        queue.pause(JOB)
        with pytest.raises(RecordError, match="cannot be resumed: it is pausing"):
            queue.resume(JOB, 3)  # its process has read how many there are
        assert queue.resume(JOB).state == "running"
        assert queue.park(Lease(JOB, 1)).state == "queued"  # it had been told to leave

    def test_a_paused_job_is_cancelled(self, store, queue):
        queue.pause(JOB)
        assert queue.cancel(JOB).state == "cancelled"
        queue.resume(JOB)
        queue.claim("w", 60)
        queue.pause(JOB)
        assert queue.cancel(JOB).state == "cancelling"
        assert queue.park(Lease(JOB, 1)).state == "cancelled"

    def test_a_run_of_the_command_line_is_not_paused(self, store, queue):
        store.update_job(JOB, state="running")
        with pytest.raises(RecordError, match="expected one that waits or that a server works on"):
            queue.pause(JOB)

    def test_a_paused_job_keeps_its_share_of_the_quota(self, store, queue):
        _, token = Tokens(store).create("ann", "submit", None, Quota(jobs=1, trials=25))
        spender = Spender(token.id, token.quota)
        job, _ = queue.submit(submission(spender=spender, trials_requested=20))
        queue.pause(job.id)
        assert Tokens(store).usage(token.id)[:2] == (0, 20)
        with pytest.raises(QuotaExceeded, match=r"20 trials of at most 25.* make it 30"):
            queue.submit(submission(spender=spender))
        other, _ = queue.submit(submission(spender=spender, trials_requested=5))
        with pytest.raises(QuotaExceeded, match="1 jobs that wait or run of at most 1"):
            queue.resume(job.id, 0, spender)
        queue.cancel(other.id)
        with pytest.raises(QuotaExceeded, match="make it 26"):
            queue.resume(job.id, 6, spender)
        assert queue.resume(job.id, 5, spender).trials_requested == 25
        assert Tokens(store).usage(token.id)[:2] == (1, 25)

    def test_a_paused_job_comes_back_where_there_is_room(self, store):
        narrow = JobQueue(store, Bounds(1))
        narrow.pause(JOB)
        narrow.submit(submission())
        with pytest.raises(QueueFull):
            narrow.resume(JOB)
        assert store.job(JOB).state == "paused"

    # Retention

    def end(self, store: Store, job_id: str, days: float, state: str = "succeeded") -> None:
        store.update_job(job_id, state=state)
        with store._db.transaction(writes=True) as connection:
            late = database_time(-days * DAY)
            connection.execute(update(JobRow).where(JobRow.id == job_id).values(ended_at=late))

    def other(self, store: Store, seconds: float | None, days: float, **values: object) -> str:
        """A job that ended so many days ago, with one trial."""
        job = store.create_job(KEY, TARGET, seed=1, trials_requested=4, **values)  # type: ignore[arg-type]
        if seconds is not None:
            (record,) = store.add_records([trial(0, seconds, job_id=job.id)])
            store.add_measurements(record.id, [Measurement(seconds=seconds, runs=3)])
        self.end(store, job.id, days)
        return job.id

    def test_old_jobs_go_with_all_that_was_measured_in_them(self, store, queue):
        slow, best = self.other(store, 2.0, 31), self.other(store, 1.0, 99)
        empty, young = self.other(store, None, 31), self.other(store, 3.0, 29)
        assert retention.expire(store, 30 * DAY) == 2
        for gone in (slow, empty):
            with pytest.raises(NoRecord):
                store.job(gone)
        assert store.best(KEY, TARGET).job_id == best  # whose job stays, however old it is
        assert store.job(young).state == "succeeded"
        assert {record.job_id for record in store.records()} == {best, young}
        assert retention.expire(store, 30 * DAY) == 0

    def test_of_two_that_are_equally_good_one_stays(self, store):
        self.other(store, 1.0, 40), self.other(store, 1.0, 40)
        assert retention.expire(store, 30 * DAY) == 1
        assert store.best(KEY, TARGET).final_seconds == 1.0

    @pytest.mark.parametrize("state", ["queued", "running", "pausing", "paused", "cancelling"])
    def test_a_job_that_has_not_ended_is_never_removed(self, store, state):
        store.update_job(JOB, state=state)
        with store._db.transaction(writes=True) as connection:
            old = {"created_at": database_time(-99 * DAY), "ended_at": database_time(-99 * DAY)}
            connection.execute(update(JobRow).values(old))
        assert retention.expire(store, DAY) == 0
        assert store.job(JOB).state == state

    def test_imported_jobs_stay(self, store):
        job_id = self.other(store, None, 99, origin="import")
        assert retention.expire(store, DAY) == 0
        assert store.job(job_id).created_at - store.now() < timedelta(days=1)
