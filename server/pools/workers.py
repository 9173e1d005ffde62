"""The devices of all pools of a server: where a job goes, and how its workers are."""

from __future__ import annotations

from collections.abc import Mapping

from records.operations.workers import NO_PAST, Past
from server.http.problems import ProblemError, refused
from server.pools.pool_workers import PoolWorkers
from server.pools.targets import kind_of
from server.schemas import Worker
from server.settings import Settings


class Workers:
    """The workers of the pools, in the order of the settings."""

    def __init__(self, settings: Settings) -> None:
        self.pools = tuple(map(PoolWorkers, settings.all_pools))

    def start(self) -> None:
        """Begin to look at clusters."""
        for pool in self.pools:
            pool.start()

    def stop(self) -> None:
        """End. Harmless when repeated."""
        for pool in self.pools:
            pool.stop()

    async def resolve(self, target: str, pool: str | None = None) -> str:
        """A target as it is to be examined: of a kind alone it is left to the pool what is meant,
        the first one that has such a device.

        Raises ProblemError: 503 while no device of a cluster is known, 422 for a kind that no pool
        has, or where devices differ.
        """
        problems = []
        for one in self._eligible(target, pool):
            try:
                return await one.resolve(target)
            except ProblemError as e:
                problems.append(e)
        raise _worst(problems)

    async def fitting(self, target: str, pool: str | None = None) -> str | None:
        """The pool that a job of a target in full goes to, as jobs have it: the first one with a
        device that runs it. Raises ProblemError: 422 where none does, 503 where that cannot be told
        yet."""
        problems = []
        for one in self._eligible(target, pool):
            try:
                await one.check(target)
                return one.plan.stored
            except ProblemError as e:
                problems.append(e)
        raise _worst(problems)

    def address(self, stored: str | None) -> str:
        """Of the pool that jobs have so."""
        return next(one.plan.address for one in self.pools if one.plan.stored == stored)

    def _eligible(self, target: str, pool: str | None) -> list[PoolWorkers]:
        """The pools that a target may go to; `pool`: the one that was asked for."""
        named = [one for one in self.pools if pool in (None, one.plan.name)]
        if not named:
            there = ", ".join(one.plan.name for one in self.pools)
            raise refused("invalid-workload", f"no pool {pool!r} on this server; it has: {there}")
        kind = kind_of(target)
        found = [one for one in named if one.plan.takes(kind)]
        if not found:
            there = "; ".join(
                f"{one.plan.name}: {', '.join(one.plan.kinds) or 'any'}" for one in named
            )
            raise refused("invalid-workload", f"no pool takes targets of kind {kind}; {there}")
        return found

    def closed(self, drained: frozenset[str]) -> frozenset[str]:
        """The names of the pools all of whose workers that could work are drained."""
        return frozenset(one.plan.name for one in self.pools if one.closed(drained))

    def items(
        self,
        jobs: Mapping[str, list[str]],
        drained: frozenset[str] = frozenset(),
        past: Mapping[str, Past] | None = None,
    ) -> list[Worker]:
        """All workers; `jobs`: those that run, by the fingerprint of their device.

        Raises TuningError or RecordError for a pool that cannot be opened.
        """
        known = past or {}
        found = []
        for worker in (worker for one in self.pools for worker in one.items(jobs)):
            lately = known.get(worker.name, NO_PAST)
            is_drained = worker.name in drained and worker.state in ("ready", "busy")
            state = ("draining" if worker.state == "busy" else "drained") if is_drained else None
            update = {
                "state": state or worker.state,
                "drained": worker.name in drained,
                "trials_per_second": lately.trials_per_second,
                "load": lately.load,
                "faults": sum(lately.faults),
                "faults_by_hour": list(lately.faults),
            }
            found.append(worker.model_copy(update=update))
        return found


def _worst(problems: list[ProblemError]) -> ProblemError:
    """Of the problems of several pools the one that may pass, else the first."""
    return next((e for e in problems if e.status == 503), problems[0])
