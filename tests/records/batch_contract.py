"""What every store does with jobs that were submitted together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lifecycle_contract import submission
from records_factory import JOB, WORKLOAD, baseline, trial
from sqlalchemy import update

from records import (
    JobQueue,
    KeyReused,
    Lease,
    LeaseLost,
    NoRecord,
    QueueFull,
    QuotaExceeded,
    Store,
    SubmissionKey,
    new_job_id,
)
from records.operations.tokens import Tokens
from records.queue import batches, model_tasks
from records.queue.model_tasks import Part
from records.queue.submissions import Bounds, Quota, Spender, Submission
from records.sql.schema import JobRow, database_time


def members(number: int, trials: int = 10, **values: object) -> list[Submission]:
    """So many workloads of one batch."""
    batch_id = new_job_id()
    return [
        submission(
            workload=replace(WORKLOAD, key=f"b{n}", script=f"s{n}"),
            batch_id=batch_id, trials_requested=trials, options={"place": n}, **values,
        )
        for n in range(number)
    ]  # fmt: skip


class BatchContract:
    """Mixed into `StoreContract`, whose fixture `store` it uses: there is one job, and it waits."""

    @pytest.fixture
    def alone(self, store: Store) -> JobQueue:
        """The queue, without the job that is there."""
        queue = JobQueue(store)
        queue.cancel(JOB)
        return queue

    def leases(self, jobs) -> list[Lease]:
        return [Lease(job.id, job.lease_epoch) for job in jobs]

    def test_a_batch_is_taken_whole_and_once(self, store, alone):
        key = SubmissionKey("ann", "k", "d")
        made = members(3, client="ann")
        first = [replace(made[0], key=key), *made[1:]]
        assert alone.submit_batch(first, key) == (made[0].batch_id, True)
        again = members(3, client="ann")
        assert alone.submit_batch(again, key) == (made[0].batch_id, False)
        batch = batches.batch_of(store, made[0].batch_id)
        assert [job.workload_key for job in batch.jobs] == ["b0", "b1", "b2"]
        with pytest.raises(KeyReused):
            alone.submit_batch(again, key._replace(digest="other"))
        with pytest.raises(NoRecord, match="no batch nobody"):
            batches.batch_of(store, "nobody")

    def test_of_a_batch_that_does_not_fit_nothing_is_taken(self, store, alone):
        narrow = JobQueue(store, Bounds(2))
        with pytest.raises(QueueFull):
            narrow.submit_batch(members(3), None)
        _, token = Tokens(store).create("ann", "submit", None, Quota(trials=25))
        with pytest.raises(QuotaExceeded):
            alone.submit_batch(members(3, spender=Spender(token.id, token.quota)), None)
        assert store.count_jobs()["queued"] == 0
        assert batches.newest(store, 10, None) == ([], None)

    def test_a_batch_is_claimed_together(self, store, alone):
        made = members(3)
        alone.submit_batch(made, None)
        alone.submit(submission())
        claimed = alone.claim_together("w", 60)
        assert {job.batch_id for job in claimed} == {made[0].batch_id}
        assert [job.state for job in claimed] == ["running"] * 3
        assert [job.device_part for job in claimed] == [pytest.approx(1 / 3)] * 3
        (single,) = alone.claim_together("w", 60)
        assert (single.batch_id, single.device_part) == (None, 1.0)
        assert alone.claim_together("w", 60) == []

    def test_a_member_that_is_paused_is_left_out_and_comes_back_alone(self, store, alone):
        alone.submit_batch(members(3), None)
        paused = batches.newest(store, 1, None).batches[0].jobs[1]
        alone.pause(paused.id)
        assert paused.id not in {job.id for job in alone.claim_together("w", 60)}
        alone.resume(paused.id)
        (back,) = alone.claim_together("w", 60)
        assert (back.id, back.device_part) == (paused.id, 1.0)

    def test_the_time_of_the_process_counts_once(self, store, alone):
        _, token = Tokens(store).create("ann", "submit", None, Quota(device_seconds=1000.0))
        spender = Spender(token.id, token.quota)
        alone.submit_batch(members(4, spender=spender), None)
        claimed = alone.claim_together("w", 60)
        with store._db.transaction(writes=True) as connection:
            connection.execute(update(JobRow).values(claimed_at=database_time(-40.0)))
        assert 39.9 <= Tokens(store).usage(token.id).device_seconds < 60.0
        ended = [alone.finish(lease, "succeeded") for lease in self.leases(claimed)]
        assert all(10.0 <= job.run_seconds < 15.0 for job in ended)
        assert 39.9 <= Tokens(store).usage(token.id).device_seconds < 60.0

    def test_what_is_left_of_the_budget_is_parted_anew(self, store, alone):
        alone.submit_batch(members(3), None)
        claimed = alone.claim_together("w", 60)
        leases = self.leases(claimed)
        by_key = {job.workload_key: job for job in claimed}

        def measure(key: str, many: int, begin: int = 0) -> dict[str, tuple[int, int]]:
            of_job = {"job_id": by_key[key].id, "workload_key": key}
            store.add_records([trial(begin + n, **of_job) for n in range(many)])
            batches.share(store, leases)
            jobs = [store.job(lease.job_id) for lease in leases]
            assert sum(job.trials_requested for job in jobs) == 30
            return {j.workload_key: (j.trials_done, j.trials_requested) for j in jobs}

        found = measure("b1", 20)
        assert found["b1"][0] == 20
        assert sorted(asked - done for done, asked in found.values()) == [3, 3, 4]
        found = measure("b1", 10, begin=20)
        assert found == {"b0": (0, 0), "b1": (30, 30), "b2": (0, 0)}
        alone.park(leases[0])
        with pytest.raises(LeaseLost):
            batches.share(store, leases)

    def test_batches_are_listed_newest_first(self, store, alone):
        made = [members(2), members(1), members(3)]
        for batch in made:
            alone.submit_batch(batch, None)
        ids, before = [], None
        while True:
            page = batches.newest(store, 1, before)
            ids += [(batch.id, len(batch.jobs)) for batch in page.batches]
            if (before := page.before) is None:
                break
        assert sorted(ids) == sorted((batch[0].batch_id, len(batch)) for batch in made)
        times = [batches.batch_of(store, one).created_at for one, _ in ids]
        assert times == sorted(times, reverse=True)
        found = store.jobs(batch_id=made[2][0].batch_id).jobs
        assert len(found) == 3

    def test_a_model_is_a_batch_whose_jobs_are_its_tasks(self, store, alone):
        """Kernel 0 can be computed in two ways; b2 tunes kernels 1 and 2."""
        parts = [[Part(0, "conv", 3.0, 1e-3)], [Part(0, "conv", 3.0, 1e-3)]]
        parts += [[Part(1, "dense", 1.0, 2e-3), Part(2, "dense_1", 2.0, 2e-3)]]
        made = members(3, trials=4)
        made = [
            replace(s, parts=p, options={**s.options, "rest_seconds": 5e-4})
            for s, p in zip(made, parts, strict=True)
        ]
        alone.submit_batch(made, None)
        alone.submit_batch(members(1), None)
        batch_id = made[0].batch_id
        of = {job.workload_key: job for job in batches.batch_of(store, batch_id).jobs}
        tasks = model_tasks.of_batch(store, batch_id)
        assert [(t.job_id, t.part) for t in tasks] == [
            (of[key].id, part)
            for key, part in zip(
                ["b0", "b1", "b2", "b2"], [p for ps in parts for p in ps], strict=True
            )
        ]
        assert batches.newest(store, 1, None).batches[0].id != batch_id
        assert model_tasks.of_batch(store, batches.newest(store, 1, None).batches[0].id) == []

        def times() -> model_tasks.ModelTimes:
            return model_tasks.times(tasks, batches.batch_of(store, batch_id).jobs)

        before = times()
        assert before.estimated == before.untuned == pytest.approx(5e-4 + 3e-3 + 2e-3 + 4e-3)
        assert [t.taken for t in before.tasks] == [True, False, True, True]
        assert [t.seconds for t in before.tasks] == [None] * 4

        def measure(key: str, seconds: float, slot: int, make=trial) -> None:
            of_job = {"job_id": of[key].id, "workload_key": key}
            store.add_records([make(slot, seconds=seconds, **of_job)])

        measure("b0", 4e-3, 0, baseline)
        measure("b0", 3e-3, 1)
        measure("b1", 2e-3, 0)
        found = times()
        assert [t.taken for t in found.tasks] == [False, True, True, True]
        assert [t.seconds for t in found.tasks[:2]] == [pytest.approx(9e-3), pytest.approx(6e-3)]
        assert found.estimated == pytest.approx(5e-4 + 6e-3 + 2e-3 + 4e-3)
        assert found.untuned == pytest.approx(5e-4 + 12e-3 + 2e-3 + 4e-3)
        alone.cancel(of["b1"].id)
        store.delete_job(of["b1"].id)
        left = model_tasks.of_batch(store, batch_id)
        assert [t.job_id for t in left] == [of[key].id for key in ("b0", "b2", "b2")]
        assert times().estimated == pytest.approx(5e-4 + 9e-3 + 2e-3 + 4e-3)
