"""The devices of a server's pool: which there are, how they are, and what their target is."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError
from autosched.target import Target
from autosched.tuning.pools import pool_from
from measure.devices import this_device
from records import RecordError
from server.schemas import Worker
from server.settings import Settings

if TYPE_CHECKING:
    from measure.cluster import ClusterPool
    from measure.registry import DeviceStatus

_log = logging.getLogger("autosched.workers")

LOOK_SECONDS = 2.0
RETRY_SECONDS = 10.0
HOST = "llvm"
"""The target that leaves it to the pool what code is made for."""
_HEALTHY = ("ready", "busy", "joining", "checking")


class Workers:
    """The pool's devices: one for a pool on this machine; those of a cluster are looked at by a
    thread, from `start` to `stop`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._is_cluster = settings.pool_address.scheme in ("tls", "tcp")
        self._listing: tuple[DeviceStatus, ...] = ()
        self._own: tuple[str, str] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workers", daemon=True)

    def start(self) -> None:
        """Begin to look at a cluster."""
        if self._is_cluster:
            self._thread.start()

    def stop(self) -> None:
        """End. Harmless when repeated."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def resolved(self, target: str) -> str:
        """A target as it is to be examined: `llvm` means the pool's devices."""
        if target.strip() != HOST or not self._is_cluster:
            return target
        return next((d.target for d in self._listing if d.target), target)

    def items(self, jobs: dict[str, list[str]]) -> list[Worker]:
        """All devices; `jobs`: those that run, by the fingerprint of their device.

        Raises TuningError or RecordError for a pool that cannot be opened.
        """
        if not self._is_cluster:
            return [self._here(jobs)]
        return [
            Worker(
                name=d.name,
                device=d.fingerprint,
                description=str(d.device or d.why or d.address),
                target=d.target,
                state=str(d.state),
                slots=1,
                healthy=str(d.state) in _HEALTHY,
                faults=d.faults,
                jobs=jobs.get(d.fingerprint, []),
            )
            for d in self._listing
        ]

    def _here(self, jobs: dict[str, list[str]]) -> Worker:
        if self._own is None:
            if self.settings.pool_address.is_local:
                found = this_device()
            else:
                with closing(pool_from(self.settings.pool, Target(HOST))) as pool:
                    found = pool.device
            self._own = found.fingerprint, str(found)
        fingerprint, description = self._own
        busy = jobs.get(fingerprint, [])
        return Worker(
            name=self.settings.pool,
            device=fingerprint,
            description=description,
            target=str(Target(HOST)),
            state="busy" if busy else "ready",
            slots=self.settings.job_slots,
            healthy=True,
            faults=0,
            jobs=busy,
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(pool_from(self.settings.pool, Target(HOST))) as pool:
                    self._look(pool)  # type: ignore[arg-type]
            except (AutoschedError, RecordError, OSError) as e:
                self._listing = ()
                _log.warning("the cluster's devices cannot be listed: %s", e)
                self._stopping.wait(RETRY_SECONDS)

    def _look(self, pool: ClusterPool) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self._listing = pool.devices()
