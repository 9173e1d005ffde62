"""The devices of one pool: which there are, how they are, and what their target is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from autosched.errors import AutoschedError
from autosched.target import Target
from autosched.tuning.pools import pool_from
from measure.devices import this_device
from records import RecordError
from server.pools.plan import PoolPlan
from server.pools.targets import check, chosen, gpu_here, kind_of, names_kind_only
from server.schemas import Worker

if TYPE_CHECKING:
    from measure.cluster.pool import ClusterPool
    from measure.cluster.registry import DeviceStatus

_log = logging.getLogger("autosched.workers")

LOOK_SECONDS = 2.0
RETRY_SECONDS = 10.0
HOST = "llvm"
"""The target that leaves it to the pool what code is made for."""
GPUS = ("cuda", "opencl")
AGAIN_SECONDS = 60.0
"""A GPU that is not there is looked for so often."""
_AWAY = ("gone", "foreign")
_HEALTHY = ("ready", "busy", "joining", "checking")


class PoolWorkers:
    """A pool's devices: one for a pool on this machine; those of a cluster are looked at by a
    thread, from `start` to `stop`."""

    def __init__(self, plan: PoolPlan) -> None:
        self.plan = plan
        self._address = plan.parsed
        self._is_cluster = plan.is_cluster
        self._listing: tuple[DeviceStatus, ...] = ()
        self._own: tuple[str, str] | None = None
        self._gpus: dict[str, str | None] = {}
        self._look_again: dict[str, float] = {}
        self._looking = anyio.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"workers-{plan.name}", daemon=True)

    def start(self) -> None:
        """Begin to look at a cluster."""
        if self._is_cluster:
            self._thread.start()

    def stop(self) -> None:
        """End. Harmless when repeated."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    async def resolve(self, target: str) -> str:
        """A target as it is to be examined: of a kind alone it is left to the pool what is meant.

        Raises ProblemError: 503 while no device of a cluster is known, 422 for a kind that the pool
        does not have, or where its devices differ.
        """
        if self._is_cluster:
            return chosen(target, self._targets())
        kind = kind_of(target)
        if self._address.is_local and kind in GPUS:
            own = await self._gpu(kind)
            if names_kind_only(target) and own is not None:
                return own
        return target

    async def check(self, target: str) -> None:
        """Raises ProblemError: 422 for a target in full that no device of the pool runs, 503 while
        no device of a cluster is known."""
        wanted = Target(target)
        if self._is_cluster:
            check(wanted, self._targets())
        elif self._address.is_local:
            own = await self._gpu(wanted.kind) if wanted.is_gpu else None
            check(wanted, [str(Target(HOST)), *filter(None, [own])])

    def _targets(self) -> set[str]:
        """Of a cluster's devices, but for those that are away or do not fit the others."""
        return {d.target for d in self._listing if d.target and str(d.state) not in _AWAY}

    async def _gpu(self, kind: str) -> str | None:
        """The target of this machine's GPU; where none was found it is looked for again."""
        if self._gpus.get(kind) is None:
            async with self._looking:
                if self._gpus.get(kind) is None and monotonic() >= self._look_again.get(kind, 0.0):
                    self._gpus[kind] = await anyio.to_thread.run_sync(gpu_here, kind)
                    self._look_again[kind] = monotonic() + AGAIN_SECONDS
        return self._gpus.get(kind)

    def closed(self, drained: frozenset[str]) -> bool:
        """Whether all of its workers that could work are drained, and there are some."""
        if not self._is_cluster:
            return self.plan.worker in drained
        able = {d.name for d in self._listing if str(d.state) in _HEALTHY}
        return bool(able) and able <= drained

    def items(self, jobs: Mapping[str, list[str]]) -> list[Worker]:
        """All devices; `jobs`: those that run, by the fingerprint of their device.

        Raises TuningError or RecordError for a pool that cannot be opened.
        """
        if not self._is_cluster:
            return [self._here(jobs)]
        now, clock = datetime.now(UTC), monotonic()
        return [
            Worker(
                name=d.name,
                pool=self.plan.name,
                device=d.fingerprint,
                description=str(d.device or d.why or d.address),
                target=d.target,
                state=str(d.state),
                slots=1,
                healthy=str(d.state) in _HEALTHY,
                last_seen=now - timedelta(seconds=max(0.0, clock - d.last_seen)),
                jobs=jobs.get(d.fingerprint, []),
            )
            for d in self._listing
        ]

    def _here(self, jobs: Mapping[str, list[str]]) -> Worker:
        if self._own is None:
            if self._address.is_local:
                found = this_device()
            else:
                with closing(pool_from(self.plan.address, Target(HOST))) as pool:
                    found = pool.device
            self._own = found.fingerprint, str(found)
        fingerprint, description = self._own
        busy = jobs.get(fingerprint, [])
        return Worker(
            name=self.plan.worker,
            pool=self.plan.name,
            device=fingerprint,
            description=description,
            target=str(Target(HOST)),
            state="busy" if busy else "ready",
            slots=self.plan.slots,
            healthy=True,
            last_seen=datetime.now(UTC),
            jobs=busy,
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(pool_from(self.plan.address, Target(HOST))) as pool:
                    self._look(pool)  # type: ignore[arg-type]
            except (AutoschedError, RecordError, OSError) as e:
                self._listing = ()
                _log.warning("the cluster's devices cannot be listed: %s", e)
                self._stopping.wait(RETRY_SECONDS)

    def _look(self, pool: ClusterPool) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self._listing = pool.devices()
