"""The thread that keeps a job's lease while its process works, and tells of progress."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from records import LeaseLost, StoreUnavailable
from records.types import CANCELLING, PAUSING, PREPARING
from server.jobs.shutdown import DONE, LEAVE_SECONDS, Exit, Why

if TYPE_CHECKING:
    from records import Job, Lease
    from records.queue.leases import JobQueue
    from records.store import Store
    from server.jobs.pool_watch import PoolWatch

PROGRESS = "progress"
"""The kind of the events that tell of new records."""
TICK_SECONDS = 0.25
MOST_RECORDS = 200
"""Records that one event tells of."""


@dataclass
class Preparing:
    """What a job may take before its first trial: `seconds` from `began` (monotonic), `budget` of
    its own time budget (None: it has none, or trials already), `memory` bytes of this process while
    the search space is built (a workload's own bytes are bounded when it is submitted)."""

    began: float
    seconds: float
    memory: int
    budget: float | None = None
    phase: str = PREPARING[0]

    def overrun(self) -> str | None:
        """What it took too much of; None if nothing."""
        took = time.monotonic() - self.began
        where = f"in the phase {self.phase!r}, before the first trial"
        if self.budget is not None and took > self.budget:
            return f"the time budget was over {where}; it counts from when the job was taken up"
        if took > self.seconds:
            return (
                f"preparing took more than {self.seconds:g} s (the server's prepare_seconds), "
                f"{where}; submit a smaller workload"
            )
        if self.phase in IN_THIS_PROCESS and (found := resident_bytes()) > self.memory:
            return (
                f"preparing took {found >> 20} MiB of memory, and may take {self.memory >> 20} MiB "
                f"(the server's prepare_bytes), {where}; submit a smaller workload"
            )
        return None


IN_THIS_PROCESS = ("starting", "space")
"""Phases whose memory is this process's own."""


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Heartbeat:
    """Renews the lease; leaves the run when it is lost, or when the job is to be cancelled.

    A run that does not come to its end `LEAVE_SECONDS` after it was told to leave is ended here:
    `settle` is called and the process exits. `jobs`: how many the process works on, each with a
    heartbeat of its own.
    """

    def __init__(
        self,
        store: Store,
        queue: JobQueue,
        lease: Lease,
        seconds: float,
        leaving: Exit,
        settle: Callable[[], None],
        jobs: int = 1,
    ) -> None:
        self.store, self.queue, self.lease = store, queue, lease
        self.seconds, self.leaving, self.settle = seconds, leaving, settle
        self.jobs = jobs
        self.lease_ends = time.monotonic() + seconds
        """By this process's clock, and so no later than by the database's."""
        self.preparing: Preparing | None = None
        """What the job may take before its first trial, while it is before that."""
        self.watch: PoolWatch | None = None
        """Tells of the pool's workers, once there is one."""
        self.also: Callable[[], dict[str, Any]] = dict
        """What is told with new records besides."""
        self._renew_at = 0.0
        self._lock = threading.Lock()
        self._news: list[dict[str, Any]] = []
        self._totals: dict[str, Any] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; what was noted is told. Harmless when repeated."""
        self._stopped.set()
        self._thread.join()

    def note(self, records: list[dict[str, Any]], **totals: Any) -> None:
        """Have new records told of, with what they come to."""
        with self._lock:
            self._news += records
            self._totals = totals

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS * self.jobs):
            if self.leaving.asked:
                self._end_late()
                return
            self._beat()
        self._tell_what_is_left()

    def _beat(self) -> None:
        try:
            self._tell()
            if self.watch is not None:
                self.watch.tick()
            job = self._job()
        except LeaseLost as e:
            print(e, file=sys.stderr, flush=True)
            self.leaving.ask(Why.LOST)
        except StoreUnavailable as e:
            print(e, file=sys.stderr, flush=True)
            if time.monotonic() > self.lease_ends:
                self.leaving.ask(Why.LOST)
        else:
            if job.state == CANCELLING:
                # Of a batch the others go on: all are put back, and this one is cancelled by that.
                self.leaving.ask(Why.CANCELLED if self.jobs == 1 else Why.PARKED)
            elif job.state == PAUSING:
                self.leaving.ask(Why.PARKED)
        if self.preparing is not None and (reason := self.preparing.overrun()) is not None:
            self.leaving.ask(Why.OVERRUN, reason)

    def _job(self) -> Job:
        """The job as it is now, its lease renewed if it is time. Raises LeaseLost."""
        now = time.monotonic()
        if now < self._renew_at:
            job = self.store.job(self.lease.job_id)
            if job.lease_epoch != self.lease.epoch or job.lease_owner is None:
                raise LeaseLost(f"the lease of epoch {self.lease.epoch} is over")
            return job
        job = self.queue.renew(self.lease, self.seconds)
        self.lease_ends, self._renew_at = now + self.seconds, now + self.seconds / 3
        return job

    def _tell(self) -> None:
        while True:
            with self._lock:
                news, totals = self._news[:MOST_RECORDS], self._totals
            if not news:
                return
            data = {**totals, **self._best(), **self.also(), "records": news}
            self.store.add_event(self.lease.job_id, PROGRESS, data, lease=self.lease)
            with self._lock:
                del self._news[: len(news)]

    def _best(self) -> dict[str, Any]:
        """The job's best as its row has it: that is the one best, whoever asks."""
        job = self.store.job(self.lease.job_id)
        names = ("best_seconds", "best_record_id", "baseline_seconds")
        return {name: getattr(job, name) for name in names}

    def _tell_what_is_left(self) -> None:
        try:
            self._tell()
            if self.watch is not None:
                self.watch.report()
        except (LeaseLost, StoreUnavailable) as e:
            # The records themselves are stored; what follows says the same, and louder.
            print(e, file=sys.stderr, flush=True)

    def _end_late(self) -> None:
        self._tell_what_is_left()
        if self._stopped.wait(LEAVE_SECONDS):
            return
        try:
            self.settle()
        except (LeaseLost, StoreUnavailable) as e:
            print(e, file=sys.stderr)
        sys.stderr.flush()
        os._exit(DONE)
