"""A store with jobs of every kind, tuned on a pool that only pretends to measure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import autosched as at
from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from measure.devices import Device, this_device
from measure.replay import ReplayPool
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing
from records import Record, Store, Workload, new_job_id

HOSTILE = "<script>alert('x')</script>&\"<b>"
"""Text that must only ever be shown."""
TRIALS = 40
MANY = 6_000
"""Trials of the long job: more than a plot shows."""


@dataclass(frozen=True)
class Jobs:
    """The jobs of the store, by what they are good for."""

    tuned: str
    queued: str
    failed: str
    long: str


def answer(func: PrimFunc) -> MeasureResult:
    """A time, or a failure, that depends on the program alone."""
    name = program_hash(func)
    draw = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32
    if draw > 0.9:
        error = f"the build stopped: {HOSTILE}"
        return MeasureResult(Status.BUILD_ERROR, error, program_hash=name)
    if draw > 0.8:
        return MeasureResult(Status.RUN_TIMEOUT, "longer than 2 s", program_hash=name)
    seconds = 1e-4 * (1 + 3 * draw)
    return MeasureResult(
        Status.OK,
        timing=Timing(seconds, seconds, spread=seconds / 50, noise=0.01, runs=12),
        program_hash=name,
    )


def workload() -> Workload:
    """One that nobody measures."""
    return Workload(key="w", name="matmul", args=[8, 8, 8], script="def main(): ...", flop=1024.0)


def fill(path: Path) -> Jobs:
    """Makes the store."""
    task = at.SearchTask(func="matmul", args=(64, 64, 64))
    device: Device = this_device()
    task.tune(
        at.TuningOptions(
            num_measure_trials=TRIALS,
            num_measures_per_round=8,
            pool=ReplayPool(device, answer),
            measure_callbacks=[at.RecordToStore(str(path))],
            seed=1,
            verbose=0,
        )
    )
    with Store(path) as store:
        (tuned,) = store.jobs().jobs
        first = next(r for r in store.records(job_id=tuned.id) if r.kind == "trial")
        store.put_workload(replace(store.workload(tuned.workload_key), key="0" * 24, name=HOSTILE,
                                   args=None, script="hostile"))  # fmt: skip
        queued = store.create_job("0" * 24, tuned.target, seed=1, trials_requested=8)
        failed = store.create_job(tuned.workload_key, tuned.target, seed=2, trials_requested=8)
        store.update_job(failed.id, state="failed", error=f"the process died: {HOSTILE}")
        long = _long_job(store, first)
    return Jobs(tuned.id, queued.id, failed.id, long)


def _long_job(store: Store, like: Record) -> str:
    """A job of `MANY` trials, every tenth of which failed; they get faster, slowly."""
    job = store.create_job(
        like.workload_key, like.target, seed=3, trials_requested=MANY, state="succeeded",
        device=like.device, job_id=new_job_id(),
    )  # fmt: skip
    for start in range(0, MANY, 1000):
        rows = []
        for n in range(start, start + 1000):
            at_time = {"created_at": like.created_at + timedelta(seconds=n / 10)}
            made = replace(like, job_id=job.id, round=n // 50, slot=n % 50, id=0, **at_time)
            if n % 10 == 9:
                status = "out_of_memory" if n == 2009 else "runtime_error"
                rows.append(
                    replace(made, status=status, seconds=None, spread=None, error=f"trial {n}")
                )
            else:
                rows.append(replace(made, seconds=1e-3 * (2 - n / MANY) * (1 + n * 7 % 13 / 20)))
        store.add_records(rows)
    return job.id
