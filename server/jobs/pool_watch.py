"""What a job's process tells of the workers that it measures on, and is told: which are drained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from autosched.errors import MeasureError
from autosched.tuning.pools import PoolAddress
from records.operations.workers import Activity, WorkerLog

if TYPE_CHECKING:
    from measure.cluster.pool import ClusterPool
    from measure.pool import Pool
    from records.store import Store
    from server.jobs.assignment import Assignment

DRAIN_SECONDS = 1.0
"""How soon a drained worker is left alone."""
REPORT_SECONDS = 5.0
SCHEDULER_SECONDS = 60.0
"""As long as a pool waits for devices when all are gone."""
AGAIN_SECONDS = 0.5

Totals = Callable[[], dict[str, Activity]]
"""What each worker has done since the job's process began, by the worker's name."""


class PoolWatch:
    """Between a pool and the store; `tick` is called several times a second by one thread.

    `totals` is what its workers have done; `cluster` the pool whose workers may be drained one by
    one, None for a pool of one worker, whose jobs the server parks. Methods raise StoreUnavailable.
    """

    def __init__(self, log: WorkerLog, totals: Totals, cluster: ClusterPool | None) -> None:
        self._log, self._totals, self._cluster = log, totals, cluster
        self._told: dict[str, Activity] = {}
        self._drain_at = 0.0
        self._report_at = time.monotonic() + REPORT_SECONDS

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._cluster is not None and now >= self._drain_at:
            self._drain_at = now + DRAIN_SECONDS
            self._cluster.drain(self._log.drained())
        if now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            self.report()

    def report(self) -> None:
        """Tell what was done since the last time."""
        found = self._totals()
        new = {name: _less(one, self._told.get(name, Activity())) for name, one in found.items()}
        self._log.note({name: one for name, one in new.items() if any(one)})
        self._told = found


class Counts(Protocol):
    """What one job's writer has counted: trials, and losses of the device among them."""

    measured: int
    faults: int


def watch_of(
    pool: Pool, assignment: Assignment, store: Store, writers: Sequence[Counts]
) -> PoolWatch:
    """What watches the pool that the jobs of these writers are measured on."""
    log = WorkerLog(store)
    if PoolAddress.parse(assignment.pool).is_cluster:
        cluster = cast("ClusterPool", pool)
        return PoolWatch(log, of_cluster(cluster), cluster)

    def done() -> tuple[int, int]:
        return sum(one.measured for one in writers), sum(one.faults for one in writers)

    return PoolWatch(log, of_one(assignment.worker, done), None)


def patiently(make: Callable[[], Pool], address: str) -> Pool:
    """The pool that `make` opens at an address. A scheduler that does not answer is asked again for
    SCHEDULER_SECONDS: it may be starting. Raises what `make` does, MissingPackage at once."""
    end = time.monotonic() + SCHEDULER_SECONDS
    while True:
        try:
            return make()
        except MeasureError:
            if not PoolAddress.parse(address).is_cluster or time.monotonic() > end:
                raise
            time.sleep(AGAIN_SECONDS)  # the scheduler may be starting


def _less(now: Activity, before: Activity) -> Activity:
    return Activity(
        now.trials - before.trials,
        now.busy_seconds - before.busy_seconds,
        now.faults - before.faults,
    )


def of_cluster(pool: ClusterPool) -> Totals:
    """The totals of a cluster's workers."""

    def totals() -> dict[str, Activity]:
        return {d.name: Activity(d.trials, d.busy_seconds, d.faults) for d in pool.snapshot()}

    return totals


def of_one(worker: str, done: Callable[[], tuple[int, int]]) -> Totals:
    """The totals of a pool that is one worker; `done`: its trials, and faults of the worker. It is
    at work as long as the job is."""
    began = time.monotonic()

    def totals() -> dict[str, Activity]:
        trials, faults = done()
        return {worker: Activity(trials, time.monotonic() - began, faults)}

    return totals
