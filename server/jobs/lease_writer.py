"""What a runner writes into the store: a job's records, under its lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from autosched.tuning.callbacks import JobInfo, RecordToStore
from records import TRIAL, Job, Lease, Measurement, Record, StoreUnavailable, Workload
from records.queue.leases import JobQueue
from records.queue.resuming import RESUMED
from records.types import HELD, LOCAL, PREPARING, STATE
from server.jobs.shutdown import Why

if TYPE_CHECKING:
    from records.store import Store
    from server.jobs.heartbeat import Heartbeat

T = TypeVar("T")

RETRY_SECONDS = 0.25


class Before(NamedTuple):
    """Of a job that goes on: the seconds that its runs took since it was submitted or last
    resumed, those of this run, and the trials that it had then."""

    seconds: float
    of_this_run: float
    trials: int


class LeaseWriter(RecordToStore):
    """The receiver of one job's records; see `RecordToStore`. The job is the lease's.

    While the database is away it waits, as long as the lease lasts. Its methods raise LeaseLost
    where the job is somebody else's by now, and nothing is written then.
    """

    def __init__(self, store: Store, lease: Lease, heartbeat: Heartbeat) -> None:
        super().__init__(store.name)
        self._store: Store = store
        self.lease, self.heartbeat = lease, heartbeat
        self._queue = JobQueue(store)
        self._trials = 0
        self.measured = self.faults = 0
        """Trials that this run has measured, and losses of the device among them."""
        self.of_quota = False
        """Whether the run's time budget is what is left of its token's device seconds."""

    @property
    def job_id(self) -> str:
        """The job's."""
        return self.lease.job_id

    def note(self, text: str) -> None:
        """Has the job's notice say so."""
        self._notices[self.job_id].append(text)

    def patiently(self, write: Callable[[], T]) -> T:
        """What `write` returns, tried again while the database is away and the lease lasts."""
        while True:
            try:
                return write()
            except StoreUnavailable:
                if time.monotonic() > self.heartbeat.lease_ends:
                    raise
                time.sleep(RETRY_SECONDS)  # the database may come back

    def history(
        self, workload_key: str, target: str, seed: int, device: str
    ) -> tuple[Job, list[Record]]:
        """The job and its records."""
        store, job_id = self._store, self.lease.job_id
        job = store.job(job_id)
        found = store.records(job_id=job_id)
        records = [record for record in found if record.origin == LOCAL]
        self._ids.update({r.key: r.id for r in records})
        for record in records:
            self._count(record)
        return job, records

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        self.patiently(
            lambda: self._store.update_job(self.lease.job_id, lease=self.lease, device=job.device)
        )

    def on_notice(self, job: JobInfo, text: str) -> None:
        if self.of_quota:
            text = text.replace("time budget reached", "the token's device seconds are spent")
        super().on_notice(job, text)

    def on_phase(self, phase: str) -> None:
        self.patiently(lambda: self._queue.enter(self.lease, phase))
        if (preparing := self.heartbeat.preparing) is not None:
            if phase in PREPARING:
                preparing.phase = phase
                return
            self.heartbeat.preparing = None
            if (reason := preparing.overrun()) is not None:  # since the heartbeat last looked
                self.heartbeat.leaving.ask(Why.OVERRUN, reason)

    def on_records(self, records: Sequence[Record]) -> None:
        stored = self.patiently(lambda: self._store.add_records(list(records), lease=self.lease))
        news = []
        for record in stored:
            self._ids[record.key] = record.id
            self._count(record)
            self.measured += record.kind == TRIAL
            self.faults += record.status == "device_lost"
            news.append(
                {
                    "id": record.id,
                    "kind": record.kind,
                    "round": record.round,
                    "slot": record.slot,
                    "trial": self._trials if record.kind == TRIAL else None,
                    "status": record.status,
                    "seconds": record.seconds,
                    "at": round(record.created_at.timestamp(), 3),
                }
            )
        self.heartbeat.note(news, trials_done=self._trials)

    def on_measurements(self, record: Record, measurements: Sequence[Measurement]) -> None:
        record_id = self._ids[record.key]
        self.patiently(
            lambda: self._store.add_measurements(record_id, list(measurements), lease=self.lease)
        )

    def on_finish(self, job: JobInfo, state: str, error: str | None) -> None:
        """The runner says how the job ended."""

    def close(self) -> None:
        """The store is the runner's."""

    def before(self) -> Before:
        """What the job had when it was submitted or resumed, and was worked on since, in this run
        too: that began when the job was claimed."""
        spent, trials, since, after = 0.0, 0, None, 0
        while events := self._store.events(self.lease.job_id, kind=STATE, after_id=after):
            for event in events:
                if since is not None:
                    spent += _seconds(since, event.created_at)
                if event.data["reason"] == RESUMED:
                    spent, trials = 0.0, event.data["trials_done"]
                busy = event.data["state"] in HELD
                since = event.created_at if busy else None
            after = events[-1].id
        run = 0.0 if since is None else _seconds(since, self._store.now())
        return Before(spent + run, run, trials)

    def _count(self, record: Record) -> None:
        self._trials += record.kind == TRIAL


def _seconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds())
