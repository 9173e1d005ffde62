"""What a process of jobs is told: a line of JSON on its standard input."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from records import Lease


@dataclass(frozen=True)
class Assignment:
    """What a runner is told: the store, the pool's address, the job and its lease."""

    db: str
    pool: str
    worker: str
    """The name of the pool's one worker, where it is no cluster."""
    job_id: str
    epoch: int
    lease_seconds: float
    build_seconds: float
    prepare_seconds: float
    prepare_bytes: int
    device_seconds: float | None
    """What is left of the quota of the job's token; None: any number."""
    mates: tuple[tuple[str, int], ...] = ()
    """The other jobs of a batch, each with the epoch of its lease."""

    @property
    def lease(self) -> Lease:
        return Lease(self.job_id, self.epoch)

    @property
    def leases(self) -> list[Lease]:
        """Those of all jobs."""
        return [self.lease, *(Lease(job_id, epoch) for job_id, epoch in self.mates)]

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"
