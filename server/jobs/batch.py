"""The process of a batch: several jobs under the task scheduler, each with a lease of its own.

It works as that of one job does (`server.jobs.runner`), with these differences. When one of its
jobs is cancelled or paused, or its lease is lost, the process leaves all of them: each goes where
its state says, and those that are queued are claimed together again and go on where they were.
What is left of the budget is parted anew after each round (`records.queue.batches.share`).
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from autosched.errors import AutoschedError
from autosched.tuning import SearchTask, TaskScheduler, TuningOptions
from autosched.tuning.callbacks import JobInfo, RecordToStore
from autosched.tuning.pools import PoolAddress, pool_from
from autosched.tuning.run.transfer import Transfer
from autosched.tuning.stored import stored_task
from measure.local.build import LocalBuilder
from records import Job, LeaseLost, Measurement, Record, StoreUnavailable, Workload
from records.queue import batches, model_tasks
from records.queue.leases import JobQueue
from records.store import Store
from records.types import LOCAL, PREPARING
from server.jobs import bounds
from server.jobs.heartbeat import Heartbeat, Preparing
from server.jobs.lease_writer import LeaseWriter
from server.jobs.model_times import times_of
from server.jobs.pool_watch import patiently, watch_of
from server.jobs.shutdown import DONE, UNAVAILABLE, Exit, Leave, Why

if TYPE_CHECKING:
    from server.jobs.assignment import Assignment

Outcome = tuple[str, str | None]
"""The state in which a job ends, and the error."""


class BatchWriter(RecordToStore):
    """The receiver of the records of several jobs, which hands each to its job's own writer."""

    def __init__(
        self, store: Store, writers: Sequence[LeaseWriter], assignment: Assignment
    ) -> None:
        super().__init__(store.name)
        self._store = store
        self._assignment = assignment
        self._of_job = {writer.job_id: writer for writer in writers}
        jobs = {job_id: store.job(job_id) for job_id in self._of_job}
        self._of_workload = {job.workload_key: self._of_job[job.id] for job in jobs.values()}
        self._at: LeaseWriter | None = None
        """The writer of the job that is being prepared."""
        self._comparing = False
        self.deadline: float | None = None
        """When (monotonic) the time budget is over, while none of the jobs has a trial; with trials
        a budget that is over ends the search."""
        self.outcomes: dict[str, Outcome] = {}

    def history(
        self, workload_key: str, target: str, seed: int, device: str
    ) -> tuple[Job, list[Record]]:
        """The batch's job of that workload, and its records; it is prepared from now on."""
        self._at = self._of_workload[workload_key]
        now, deadline = time.monotonic(), self.deadline
        self._at.heartbeat.preparing = Preparing(
            began=now,
            seconds=self._assignment.prepare_seconds,
            memory=self._assignment.prepare_bytes,
            budget=None if deadline is None else max(0.0, deadline - now),
        )
        return self._at.history(workload_key, target, seed, device)

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        self._of_job[job.id].on_start(workload, job)

    def on_phase(self, phase: str) -> None:
        if self._at is not None and (phase in PREPARING or phase == "searching"):
            self._at.on_phase(phase)
            self._at = self._at if phase in PREPARING else None
        elif phase == "finalists" and not self._comparing:
            # All rounds are over, and the jobs are compared one after the other.
            self._comparing = True
            for writer in self._of_job.values():
                writer.on_phase(phase)

    def on_records(self, records: Sequence[Record]) -> None:
        writer = self._of_job[records[0].job_id]
        writer.on_records(records)
        if writer.measured:
            self.deadline = None
        leases = [one.lease for one in self._of_job.values()]
        writer.patiently(lambda: batches.share(self.open(), leases))

    def on_measurements(self, record: Record, measurements: Sequence[Measurement]) -> None:
        self._of_job[record.job_id].on_measurements(record, measurements)

    def on_notice(self, job: JobInfo, text: str) -> None:
        self._of_job[job.id].on_notice(job, text)

    def on_finish(self, job: JobInfo, state: str, error: str | None) -> None:
        self.outcomes[job.id] = state, error

    def close(self) -> None:
        """The store is the process's."""


def run(assignment: Assignment, leaving: Exit) -> int:
    """Do the jobs; returns the exit status."""
    leases = assignment.leases
    with Store(assignment.db, make=False) as store:
        queue = JobQueue(store)

        def settle() -> None:
            """Give the jobs back, or end them, as they are left."""
            for lease in leases:
                with suppress(LeaseLost):
                    if leaving.why is Why.OVERRUN:
                        queue.finish(lease, "failed", leaving.reason)
                    else:
                        queue.park(lease)

        beats = [
            Heartbeat(store, queue, lease, assignment.lease_seconds, leaving, settle, len(leases))
            for lease in leases
        ]
        writers = [LeaseWriter(store, *pair) for pair in zip(leases, beats, strict=True)]
        writers.sort(key=lambda writer: int(store.job(writer.job_id).options.get("place", 0)))
        for beat in beats:
            beat.also = partial(_model_seconds, store, store.job(beat.lease.job_id).batch_id)
            beat.start()
        try:
            try:
                outcomes = _attempt(assignment, store, writers)
                _stop(beats)
                for writer in writers:
                    _finish(queue, writer, *outcomes[writer.job_id])
            except Leave:
                _stop(beats)
                settle()
        except LeaseLost as e:
            print(e, file=sys.stderr)
            settle()
        except StoreUnavailable as e:
            print(e, file=sys.stderr)
            return UNAVAILABLE
        finally:
            _stop(beats)
    return DONE


