"""Models: batches whose jobs are the kernels of one, and what a run of it is taken to need.

A kernel is tuned by one job, or by several: one for each way to compute it, of which the fastest
counts. The same job may tune several kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sqlalchemy import select

from records.sql.schema import JobRow, JobTaskRow
from records.types import Job

if TYPE_CHECKING:
    from records.store import Store


class Part(NamedTuple):
    """What a job tunes of a model: kernel number `kernel`, which a run of the model calls `weight`
    times. `estimate`: seconds that one call is taken to need until it is measured."""

    kernel: int
    title: str
    weight: float
    estimate: float


class ModelTask(NamedTuple):
    """A part, and the job that tunes it."""

    job_id: str
    part: Part


@dataclass(frozen=True)
class Timed:
    """A task as it stands. `seconds`: of the kernel's calls in a run of the model, by this task's
    best; None until something is measured. `taken`: of the kernel's tasks it is the fastest."""

    task: ModelTask
    seconds: float | None
    taken: bool


@dataclass(frozen=True)
class ModelTimes:
    """Seconds of a run of the model as a sum over kernels: `estimated` by the best of each,
    `untuned` by its fastest baseline; kernels that are not measured yet count with their estimate,
    those that are not tuned with `rest`."""

    tasks: Sequence[Timed]
    estimated: float
    untuned: float
    rest: float


def of_batch(store: Store, batch_id: str) -> list[ModelTask]:
    """The tasks of a model, by kernel, the way to compute it that is taken untuned first; empty for
    a batch that is no model."""
    columns = (JobTaskRow.job_id, JobTaskRow.kernel, JobTaskRow.title, JobTaskRow.weight)
    query = (
        select(*columns, JobTaskRow.estimate, JobRow.options)
        .join(JobRow, JobRow.id == JobTaskRow.job_id)
        .where(JobRow.batch_id == batch_id)
    )
    with store._db.transaction(writes=False) as connection:
        rows = connection.execute(query).all()
    return [
        ModelTask(row.job_id, Part(row.kernel, row.title, row.weight, row.estimate))
        for row in sorted(rows, key=lambda r: (r.kernel, int(r.options.get("place", 0))))
    ]


class InBatch(Protocol):
    """A job that may be of a batch."""

    @property
    def id(self) -> str: ...
    @property
    def batch_id(self) -> str | None: ...


def kernels(store: Store, jobs: Iterable[InBatch]) -> dict[str, str]:
    """The titles of the kernels that jobs tune, by their ids; those of no model are left out."""
    ids = [job.id for job in jobs if job.batch_id is not None]
    if not ids:
        return {}
    query = select(JobTaskRow.job_id, JobTaskRow.title).where(JobTaskRow.job_id.in_(ids))
    found: dict[str, str] = {}
    with store._db.transaction(writes=False) as connection:
        for job_id, title in connection.execute(query.order_by(JobTaskRow.kernel)):
            found.setdefault(job_id, title)
    return found


def times(tasks: Sequence[ModelTask], jobs: Iterable[Job]) -> ModelTimes:
    """What the tasks come to, as their jobs are now; those of other jobs are left out."""
    of = {job.id: job for job in jobs}
    rest = max((float(job.options.get("rest_seconds", 0.0)) for job in of.values()), default=0.0)
    estimated = untuned = rest
    out: list[Timed] = []
    for mine in _by_kernel([t for t in tasks if t.job_id in of]).values():
        best = {t.job_id: of[t.job_id].best_seconds for t in mine}
        known = {job_id: seconds for job_id, seconds in best.items() if seconds is not None}
        fastest = min(known, key=lambda job_id: known[job_id], default=mine[0].job_id)
        first = mine[0].part
        now = known.get(fastest, first.estimate)
        before = of[mine[0].job_id].baseline_seconds
        estimated += first.weight * now
        untuned += first.weight * max(now, before or 0.0)
        for t in mine:
            seconds = known.get(t.job_id)
            whole = None if seconds is None else t.part.weight * seconds
            out.append(Timed(t, whole, t.job_id == fastest))
    return ModelTimes(out, estimated, untuned, rest)


def _by_kernel(tasks: Sequence[ModelTask]) -> Mapping[int, list[ModelTask]]:
    found: dict[int, list[ModelTask]] = {}
    for t in tasks:
        found.setdefault(t.part.kernel, []).append(t)
    return found
