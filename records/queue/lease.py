"""Whether a lease still holds, asked inside the transaction that writes under it."""

from __future__ import annotations

from sqlalchemy import Connection, select

from records.errors import LeaseLost
from records.sql.schema import (
    JobRow,
)
from records.types import (
    Lease,
)


def check_lease(connection: Connection, lease: Lease) -> None:
    """Raises LeaseLost unless the job is held under `lease`; holds the job until the end of the
    transaction."""
    query = select(JobRow.lease_epoch, JobRow.lease_owner).where(JobRow.id == lease.job_id)
    found = connection.execute(query.with_for_update(key_share=True)).first()
    if found is None or found.lease_owner is None or found.lease_epoch != lease.epoch:
        raise LeaseLost(
            f"the lease of epoch {lease.epoch} of job {lease.job_id} is over: "
            + ("there is no such job" if found is None else _holder(*found))
        )


def _holder(epoch: int, owner: str | None) -> str:
    return f"{owner} has epoch {epoch}" if owner else "nobody has the job now"