def _stop(beats: Sequence[Heartbeat]) -> None:
    for beat in beats:
        beat.stop()


def _finish(queue: JobQueue, writer: LeaseWriter, state: str, error: str | None) -> None:
    notice = writer.notice(writer.job_id)
    with suppress(LeaseLost):
        writer.patiently(lambda: queue.finish(writer.lease, state, error, notice))


def _attempt(
    assignment: Assignment, store: Store, writers: Sequence[LeaseWriter]
) -> dict[str, Outcome]:
    """Tune to the end; how each job ends. Raises LeaseLost, StoreUnavailable, and Leave."""
    writer = BatchWriter(store, writers, assignment)
    error: str | None = None
    try:
        scheduler = _tune(assignment, store, writers, writer)
        for one, state in zip(writers, scheduler.states, strict=True):
            writer.outcomes.setdefault(one.job_id, ("failed", state.dead))
    except (LeaseLost, StoreUnavailable):
        raise
    except AutoschedError as e:
        error = str(e).replace(store.name, "the store")
    except Exception as e:
        traceback.print_exc()
        error = f"{type(e).__name__}: {e}"
    _note_rest(store, writers)
    return {one.job_id: writer.outcomes.get(one.job_id, ("failed", error)) for one in writers}


def _tune(
    assignment: Assignment, store: Store, writers: Sequence[LeaseWriter], receiver: BatchWriter
) -> TaskScheduler:
    jobs = [store.job(writer.job_id) for writer in writers]
    first, given = jobs[0], jobs[0].options
    before = writers[0].before()
    budget = given.get("time_budget_s")
    if budget is not None:
        budget = max(1e-3, budget - before.seconds)
    if (left := assignment.device_seconds) is not None:
        quota = max(left, 1e-3)
        if budget is None or quota < budget:
            budget = quota
            for writer in writers:
                writer.of_quota = True
    if budget is not None and not any(job.trials_done for job in jobs):
        receiver.deadline = time.monotonic() + budget
    tasks = [_task(store, job) for job in jobs]
    scheduler, transfer = _scheduler(store, jobs, tasks)
    local = PoolAddress.parse(assignment.pool).is_local
    builder = LocalBuilder(timeout=assignment.build_seconds) if local else None
    seed = first.seed or 0
    make = partial(pool_from, assignment.pool, tasks[0].target, builder, seed=seed)
    with closing(patiently(make, assignment.pool)) as pool:
        writers[0].heartbeat.watch = watch_of(pool, assignment, store, writers)
        for writer, task in zip(writers, tasks, strict=True):
            bounds.note(writer, store, task, pool.device.fingerprint if local else None)
        scheduler.tune(
            TuningOptions(
                num_measure_trials=sum(job.trials_requested for job in jobs),
                num_measures_per_round=given["round_size"],
                early_stopping=given.get("early_stopping"),
                time_budget_s=budget,
                finalists=given.get("finalists", 4),
                measure_callbacks=[receiver],
                resume=True,
                seed=seed,
                pool=pool,
                verbose=0,
            ),
            transfer,
        )
    return scheduler


def _scheduler(
    store: Store, jobs: Sequence[Job], tasks: Sequence[SearchTask]
) -> tuple[TaskScheduler, Transfer | None]:
    """What parts the rounds among the tasks. Those of a model are tuned as `graph.tune` does it: of
    the implementations of a kernel the fastest counts, and cost models learn from all tasks."""
    weights = [job.options.get("weight", 1.0) for job in jobs]
    number = {job.id: n for n, job in enumerate(jobs)}
    parts = [
        (number[task.job_id], task.part)
        for task in model_tasks.of_batch(store, jobs[0].batch_id or "")
        if task.job_id in number
    ]
    if not parts:
        return TaskScheduler(tasks, weights), None
    kernels: dict[int, list[int]] = {}
    for n, part in parts:
        kernels.setdefault(part.kernel, []).append(n)
    calls = {part.kernel: part.weight for _, part in parts}
    estimates = {n: part.estimate for n, part in parts}
    rest = float(jobs[0].options.get("rest_seconds", 0.0))

    def objective(seconds: Sequence[float]) -> float:
        return rest + sum(calls[k] * min(seconds[n] for n in of) for k, of in kernels.items())

    scheduler = TaskScheduler(
        tasks,
        weights,
        objective_func=objective,
        estimates=[estimates[n] for n in range(len(jobs))],
    )
    recorded = {
        job.workload_key: [r for r in store.records(job_id=job.id) if r.origin == LOCAL]
        for job in jobs
        if job.trials_done
    }
    return scheduler, Transfer(lambda: scheduler.states, jobs[0].seed or 0, recorded)


def _model_seconds(store: Store, batch_id: str | None) -> dict[str, Any]:
    """What the events of a model's tasks tell besides: its estimated time."""
    model = times_of(store, batch_id)
    return {} if model is None else {"model_seconds": model.estimated_seconds}


def _task(store: Store, job: Job) -> SearchTask:
    return stored_task(store.workload(job.workload_key), job.target)


def _note_rest(store: Store, writers: Sequence[LeaseWriter]) -> None:
    """Says of jobs that have trials left why that is."""
    jobs = [store.job(writer.job_id) for writer in writers]
    done, asked = sum(j.trials_done for j in jobs), sum(j.trials_requested for j in jobs)
    if done >= asked:
        return
    of_quota = writers[0].of_quota
    limit = "the token's device seconds" if of_quota else "its time, early stopping or candidates"
    for writer in writers:
        writer.note(f"the batch ended with {done} of {asked} trials: {limit} had come to an end")
