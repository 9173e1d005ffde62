"""Which job a run goes on with: the newest of its workload, target, seed and device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autosched.errors import TuningError
from autosched.tuning.callbacks import JobInfo, MeasureCallback, RecordToStore
from records import new_job_id

if TYPE_CHECKING:
    from autosched.tuning.options import TuningOptions
    from records import Record

SUCCEEDED = "succeeded"


@dataclass(frozen=True)
class Start:
    """Where a run begins: its job, what that has measured, whether it came to its end, the trials
    that do not count for early stopping, and what the user should hear about the choice."""

    job: JobInfo
    records: Sequence[Record] = field(default_factory=tuple)
    ended: bool = False
    early_stopping_from: int = 0
    note: str | None = None


def start_of(
    options: TuningOptions,
    callbacks: Sequence[MeasureCallback],
    workload_key: str,
    target: str,
    device: str,
) -> Start:
    """A new job, or the one to go on with and its records.

    Raises TuningError without a store to resume from, and where the store itself names the job (a
    service's does) and that was measured on another device.
    """
    job = JobInfo(
        id=new_job_id(),
        target=target,
        device=device,
        seed=options.seed,
        trials=options.num_measure_trials,
        round_size=options.round_size,
        resumed=False,
    )
    if not options.resume:
        return Start(job)
    stores = [c for c in callbacks if isinstance(c, RecordToStore)]
    if not stores:
        raise TuningError(
            "resume needs a store to resume from, such as RecordToStore('tuning.db') among the "
            "measure_callbacks; a log does not keep jobs"
        )
    found = stores[0].history(workload_key, target, options.seed, device)
    if found is None:
        return Start(job, note=_nothing(stores[0], workload_key, job))
    known, records = found
    foreign = {r.device for r in records} - {device}
    if foreign:
        raise TuningError(
            f"job {known.id} was measured on device {', '.join(sorted(foreign))}, and this is "
            f"device {device}: times of two devices do not compare; start a new job (without "
            "resume), or go on where it was begun"
        )
    # Rounds of another size would be other rounds.
    size = int(known.options.get("round_size", job.round_size))
    resumed = replace(job, id=known.id, round_size=size, resumed=True)
    early_stopping_from = stores[0].early_stopping_from(known)
    return Start(resumed, records, known.state == SUCCEEDED, early_stopping_from)


def _nothing(store: RecordToStore, workload_key: str, job: JobInfo) -> str:
    """That there is no job to go on with, and which ones there are instead."""
    text = (
        f"nothing to resume: {store.where} has no job of this workload with seed {job.seed} on "
        f"{job.target}, device {job.device}; a new one begins"
    )
    others = store.others(workload_key)
    if others:
        listed = "".join(
            f"\n  job {o.id}: seed {o.seed}, {o.target}, device {o.device}, {o.trials_done} trials"
            for o in others
        )
        text += f"; those it has:{listed}"
    return text
