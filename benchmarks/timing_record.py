"""Records timed calls of candidates, for `timing_replay.py`.

    python benchmarks/timing_record.py [--out benchmarks/timing_records.npz]
        [--condition as-is busy memory] [--workloads "softmax 512 512" ...] [--threads 1 2]

Candidates of each workload are drawn at random and the fastest kept. Then all of them get one
stretch of calls in every round, interleaved, with the arguments in another buffer placement each
round. Of each sample the file holds how long a call took, what share of it the threads waited for a
core, the clock probe and the interference probe. A record is labelled with the condition that this
script made (`busy`: a process works 5 of every 10 ms; `memory`: a process copies 64 MB arrays) and
with the load average, since other work on the machine is nothing that it can choose.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from interference_probe import barrier_seconds, cycles
from peer_client import ROOT
from tuning_speed import busy_core

import autosched as at
from measure.local.pool import LocalPool
from measure.local.runner import JobSpec, Probes, _runner
from measure.local.slot import LocalRunner
from measure.machine.protocol import Code
from measure.process.protocol import Request

WORKLOADS = (
    "softmax 512 512",
    "batch_matmul 1 128 128 128",
    "layer_norm 512 768",
    "conv2d 14 14 256 256 3 1 2 2",
)
DRAWN, KEPT, ROUNDS, SAMPLES = 64, 20, 16, 8
SAMPLE_SECONDS = 0.2e-3
RECORDS = ROOT / "benchmarks" / "timing_records.npz"
COLUMNS = ("seconds", "waited", "clock", "cycles")
"""Of a sample: seconds a call, share of them without a core, seconds of the clock probe, cycles of
the interference probe."""


Stretch = tuple[float, float, tuple[tuple[float, float, float, float], ...]]
"""Consecutive samples of one candidate, behind the seconds of the call before them, which found
other data in the caches, and those of a barrier between the threads, 0 on one thread. Replies of a
child are built of plain values and our own classes only."""


@dataclass(frozen=True)
class TakeStretch(Request[Stretch]):
    """In the runner child: `SAMPLES` samples of `number` calls."""

    job: JobSpec
    artifact: Code
    probes: Probes
    number: int
    place: int

    def answer(self, fds: Sequence[int]) -> Stretch:
        runner, threads = _runner(self.job.where), self.probes.threads_of(self.artifact)
        kernel = runner.kernel(self.artifact, self.job, fds[0], self.place)
        runner.arguments(self.job, fds[0]).fill()
        clock = runner.clock(self.probes, threads)
        runner.threads.follow()
        first = kernel.call()
        rows = []
        for _ in range(SAMPLES):
            before = runner.threads.waited()
            seconds = kernel.call(self.number)
            share = (runner.threads.waited() - before) / seconds
            rows.append((seconds / self.number, share, clock(), cycles(threads)))
        return first, barrier_seconds(threads, 1) if threads > 1 else 0.0, tuple(rows)


@contextmanager
def memory_traffic() -> Iterator[None]:
    """A process that copies arrays larger than any cache."""
    process = multiprocessing.Process(target=_copy, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _copy() -> None:
    a, b = np.zeros((2, 8 << 20))
    while True:
        np.copyto(b, a)


@contextmanager
def nothing() -> Iterator[None]:
    """The machine as it is."""
    yield


CONDITIONS: dict[str, Callable[[], Any]] = {
    "as-is": nothing, "busy": busy_core, "memory": memory_traffic,
}  # fmt: skip


def record(pool: LocalPool, job: Any, code: Sequence[Code], times: Sequence[float]) -> Any:
    """Rounds over all candidates: samples (rounds, candidates, SAMPLES, COLUMNS), first calls,
    barriers, and the seconds that a stretch took beyond its calls, its median."""
    slot, beyond = pool._slot, []
    samples = np.zeros((ROUNDS, len(code), SAMPLES, len(COLUMNS)), np.float32)
    first, barrier = np.zeros((2, ROUNDS, len(code)), np.float32)
    for n in range(ROUNDS):
        for k, (artifact, seconds) in enumerate(zip(code, times, strict=True)):
            number = max(1, math.ceil(SAMPLE_SECONDS / seconds))
            place = n % job.spec.places
            request = TakeStretch(job.spec, artifact, slot.probes(), number, place)
            began = time.perf_counter()
            outcome, waited = slot._call(job, request, 60.0)
            if outcome.value is None:
                raise SystemExit(f"candidate {k} in round {n}: {outcome.kind}: {outcome.text}")
            first[n, k], barrier[n, k], samples[n, k] = outcome.value
            spent = samples[n, k, :, 0].sum() * number + 3 * samples[n, k, :, 2].sum()
            beyond.append(time.perf_counter() - began - waited - spent - first[n, k])
    return samples, first, barrier, float(np.median(beyond))


def main() -> None:
    """Record everything into one file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--condition", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    heads, arrays = [], {}
    for workload in options.workloads:
        for threads in options.threads:
            for head, found in of_workload(workload, threads, options.condition):
                name = f"r{len(heads)}"
                heads.append(head)
                for part, values in zip(("samples", "first", "barrier"), found, strict=True):
                    arrays[f"{name}_{part}"] = values
                print(json.dumps(head), flush=True)
        np.savez_compressed(options.out, heads=np.array(json.dumps(heads)), **arrays)


def of_workload(workload: str, threads: int, conditions: Sequence[str]) -> Iterator[Any]:
    """The records of one workload under each condition, of the same candidates."""
    name, *sizes = workload.split()
    task = at.SearchTask(name, tuple(map(int, sizes)), target=f"llvm -num-cores={threads}")
    drawn = task.space.sample(np.random.default_rng(0), DRAWN)
    traces = [task.space.trace(*task.space.candidate(drawn, n)) for n in range(DRAWN)]
    with LocalPool(task.target, runner=LocalRunner()) as pool:
        job = pool.open_job(task.prim_func, seed=0)
        found = pool.measure(job, traces)
        ranked = sorted((r.seconds, n) for n, r in enumerate(found) if r.seconds is not None)
        kept = [n for _, n in ranked[:KEPT]]
        code = [reply.artifact for reply in pool.build(job, [traces[n] for n in kept])]
        for condition in conditions:
            before = os.getloadavg()[0]
            with CONDITIONS[condition]():
                *values, beyond = record(pool, job, code, [s for s, _ in ranked[:KEPT]])
            yield (
                {
                    "workload": workload,
                    "threads": threads,
                    "condition": condition,
                    "load_average": [before, os.getloadavg()[0]],
                    "places": job.spec.places,
                    "stretch_seconds": beyond,
                    "alone_cycles": float(np.quantile(values[0][..., 3], 0.1)),
                    "build_seconds": sum(r.build_seconds for r in found) / len(found),
                    "device": asdict(pool.device),
                    "unix_time": time.time(),
                },
                values,
            )


if __name__ == "__main__":
    # Children import this module by its name, not as the script that runs.
    import timing_record

    timing_record.main()
